//! Random layers that are an attention, as text: heads, groups, latent keys, masks, biases, sinks,
//! keys that are joined, linear ops behind it, and layouts of all kinds.

use shard_runtime::Random;

/// The layer of a seed, small enough to be executed in a moment.
pub(crate) fn attention(seed: u64) -> String {
    Attention::new(Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491)).text()
}

/// Letters of dims: B sequences, H heads of keys, G queries a head, L positions of queries, S those
/// of keys, Q and R widths of keys, D that of values, N that of what a product makes of them.
struct Attention {
    random: Random,
    /// The dims that queries have besides their width.
    rows: String,
    given: Vec<String>,
    /// The dim of the keys.
    keys: char,
    /// Whether keys and values are joined from two parts each.
    joined: bool,
    /// The positions of queries.
    queries: u64,
    mesh: &'static str,
    axes: &'static str,
}

impl Attention {
    fn new(mut random: Random) -> Attention {
        let rows: String = "BHGL".chars().filter(|_| random.index(3) > 0).collect();
        let rows = if rows.is_empty() { "L".to_string() } else { rows };
        let joined = random.index(2) == 0;
        let (mesh, axes) = [("x=2", "x"), ("x=4", "x"), ("x=2, y=2", "xy")][random.index(3)];
        let keys = if joined { 'U' } else { 'S' };
        // As many queries as keys, now and then, if they have no heads.
        let queries = if rows.len() < 3 && random.index(2) == 0 { 64 } else { 4 };
        Attention { random, rows, given: Vec::new(), keys, joined, queries, mesh, axes }
    }

    /// A parameter of these dims, some of them split, or open.
    fn parameter(&mut self, name: &str, dims: &str) {
        let open = self.random.index(5) == 0;
        let layout = if open { format!("{dims}?") } else { self.layout(dims) };
        self.given.push(format!("{name}: f32 {layout}"));
    }

    fn layout(&mut self, dims: &str) -> String {
        let mut on: Vec<String> = dims.chars().map(|dim| dim.to_string()).collect();
        for axis in self.axes.chars() {
            // All dims are a multiple of 4, which is all devices of a mesh.
            if self.random.index(3) > 0 {
                let at = self.random.index(on.len());
                on[at] = if on[at].contains('_') {
                    format!("{}{axis}", on[at])
                } else {
                    format!("{}_{axis}", on[at])
                };
            }
        }
        on.concat()
    }

    /// The dims that keys share with queries: sequences and heads, or fewer.
    fn shared(&mut self) -> String {
        let random = &mut self.random;
        self.rows.chars().filter(|dim| "BH".contains(*dim) && random.index(4) > 0).collect()
    }

    /// Keys or values of this width, joined or not, as an expression.
    fn keyed(&mut self, name: &str, width: char) -> String {
        let shared = self.shared();
        if !self.joined {
            self.parameter(name, &format!("{shared}S{width}"));
            return name.to_string();
        }
        // One of the two parts may lack dims that the other has.
        let other = self.shared();
        self.parameter(name, &format!("{shared}S{width}"));
        self.parameter(&format!("{name}t"), &format!("{other}T{width}"));
        format!("concat({name}, {name}t, S, T -> U)")
    }

    fn text(mut self) -> String {
        let (rows, keys) = (self.rows.clone(), self.keys);
        let scores = format!("{rows}{keys}");
        let mut body = String::new();
        self.parameter("q", &format!("{rows}Q"));
        let k = self.keyed("k", 'Q');
        body.push_str(&format!("  let k1 = {k}\n  let s = einsum(q, k1 -> {scores})\n"));
        let mut s = "s".to_string();
        if self.random.index(4) == 0 {
            self.parameter("p", &format!("{rows}R"));
            let r = self.keyed("r", 'R');
            s = format!("{s} + einsum(p, {r} -> {scores})");
        }
        if self.random.index(2) == 0 {
            s = format!("({s}) * 0.25");
        }
        if self.random.index(6) == 0 {
            s = format!("tanh({s})");
        }
        if self.random.index(6) == 0 {
            let of: String = scores.chars().filter(|dim| *dim == keys || *dim == 'L').collect();
            self.parameter("bias", &of);
            s = format!("{s} + bias");
        }
        if rows.contains('L') && self.random.index(3) == 0 {
            let window = [String::new(), ", 3".to_string()][self.random.index(2)].clone();
            s = format!("causal({s} over L, {keys}{window})");
        }
        let sinks = self.random.index(8) == 0;
        body.push_str(&format!("  let t = {s}\n"));
        let softmax = if sinks {
            let of: String = rows.chars().filter(|dim| "HG".contains(*dim)).collect();
            self.parameter("sink", if of.is_empty() { &rows[..1] } else { &of });
            format!("sink_softmax(t, sink over {keys})")
        } else {
            format!("softmax(t over {keys})")
        };
        // Values are the keys, now and then.
        let (v, width) = match self.random.index(3) {
            0 => ("k1".to_string(), 'Q'),
            _ => (self.keyed("v", 'D'), 'D'),
        };
        let out = format!("{rows}{width}");
        body.push_str(&format!("  let o = einsum({softmax}, {v} -> {out})\n"));
        let (result, dims) = match self.random.index(6) {
            0 => {
                self.parameter("w", &format!("{width}N"));
                (format!("einsum(o, w -> {rows}N)"), format!("{rows}N"))
            }
            1 => ("-o".to_string(), out),
            2 => {
                self.parameter("g", &rows);
                ("o * g".to_string(), out)
            }
            3 => (format!("sum(o over {width})"), rows.clone()),
            4 => ("tanh(o)".to_string(), out),
            // An op that joins the kernel reads what the attention reads, too.
            5 if width == 'Q' => ("q + o".to_string(), out),
            _ => ("o".to_string(), out),
        };
        let wanted = self.layout(&dims);
        format!(
            "mesh {}\ndim B = 4\ndim H = 4\ndim G = 4\ndim L = {}\ndim S = 96\ndim T = 32\n\
             dim U = S + T\ndim Q = 4\ndim R = 4\ndim D = 8\ndim N = 4\n\
             layer f({}) -> f32 {wanted} {{\n{body}  return {result}\n}}\n",
            self.mesh,
            self.queries,
            self.given.join(", "),
        )
    }
}
