//! What the tree of a text is.

use shard_grammar::ast::*;
use shard_grammar::{
    SourceFile, Span, parse, parse_dim_override, parse_mesh_axes, print_expr, print_int_expr,
    print_type,
};

/// The expression of `let v = ...`.
fn expr(text: &str) -> Expr {
    let source =
        SourceFile::new("t", format!("layer f(a: f32 A) -> f32 A {{ let v = {text} return a }}"));
    let parsed = parse(&source);
    assert_eq!(parsed.errors, [], "{text}");
    match parsed.file.layers().next().map(|layer| &layer.body[0]) {
        Some(Statement::Let(statement)) => statement.value.clone(),
        other => panic!("{other:?}"),
    }
}

/// The expression with parentheses around each operation.
fn grouped(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Binary { op, left, right, .. } => {
            format!("({} {} {})", grouped(left), op.sign(), grouped(right))
        }
        ExprKind::Neg { operand, .. } => format!("(-{})", grouped(operand)),
        ExprKind::Paren(inner) => grouped(inner),
        _ => print_expr(expr),
    }
}

#[test]
fn products_bind_before_sums_and_both_to_the_left() {
    for (text, tree) in [
        ("a - b - c", "((a - b) - c)"),
        ("a + b * c / d", "(a + ((b * c) / d))"),
        ("-a * -b", "((-a) * (-b))"),
        ("a - (b - c)", "(a - (b - c))"),
        ("a\n-c", "(a - c)"),
        ("2 * gelu(a) + 1.5e-3", "((2 * gelu(a)) + 1.5e-3)"),
    ] {
        assert_eq!(grouped(&expr(text)), tree);
    }
}

#[test]
fn ops_that_came_later_leave_their_words_to_names() {
    let is_form = |text: &str| matches!(expr(text).kind, ExprKind::Form { .. });
    assert!(is_form("shift(a over L, 1)") && is_form("softplus(a)"));
    assert!(matches!(expr("shift").kind, ExprKind::Name(_)));
    assert!(matches!(expr("shift(a, b)").kind, ExprKind::Call { .. }));
    let layer = "layer softplus(shift: f32 A) -> f32 A { return shift }";
    let source = SourceFile::new(
        "t",
        format!("{layer} layer f(a: f32 A) -> f32 A {{ return softplus(a) }}"),
    );
    let parsed = parse(&source);
    assert_eq!(parsed.errors, []);
    let Some(Statement::Return(result)) = parsed.file.layers().nth(1).map(|f| &f.body[0]) else {
        panic!("a layer with a result");
    };
    let kind = match &result.value {
        ReturnValue::One(expr) => &expr.kind,
        ReturnValue::Many { .. } => panic!("one result"),
    };
    assert!(matches!(kind, ExprKind::Call { .. }), "the layer of the file counts");
}

#[test]
fn printing_puts_in_the_parentheses_that_a_tree_needs() {
    let name =
        |name: &str| Box::new(Expr { span: Span::default(), kind: ExprKind::Name(name.into()) });
    let binary = |op, left, right| {
        Box::new(Expr {
            span: Span::default(),
            kind: ExprKind::Binary { op, op_span: Span::default(), left, right },
        })
    };
    let tree = binary(
        BinaryOp::Mul,
        binary(BinaryOp::Add, name("a"), name("b")),
        binary(BinaryOp::Div, name("c"), name("d")),
    );
    assert_eq!(print_expr(&tree), "(a + b) * (c / d)");
    let negated = Expr {
        span: Span::default(),
        kind: ExprKind::Neg { op_span: Span::default(), operand: tree },
    };
    assert_eq!(print_expr(&negated), "-((a + b) * (c / d))");
}

