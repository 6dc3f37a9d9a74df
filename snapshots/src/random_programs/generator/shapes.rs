//! Expressions that give a dim another size, or look along one: parts, joins, positions, ids.

use super::{Generator, MAX_RANK, Value};

impl Generator {
    /// An op that gives some dim another size, or looks along one.
    pub(super) fn reshaping(&mut self) -> Option<(String, Vec<char>)> {
        let (a, dims) = self.operand();
        let dim = self.random.pick(&dims);
        let size = self.size(dim);
        let replaced = |by: &[char]| -> Vec<char> {
            dims.iter().flat_map(|d| if *d == dim { by.to_vec() } else { vec![*d] }).collect()
        };
        Some(match self.random.index(12) {
            0 => {
                let parts: Vec<usize> = (2..size).filter(|n| size.is_multiple_of(*n)).collect();
                if parts.is_empty() || dims.len() == MAX_RANK {
                    return None;
                }
                let major = self.random.pick(&parts);
                let (p, q) = (self.make_up(major)?, self.make_up(size / major)?);
                (format!("split({a}, {dim} -> {p}{q})"), replaced(&[p, q]))
            }
            1 => {
                let other = *dims.iter().find(|d| **d != dim)?;
                let whole = self.make_up(size * self.size(other))?;
                let kept = replaced(&[whole]).into_iter().filter(|d| *d != other).collect();
                (format!("merge({a}, {dim}{other} -> {whole})"), kept)
            }
            2 => {
                let value = self.value();
                if value.dims.len() != dims.len() || !value.dims.iter().all(|d| dims.contains(d)) {
                    return None;
                }
                let whole = self.make_up(2 * size)?;
                (
                    format!("concat({a}, {}, {dim}, {dim} -> {whole})", value.name),
                    replaced(&[whole]),
                )
            }
            3 => {
                let kept = 1 + self.random.index(size);
                let (part, start) = (self.make_up(kept)?, self.random.index(size - kept + 1));
                (format!("slice({a}, {dim} -> {part}, {start})"), replaced(&[part]))
            }
            4 => {
                let kept = 1 + self.random.index(size);
                let new = self.make_up(kept)?;
                (format!("append({a}, slice({a}, {dim} -> {new}, 0), {new} -> {dim})"), dims)
            }
            5 => {
                let ids = self.ids.clone().filter(|ids| !ids.contains(&dim))?;
                let rest = dims.iter().filter(|d| **d != dim && !ids.contains(d));
                let out: Vec<char> = ids.iter().chain(rest).copied().collect();
                if out.len() > MAX_RANK {
                    return None;
                }
                self.sizes_belong_together = true;
                (format!("take({a}, ids over {dim})"), out)
            }
            6 if self.random.chance(30) => self.along_positions(&a, dim, dims)?,
            6 if self.random.chance(50) => (format!("cumsum({a} over {dim})"), dims),
            // One value up to a position, and another value behind it.
            6 => {
                let value = self.value();
                let other = if value.dims.iter().all(|d| dims.contains(d)) {
                    value.name
                } else {
                    "3".to_string()
                };
                let word = self.random.pick(&["less", "less_equal", "equal"]);
                let at = self.random.index(size);
                let holds = format!("{word}(iota({a} over {dim}), {at})");
                (format!("where({holds}, {a}, {other})"), dims)
            }
            7 if dims.len() > 1 => {
                // Weights of another value of the file, where one fits.
                let value = self.value();
                let taps = *value.dims.iter().find(|d| !dims.contains(d))?;
                let fits = |d: &char| *d == taps || (*d != dim && dims.contains(d));
                if !value.dims.iter().all(fits) {
                    return None;
                }
                (format!("conv({a}, {} over {dim}, {taps})", value.name), dims)
            }
            8 => (format!("shift({a} over {dim}, {})", 1 + self.random.index(size)), dims),
            9 | 10 if dims.len() > 1 => {
                let kept = dims.iter().copied().filter(|d| *d != dim).collect();
                let text = match self.random.index(2) {
                    0 if self.dtype == "int32" => format!("argmax({a} over {dim})"),
                    _ if self.dtype == "int32" => {
                        format!("locate({a}, max({a} over {dim}) over {dim})")
                    }
                    // Numbers that nothing has rounded, so that both programs find the same one.
                    _ => {
                        let given = |v: &&Value| v.name.starts_with('p') && v.dims == dims;
                        let given = self.values.iter().find(given)?;
                        format!("cast(argmax({} over {dim}), {})", given.name, self.dtype)
                    }
                };
                (text, kept)
            }
            _ => {
                // The test is that both programs route in the same way, so the gates are a
                // parameter.
                let gates = self
                    .values
                    .iter()
                    .find(|v| v.name.starts_with('p') && (2..MAX_RANK).contains(&v.dims.len()));
                let gates = gates.filter(|_| self.dtype != "int32")?.clone();
                let order = self.random.shuffled(&gates.dims);
                let size = 1 + self.random.index(3);
                let places = self.make_up(size)?;
                let choices = 1 + self.random.index(self.size(order[0]));
                let out = gates.dims.iter().copied().chain([places]).collect();
                (
                    format!(
                        "route({} over {} at {} -> {places}, {choices})",
                        gates.name, order[0], order[1]
                    ),
                    out,
                )
            }
        })
    }

