//! Helps for expressions of other languages, in the dims of the program: `a @ b` and `matmul(a, b)`
//! as einsums.

use shard_grammar::{
    ANY_DIM, SourceFile, SyntaxError, SyntaxErrorKind, ast, parse, print_expr, written_here,
};
use shard_ir::ValueId;
use shard_ir::op::Code;

use crate::layer::LayerChecker;

impl LayerChecker<'_, '_> {
    /// How a call is written in this language, if it calls a function of another language, or an op
    /// of this language as if it were a layer.
    pub(crate) fn written_here(
        &self,
        name: &str,
        args: &[ast::Expr],
        values: &[Option<ValueId>],
    ) -> Option<String> {
        const PRODUCTS: [&str; 5] = ["matmul", "dot", "bmm", "mm", "linear"];
        if let (true, [a, b], &[Some(left), Some(right)]) = (PRODUCTS.contains(&name), args, values)
        {
            let dims = |value: ValueId| -> Vec<String> {
                self.builder
                    .value(value)
                    .dims
                    .iter()
                    .map(|d| self.env.dim_name(*d).to_string())
                    .collect()
            };
            if let Some(product) = product(&dims(left), &dims(right)) {
                return Some(format!(
                    "einsum({}, {} -> {})",
                    print_expr(a),
                    print_expr(b),
                    listed(&product)
                ));
            }
        }
        if let (Some(&Some(moved)), [a, rest @ ..]) = (values.first(), args)
            && moves(name)
        {
            return Some(self.moved(name, a, moved, rest));
        }
        let signature = || Code::of_source(name).map(|op| op.row().signature());
        written_here(name).map(str::to_string).or_else(signature)
    }

    /// A collective of another language as a `reshard` to the layout of its result: whole along the
    /// axis, or split over it.
    fn moved(&self, name: &str, operand: &ast::Expr, value: ValueId, rest: &[ast::Expr]) -> String {
        const WHOLE: [&str; 3] = ["allgather", "allreduce", "psum"];
        let mut dims: Vec<String> = self
            .builder
            .value(value)
            .dims
            .iter()
            .map(|d| self.env.dim_name(*d).to_string())
            .collect();
        let axes: Vec<&str> =
            self.env.mesh.declared().iter().map(|(name, _)| name.as_str()).collect();
        let named = rest.iter().find_map(|arg| match &arg.kind {
            ast::ExprKind::Name(name) => axes.iter().find(|axis| *axis == name),
            _ => None,
        });
        let axis = named.or(axes.first()).filter(|_| !WHOLE.contains(&bare(name).as_str()));
        let is_short = is_compact(&dims);
        if let (Some(last), Some(axis)) = (dims.last_mut(), axis) {
            last.push_str(&if axis.len() == 1 {
                format!("_{axis}")
            } else {
                format!("_{{{axis}}}")
            });
        }
        let layout = if is_short { dims.concat() } else { format!("[{}]", dims.join(", ")) };
        format!(
            "reshard({}, {layout})    (the layout that the value is to have: the collectives \
                follow)",
            print_expr(operand)
        )
    }
}

/// A word without capitals and underscores.
fn bare(word: &str) -> String {
    word.chars().filter(|c| *c != '_').collect::<String>().to_ascii_lowercase()
}

/// Whether a function of another language moves data.
pub(crate) fn moves(function: &str) -> bool {
    written_here(function).is_some_and(|here| here.starts_with("reshard("))
}

/// `a @ b` as an einsum, where the dims of both are stated: by parameters, or by annotations of the
/// layer that it is in.
pub(crate) fn product_of_names(tree: &ast::File, error: &SyntaxError) -> Option<String> {
    let SyntaxErrorKind::NoSuchOperator { sign, operands: Some(operands) } = &error.kind else {
        return None;
    };
    let (left, right) = operands.as_ref();
    let layer = layer_around(tree, error)?;
    let dims = |name: &str| dims_of_name(layer, name, error.span.start);
    let product = product(&dims(left)?, &dims(right)?).filter(|_| sign == "@")?;
    Some(format!("einsum({left}, {right} -> {})", listed(&product)))
}