#[test]
fn every_form_has_its_variant() {
    for (text, variant) in [
        ("einsum(a, gelu(b) -> BLF)", "Einsum"),
        ("f(a, b)", "Call"),
        ("f()", "Call"),
        ("rsqrt(a)", "Map(Rsqrt)"),
        ("maximum(a, 0)", "Binary(Maximum)"),
        ("mean(a over [Batch, Seq])", "Reduce(Mean)"),
        ("softmax(a over Seq)", "Form(Softmax)"),
        ("rename(a, L -> S)", "Form(Rename)"),
        ("einsum(a, b -> BF : f32)", "Einsum"),
        ("einsum(a -> [] : f32)", "Einsum"),
        ("split(a, H -> KG)", "Form(Split)"),
        ("split(a, H -> [A, B, C])", "Form(Split)"),
        ("merge(a, ABC -> H)", "Form(Merge)"),
        ("merge(a, KG -> H)", "Form(Merge)"),
        ("concat(a, b, S, T -> U)", "Form(Concat)"),
        ("slice(a, S -> W, 128)", "Form(SliceDim)"),
        ("append(a, b, L -> S)", "Form(Append)"),
        ("causal(a over L, S)", "Form(Mask)"),
        ("rope(a over Q at L)", "Form(Rope)"),
        ("rope(a over Q at L, Seq)", "Form(Rope)"),
        ("take(a, b over V)", "Form(Take)"),
        ("route(a over X at T -> C, 2)", "Form(Route)"),
        ("cast(a, int8)", "Form(Cast)"),
        ("reshard(a, BLE_x(partialsum-y))", "Reshard"),
    ] {
        let expr = expr(text);
        let kind = format!("{:?}", expr.kind);
        assert!(
            kind.trim_start_matches("Form { op: Spanned { value: ").starts_with(variant),
            "{text}: {expr:?}"
        );
        assert_eq!(print_expr(&expr), text);
    }
}

#[test]
fn contextual_words_are_good_names() {
    let text = "mesh dim=2, layer=3, mesh=1, model=2\nlayer f(cache: cache bf16 B_{layer,model}, \
        mesh: f32 B, dim: weight f32 B, hardware: f32 B) -> f32 B {\n\
                let over = hardware let at = sum(mesh over B) let repeat = dim return over + at * \
                repeat }";
    let parsed = parse(&SourceFile::new("t", text));
    assert_eq!(parsed.errors, []);
    assert_eq!(parsed.file.layers().next().unwrap().body.len(), 4);
}

#[test]
fn a_stack_of_several_kinds_has_the_number_of_each_and_their_sum() {
    let text = "layer f(a: f32 A) -> f32 A repeat 3+ 40 {\n  return a\n}\n";
    let source = SourceFile::new("t", text);
    let parsed = parse(&source);
    assert_eq!(parsed.errors, []);
    let repeat = parsed.file.layers().next().unwrap().repeat.clone().unwrap();
    let kinds: Vec<u64> = repeat.kinds.iter().map(|count| count.value).collect();
    assert_eq!((kinds.as_slice(), repeat.count.value), ([3, 40].as_slice(), 43));
    assert_eq!(source.slice(repeat.span), "repeat 3+ 40");
    assert_eq!(source.slice(repeat.count.span), "3+ 40");
    assert_eq!(shard_grammar::format(&source).unwrap(), text.replace("3+ 40", "3 + 40"));
    let phase = SourceFile::new("t", "dim B = 8\nphase p repeat 3 + 4 { B = 1 }\n");
    assert_eq!(parse(&phase).errors.len(), 1, "a request takes so many steps, all alike");
}

