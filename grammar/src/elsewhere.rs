//! The words of other languages: functions and dtypes, each with what is written here in its place.

use shard_ops::{Code, Flag, Form};
use std::sync::LazyLock;

/// How a function of another language is written here, in words that follow `help:`; `None` for a
/// word that is not known.
///
/// ```
/// assert!(shard_grammar::written_here("swish").unwrap().starts_with("silu(a)"));
/// assert_eq!(shard_grammar::written_here("frobnicate"), None);
/// ```
pub fn written_here(function: &str) -> Option<&'static str> {
    let bare: String =
        function.chars().filter(|c| *c != '_').collect::<String>().to_ascii_lowercase();
    let (_, here) =
        ELSEWHERE.iter().find(|(words, _)| words.split(' ').any(|word| word == bare))?;
    Some(here)
}

/// Functions of other languages, without capitals and underscores, and how they are written here.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "topk",
        "topk(a over V -> K), argtopk(a over V -> K); route(g over X at T -> C, 2)    (which \
                tokens T go to which of the C places of experts X)",
    ),
    (
        "where select maskedfill ifelse",
        "where(holds, a, b)    (a where the bool holds); causal(a over L, S) masks what comes \
                later",
    ),
    ("greater gt", "less(b, a)"),
    ("greaterequal ge", "less_equal(b, a)"),
    ("lt", "less(a, b)"),
    ("le", "less_equal(a, b)"),
    ("eq", "equal(a, b)"),
    ("notequal ne", "where(equal(a, b), 0, 1)"),
    ("arange broadcastediota", "iota(a over L)    (the position along L, at each element)"),
    (
        "matmul dot bmm mm linear dense tensordot dotgeneral outer contract",
        "einsum(a, w -> BF)    (the dims that the result keeps)",
    ),
    ("pow power", "square(a), a * a * a, or exp(2.5 * log(a))"),
    (
        "grad vjp jvp valueandgrad backward",
        "einsum(x, dy -> EF)    (no op is differentiated: a backward pass is written out, as \
                in examples/training)",
    ),
    (
        "transpose permute swapaxes moveaxis t",
        "let b: FE? = a    (dims are matched by name: only an annotation asks for another \
                order)",
    ),
    ("reshape view flatten unflatten rearrange", "split(a, H -> KG) or merge(a, KG -> H)"),
    (
        "broadcastto expand repeat tile expanddims unsqueeze squeeze",
        "a + b    (dims are matched by name, so each op broadcasts by itself)",
    ),
    ("gather embedding indexselect lookup takealongaxis onehot", "take(table, ids over V)"),
    ("cat concatenate stack hstack vstack", "concat(a, b, S, T -> U)"),
    ("sort argsort", "topk(a over V -> V), argtopk(a over V -> V)    (the largest first)"),
    ("scatteradd segmentsum indexadd", "scatter_add(a, ids over L -> V)"),
    ("zeropad constantpad", "pad(a, L -> M, 3)    (three zeros in front)"),
    (
        "associativescan recurrence cumprod",
        "scan(a, f over L)    (a, and f times the result one position before)",
    ),
    (
        "dynamicupdateslice scatter indexcopy setitem",
        "append(cache, new, L -> S)    (the new positions at the end)",
    ),
    ("dynamicslice narrow chunk", "slice(a, S -> W, 128)"),
    ("swish", "silu(a)"),
    ("layernorm", "layernorm(a over E)"),
    ("rmsnorm", "rmsnorm(a over E)"),
    ("norm", "rmsnorm(a over E) or layernorm(a over E)"),
    ("logsoftmax", "log(softmax(a over V))"),
    ("logsumexp", "log(sum(exp(a) over V))"),
    ("reducesum", "sum(a over E)"),
    ("average reducemean", "mean(a over E)"),
    ("reducemax amax", "max(a over E)"),
    ("min reducemin amin", "minimum(a, b), or -max(-a over E)"),
    ("var variance std", "mean(square(a - mean(a over E)) over E)"),
    ("clip clamp", "minimum(maximum(a, 0), 6)"),
    ("sin cos rotary applyrotaryposemb", "rope(q over Q at L, S)    (rotary embedding)"),
    ("tril triu causalmask", "causal(a over L, S)"),
    (
        "attention scaleddotproductattention flashattention",
        "einsum(softmax(causal(einsum(q, k -> BHLS) over L, S) over S), v -> BHLQ)",
    ),
    ("astype to convert float", "cast(a, f32)"),
    (
        "allgather allreduce psum reducescatter psumscatter alltoall ppermute withshardingconstraint shard redistribute",
        "reshard(a, BLE_x)    (the layout that the value is to have: the collectives follow)",
    ),
    ("neg negative", "-a"),
    ("add", "a + b"),
    ("sub subtract", "a - b"),
    ("mul multiply", "a * b"),
    ("div divide", "a / b"),
];

/// The operations of the language, by kind.
pub static OPERATIONS: LazyLock<String> = LazyLock::new(|| {
    let kind = |code: Code| match code {
        Code::Form(Form::Einsum) => 0,
        Code::Binary(_) => 1,
        Code::Map(_) => 2,
        Code::Reduce(_) => 3,
        Code::Form(Form::Softmax) | Code::Norm(_) => 4,
        Code::Form(form) if form.row().is(Flag::Elementwise) => 7,
        Code::Form(form) => {
            if form.row().is(Flag::KeepsValues) {
                5
            } else {
                6
            }
        }
    };
    let word = |code: Code| code.row().source.or(code.row().sign.filter(|_| kind(code) == 1));
    let words = |of| {
        Code::all()
            .filter(move |code| kind(*code) == of)
            .filter_map(word)
            .collect::<Vec<_>>()
            .join(" ")
    };
    (0..8).map(words).collect::<Vec<_>>().join("; ") + " reshard"
});

/// The dtype that other frameworks call by this name.
pub(crate) fn other_dtype_word(word: &str) -> Option<&'static str> {
    Some(match word {
        "bfloat16" => "bf16",
        // The widest dtypes here stand for wider ones.
        "fp32" | "float32" | "float" | "fp64" | "f64" | "float64" | "double" => "f32",
        "fp16" | "float16" | "half" => "f16",
        "fp8" | "float8" | "e4m3" | "e5m2" | "f8e4m3" | "f8e4m3fn" | "f8e5m2" | "float8_e4m3fn"
        | "float8_e5m2" => "f8",
        "fp4" | "float4" | "e2m1" | "mxfp4" => "f4",
        "i8" | "s8" | "u8" | "byte" => "int8",
        "i4" | "s4" => "int4",
        "i32" | "s32" | "int" | "i64" | "s64" | "int64" | "long" | "i16" | "int16" | "short" => {
            "int32"
        }
        "boolean" | "pred" | "i1" => "bool",
        _ => return None,
    })
}