/// `softmax(a)` with the last dim of its operand, if the text states the dims; else with a
/// placeholder and words that explain it.
pub(crate) fn over_a_dim(tree: &ast::File, error: &SyntaxError) -> Option<String> {
    let SyntaxErrorKind::ReducesOverDims { operand: Some(operand), .. } = &error.kind else {
        return None;
    };
    let help = error.help.as_deref()?;
    let dim = layer_around(tree, error).and_then(|layer| {
        let alone = format!("layer f() -> f32 [] {{ return {operand} }}");
        let alone = parse(&SourceFile::new("operand", alone)).file;
        let statement = alone.layers().next()?.body.first()?;
        let ast::Statement::Return(ast::Return { value: ast::ReturnValue::One(read), .. }) =
            statement
        else {
            return None;
        };
        dims_of(layer, read, error.span.start)?.pop()
    });
    let Some(dim) = dim else {
        return Some(format!("{help}    (a dim that it has, in place of `{ANY_DIM}`)"));
    };
    let before = help.strip_suffix(&format!("over {ANY_DIM})"))?;
    let listed = listed(std::slice::from_ref(&dim));
    Some(format!("{before}over {listed})"))
}

fn layer_around<'a>(tree: &'a ast::File, error: &SyntaxError) -> Option<&'a ast::Layer> {
    tree.layers().find(|l| l.body_span.start < error.span.start && error.span.end < l.body_span.end)
}

/// The dims of a value that is named before a place, as far as the text states them.
fn dims_of_name(layer: &ast::Layer, name: &str, before: usize) -> Option<Vec<String>> {
    let of_type = |ty: &ast::Type| -> Option<Vec<String>> {
        Some(ty.layout.dims.iter().map(|dim| dim.name.value.clone()).collect())
    };
    let stated = layer.body.iter().rev().find_map(|statement| match statement {
        ast::Statement::Let(ast::Let {
            span,
            target: ast::LetTarget::One { name: known, ty },
            value,
            ..
        }) if known.value == name && span.start < before => Some((ty.as_ref(), value, span.start)),
        ast::Statement::Let(_) | ast::Statement::Expect(_) | ast::Statement::Return(_) => None,
    });
    match stated {
        Some((Some(ty), ..)) => of_type(ty),
        Some((None, value, start)) => dims_of(layer, value, start),
        None => of_type(&layer.params.iter().find(|param| param.name.value == name)?.ty),
    }
}

/// The dims of an expression at a place, as far as the text states them.
fn dims_of(layer: &ast::Layer, expr: &ast::Expr, before: usize) -> Option<Vec<String>> {
    let names = |dims: &[ast::Name]| dims.iter().map(|dim| dim.value.clone()).collect();
    // The operand with the most dims has those of the others, or the types do not fit.
    let together = || {
        let all =
            expr.operands().into_iter().filter(|e| !matches!(e.kind, ast::ExprKind::Number(_)));
        let all: Option<Vec<Vec<String>>> = all.map(|e| dims_of(layer, e, before)).collect();
        all?.into_iter().rev().max_by_key(Vec::len)
    };
    match &expr.kind {
        ast::ExprKind::Name(name) => dims_of_name(layer, name, before),
        ast::ExprKind::Einsum { output, .. } => Some(names(&output.dims)),
        ast::ExprKind::Reshard { layout, .. } => {
            Some(layout.dims.iter().map(|dim| dim.name.value.clone()).collect())
        }
        ast::ExprKind::Form { arguments, .. } if arguments.is_empty() => together(),
        ast::ExprKind::Paren(_) | ast::ExprKind::Neg { .. } | ast::ExprKind::Binary { .. } => {
            together()
        }
        ast::ExprKind::Number(_)
        | ast::ExprKind::Call { .. }
        | ast::ExprKind::Named { .. }
        | ast::ExprKind::Form { .. } => None,
    }
}

/// The dims of a product of matrices. The last dim of the left matrix is summed over, if the right
/// matrix has it; else all dims that both have.
fn product(left: &[String], right: &[String]) -> Option<Vec<String>> {
    let last = left.last()?;
    let summed: Vec<&String> = if right.contains(last) {
        vec![last]
    } else {
        left.iter().filter(|dim| right.contains(dim)).collect()
    };
    if summed.is_empty() {
        return None;
    }
    let all = left.iter().chain(right.iter().filter(|dim| !left.contains(dim)));
    Some(all.filter(|dim| !summed.contains(dim)).cloned().collect())
}

/// `BLF`, `[Batch, Seq]`.
fn listed(dims: &[String]) -> String {
    if is_compact(dims) { dims.concat() } else { format!("[{}]", dims.join(", ")) }
}

fn is_compact(dims: &[String]) -> bool {
    let short = |name: &String| name.chars().skip(1).all(|c| c.is_ascii_digit());
    !dims.is_empty() && dims.iter().all(short)
}
