//! A random program as `.shard` text.

mod shapes;

use shard_runtime::Random;

/// A value that statements may use.
#[derive(Clone)]
struct Value {
    name: String,
    dims: Vec<char>,
}

struct Generator {
    random: Random,
    /// Names and sizes of the mesh axes.
    axes: Vec<(&'static str, usize)>,
    /// Names and sizes of the dims.
    dims: Vec<(char, usize)>,
    /// Those of the dims that an op added, with a `dim` line at the end of the file.
    made_up: Vec<char>,
    dtype: &'static str,
    values: Vec<Value>,
    /// The dims of the parameter `ids`, if it exists.
    ids: Option<Vec<char>>,
    /// The dims of the layer `g`, if something calls it.
    callee: Option<Vec<char>>,
    /// The dims of weights, which have the same size in all phases.
    of_weights: Vec<char>,
    /// Whether the sizes of all dims depend on each other, so that no phase may change one of them.
    sizes_belong_together: bool,
}

/// Whose type is written.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Parameter,
    Let,
    Result,
}

const MAX_RANK: usize = 4;

/// Names of dims that ops add: the parts of a split, the sum of a concat, ...
const MADE_UP: [char; 6] = ['P', 'Q', 'R', 'S', 'T', 'U'];

/// The program of a seed: a mesh of 1 to 3 axes, 2 to 5 dims (some padded), 1 to 4 parameters
/// (weights among them, also of the host), 2 to 6 statements, 1 or 2 results; some in two phases,
/// some strict.
pub fn generate(seed: u64) -> String {
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
    let meshes: &[&[usize]] = &[
        &[2],
        &[3],
        &[4],
        &[2, 2],
        &[2, 3],
        &[4, 2],
        &[3, 3],
        &[4, 3],
        &[2, 2, 2],
        &[2, 3, 2],
        &[4, 2, 2],
    ];
    let sizes = random.pick(meshes);
    let names: &[&'static str] =
        if random.chance(10) { &["data", "model", "z"] } else { &["x", "y", "z"] };
    let axes = names.iter().copied().zip(sizes.iter().copied()).collect();
    let count = 2 + random.index(4);
    let dims = ['A', 'B', 'C', 'D', 'E'][..count]
        .iter()
        .map(|name| (*name, random.pick(&[2, 3, 4, 4, 6, 6, 8, 8, 12])))
        .collect();
    let dtype =
        random.pick(&["f32", "f32", "f32", "f32", "f32", "f32", "bf16", "bf16", "bf16", "int32"]);
    Generator {
        random,
        axes,
        dims,
        made_up: Vec::new(),
        dtype,
        values: Vec::new(),
        ids: None,
        callee: None,
        of_weights: Vec::new(),
        sizes_belong_together: false,
    }
    .program()
}

/// The parameters of the layer.
struct Given {
    text: String,
    /// The arguments of a call in a model: the activations.
    passed: Vec<(String, String)>,
    /// The dims of the parameter whose type has a label.
    labelled: Option<Vec<char>>,
}

impl Generator {
    fn program(mut self) -> String {
        let axes: Vec<String> =
            self.axes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        let mut text = format!("mesh {}\n", axes.join(", "));
        for (name, size) in self.dims.clone() {
            let useful = 1 + self.random.index(size);
            if self.random.chance(8) {
                text.push_str(&format!("dim {name} = {useful} pad {size}\n"))
            } else {
                text.push_str(&format!("dim {name} = {size}\n"))
            }
        }
        let Given { text: given, passed, labelled } = self.parameters();
        text.push_str(&given);
        let mut body = String::new();
        for i in 0..2 + self.random.index(5) {
            let (expr, dims) = self.expression();
            let annotation = if self.random.chance(30) {
                let stated = self.random.shuffled(&dims);
                format!(": {}", self.layout(&stated, Place::Let))
            } else {
                String::new()
            };
            body.push_str(&format!("  let v{i}{annotation} = {expr}\n"));
            self.values.push(Value { name: format!("v{i}"), dims });
        }
        let last = self.values.len() - 1;
        let mut results = vec![self.values[last].clone()];
        if self.random.chance(25) {
            let at = self.random.index(last);
            results.push(self.values[at].clone());
        }
        let (types, names) = self.results(&results, labelled.as_ref());
        let mut text = format!("{text}) -> {types} {{\n{body}  return {names}\n}}\n");
        if self.random.chance(15) {
            text.push_str(&self.model(&passed, &results));
        }
        if let Some(dims) = self.callee.take() {
            let (given, taken) =
                (self.layout(&dims, Place::Parameter), self.layout(&dims, Place::Result));
            let dtype = self.dtype;
            text.push_str(&format!(
                "layer g(a: {dtype} {given}) -> {dtype} {taken} {{ return relu(a) + a }}\n"
            ));
        }
        for name in &self.made_up {
            text.push_str(&format!("dim {name} = {}\n", self.size(*name)));
        }
        text + &self.phases()
    }

    /// The head of the layer up to its parameters.
    fn parameters(&mut self) -> Given {
        let label = self.random.chance(15);
        let mut text = String::new();
        let mut passed: Vec<(String, String)> = Vec::new();
        let mut labelled: Option<Vec<char>> = None;
        text.push_str(if self.random.chance(8) { "strict layer f(\n" } else { "layer f(\n" });
        for i in 0..1 + self.random.index(4) {
            let dims = self.some_dims(3);
            let kind =
                self.random.pick(&["weight ", "weight ", "weight host ", "", "", "", "", ""]);
            if !kind.is_empty() {
                self.of_weights.extend(&dims);
            }
            let layout = if label && labelled.is_none() {
                labelled = Some(dims.clone());
                format!("{}?l", dims.iter().collect::<String>())
            } else {
                self.layout(&dims, Place::Parameter)
            };
            text.push_str(&format!("  p{i}: {kind}{} {layout},\n", self.dtype));
            if kind.is_empty() {
                let given = self.layout(&dims, Place::Parameter);
                passed.push((format!("p{i}"), format!("{} {given}", self.dtype)));
            }
            self.values.push(Value { name: format!("p{i}"), dims });
        }
        if self.random.chance(20) {
            let dims = self.some_dims(2);
            text.push_str(&format!(
                "  ids: int32 {},\n",
                self.layout(&dims, Place::Let).replace('?', "")
            ));
            passed.push(("ids".to_string(), format!("int32 {}?", dims.iter().collect::<String>())));
            self.ids = Some(dims);
        }
        Given { text, passed, labelled }
    }

    /// The types of some results, and their names, as the layer writes them.
    fn results(&mut self, results: &[Value], labelled: Option<&Vec<char>>) -> (String, String) {
        let types: Vec<String> = results
            .iter()
            .map(|value| {
                let same = |labelled: &Vec<char>| {
                    labelled.iter().all(|d| value.dims.contains(d))
                        && labelled.len() == value.dims.len()
                };
                match labelled.filter(|l| same(l)) {
                    Some(dims) => format!("{} {}?l", self.dtype, dims.iter().collect::<String>()),
                    None => {
                        let stated = self.random.shuffled(&value.dims);
                        let layout = self.layout(&stated, Place::Result);
                        format!("{} {layout}", self.dtype)
                    }
                }
            })
            .collect();
        let names: Vec<&str> = results.iter().map(|v| v.name.as_str()).collect();
        match types.as_slice() {
            [one] => (one.clone(), names[0].to_string()),
            several => {
                let list: Vec<String> =
                    several.iter().enumerate().map(|(i, t)| format!("r{i}: {t}")).collect();
                (format!("({})", list.join(", ")), format!("({})", names.join(", ")))
            }
        }
    }

    /// A repeated layer behind a call of the layer, and the model of both.
    fn model(&mut self, passed: &[(String, String)], results: &[Value]) -> String {
        let (dtype, dims) = (self.dtype, results[0].dims.clone());
        let all: String = dims.iter().collect();
        let repeat = 2 + self.random.index(3);
        self.of_weights.extend(&dims);
        let scale = format!("scale: weight {dtype} {}", self.layout(&dims, Place::Parameter));
        let dim = self.random.pick(&dims);
        let inner = self.make_up(self.size(dim)).filter(|_| self.random.chance(60));
        // A narrow weight is multiplied in the dtype of the other operand.
        let stored = if dtype == "bf16" && repeat == 3 { "f4" } else { dtype };
        let (weight, product) = match inner {
            Some(made) => {
                let out: String = dims.iter().map(|d| if *d == dim { made } else { *d }).collect();
                let layout = self.layout(&[dim, made], Place::Parameter);
                (
                    format!(", w: weight {stored} {layout}"),
                    format!("rename(einsum(relu(x), w -> {out}), {made} -> {dim})"),
                )
            }
            None => (String::new(), "relu(x)".to_string()),
        };
        let carried = self.random.pick(&["?l", "?l", ""]);
        let others: String = (1..results.len()).map(|i| format!(", _r{i}")).collect();
        let names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
        let params: Vec<String> = passed.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
        let given = if others.is_empty() { "y".to_string() } else { format!("(y{others})") };
        let result = self.layout(&dims, Place::Result);
        format!(
            "layer block(x: {dtype} {all}{carried}, {scale}{weight}) -> {dtype} {all}{carried} \
                repeat {repeat} {{\n  \
             return x * scale + {product}\n}}\nmodel tower({}) -> {dtype} {result} {{\n  let \
             {given} = f({})\n  \
             return block(y)\n}}\n",
            params.join(", "),
            names.join(", ")
        )
    }

    /// Sometimes two phases, where the second has twice the size of some dim.
    fn phases(&mut self) -> String {
        let free = self.dims.iter().copied().filter(|(name, _)| !self.of_weights.contains(name));
        let free: Vec<(char, usize)> = free.collect();
        if self.sizes_belong_together
            || !self.made_up.is_empty()
            || free.is_empty()
            || !self.random.chance(15)
        {
            return String::new();
        }
        let (name, size) = self.random.pick(&free);
        format!("phase one {{ {name} = {size} }}\nphase two repeat 3 {{ {name} = {} }}\n", 2 * size)
    }

    /// A new dim of some size; `None` where there are many already.
    fn make_up(&mut self, size: usize) -> Option<char> {
        let name = MADE_UP.get(self.made_up.len()).copied()?;
        self.made_up.push(name);
        self.dims.push((name, size));
        Some(name)
    }

    /// A call of the layer `g`, which takes some dims, in any layouts.
    fn call(&mut self) -> Option<(String, Vec<char>)> {
        let value = self.value();
        let takes = self.callee.get_or_insert_with(|| value.dims.clone()).clone();
        let fits = takes.len() == value.dims.len() && takes.iter().all(|d| value.dims.contains(d));
        fits.then(|| (format!("g({})", value.name), takes))
    }

    /// One to `most` dims of the file, in some order.
    fn some_dims(&mut self, most: usize) -> Vec<char> {
        let names: Vec<char> = self.dims.iter().map(|d| d.0).collect();
        let count = 1 + self.random.index(most.min(names.len()));
        self.random.shuffled(&names)[..count].to_vec()
    }

    fn size(&self, dim: char) -> usize {
        self.dims.iter().find(|d| d.0 == dim).map_or(1, |d| d.1)
    }

    fn value(&mut self) -> Value {
        // Late values more often than early ones, so that programs are deep.
        let count = self.values.len();
        let at = self.random.index(count).max(self.random.index(count));
        self.values[at].clone()
    }

    /// An operand in an expression: a value, sometimes with a map applied.
    fn operand(&mut self) -> (String, Vec<char>) {
        let value = self.value();
        let text = match self.random.index(10) {
            0 => format!("relu({})", value.name),
            1 => format!("(-{})", value.name),
            _ => value.name,
        };
        (text, value.dims)
    }

    fn expression(&mut self) -> (String, Vec<char>) {
        let integers = self.dtype == "int32";
        let other = match self.random.index(100) {
            0..14 => self.reshaping(),
            14..18 if !integers => self.positional(),
            18..22 => self.call(),
            22..36 if self.ids.is_some() => self.rows_by_ids(),
            _ => None,
        };
        if let Some(other) = other {
            return other;
        }
        let (a, dims) = self.operand();
        match self.random.index(100) {
            0..30 => self.einsum(),
            30..55 => {
                let (b, others) = self.operand();
                let mut all = dims.clone();
                all.extend(others.iter().filter(|d| !dims.contains(d)));
                if all.len() > MAX_RANK {
                    return (format!("{a} * 2"), dims);
                }
                let text = match self.random.index(10) {
                    0..4 => format!("{a} + {b}"),
                    4 => format!("{a} - {b}"),
                    5..7 => format!("{a} * {b}"),
                    7..9 => format!("maximum({a}, {b})"),
                    _ => format!("minimum({a}, {b})"),
                };
                (text, all)
            }
            55..67 if dims.len() > 1 => {
                let over = self.random.shuffled(&dims)
                    [..1 + self.random.index(2).min(dims.len() - 2)]
                    .to_vec();
                let kind = self.random.pick(if integers {
                    &["sum", "max"]
                } else {
                    &["sum", "sum", "max", "max", "mean"]
                });
                let kept = dims.iter().copied().filter(|d| !over.contains(d)).collect();
                (format!("{kind}({a} over {})", over.iter().collect::<String>()), kept)
            }
            67..79 => {
                let stated = self.random.shuffled(&dims);
                let layout = self.layout(&stated, Place::Let);
                let value = self.value();
                if value.dims.len() == dims.len() && value.dims.iter().all(|d| dims.contains(d)) {
                    (format!("reshard({}, {layout})", value.name), value.dims)
                } else {
                    (format!("reshard({a}, {layout})"), dims)
                }
            }
            79..83 => (
                format!("{a} {} {}", self.random.pick(&["+", "-", "*"]), self.random.index(4)),
                dims,
            ),
            83..86 if !integers => {
                let over = self.random.pick(&dims);
                // A sink of another value, where one fits.
                let sinks = self.value();
                if !sinks.dims.contains(&over) && sinks.dims.iter().all(|d| dims.contains(d)) {
                    return (format!("sink_softmax({a}, {} over {over})", sinks.name), dims);
                }
                (
                    format!(
                        "{}({a} over {over})",
                        self.random.pick(&["softmax", "rmsnorm", "layernorm"])
                    ),
                    dims,
                )
            }
            86..89 if !integers => {
                (format!("{}({a})", self.random.pick(&["gelu", "silu", "tanh", "sigmoid"])), dims)
            }
            89..93 => {
                let same_size: Vec<(char, char)> = dims
                    .iter()
                    .flat_map(|from| self.dims.iter().map(move |to| (*from, to.0)))
                    .filter(|(from, to)| !dims.contains(to) && self.size(*from) == self.size(*to))
                    .collect();
                if same_size.is_empty() {
                    return (format!("abs({a})"), dims);
                }
                let (from, to) = self.random.pick(&same_size);
                self.sizes_belong_together = true;
                let renamed = dims.iter().map(|d| if *d == from { to } else { *d }).collect();
                (format!("rename({a}, {from} -> {to})"), renamed)
            }
            93..96 => (format!("square({a})"), dims),
            _ => (format!("relu({a})"), dims),
        }
    }

    fn einsum(&mut self) -> (String, Vec<char>) {
        let count = self.random.pick(&[1, 2, 2, 2, 2, 2, 2, 3]);
        let (mut operands, mut all) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (text, dims) = self.operand();
            operands.push(text);
            all.extend(dims.into_iter().filter(|d| !all.contains(d)).collect::<Vec<_>>());
        }
        let kept = 1 + self.random.index(all.len().min(3));
        let out = self.random.shuffled(&all)[..kept].to_vec();
        let names: String = out.iter().collect();
        // Sometimes accumulated in f32, and then cast to the dtype of the other values.
        let text = match self.dtype {
            "bf16" if self.random.index(4) == 0 => {
                format!("cast(einsum({} -> {names} : f32), bf16)", operands.join(", "))
            }
            _ => format!("einsum({} -> {names})", operands.join(", ")),
        };
        (text, out)
    }

    fn axes_text(&self, axes: &[usize]) -> String {
        let names: Vec<&str> = axes.iter().map(|a| self.axes[*a].0).collect();
        if names.iter().all(|n| n.len() == 1) {
            names.concat()
        } else {
            format!("{{{}}}", names.join(","))
        }
    }

    /// A layout of these dims: each axis splits a dim that it divides, or is partial, or is not
    /// used. Sometimes the layout is open, or its axes are in any order.
    fn layout(&mut self, dims: &[char], place: Place) -> String {
        if self.random.chance(if place == Place::Parameter { 5 } else { 15 }) {
            return format!("{}?", dims.iter().collect::<String>());
        }
        let numbers: Vec<usize> = (0..self.axes.len()).collect();
        let mut on: Vec<Vec<usize>> = vec![Vec::new(); dims.len()];
        let (mut sums, mut maxima) = (Vec::new(), Vec::new());
        let partial = if place == Place::Let { 8 } else { 15 };
        for axis in self.random.shuffled(&numbers) {
            match self.random.index(100) {
                roll if roll < partial => sums.push(axis),
                roll if roll < partial + 6 => maxima.push(axis),
                roll if roll < partial + 6 + 55 => {
                    let dim = self.random.index(dims.len());
                    let devices: usize = on[dim].iter().map(|a| self.axes[*a].1).product();
                    if self.size(dims[dim]).is_multiple_of(devices * self.axes[axis].1) {
                        on[dim].push(axis);
                    }
                }
                _ => {}
            }
        }
        let mut text = String::new();
        for (dim, axes) in dims.iter().zip(&on) {
            text.push(*dim);
            if axes.len() > 1 && self.random.chance(25) {
                text.push_str(&format!("_({})", self.axes_text(axes)));
            } else if !axes.is_empty() {
                text.push_str(&format!("_{}", self.axes_text(axes)));
            }
        }
        if self.random.chance(10) {
            text.push('?');
        }
        let parts: Vec<String> = [("partialsum", sums), ("partialmax", maxima)]
            .into_iter()
            .filter(|(_, axes)| !axes.is_empty())
            .map(|(word, axes)| format!("{word}-{}", self.axes_text(&axes)))
            .collect();
        if !parts.is_empty() {
            text.push_str(&format!("({})", parts.join(", ")));
        }
        text
    }
}
