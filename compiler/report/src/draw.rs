//! Diagnostics as a person reads them: the sentence, the places in the source as ariadne draws
//! them, the reasons, and what can be typed to mend it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ariadne::{Color, Config, IndexType, Label, Report, ReportKind, Source};
use shard_check::{Diagnostic, Severity};
use shard_grammar::{SourceFile, Span};

use crate::printable::{Pictured, escaped_name};

/// Draws diagnostics of one file one after another, an empty line between two. Those that differ
/// in their places alone are drawn once, with the lines and columns of the others.
pub fn diagnostics(list: &[Diagnostic], file: &SourceFile, colour: bool) -> String {
    let seen = Pictured::new(file);
    let drawing = DrawnFile::new(file, &seen, colour);
    let mut alike: Vec<(&Diagnostic, Vec<Span>)> = Vec::new();
    let mut known: HashMap<Words<'_>, usize> = HashMap::new();
    for diagnostic in list {
        match (known.entry(Words::of(diagnostic)), diagnostic.primary_span()) {
            (Entry::Occupied(first), Some(span)) => alike[*first.get()].1.push(span),
            (Entry::Occupied(_), None) => alike.push((diagnostic, Vec::new())),
            (Entry::Vacant(entry), _) => {
                entry.insert(alike.len());
                alike.push((diagnostic, Vec::new()));
            }
        }
    }
    let text = |(first, others): &(&Diagnostic, Vec<Span>)| drawing.text(first, others);
    alike.iter().map(text).collect::<Vec<String>>().join("\n")
}

/// All that a diagnostic says, but for where it is.
#[derive(PartialEq, Eq, Hash)]
struct Words<'a> {
    code: &'a str,
    severity: Severity,
    message: &'a str,
    /// The text of each label, and the place of labels that are not primary.
    labels: Vec<(&'a str, Option<Span>)>,
    notes: &'a [String],
    helps: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn of(diagnostic: &'a Diagnostic) -> Words<'a> {
        let label = |label: &'a shard_check::Label| {
            (label.text.as_str(), (!label.primary).then_some(label.span))
        };
        Words {
            code: diagnostic.code,
            severity: diagnostic.severity,
            message: &diagnostic.message,
            labels: diagnostic.labels.iter().map(label).collect(),
            notes: &diagnostic.notes,
            helps: diagnostic.helps.iter().map(|help| help.text.as_str()).collect(),
        }
    }
}

/// Draws one diagnostic.
///
/// ```
/// use shard_check::{CheckOptions, check_source};
/// use shard_grammar::SourceFile;
/// let file = SourceFile::new("t.shard", "mesh x=0\n");
/// let checked = check_source(&file, &CheckOptions::default());
/// let text = shard_report::draw::diagnostic(&checked.diagnostics[0], &file, false);
/// assert!(text.starts_with("error[E0206]: mesh axis `x` has size 0"));
/// ```
pub fn diagnostic(diagnostic: &Diagnostic, file: &SourceFile, colour: bool) -> String {
    DrawnFile::new(file, &Pictured::new(file), colour).text(diagnostic, &[])
}

/// Places of a file, drawn without a sentence above them.
pub fn snippet(file: &SourceFile, labels: &[shard_check::Label], colour: bool) -> String {
    let drawn = Diagnostic {
        code: "",
        severity: Severity::Note,
        message: String::new(),
        labels: labels.to_vec(),
        notes: Vec::new(),
        helps: Vec::new(),
    };
    DrawnFile::new(file, &Pictured::new(file), colour).places(&drawn)
}

/// A file of which places are drawn.
struct DrawnFile<'a> {
    file: &'a SourceFile,
    /// The file as a terminal may show it: its text is what is drawn.
    seen: &'a Pictured,
    source: Source<&'a str>,
    colour: bool,
}

