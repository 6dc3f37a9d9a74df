//! The printer against the parser, on written, generated and broken texts: formatting changes
//! nothing but the looks, a second formatting changes nothing, and no text makes either panic.

use rayon::prelude::*;
use shard_grammar::ast::CommentKind;
use shard_grammar::{Parsed, SourceFile, SyntaxErrorKind, format, parse};
use shard_ops::Random;
use std::time::Duration;

const WRITTEN: &[&str] = &[
    include_str!("files/mlp.shard"),
    include_str!("files/every_form.shard"),
    include_str!("files/comments.shard"),
    include_str!("files/crowded.shard"),
    "",
    "\n\n",
    "// alone",
    "\u{FEFF}dim A = 3\r\n\r\n\r\ndim B = 4\r\n",
    "phase p{}",
    "layer f(a: weight  host bf16 A, host1: weight // c\n host f32 [A]) -> f32 A { return a }",
    "dim L=1\n/// Reads.\nphase prefill{L=2*4,M=3 pad 4,}// c\nphase decode repeat 64 { // a\n L \
        = 1, // b\n\n // d\n }\n",
    "layer f() -> f32 [] { }",
    "layer f(// c\n) -> f32 [] { // d\n}// e",
];

/// The tree without its spans and without the exact spelling of subscripts.
fn shape(parsed: &Parsed) -> String {
    let text = format!("{:?} {:?}", parsed.file.docs, parsed.file.items);
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['@', 'r']) {
        let (before, behind) = rest.split_at(at);
        out.push_str(before);
        rest = if let Some(span) = behind.strip_prefix('@') {
            span.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
        } else if let Some(raw) = behind.strip_prefix("raw: \"") {
            &raw[raw.find('"').unwrap()..]
        } else {
            out.push('r');
            &behind[1..]
        };
    }
    out + rest
}

/// The comments in sorted order: some move, and moved ones are no docs any more.
fn comments(parsed: &Parsed) -> Vec<String> {
    let mut texts: Vec<String> = parsed
        .file
        .comments
        .iter()
        .map(|c| c.text.trim_start_matches(['/', '!', ' ']).to_string())
        .collect();
    texts.sort();
    texts
}

/// Checks all promises on one text. Returns whether it could be formatted.
fn hold(text: &str) -> bool {
    let source = SourceFile::new("t", text);
    let parsed = parse(&source);
    for error in &parsed.errors {
        assert!(
            text.is_char_boundary(error.span.start) && text.is_char_boundary(error.span.end),
            "{error} in {text}"
        );
        assert!(error.span.end <= text.len() && !error.message().is_empty());
        let edit = error.fix.as_ref().map(|fix| fix.span).unwrap_or_default();
        assert!(text.get(edit.start..edit.end).is_some(), "{error} in {text}");
    }
    match format(&source) {
        Err(errors) => {
            let outgrown = matches!(errors[0].kind, SyntaxErrorKind::FileTooLarge { .. });
            assert!(errors == parsed.errors || outgrown);
            assert!(!errors.is_empty());
            false
        }
        Ok(once) => {
            assert!(parsed.errors.is_empty());
            let once_source = SourceFile::new("t", once.as_str());
            let again = parse(&once_source);
            assert_eq!(again.errors, [], "of\n{text}\nformatted as\n{once}");
            let (before, after) = (shape(&parsed), shape(&again));
            if let Some(at) = before.bytes().zip(after.bytes()).position(|(a, b)| a != b) {
                let near = |text: &str| {
                    text[at.saturating_sub(200)..].chars().take(300).collect::<String>()
                };
                panic!(
                    "of\n{text}\nformatted as\n{once}\n{}\nbecame\n{}",
                    near(&before),
                    near(&after)
                );
            }
            assert_eq!(before.len(), after.len());
            assert_eq!(comments(&parsed), comments(&again), "of\n{text}\nformatted as\n{once}");
            assert_eq!(format(&once_source).as_deref(), Ok(once.as_str()), "of\n{text}");
            assert!(once.lines().all(|line| line.trim_end().len() == line.len()), "{once}");
            assert!(!once.contains("\n\n\n") && !once.starts_with('\n'));
            true
        }
    }
}

