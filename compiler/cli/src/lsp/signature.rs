//! Signature help: the operands and slots of an op, from its row of the catalogue, or the
//! parameters of a layer, and which of them the cursor is in.

use lsp_types::{
    Documentation, MarkupContent, MarkupKind, ParameterInformation, ParameterLabel, SignatureHelp,
    SignatureInformation,
};
use shard_grammar::print_type;
use shard_ir::catalogue::{Code, Lead};

use super::document::Document;

/// A signature that is being written: its text, and the place of each part in it, in UTF-16 units
/// as the protocol counts.
#[derive(Default)]
struct Signature {
    label: String,
    parts: Vec<([u32; 2], Option<Lead>)>,
}

impl Signature {
    fn text(&mut self, text: &str) {
        self.label.push_str(text);
    }

    fn part(&mut self, text: &str, lead: Option<Lead>) {
        let start = self.length();
        self.text(text);
        self.parts.push(([start, self.length()], lead));
    }

    fn length(&self) -> u32 {
        self.label.encode_utf16().count() as u32
    }

    /// The help; the active part is the one that `leads` lead to.
    fn help(self, says: &str, leads: &[Lead]) -> SignatureHelp {
        let mut active = 0;
        for lead in leads {
            let behind = self.parts.iter().enumerate().skip(active + 1);
            active = behind
                .into_iter()
                .find(|(_, (_, known))| *known == Some(*lead))
                .map_or(active, |(i, _)| i);
        }
        let parameters = self.parts.iter().map(|(place, _)| ParameterInformation {
            label: ParameterLabel::LabelOffsets(*place),
            documentation: None,
        });
        let value = says.to_string();
        let information = SignatureInformation {
            parameters: Some(parameters.collect()),
            label: self.label,
            documentation: Some(Documentation::MarkupContent(MarkupContent {
                kind: MarkupKind::Markdown,
                value,
            })),
            active_parameter: Some(active as u32),
        };
        SignatureHelp {
            signatures: vec![information],
            active_signature: Some(0),
            active_parameter: Some(active as u32),
        }
    }
}

/// The signature help at a byte, if it is within the parentheses of an op or a call.
pub(crate) fn help(document: &Document, at: usize) -> Option<SignatureHelp> {
    let before = document.file.text.get(..at)?;
    let open = open_parenthesis(before)?;
    let head = &before[..open];
    let word =
        &head[head.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len()..];
    let leads = leads(&before[open + 1..]);
    let mut signature = Signature::default();
    if let Some(code) = Code::of_source(word) {
        let row = code.row();
        signature.text(&format!("{word}("));
        for part in row.parts() {
            signature.text(&part.before);
            signature.part(part.name, part.lead);
            signature.text(part.after);
        }
        signature.text(")");
        return Some(signature.help(row.says, &leads));
    }
    let layer = document
        .tree
        .layers()
        .find(|layer| layer.name.value == word && !layer.params_span.contains(at))?;
    signature.text(&format!("{word}("));
    for (i, param) in layer.params.iter().enumerate() {
        signature.text(if i == 0 { "" } else { ", " });
        signature.part(
            &format!("{}: {}", param.name.value, print_type(&param.ty)),
            (i > 0).then_some(Lead::Comma),
        );
    }
    signature.text(")");
    Some(signature.help(&layer.docs.join("\n"), &leads))
}

/// The last parenthesis that is still open at the end of a text. The brace of a body ends the
/// search: a call does not cross it.
fn open_parenthesis(text: &str) -> Option<usize> {
    let mut closed = 0;
    let lines =
        text.split_inclusive('\n').map(|line| (line, line.split("//").next().unwrap_or(line)));
    let mut at = text.len();
    for (line, code) in lines.rev() {
        at -= line.len();
        for (place, sign) in code.char_indices().rev() {
            match sign {
                ')' => closed += 1,
                '(' if closed == 0 => return Some(at + place),
                '(' => closed -= 1,
                // Braces around axes, `E_{data,y}`, are none of a body.
                '{' if closed == 0 && !code[..place].ends_with(['_', '-']) => return None,
                '}' if closed == 0 && code[..place].trim().is_empty() => return None,
                _ => {}
            }
        }
    }
    None
}

/// The signs and words that lead from one part to the next, outside of inner parentheses, brackets
/// and braces.
fn leads(inside: &str) -> Vec<Lead> {
    let mut found = Vec::new();
    let mut depth = 0;
    let code: String = inside
        .lines()
        .map(|line| line.split("//").next().unwrap_or(line))
        .collect::<Vec<_>>()
        .join(" ");
    let mut rest = code.as_str();
    while let Some(sign) = rest.chars().next() {
        let word =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if word > 0 {
            match &rest[..word] {
                "over" if depth == 0 => found.push(Lead::Over),
                "at" if depth == 0 => found.push(Lead::At),
                _ => {}
            }
            rest = &rest[word..];
            continue;
        }
        match sign {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => found.push(Lead::Comma),
            '-' if depth == 0 && rest.starts_with("->") => found.push(Lead::Arrow),
            _ => {}
        }
        rest = &rest[sign.len_utf8()..];
    }
    found
}