    /// A recurrence, zeros around a dim, the largest of its parts, or rows added up by their ids.
    pub(super) fn along_positions(
        &mut self,
        a: &str,
        dim: char,
        dims: Vec<char>,
    ) -> Option<(String, Vec<char>)> {
        let size = self.size(dim);
        let replaced = |to: char| dims.iter().map(|d| if *d == dim { to } else { *d }).collect();
        match self.random.index(4) {
            0 => {
                let factor = self.value();
                let fits = factor.dims.iter().all(|d| dims.contains(d));
                let other = if fits { factor.name } else { a.to_string() };
                // The factors are below 1 in magnitude, so that nothing grows without bound.
                let factor = match self.dtype {
                    "int32" => format!("minimum(maximum({other}, -1), 1)"),
                    _ => format!("tanh({other})"),
                };
                Some((format!("scan({a}, {factor} over {dim})"), dims))
            }
            1 => {
                let (before, behind) = (self.random.index(3), self.random.index(3));
                let longer = self.make_up(size + before + behind)?;
                Some((format!("pad({a}, {dim} -> {longer}, {before})"), replaced(longer)))
            }
            2 => {
                let fits: Vec<usize> =
                    [1, 2, 4].into_iter().filter(|n| size.is_multiple_of(*n)).collect();
                let parts = self.random.pick(&fits);
                let each = 1 + self.random.index(size / parts);
                let chosen = self.make_up(parts * each)?;
                // The numbers are not rounded, so that both programs find the same positions.
                let given = |v: &&Value| v.name.starts_with('p') && v.dims == dims;
                let of = match self.values.iter().find(given).filter(|_| self.random.chance(50)) {
                    Some(given) => {
                        format!(
                            "cast(argtopk({} over {dim} -> {chosen}, {parts}), {})",
                            given.name, self.dtype
                        )
                    }
                    None => format!("topk({a} over {dim} -> {chosen}, {parts})"),
                };
                Some((of, replaced(chosen)))
            }
            _ => self.rows_by_ids(),
        }
    }

    /// Rows of a value added up by their ids, over some of the dims of the ids.
    pub(super) fn rows_by_ids(&mut self) -> Option<(String, Vec<char>)> {
        let ids = self.ids.clone()?;
        let has_all = |value: &&Value| ids.iter().all(|dim| value.dims.contains(dim));
        let fits: Vec<(String, Vec<char>)> = self
            .values
            .iter()
            .filter(has_all)
            .map(|value| (value.name.clone(), value.dims.clone()))
            .collect();
        if fits.is_empty() {
            return None;
        }
        let (a, dims) = self.random.pick(&fits);
        let over = self.random.shuffled(&ids)[..1 + self.random.index(ids.len())].to_vec();
        // Some that axes may split, and some that axes may not split.
        let room = [1, 2, 4, 5, 6, 8][self.random.index(6)];
        let places = self.make_up(room)?;
        self.sizes_belong_together = true;
        let mut out = dims.clone();
        let first = out.iter_mut().find(|dim| over.contains(dim))?;
        *first = places;
        out.retain(|dim| !over.contains(dim));
        let over: String = over.into_iter().collect();
        Some((format!("scatter_add({a}, ids over {over} -> {places})"), out))
    }

    /// An op that works along one dim by the position along another; a masked value becomes weights
    /// at once.
    pub(super) fn positional(&mut self) -> Option<(String, Vec<char>)> {
        let (a, dims) = self.operand();
        let pair = self.random.shuffled(&dims);
        let &[first, second, ..] = pair.as_slice() else { return None };
        self.sizes_belong_together = true;
        let text = match self.random.index(2) {
            0 if self.size(first) <= self.size(second) => {
                // Half of them have a window.
                let window = match self.random.index(2) {
                    0 => String::new(),
                    _ => format!(", {}", 1 + self.random.index(self.size(second))),
                };
                format!("softmax(causal({a} over {first}, {second}{window}) over {second})")
            }
            1 if self.size(first).is_multiple_of(2) => {
                // Sometimes the positions are the last of another dim.
                let longer = |d: &&(char, usize)| d.1 >= self.size(second);
                let extent = self.dims.iter().filter(longer).nth(1).map(|d| format!(", {}", d.0));
                format!("rope({a} over {first} at {second}{})", extent.unwrap_or_default())
            }
            _ => return None,
        };
        Some((text, dims))
    }
}