#[test]
fn written_files_keep_their_meaning() {
    for text in WRITTEN {
        assert!(hold(text), "{text}: {:?}", parse(&SourceFile::new("t", *text)).errors);
    }
}

#[test]
fn the_contract_s_example_is_formatted_as_it_stands_but_for_the_column_of_its_comments() {
    let text = include_str!("files/mlp.shard");
    let formatted = format(&SourceFile::new("t", text)).unwrap();
    let squeezed =
        |text: &str| text.lines().map(|line| line.replace("  //", " //")).collect::<Vec<_>>();
    let plain: Vec<String> = squeezed(text)
        .iter()
        .map(|line| line.split("//").next().unwrap().trim_end().to_string())
        .collect();
    let again: Vec<String> = squeezed(&formatted)
        .iter()
        .map(|line| line.split("//").next().unwrap().trim_end().to_string())
        .collect();
    assert_eq!(plain, again);
}

#[test]
fn canonical_files_stay_as_they_are() {
    let text = include_str!("files/canonical.shard");
    assert_eq!(format(&SourceFile::new("t", text)).unwrap(), text);
}

#[test]
fn docs_reach_their_items() {
    let parsed = parse(&SourceFile::new("t", include_str!("files/comments.shard")));
    assert_eq!(parsed.file.docs, ["A file of comments.", "", "In two paragraphs."]);
    let layer = parsed.file.layers().next().unwrap();
    assert_eq!(layer.docs, ["The layer.", "More of it."]);
    assert_eq!(layer.params[1].docs, ["What comes out."]);
    assert!(
        parsed
            .file
            .comments
            .iter()
            .any(|comment| comment.kind == CommentKind::Plain && !comment.own_line)
    );
}

// --- generated files ---

struct Generator(Random);