#[test]
fn every_node_has_its_place() {
    let text = "/// d\nstrict layer f(a: weight f32 A_xy) -> (y: f32 A,) repeat 3 {\n  let b: \
        A_{data} (partialsum-x) = a  // c\n  return b\n}  ";
    let source = SourceFile::new("t", text);
    let parsed = parse(&source);
    assert_eq!(parsed.errors, []);
    let layer = parsed.file.layers().next().unwrap();
    assert_eq!(
        source.slice(layer.header_span),
        "strict layer f(a: weight f32 A_xy) -> (y: f32 A,) repeat 3"
    );
    assert_eq!(source.slice(layer.params_span), "(a: weight f32 A_xy)");
    assert_eq!(source.slice(layer.params[0].ty.span), "weight f32 A_xy");
    assert_eq!(source.slice(layer.results.span()), "(y: f32 A,)");
    assert_eq!(source.slice(layer.repeat.as_ref().unwrap().span), "repeat 3");
    assert!(layer.span.start == 6 && source.slice(layer.span).ends_with('}'));
    let Statement::Let(statement) = &layer.body[0] else { panic!() };
    assert_eq!(source.slice(statement.span), "let b: A_{data} (partialsum-x) = a");
    let LetTarget::One { ty: Some(ty), .. } = &statement.target else { panic!() };
    assert_eq!(source.slice(ty.span), "A_{data} (partialsum-x)");
    assert_eq!(source.slice(ty.layout.dims[0].axes.as_ref().unwrap().axes[0].span), "data");
    assert_eq!(source.slice(ty.partial[0].axes.span), "x");
    assert_eq!(print_type(ty), "A_{data}(partialsum-x)");
}

#[test]
fn spans_of_operators_and_operands_are_exact() {
    let source = SourceFile::new(
        "t",
        "layer f(a: f32 A) -> f32 A { return (a  +  -b) * g( a , b ) // x\n }",
    );
    let parsed = parse(&source);
    let Statement::Return(statement) = &parsed.file.layers().next().unwrap().body[0] else {
        panic!()
    };
    let ExprKind::Binary { op_span, left, right, .. } = &statement.value.values()[0].kind else {
        panic!()
    };
    assert_eq!(
        (source.slice(*op_span), source.slice(left.span), source.slice(right.span)),
        ("*", "(a  +  -b)", "g( a , b )")
    );
    assert_eq!(source.slice(statement.span), "return (a  +  -b) * g( a , b )");
}

#[test]
fn a_return_of_one_parenthesised_value_is_no_list() {
    for (text, count) in
        [("(a)", 1), ("(a) + (b)", 1), ("(a, b)", 2), ("(a, b,)", 2), ("((a), b * (c))", 2)]
    {
        let source =
            SourceFile::new("t", format!("layer f(a: f32 A) -> f32 A {{ return {text} }}"));
        let parsed = parse(&source);
        assert_eq!(parsed.errors, [], "{text}");
        let Statement::Return(statement) = &parsed.file.layers().next().unwrap().body[0] else {
            panic!()
        };
        assert_eq!(statement.value.values().len(), count, "{text}");
    }
}

#[test]
fn command_line_arguments_are_read_by_the_same_grammar() {
    let dim = parse_dim_override("H = 4*(E+1) pad 64").unwrap();
    assert_eq!(
        (dim.name.value.as_str(), print_int_expr(&dim.value).as_str()),
        ("H", "4 * (E + 1)")
    );
    assert_eq!(dim.pad.map(|pad| print_int_expr(&pad)).as_deref(), Some("64"));
    let axes = parse_mesh_axes("x=8,data=2").unwrap();
    assert_eq!(
        axes.iter().map(|axis| (axis.name.value.as_str(), axis.size.value)).collect::<Vec<_>>(),
        [("x", 8), ("data", 2)]
    );
    for (text, message) in [
        ("", "expected a dim, found nothing"),
        ("B", "expected `=`, found the end"),
        ("b=3", "`b` cannot name a dim: a dim is an upper-case letter, then letters and digits"),
        ("B=3,C=4", "expected `pad`, an operator or the end, found `,`"),
        ("B=3;", "there are no semicolons: `let`, `return` and `}` end a statement"),
        ("é", "`é` is no character of the language"),
    ] {
        assert_eq!(parse_dim_override(text).unwrap_err().message(), message);
    }
    assert_eq!(parse_mesh_axes("x=").unwrap_err().message(), "expected a number, found the end");
    assert_eq!(parse_mesh_axes("x=8}").unwrap_err().message(), "this `}` closes nothing");
}

/// The first error of a body of one `let`, with its help.
fn said(expression: &str) -> (String, String) {
    let text = format!("layer f(a: f32 B, b: f32 B) -> f32 B {{ let c = {expression} return a }}");
    let parsed = parse(&SourceFile::new("t", text));
    let error = parsed.errors.first().unwrap_or_else(|| panic!("{expression} is read"));
    (error.to_string(), error.help.clone().unwrap_or_default())
}

