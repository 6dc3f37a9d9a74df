//! `repeat M + N`: a stack of several kinds of layers. Such a layer is checked like any other. Then
//! its program is replaced by that of a model that calls it once, in which each kind is a folded
//! block with layouts of its own.

use shard_grammar::ast;

/// The number of applications of each kind; a layer that is not stacked has one application of one
/// kind.
pub(crate) fn kinds(layer: &ast::Layer) -> Vec<u64> {
    let repeat = layer.repeat.as_ref();
    repeat.map_or(vec![1], |repeat| repeat.kinds.iter().map(|count| count.value).collect())
}

/// The model of a stack of several kinds; `None` for any other layer. The model takes the
/// activations of the layer and returns the value that the last kind hands on. A label is one
/// layout within each kind, so that the model's own types have no labels.
pub(crate) fn model_of(layer: &ast::Layer) -> Option<ast::Layer> {
    let repeat = layer.repeat.as_ref().filter(|r| r.kinds.len() > 1 && layer.model.is_none())?;
    let params: Vec<ast::Param> = layer
        .params
        .iter()
        .filter(|param| param.ty.kind.is_none())
        .map(|param| ast::Param { ty: without_label(&param.ty), ..param.clone() })
        .collect();
    let results = match &layer.results {
        ast::Results::One(ty) => ast::Results::One(without_label(ty)),
        ast::Results::Named { span, results } => ast::Results::Named {
            span: *span,
            results: results
                .first()
                .map(|first| ast::NamedResult { ty: without_label(&first.ty), ..first.clone() })
                .into_iter()
                .collect(),
        },
    };
    let named = |param: &ast::Param| ast::Expr {
        span: param.name.span,
        kind: ast::ExprKind::Name(param.name.value.clone()),
    };
    let callee = ast::Name { span: repeat.span, ..layer.name.clone() };
    let call = ast::ExprKind::Call { callee, args: params.iter().map(named).collect() };
    let value = ast::ReturnValue::One(ast::Expr { span: repeat.span, kind: call });
    let returned = ast::Statement::Return(ast::Return { span: repeat.span, value });
    Some(ast::Layer {
        model: Some(layer.name.span),
        params,
        results,
        repeat: None,
        body: vec![returned],
        ..layer.clone()
    })
}

fn without_label(ty: &ast::Type) -> ast::Type {
    let free = ty.layout.free.as_ref().map(|mark| ast::FreeMark { label: None, ..mark.clone() });
    ast::Type { layout: ast::LayoutWord { free, ..ty.layout.clone() }, ..ty.clone() }
}