impl Generator {
    fn space(&mut self) -> &'static str {
        match self.0.index(40) {
            0 => "\n",
            1 => "\n\n\n",
            2 => "\t ",
            3 => " // why\n",
            4 => "\n// own\n",
            5 => "\n/// doc\n",
            6 => " //! file\n",
            7 => "\n//// four é\n",
            8..=20 => "",
            _ => " ",
        }
    }

    /// Words with blanks and comments between them wherever they may stand; `_` behind a word keeps
    /// it apart.
    fn spread(&mut self, words: &[&str]) -> String {
        let mut out = String::new();
        for word in words {
            let gap = self.space();
            out.push_str(gap);
            let joins =
                |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '?' | '-' | '/' | '.');
            if gap.is_empty()
                && (out.ends_with(joins) || out.ends_with([')', '}']))
                && word.starts_with(joins)
            {
                out.push(' ');
            }
            out.push_str(word);
        }
        out
    }

    fn value(&mut self) -> &'static str {
        self.0.pick(&[
            "a", "h2", "_k", "mesh", "weight", "cache_in", "over", "dim", "hardware", "w_out", "at",
        ])
    }

    fn dims(&mut self) -> &'static str {
        self.0.pick(&["BL", "E2F", "[Batch, Seq]", "[]", "Seq", "[ B,C, ]", "Q"])
    }

    fn layout(&mut self) -> &'static str {
        self.0.pick(&[
            "BLE_xyz",
            "B_xyLE_z?",
            "[Batch_{ data , fsdp}, Seq_x,]?l",
            "E_(xy)",
            "E_{data}F_{m2}",
            "[]",
            "A?",
            "B_{x,y}",
            "[ Heads_( {data,m} ) ]",
        ])
    }

    fn ty(&mut self, dtype: bool) -> String {
        let kind = self.0.pick(&["", "", "weight", "cache"]);
        let dtype = if dtype || self.0.index(2) == 0 {
            self.0.pick(&["bf16", "f32", "int8", "bool"])
        } else {
            ""
        };
        let layout = self.layout();
        let partial =
            self.0.pick(&["", "", "(partialsum-x)", " (partialsum-{data, m}, partialmax-yz,)"]);
        let words: Vec<&str> =
            [kind, dtype, layout, partial].into_iter().filter(|word| !word.is_empty()).collect();
        self.spread(&words)
    }

    fn int(&mut self, depth: usize) -> String {
        let words = match self.0.index(if depth == 0 { 2 } else { 4 }) {
            0 => vec![self.0.pick(&["0", "12", "007"]).to_string()],
            1 => vec![self.0.pick(&["B", "E2", "Seq"]).to_string()],
            2 => vec!["(".into(), self.int(depth - 1), ")".into()],
            _ => vec![
                self.int(depth - 1),
                self.0.pick(&["+", "-", "*", "/"]).to_string(),
                self.int(depth - 1),
            ],
        };
        self.spread(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn expr(&mut self, depth: usize) -> String {
        let form = if depth == 0 { self.0.index(3) } else { self.0.index(24) };
        let mut words: Vec<String> = Vec::new();
        let say = |words: &mut Vec<String>, more: &[&str]| {
            words.extend(more.iter().map(|word| word.to_string()))
        };
        match form {
            0 | 1 => say(&mut words, &[self.value()]),
            2 => say(&mut words, &[self.0.pick(&["1", "0.5", "2e-3", "1.25E+7"])]),
            3 => words.extend(["(".into(), self.expr(depth - 1), ")".into()]),
            4 => words.extend(["-".into(), self.expr(depth - 1)]),
            5..=8 => {
                let sign = self.0.pick(&["+", "-", "*", "/"]).to_string();
                words.extend([self.expr(depth - 1), sign, self.expr(depth - 1)]);
            }
            9 => {
                say(&mut words, &["f_1", "("]);
                for _ in 0..self.0.index(4) {
                    words.extend([self.expr(depth - 1), ",".into()]);
                }
                say(&mut words, &[")"]);
            }
            10 => {
                words.extend([
                    "einsum".into(),
                    "(".into(),
                    self.expr(depth - 1),
                    ",".into(),
                    self.expr(depth - 1),
                ]);
                say(&mut words, &["->", self.dims(), ")"]);
            }
            11 => {
                words.extend([
                    self.0.pick(&["gelu", "abs", "rsqrt"]).to_string(),
                    "(".into(),
                    self.expr(depth - 1),
                    ")".into(),
                ]);
            }
            12 => {
                words.extend([
                    "minimum".into(),
                    "(".into(),
                    self.expr(depth - 1),
                    ",".into(),
                    self.expr(depth - 1),
                    ")".into(),
                ]);
            }
            form => words = self.op(form, depth),
        }
        match self.0.index(12) {
            0 => {
                words = vec![
                    "reshard".into(),
                    "(".into(),
                    words.concat_spaced(),
                    ",".into(),
                    self.layout().into(),
                    ")".into(),
                ]
            }
            1 => {
                words = vec![
                    "cast".into(),
                    "(".into(),
                    words.concat_spaced(),
                    ",".into(),
                    "f32".into(),
                    ")".into(),
                ]
            }
            2 => {
                words = vec![
                    "slice".into(),
                    "(".into(),
                    words.concat_spaced(),
                    ", S -> W,".into(),
                    self.int(1),
                    ")".into(),
                ]
            }
            _ => {}
        }
        self.spread(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// An op with slots behind its operands.
    fn op(&mut self, form: usize, depth: usize) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let say = |words: &mut Vec<String>, more: &[&str]| {
            words.extend(more.iter().map(|word| word.to_string()))
        };
        let (word, count, tail): (&str, usize, &[&str]) = match form {
            13 => {
                (self.0.pick(&["sum", "max", "softmax", "rmsnorm"]), 1, &["over", self.dims(), ")"])
            }
            14 => (self.0.pick(&["rename"]), 1, &[",", "L", "->", "Seq", ")"]),
            15 => ("split", 1, &[",", "H", "->", "[Kv, G]", ")"]),
            16 => ("merge", 1, &[",", "KG", "->", "H", ",", ")"]),
            17 => ("concat", 2, &[",", "S", ",", "T", "->", "U", ")"]),
            18 => ("append", 2, &[",", "L", "->", "S", ")"]),
            19 => ("causal", 1, &["over", "L", ",", "S", ")"]),
            20 => ("rope", 1, &["over", "Q", "at", "L", ")"]),
            21 => ("rope", 1, &["over", "Q", "at", "L", ",", "Seq", ")"]),
            22 => ("causal", 1, &["over", "L", ",", "S", ",", "2", "*", "L", ")"]),
            _ => ("take", 2, &["over", "V", ")"]),
        };
        say(&mut words, &[word, "("]);
        for index in 0..count {
            words.extend([self.expr(depth - 1), ",".into()]);
            if index + 1 == count {
                words.pop();
            }
        }
        say(&mut words, tail);
        words
    }

    fn expect(&mut self, words: &mut Vec<String>) {
        words.push("expect".into());
        if self.0.index(4) == 0 {
            return words.extend([
                "strategy".into(),
                self.0.pick(&["2d-weight-stationary", "fsdp"]).into(),
            ]);
        }
        let none = self.0.index(3) == 0;
        if none {
            words.push("no".into());
        }
        words.push(self.0.pick(&["comm", "all-gathers", "peak-memory"]).into());
        if self.0.index(2) == 0 {
            words.extend(["of".into(), self.value().into()]);
        }
        if !none {
            words.push(self.0.pick(&["<", "<=", "==", ">=", ">"]).into());
            words.extend(
                self.0.pick(&["2", "40us", "1.5 GiB", "0.25 ms"]).split(' ').map(str::to_string),
            );
        }
    }

    fn file(&mut self) -> String {
        let mut words: Vec<String> = Vec::new();
        for _ in 0..self.0.index(5) {
            match self.0.index(4) {
                0 => words.extend([
                    "hardware".into(),
                    self.0.pick(&["tpu-v4-flat", "\"a b/é.toml\""]).into(),
                ]),
                1 => words.extend([
                    "mesh".into(),
                    "data".into(),
                    "=".into(),
                    "4".into(),
                    ",".into(),
                    "y=02".into(),
                ]),
                2 => words.extend([
                    "dim".into(),
                    "H".into(),
                    "=".into(),
                    self.int(2),
                    "pad".into(),
                    self.int(1),
                ]),
                _ => words.extend(["dim".into(), "B".into(), "=".into(), self.int(3)]),
            }
        }
        for _ in 0..1 + self.0.index(2) {
            if self.0.index(4) == 0 {
                words.push("strict".into());
            }
            words.extend(["layer".into(), "f_1".into(), "(".into()]);
            for _ in 0..self.0.index(4) {
                words.extend([self.value().into(), ":".into(), self.ty(true), ",".into()]);
            }
            words.extend([")".into(), "->".into()]);
            match self.0.index(2) {
                0 => words.push(self.ty(true)),
                _ => words.extend([
                    "(".into(),
                    "y".into(),
                    ":".into(),
                    self.ty(true),
                    ",".into(),
                    "k:".into(),
                    self.ty(true),
                    ")".into(),
                ]),
            }
            if self.0.index(3) == 0 {
                words.extend(["repeat".into(), "12".into()]);
            }
            words.push("{".into());
            for _ in 0..self.0.index(4) {
                words.extend(["let".into(), self.value().into()]);
                if self.0.index(3) == 0 {
                    words.extend([":".into(), self.ty(false)]);
                }
                words.extend(["=".into(), self.expr(3)]);
                if self.0.index(4) == 0 {
                    self.expect(&mut words);
                }
            }
            match self.0.index(3) {
                0 => words.extend([
                    "let".into(),
                    "(".into(),
                    "y, k".into(),
                    ")=".into(),
                    self.expr(1),
                ]),
                1 => words.extend([
                    "return".into(),
                    "(".into(),
                    self.expr(2),
                    ",".into(),
                    self.expr(2),
                    ")".into(),
                ]),
                _ => words.extend(["return".into(), self.expr(2)]),
            }
            words.push("}".into());
        }
        self.spread(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

trait ConcatSpaced {
    fn concat_spaced(&self) -> String;
}

impl ConcatSpaced for Vec<String> {
    fn concat_spaced(&self) -> String {
        self.join(" ")
    }
}

#[test]
fn generated_files_keep_their_meaning() {
    let mut generator = Generator(Random::new(0x5eed));
    for _ in 0..3000 {
        let text = generator.file();
        assert!(hold(&text), "{text}\n{:?}", parse(&SourceFile::new("t", text.as_str())).errors);
    }
}

#[test]
fn broken_files_are_refused_or_kept_and_never_panic() {
    let scraps = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "_{",
        "_(",
        "?",
        "->",
        "let ",
        "layer ",
        "return ",
        ";",
        "\"",
        "//",
        "///",
        "é",
        "\u{0}",
        "=",
        ":",
        ",",
        " over ",
        "dim B = 3\n",
        "mesh x=1\n",
        "hardware q\n",
        "1e9",
        "-",
        "\n",
        "E_x",
        "(partialsum-",
        "\u{FEFF}",
        "𝛼",
        "}\n",
        "let q = ",
    ];
    let mut generator = Generator(Random::new(0xb0b));
    let mut kept = 0;
    for round in 0..8000 {
        let mut text =
            if round % 4 == 0 { generator.file() } else { generator.0.pick(WRITTEN).to_string() };
        for _ in 0..1 + generator.0.index(3) {
            let boundaries: Vec<usize> =
                (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
            let at = boundaries[generator.0.index(boundaries.len())];
            let end = boundaries[generator.0.index(boundaries.len())].clamp(at, at + 12);
            let end = (at..=end).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(at);
            let scrap = generator.0.pick(&scraps);
            match generator.0.index(3) {
                0 => text.insert_str(at, scrap),
                1 => text.replace_range(at..end, ""),
                _ => text.replace_range(at..end, scrap),
            }
        }
        kept += usize::from(hold(&text));
    }
    assert!(kept > 200, "only {kept} of the broken files were whole");
}

#[test]
fn hard_texts_are_read_in_linear_time() {
    let many = |scrap: &str| scrap.repeat((1 << 20) / scrap.len());
    let inside = |scrap: &str, count: usize| {
        format!("layer f(a: f32 A) -> f32 A {{ let h = {} return h }}", scrap.repeat(count))
    };
    let texts = [
        many("("),
        many("f("),
        many("{"),
        many("}"),
        many("a,"),
        many("a }"),
        many("let "),
        many("let a = "),
        many("["),
        many("E_{"),
        many("layer f("),
        many("a+"),
        many("-"),
        many("//"),
        many("\"\n"),
        many(";"),
        many("é"),
        many("dim "),
        many("sum(a over "),
        many("return (a, b) "),
        many("///\n"),
        many("let a = b // c\n"),
        many("layer f() -> f32 A { }\n"),
        inside("f(", 60),
        inside("return_(", 63),
        inside("einsum(", 63),
        inside("(", 64),
        inside("gelu(-(", 31),
        inside("a+", 100_000),
        inside("f(a, b, c) + ", 10_000),
        inside("a b ", 50_000),
        inside("E_{a,", 50_000),
        format!("layer f(a: f32 A) -> f32 A {{ return ({}) }}", "f(a),".repeat(50_000)),
        format!("layer f({}) -> f32 A {{ }}", "a: f32 A,".repeat(50_000)),
        format!("mesh {}", "a=1,".repeat(100_000)),
        format!("layer f(a: f32 {}) -> f32 A {{ }}", "B".repeat(1 << 19)),
    ];
    texts.par_iter().with_max_len(1).for_each(|text| {
        let before = time_on_a_core();
        hold(text);
        let head: String = text.chars().take(40).collect();
        if let (Some(before), Some(after)) = (before, time_on_a_core()) {
            let took = after.saturating_sub(before);
            assert!(took < Duration::from_secs(10), "{head} took {took:?}");
        }
    });
}

/// How long this thread has run so far, whatever else the machine did meanwhile; `None` where the
/// system does not say.
fn time_on_a_core() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