#[test]
fn what_other_languages_write_is_told_what_there_is() {
    for (written, message, help) in [
        ("a ** 2", "there is no operator `**`", "square(a)"),
        ("gelu(a) ^ 0.5", "there is no operator `^`", "sqrt(gelu(a))"),
        ("(a + b) ** -1", "there is no operator `**`", "1 / (a + b)"),
        ("a ** b", "there is no operator `**`", "exp(b * log(a))"),
        ("a @ b", "there is no operator `@`", "einsum(a, b -> BF)"),
        ("a % 2", "there is no operator `%`", "no remainder"),
        ("a >= b", "there is no operator", "less_equal(b, a)"),
        ("a == b", "there is no operator `==`", "equal(a, b)"),
        ("top_k(a over E -> K)", "there is no operation `top_k`", "topk("),
        ("argsort(a over E)", "there is no operation `argsort`", "topk("),
        ("segment_sum(a over E)", "there is no operation `segment_sum`", "scatter_add("),
        ("median(a over E)", "there is no operation `median`", "one of: einsum"),
        ("grad f(a)", "there is no operation `grad`", "einsum("),
        ("a.sum()", "there is no operation `sum`", "sum(a"),
        ("a.T", "there is no operation `T`", "let b: FE? = a"),
        ("a[0]", "a value is not indexed", "slice(a, S -> W, 0)"),
        ("einsum(\"be,ef->bf\", a, b)", "an einsum names the dims", "einsum(a, b -> BF)"),
        ("einsum('be,ef->bf', a, b)", "an einsum names the dims", "einsum(a, b -> BF)"),
        ("'be'", "`'` is no character of the language", ""),
        ("max(a, b)", "`max` goes over dims", "maximum(a, b)"),
        ("softmax(a, E)", "`softmax` goes over dims", "softmax(a over E)"),
        ("softmax(a)", "`softmax` goes over dims", "softmax(a over E)"),
    ] {
        let (said, helped) = said(written);
        assert!(
            said.starts_with(message) && helped.starts_with(help),
            "{written}: {said}; {helped}"
        );
    }
}

#[test]
fn an_op_with_a_part_that_it_does_not_take_is_told_how_it_is_written() {
    for written in [
        "conv(a, b over B at T)",
        "cumsum(a at B)",
        "scan(a, b at B)",
        "argmax(a -> B)",
        "pad(a over B)",
        "scatter_add(a, b at B)",
        "sink_softmax(a, b at B)",
        "take(a at B)",
        "append(a, b over B)",
        "gelu(a over B)",
        "softmax(a at B)",
    ] {
        let ((said, helped), op) = (said(written), &written[..=written.find('(').expect("a call")]);
        assert!(
            said.starts_with("expected ") && helped.starts_with(op),
            "{written}: {said}; {helped}"
        );
    }
}

#[test]
fn signs_outside_of_expressions_are_what_they_were() {
    for text in [
        "dim E = 2 ** 3",
        "layer f(a: f32 B) > f32 B { return a }",
        "layer f(a: f32 B) -> f32 B { expect comm @ 3 return a }",
    ] {
        let parsed = parse(&SourceFile::new("t", text));
        assert!(
            parsed.errors.iter().all(|e| !e.to_string().contains("there is no oper")),
            "{:?}",
            parsed.errors
        );
    }
    // The name of a layer of the file is not taken for an operation of another language.
    let text = "layer topk(a: f32 B) -> f32 B { return topk(a over B) }";
    let parsed = parse(&SourceFile::new("t", text));
    assert!(parsed.errors[0].to_string().starts_with("expected"), "{:?}", parsed.errors);
    // However far it goes on.
    let far = format!(
        "layer f(a: f32 B) -> f32 B {{ return {}a ** {}2 }}",
        "(".repeat(5000),
        "-".repeat(100_000)
    );
    assert!(!parse(&SourceFile::new("t", far)).errors.is_empty());
}