impl<'a> DrawnFile<'a> {
    fn new(file: &'a SourceFile, seen: &'a Pictured, colour: bool) -> DrawnFile<'a> {
        DrawnFile { file, seen, source: Source::from(seen.file.text.as_str()), colour }
    }

    /// A diagnostic, and where else the same is so.
    fn text(&self, diagnostic: &Diagnostic, others: &[Span]) -> String {
        let main = colour_of(diagnostic.severity);
        // What is wrong on the command line or with IR text has no code.
        let kind = match diagnostic.code {
            "" => diagnostic.severity.word().to_string(),
            code => format!("{}[{code}]", diagnostic.severity.word()),
        };
        let mut out =
            format!("{}: {}\n", self.paint(&kind, main), escaped_name(&diagnostic.message));
        if diagnostic.primary_span().is_some() {
            out.push_str(&self.places(diagnostic));
        }
        if !others.is_empty() {
            let place = |span: &Span| {
                let at = self.file.line_column(span.start);
                format!("{}:{}", at.line, at.column)
            };
            let places: Vec<String> = others.iter().map(place).collect();
            let lines: Vec<String> = places.chunks(12).map(|line| line.join(", ")).collect();
            out.push_str(&format!(
                "  {}: the same at {}\n",
                self.paint("note", NOTE),
                lines.join(",\n        ")
            ));
        }
        for note in &diagnostic.notes {
            out.push_str(&format!("  {}: {note}\n", self.paint("note", NOTE)));
        }
        for help in &diagnostic.helps {
            out.push_str(&format!("  {}: {}\n", self.paint("help", HELP), help.text));
        }
        out
    }

    /// The places, drawn by ariadne; its own first line is left out.
    fn places(&self, diagnostic: &Diagnostic) -> String {
        let name = self.seen.file.name.as_str();
        let at = diagnostic.primary_span().map_or(0..0, |span| self.clamped(span));
        let config = Config::default().with_color(self.colour).with_index_type(IndexType::Byte);
        let mut report = Report::build(ReportKind::Error, (name, at)).with_config(config);
        let mut labels: Vec<_> = diagnostic.labels.iter().collect();
        labels.sort_by_key(|label| label.span);
        for (order, label) in labels.into_iter().enumerate() {
            let colour = if label.primary { colour_of(diagnostic.severity) } else { ELSEWHERE };
            report = report.with_label(
                Label::new((name, self.clamped(label.span)))
                    .with_message(escaped_name(&label.text))
                    .with_color(colour)
                    .with_order(order as i32),
            );
        }
        let mut drawn = Vec::new();
        // Writing to memory does not fail; if it should, the sentence and the helps still stand.
        if report.finish().write((name, &self.source), &mut drawn).is_err() {
            return String::new();
        }
        let drawn = String::from_utf8_lossy(&drawn);
        let lines: Vec<&str> = drawn.lines().skip(1).map(str::trim_end).collect();
        let mut text = lines.join("\n");
        text.push('\n');
        text
    }

    /// A span as ariadne takes it: within the text, on character boundaries, and at least a
    /// character long where there is one to point at.
    fn clamped(&self, span: Span) -> std::ops::Range<usize> {
        let text = &self.file.text;
        let down = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (mut start, mut end) = (down(span.start), down(span.end));
        if start == end {
            match text[start..].chars().next().filter(|c| *c != '\n') {
                Some(next) => end += next.len_utf8(),
                None => {
                    start =
                        text[..start].chars().next_back().map_or(0, |last| start - last.len_utf8())
                }
            }
        }
        let Span { start, end } = self.seen.span(Span::new(start, end));
        start..end
    }

    fn paint(&self, text: &str, colour: Color) -> String {
        use ariadne::Fmt;
        if self.colour { text.fg(colour).to_string() } else { text.to_string() }
    }
}

const NOTE: Color = Color::Fixed(115);
const HELP: Color = Color::Fixed(81);
const ELSEWHERE: Color = Color::Fixed(147);

fn colour_of(severity: Severity) -> Color {
    match severity {
        Severity::Error => Color::Red,
        Severity::Warning => Color::Yellow,
        Severity::Note => Color::Fixed(147),
    }
}

#[cfg(test)]
mod tests {
    use shard_check::{CheckOptions, check_source};
    use shard_grammar::SourceFile;

    fn drawn(text: &str, colour: bool) -> String {
        let file = SourceFile::new("t.shard", text);
        let checked = check_source(&file, &CheckOptions::default());
        super::diagnostics(&checked.diagnostics, &file, colour)
    }

    #[test]
    fn without_colour_there_is_no_escape_and_no_trailing_blank() {
        let text = drawn("mesh x=4\ndim B = 6\nlayer f(a: f32 B_x) -> f32 B { return b }", false);
        assert!(!text.contains('\u{1b}'));
        assert!(text.lines().all(|line| line.trim_end() == line));
        assert!(text.contains("error[E0205]"));
    }

    #[test]
    fn what_is_said_at_several_places_is_drawn_once_with_all_places() {
        let text = drawn(
            "mesh x=4\ndim B = 6\nlayer f(a: f32 B_x, b: f32 B) -> f32 B_x { return a }",
            false,
        );
        assert_eq!(text.matches("error[E0205]").count(), 1, "{text}");
        assert!(text.contains("  note: the same at 3:38\n"), "{text}");
    }

    #[test]
    fn with_colour_there_are_escapes() {
        assert!(drawn("mesh x=0", true).contains('\u{1b}'));
    }

    #[test]
    fn a_problem_at_the_end_of_an_empty_file_is_drawn() {
        assert!(drawn("layer", false).contains("error["));
        assert!(drawn("//! αβγ\nlayer", false).contains("error["));
    }
}
