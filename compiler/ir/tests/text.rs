//! `.shir`: print and parse are inverse, and no text makes the parser panic.

use shard_ir::text::{parse, print, print_all};
use shard_ir::verify::verify;
use shard_ir::{InstrKind, Number, Plan};
use shard_runtime::Random;

const PLANS: &str = include_str!("plans.shir");

fn without_comments(text: &str) -> String {
    text.lines().filter(|l| !l.starts_with("//")).map(|l| format!("{l}\n")).collect()
}

fn plans() -> Vec<Plan> {
    parse(PLANS).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_canonical_text_prints_back_byte_for_byte() {
    assert_eq!(
        print_all(&plans()),
        without_comments(PLANS).replace("\"odd name\" repeat 1", "\"odd name\"")
    );
}

#[test]
fn parse_is_the_inverse_of_print() {
    for mut plan in plans() {
        assert_eq!(parse(&print(&plan)).as_deref(), Ok(std::slice::from_ref(&plan)));
        plan.hardware = Some("path/to/my \"chip\"\n.toml".to_string());
        plan.outputs.clear();
        assert_eq!(parse(&print(&plan)).as_deref(), Ok(std::slice::from_ref(&plan)));
    }
}

#[test]
fn the_sample_plans_verify() {
    for plan in plans() {
        assert_eq!(verify(&plan), Ok(()), "{}", plan.name);
    }
}

#[test]
fn an_empty_layer_round_trips() {
    let plan = Plan {
        name: "empty".to_string(),
        repeat: 1,
        phase: None,
        hardware: None,
        mesh: Default::default(),
        dims: Vec::new(),
        instructions: Vec::new(),
        outputs: Vec::new(),
        folds: Vec::new(),
    };
    assert_eq!(print(&plan), "shir 1\n\nlayer empty\n");
    assert_eq!(parse(&print(&plan)), Ok(vec![plan]));
}

#[test]
fn constants_keep_every_bit() {
    for value in [0.1, -1e-6, 1e300, f64::MIN_POSITIVE, -0.0, 1.0 / 3.0, 7.0] {
        let text = format!("shir 1\nlayer c\n%0 = constant {value:?} : f32 []\n");
        let plan = &parse(&text).unwrap()[0];
        let InstrKind::Constant(Number::Given(read)) = plan.instructions[0].kind else {
            panic!("a constant")
        };
        assert_eq!(read.to_bits(), value.to_bits());
    }
}

macro_rules! rejects {
    ($($name:ident: $lines:expr => $line:literal : $column:literal $message:literal;)+) => {$(
        #[test]
        fn $name() {
            let head = "shir 1\nlayer f\nmesh x=2, y=2\ndims B=4, E=8\n%0 = parameter a : f32 \
                B_xE\n";
            let error = parse(&format!("{head}{}", $lines)).unwrap_err();
            assert_eq!((error.line, error.column, error.message.as_str()), ($line, $column, $message));
        }
    )+};
}

rejects! {
    an_operand_below: "%1 = neg %1 : f32 B_xE" => 6:10 "expected an instruction above, found `%1`";
    a_number_out_of_order: "%2 = neg %0 : f32 B_xE" => 6:2 "expected the number 1, found `2`";
    an_unknown_operation: "%1 = sinh %0 : f32 B_xE" => 6:6 "expected an operation, found `sinh`";
    an_unknown_axis: "%1 = all-gather %0 over q along B : f32 BE" => 6:25 "the mesh has no axis \
        `q` of size greater than 1";
    an_axis_twice: "%1 = slice %0 over yy along B : f32 BE" => 6:20 "mesh axis `y` stands twice";
    an_unknown_dim: "%1 = neg %0 : f32 B_xQ" => 6:22 "dim `Q` is not declared";
    a_dim_twice: "%1 = neg %0 : f32 B_xB" => 6:22 "dim `B` stands twice";
    an_unknown_dtype: "%1 = neg %0 : f33 B_xE" => 6:15 "expected a dtype, found `f33`";
    a_wrong_equation: "%1 = einsum BE->B %0 : f32 E" => 6:13 "expected `BE->E`, found `BE->B`";
    a_free_layout: "%1 = neg %0 : f32 BE?" => 6:21 "a plan leaves no axis free: no `?`";
    an_unordered_layout: "%1 = neg %0 : f32 BE_(xy)" => 6:22 "a plan's axes have an order: no \
        parentheses";
    text_behind_the_end: "%1 = neg %0 : f32 B_xE !" => 6:24 "expected the end of the line, found \
        `!`";
    an_open_quote: "%1 = neg %0 : f32 B_xE @\"n" => 6:25 "this quote is not closed";
    a_mesh_too_late: "mesh x=2" => 6:1 "expected the order hardware, mesh, dims, fold, \
        instructions, return, found `mesh`";
    a_result_in_another_layout: "return a = %0 : EB" => 6:17 "%0 is EB_x";
    a_result_of_other_dims: "return a = %0 : B_x" => 6:17 "these are not the dims of %0";
    a_huge_number: "%1 = slice-dim %0, E -> B, 99999999999999999999 : f32 B" => 6:28 "expected a \
        number of at most 18 digits, found `99999999999999999999`";
    a_gather_of_another_axis: "%1 = all-gather %0 over x along B, y along E : f32 BE" => 6:36 "expected axes that the move takes from, or gives to, this dim of the operand, found `y`";
    a_scatter_of_what_is_whole: "%1 = reduce-scatter %0 sum over y along B, x along E : f32 \
        B_xyE" => 6:33 "expected axes that the move takes from, or gives to, this dim of the operand, found `y`";
    a_move_to_other_dims: "%1 = all-gather %0 over x along B : f32 EB" => 6:6 "expected a move \
        that keeps the dims and their order, found `all-gather`";
}

#[test]
fn a_text_needs_its_header() {
    assert_eq!(parse("").unwrap_err().message, "expected `shir 1`");
    assert_eq!(parse("layer f\n").unwrap_err().message, "expected `shir`, found `layer`");
    assert_eq!(parse("shir 2\n").unwrap_err().message, "expected version 1, found `2`");
    assert_eq!(parse("shir 1\n"), Ok(Vec::new()));
}

#[test]
fn a_text_too_long_is_refused() {
    assert!(
        parse(&"\n".repeat(shard_ir::text::MAX_TEXT_BYTES + 1))
            .unwrap_err()
            .message
            .contains("the limit is")
    );
}

#[test]
fn no_mutation_makes_parser_or_verifier_panic() {
    let text = without_comments(PLANS);
    let bits: Vec<&str> = text.split_inclusive([' ', ',', ':', '_', '\n', '(', '{', '=']).collect();
    let odd = [
        "",
        "%",
        "_",
        "E_x",
        "{",
        "}",
        "[",
        "]",
        "é",
        "\"",
        "\\u{110000}",
        "18446744073709551616",
        "0",
        "-",
        "->",
        "?",
        "\0",
        ";",
    ];
    let mut random = Random::new(7);
    let mut below = |n: usize| random.below(n as u64) as usize;
    let (mut parsed, mut verified) = (0, 0);
    for _ in 0..20_000 {
        let mut mutant: Vec<&str> = bits.clone();
        for _ in 0..=below(3) {
            let at = below(mutant.len());
            match below(4) {
                0 => mutant[at] = odd[below(odd.len())],
                1 => mutant.insert(at, odd[below(odd.len())]),
                2 => mutant[at] = bits[below(bits.len())],
                _ => drop(mutant.remove(at)),
            }
        }
        match parse(&mutant.concat()) {
            Err(error) => assert!(error.span.end <= mutant.concat().len(), "{error}"),
            Ok(plans) => {
                parsed += 1;
                for plan in &plans {
                    // Whatever is read prints to a text that reads the same.
                    let text = print(plan);
                    let again = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                    assert_eq!(print(&again[0]), text);
                    verified += usize::from(verify(plan).is_ok());
                }
            }
        }
    }
    assert!(parsed > 500 && verified > 500, "{parsed} {verified}");
}
