//! The outline of a file: its mesh, dims, phases and layers, with the parameters and values of each
//! layer.

use lsp_types::{DocumentSymbol, SymbolKind};
use shard_grammar::ast::{HardwareRef, Item, Layer, LetTarget, Name, Statement};
use shard_grammar::{Span, print_type};

use super::document::Document;
use super::position::range_of;

/// The items of a file in its order.
pub(crate) fn outline(document: &Document) -> Vec<DocumentSymbol> {
    document.tree.items.iter().map(|item| of_item(document, item)).collect()
}

fn of_item(document: &Document, item: &Item) -> DocumentSymbol {
    match item {
        Item::Hardware(hardware) => {
            let (name, span) = match &hardware.chip {
                HardwareRef::BuiltIn(name) => (&name.value, name.span),
                HardwareRef::Path(path) => (&path.value, path.span),
            };
            symbol(document, SymbolKind::PROPERTY, hardware.span, span, name, "hardware")
        }
        Item::Mesh(mesh) => {
            let axes: Vec<DocumentSymbol> = mesh
                .axes
                .iter()
                .map(|axis| {
                    let detail = axis.size.value.to_string();
                    symbol(
                        document,
                        SymbolKind::ENUM_MEMBER,
                        axis.span,
                        axis.name.span,
                        &axis.name.value,
                        &detail,
                    )
                })
                .collect();
            let devices = mesh.axes.iter().fold(1u64, |n, axis| n.saturating_mul(axis.size.value));
            let word = Span::new(mesh.span.start, mesh.span.start + "mesh".len());
            let detail = format!("{devices} devices");
            let mesh = symbol(document, SymbolKind::ENUM, mesh.span, word, "mesh", &detail);
            DocumentSymbol { children: Some(axes), ..mesh }
        }
        Item::Dim(dim) => {
            let detail = document.file.slice(dim.value.span);
            named(document, SymbolKind::CONSTANT, dim.span, &dim.name, &format!("= {detail}"))
        }
        Item::Phase(phase) => named(document, SymbolKind::EVENT, phase.span, &phase.name, "phase"),
        Item::Layer(layer) => of_layer(document, layer),
    }
}

fn of_layer(document: &Document, layer: &Layer) -> DocumentSymbol {
    let (kind, word) = if layer.model.is_some() {
        (SymbolKind::MODULE, "model")
    } else {
        (SymbolKind::FUNCTION, "layer")
    };
    let mut inside: Vec<DocumentSymbol> = Vec::new();
    for param in &layer.params {
        inside.push(named(
            document,
            SymbolKind::FIELD,
            param.span,
            &param.name,
            &print_type(&param.ty),
        ));
    }
    for statement in &layer.body {
        let Statement::Let(statement) = statement else { continue };
        match &statement.target {
            LetTarget::One { name, ty } => {
                let detail = ty.as_ref().map(print_type).unwrap_or_default();
                inside.push(named(document, SymbolKind::VARIABLE, statement.span, name, &detail));
            }
            LetTarget::Many { names, .. } => {
                inside.extend(
                    names
                        .iter()
                        .map(|n| named(document, SymbolKind::VARIABLE, statement.span, n, "")),
                );
            }
        }
    }
    let strict = if layer.strict.is_some() { "strict " } else { "" };
    let layer = named(document, kind, layer.span, &layer.name, &format!("{strict}{word}"));
    DocumentSymbol { children: Some(inside), ..layer }
}

fn named(
    document: &Document,
    kind: SymbolKind,
    span: Span,
    name: &Name,
    detail: &str,
) -> DocumentSymbol {
    symbol(document, kind, span, name.span, &name.value, detail)
}

/// An entry for the text `whole`; an editor goes to `selected` when the entry is chosen.
fn symbol(
    document: &Document,
    kind: SymbolKind,
    whole: Span,
    selected: Span,
    name: &str,
    detail: &str,
) -> DocumentSymbol {
    #[allow(deprecated)] // a field of the protocol that cannot be left out
    DocumentSymbol {
        name: name.to_string(),
        detail: (!detail.is_empty()).then(|| detail.to_string()),
        kind,
        tags: None,
        deprecated: None,
        range: range_of(&document.file, whole),
        selection_range: range_of(&document.file, selected),
        children: None,
    }
}
