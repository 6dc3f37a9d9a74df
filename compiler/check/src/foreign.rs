//! What other languages write, said with the dims of the program: `a @ b` and `matmul(a, b)` as
//! einsums.

use shard_grammar::{SyntaxError, SyntaxErrorKind, ast, print_expr, written_here};
use shard_ir::ValueId;

use crate::layer::LayerChecker;

impl LayerChecker<'_, '_> {
    /// What a call of another language's function is written as.
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
        written_here(name).map(str::to_string)
    }
}

/// `a @ b` as an einsum, where the dims of both are stated: by parameters, or by annotations of the
/// layer that it is in.
pub(crate) fn product_of_names(tree: &ast::File, error: &SyntaxError) -> Option<String> {
    let SyntaxErrorKind::NoSuchOperator { sign, operands: Some(operands) } = &error.kind else {
        return None;
    };
    let (left, right) = operands.as_ref();
    let layer = tree
        .layers()
        .find(|l| l.body_span.start < error.span.start && error.span.end < l.body_span.end)?;
    let dims = |name: &str| -> Option<Vec<String>> {
        let params = layer.params.iter().map(|param| (&param.name.value, &param.ty));
        let lets = layer.body.iter().filter_map(|statement| match statement {
            ast::Statement::Let(ast::Let {
                target: ast::LetTarget::One { name, ty: Some(ty), .. },
                ..
            }) => Some((&name.value, ty)),
            ast::Statement::Let(_) | ast::Statement::Expect(_) | ast::Statement::Return(_) => None,
        });
        let (_, ty) = params.chain(lets).rfind(|(known, _)| *known == name)?;
        Some(ty.layout.dims.iter().map(|dim| dim.name.value.clone()).collect())
    };
    let product = product(&dims(left)?, &dims(right)?).filter(|_| sign == "@")?;
    Some(format!("einsum({left}, {right} -> {})", listed(&product)))
}

/// The dims of a product of matrices: the last dim of the left one is summed over where the right
/// one has it, else all that they share.
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
    let short = |name: &String| name.chars().skip(1).all(|c| c.is_ascii_digit());
    if !dims.is_empty() && dims.iter().all(short) {
        dims.concat()
    } else {
        format!("[{}]", dims.join(", "))
    }
}
