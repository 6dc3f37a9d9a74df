//! A kind of layer, and the layers that repeat several kinds.

use super::super::model::{Attention, Block, Flow};
use super::super::order::Piece;
use super::super::sizes::{self, Heads};
use super::{Given, POSITIONS, Words};

impl Given {
    /// The line of a layer's parameter.
    fn parameter(&self) -> String {
        format!("  {}: {}", self.name, self.ty)
    }
}

impl Words<'_> {
    /// All layers, without the embedding, its inverse and the model.
    pub(super) fn layers(&self) -> String {
        let kinds = self.model.kinds.iter().enumerate().map(|(index, kind)| {
            let times = self.stands_alone(index).map_or(1, |piece| piece.times);
            self.layer(kind, times)
        });
        let rows = self.model.pieces.iter().enumerate();
        let rows = rows.filter(|(_, piece)| !self.is_alone(piece));
        let rows: Vec<String> = rows.map(|(at, piece)| self.row(at, piece)).collect();
        kinds.chain(rows).collect()
    }

    /// The piece that has this kind alone, where no other piece has the kind.
    fn stands_alone(&self, kind: usize) -> Option<&Piece> {
        let mut with = self.model.pieces.iter().filter(|piece| piece.kinds.contains(&kind));
        with.next().filter(|piece| piece.kinds.len() == 1 && with.next().is_none())
    }

    /// Whether a piece has one kind, which no other piece has.
    pub(super) fn is_alone(&self, piece: &Piece) -> bool {
        piece.kinds.len() == 1 && self.stands_alone(piece.kinds[0]).is_some()
    }

    /// The name of the layer of a piece.
    pub(super) fn name_of(&self, at: usize) -> String {
        let piece = &self.model.pieces[at];
        match (self.is_alone(piece), at) {
            (true, _) => self.called(&self.model.kinds[piece.kinds[0]]),
            (false, 0) => self.block.to_string(),
            (false, at) => format!("{}_{}", self.block, at + 1),
        }
    }

    /// A kind of layer as text.
    fn layer(&self, kind: &Block, times: u64) -> String {
        let stream = self.stream();
        let mut parameters = vec![format!("  x: {stream}")];
        parameters.extend(self.given_to(kind).map(|given| given.parameter()));
        parameters.extend(self.kept(kind).map(|(name, ty)| format!("  {name}: {ty}")));
        let caches = self.caches(kind);
        let (mut results, mut returned) = (vec![format!("y: {stream}")], vec!["y"]);
        for (_, new, ty) in &caches {
            results.push(format!("{new}: {ty}"));
            returned.push(new);
        }
        let (results, returned) = if caches.is_empty() {
            (stream, "y".to_string())
        } else {
            (format!("({})", results.join(", ")), format!("({})", returned.join(", ")))
        };
        let repeat = if times > 1 { format!(" repeat {times}") } else { String::new() };
        format!(
            "\nlayer {}(\n{},\n) -> {results}{repeat} {{\n{}  return {returned}\n}}\n",
            self.called(kind),
            parameters.join(",\n"),
            self.statements(kind),
        )
    }

    /// The type of the value that layers hand on.
    fn stream(&self) -> String {
        format!("{} {}LE?l", self.model.dtype.name(), self.batch)
    }

    /// The names and types of what a kind keeps: weights, then caches.
    fn kept(&self, kind: &Block) -> impl Iterator<Item = (String, String)> {
        let weights = sizes::weights(self.model, kind);
        let weights = weights.into_iter().chain(sizes::scales(self.model, kind));
        let weights = weights.map(|kept| {
            (kept.name.to_string(), format!("weight {} {}?", kept.dtype.name(), kept.dims))
        });
        let caches = self.caches(kind).into_iter();
        weights.chain(caches.map(|(name, _, ty)| (name.to_string(), format!("cache {ty}"))))
    }

    /// The parameters that a kind is given beside its input.
    pub(super) fn given_to(&self, kind: &Block) -> impl Iterator<Item = Given> + use<> {
        let of = |wanted: &dyn Fn(&Attention) -> bool| {
            kind.attention.as_ref().filter(|attention| wanted(attention))
        };
        let alibi = of(&|attention| attention.alibi).map(|attention| {
            let heads = Heads::of(attention).dims().1;
            let ty = format!("{} {heads}S?", self.model.dtype.name());
            Given { name: "alibi", ty, made: None }
        });
        let positions = of(&|attention| attention.tuned.is_some()).map(|_| Given {
            name: POSITIONS,
            ty: format!("int32 {}L", self.batch),
            // The tokens of a step are the last of the caches, whose positions count from 0.
            made: Some("slice(iota(pad(ids, L -> S, S - L) over S), S -> L, S - L)".to_string()),
        });
        alibi.into_iter().chain(positions)
    }

    /// A layer that calls several kinds one after another, each with parameters of its own.
    fn row(&self, at: usize, piece: &Piece) -> String {
        let stream = self.stream();
        let mut parameters = vec![format!("  x: {stream}")];
        let given = self.given(&piece.kinds);
        parameters.extend(given.iter().map(Given::parameter));
        let (mut results, mut returned) = (vec![format!("y: {stream}")], Vec::new());
        let mut body = String::new();
        let mut input = "x".to_string();
        for (place, kind) in piece.kinds.iter().enumerate() {
            let (kind, place) = (&self.model.kinds[*kind], place + 1);
            let of = |name: &str| format!("{name}_{place}");
            let mut arguments = vec![input];
            arguments.extend(self.given_to(kind).map(|given| given.name.to_string()));
            for (name, ty) in self.kept(kind) {
                parameters.push(format!("  {}: {ty}", of(&name)));
                arguments.push(of(&name));
            }
            let mut made = vec![of("y")];
            for (_, new, ty) in self.caches(kind) {
                results.push(format!("{}: {ty}", of(new)));
                returned.push(of(new));
                made.push(of(new));
            }
            let made = if made.len() > 1 { format!("({})", made.join(", ")) } else { of("y") };
            body += &format!("  let {made} = {}({})\n", self.called(kind), arguments.join(", "));
            input = of("y");
        }
        returned.insert(0, input);
        let repeat =
            if piece.times > 1 { format!(" repeat {}", piece.times) } else { String::new() };
        let (results, returned) = match returned.len() {
            1 => (stream, returned.concat()),
            _ => (format!("({})", results.join(", ")), format!("({})", returned.join(", "))),
        };
        format!(
            "\nlayer {}(\n{},\n) -> {results}{repeat} {{\n{body}  return {returned}\n}}\n",
            self.name_of(at),
            parameters.join(",\n"),
        )
    }

    /// The parameters that some kinds are given beside their input, each once.
    pub(super) fn given(&self, kinds: &[usize]) -> Vec<Given> {
        let mut out: Vec<Given> = Vec::new();
        for given in kinds.iter().flat_map(|kind| self.given_to(&self.model.kinds[*kind])) {
            if out.iter().all(|other| other.name != given.name) {
                out.push(given);
            }
        }
        out
    }

    /// The statements from `x` to `y`, and to the new caches.
    fn statements(&self, kind: &Block) -> String {
        if let Some(space) = kind.state_space() {
            return self.recurrence(space);
        }
        let (b, norm) = (self.sequences, self.model.norm);
        let (mut out, down) = self.feed_forward_of(kind);
        let Some(attention) = &kind.attention else {
            return format!("{out}  let y = {down}\n");
        };
        let attended = if attention.bias.output {
            format!("(einsum(o, wo -> {b}LE) + bo)")
        } else {
            format!("einsum(o, wo -> {b}LE)")
        };
        let scaled = |value: String| match kind.residual {
            Some(factor) => format!("{value} * {}", super::number(factor)),
            None => value,
        };
        let normed = |value: String| format!("{norm}({value} over E)");
        let (first, second) = match kind.flow {
            Flow::Before => (format!("x + {}", scaled(attended)), scaled(down)),
            Flow::Behind | Flow::Around => {
                (format!("x + {}", scaled(normed(attended))), scaled(normed(down)))
            }
            Flow::Parallel => {
                let input = format!("  let h = {norm}(x over E)\n");
                let sum = format!("x + {} + {}", scaled(attended), scaled(down));
                return format!("{input}{}{out}  let y = {sum}\n", self.attend(attention));
            }
        };
        let read = |from: &str, to: &str| match kind.flow {
            Flow::Behind => String::new(),
            Flow::Before | Flow::Around | Flow::Parallel => {
                format!("  let {to} = {norm}({from} over E)\n")
            }
        };
        out = format!(
            "{}{}  let a = {first}\n{}{out}",
            read("x", "h"),
            self.attend(attention),
            read("a", "n")
        );
        out + &format!("  let y = a + {second}\n")
    }

    /// The feed-forward layer of a kind, on the value that it reads.
    fn feed_forward_of(&self, kind: &Block) -> (String, String) {
        let input = match (&kind.attention, kind.flow) {
            (None, _) => "x",
            (Some(_), Flow::Parallel) => "h",
            (Some(_), Flow::Behind) => "a",
            (Some(_), Flow::Before | Flow::Around) => "n",
        };
        self.feed_forward(&kind.feed, input)
    }
}
