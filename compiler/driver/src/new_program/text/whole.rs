//! The layers around the blocks, and the model that they make.

use super::{Words, number};

impl Words<'_> {
    pub(super) fn whole(&self) -> String {
        let model = self.model;
        let (b, norm, dtype) = (&self.batch, model.norm, model.dtype.name());
        let (table, taken) = if model.tied { ("VE", ", table: tied") } else { ("EV", "") };
        let tied = if model.tied { format!(", tied: weight {dtype} VE?") } else { String::new() };
        let (sequences, called) = (self.sequences, model.name);
        let (outside, made) = self.outside();
        let extra = match model.embedding.positions {
            Some(_) => format!(",\n  positions: weight {dtype} NE?"),
            None => String::new(),
        };
        let bias =
            if model.scores.bias { format!(",\n  bias: weight {dtype} V?") } else { String::new() };
        format!(
            "
/// Tokens to vectors.
layer embed(ids: int32 {b}L, table: weight {dtype} VE?{extra}) -> {dtype} {b}LE? {{
  return {}
}}

/// Vectors to scores of tokens.
layer unembed(x: {dtype} {b}LE?, table: weight {dtype} {table}?{bias}) -> {dtype} {b}LV? {{
{}}}

model {called}(ids: int32 {b}L{outside}{tied}) -> {dtype} {b}LV? {{
{made}  let x = embed(ids{taken})
{}  return unembed({}{taken})
}}
",
            self.embedded(),
            self.scored(&format!("einsum({norm}(x over E), table -> {sequences}LV)")),
            self.calls(),
            self.last(),
        )
    }

    /// The parameters that the model hands to layers beside their input, and the statements of
    /// those that it makes itself.
    fn outside(&self) -> (String, String) {
        let kinds: Vec<usize> = (0..self.model.kinds.len()).collect();
        let (mut parameters, mut made) = (String::new(), String::new());
        for given in self.given(&kinds) {
            match given.made {
                Some(of) => made += &format!("  let {} = {of}\n", given.name),
                None => parameters += &format!(", {}: {}", given.name, given.ty),
            }
        }
        (parameters, made)
    }

    fn embedded(&self) -> String {
        let embedding = &self.model.embedding;
        let mut out = "take(table, ids over V)".to_string();
        if let Some(factor) = embedding.factor {
            out += &format!(" * {}", number(factor));
        }
        if embedding.positions.is_some() {
            out += " + slice(positions, N -> L, S - L)";
        }
        if embedding.norm { format!("{}({out} over E)", self.model.norm) } else { out }
    }

    fn scored(&self, product: &str) -> String {
        let scores = &self.model.scores;
        let mut out = product.to_string();
        if let Some(factor) = scores.factor {
            out += &format!(" * {}", number(factor));
        }
        if scores.bias {
            out += " + bias";
        }
        match scores.softcap {
            Some(cap) => {
                let cap = number(cap);
                format!("  let scores = {out}\n  return {cap} * tanh(scores / {cap})\n")
            }
            None => format!("  return {out}\n"),
        }
    }

    /// The calls of the layers, one for each piece.
    fn calls(&self) -> String {
        let pieces = self.model.pieces.iter().enumerate();
        pieces
            .map(|(at, piece)| {
                let (from, to) = (self.value(at), self.value(at + 1));
                let given = self.given(&piece.kinds).into_iter();
                let given: String = given.map(|given| format!(", {}", given.name)).collect();
                let times = match piece.times {
                    0 | 1 => String::new(),
                    times => format!("    // {times} of them"),
                };
                format!("  let {to} = {}({from}{given}){times}\n", self.name_of(at))
            })
            .collect()
    }

    /// The name of the value behind so many pieces.
    fn value(&self, pieces: usize) -> String {
        match (pieces, self.model.pieces.len()) {
            (0, _) => "x".to_string(),
            (_, 1) => "y".to_string(),
            (pieces, _) => format!("y{pieces}"),
        }
    }

    fn last(&self) -> String {
        self.value(self.model.pieces.len())
    }
}
