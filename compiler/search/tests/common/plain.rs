//! A plain evaluator of attentions, by definition and from the checked program alone: scores are
//! written out, and a softmax is the exponentials over their sum. It shares nothing with the two of
//! the runtime.

use std::collections::BTreeMap;

use shard_ir::{Binary, Def, DimId, Map, Op, Program, Reduce, Value};

/// A value, whole: its dims, the last one fastest, and its elements.
struct Whole {
    dims: Vec<DimId>,
    data: Vec<f64>,
}

struct Plain<'p> {
    program: &'p Program,
    known: Vec<Whole>,
}

/// The position of each dim, by its number.
type Point = Vec<usize>;

/// The results of a program, each with the dims in the order of the result, given its parameters by
/// name.
pub(crate) fn results(program: &Program, given: &BTreeMap<String, Vec<f64>>) -> Vec<Vec<f64>> {
    let mut plain = Plain { program, known: Vec::new() };
    for value in &program.values {
        let data = plain.value(value, given);
        plain.known.push(Whole { dims: value.dims.clone(), data });
    }
    let result = |output: &shard_ir::Output| {
        plain.each(&output.dims, |point| plain.at(output.value.index(), point))
    };
    program.outputs.iter().map(result).collect()
}

impl Plain<'_> {
    fn size(&self, dim: DimId) -> usize {
        self.program.dims[dim.index()].size as usize
    }

    /// One number for each position of some dims.
    fn each(&self, dims: &[DimId], of: impl Fn(&Point) -> f64) -> Vec<f64> {
        let count: usize = dims.iter().map(|dim| self.size(*dim)).product();
        let mut point = vec![0; self.program.dims.len()];
        let mut all = Vec::with_capacity(count);
        for at in 0..count {
            let mut rest = at;
            for dim in dims.iter().rev() {
                point[dim.index()] = rest % self.size(*dim);
                rest /= self.size(*dim);
            }
            all.push(of(&point));
        }
        all
    }

    /// The element of a value at a point.
    fn at(&self, value: usize, point: &Point) -> f64 {
        let Whole { dims, data } = &self.known[value];
        data[dims.iter().fold(0, |at, dim| at * self.size(*dim) + point[dim.index()])]
    }

    /// The same with a dim at another position.
    fn moved(&self, value: usize, point: &Point, (dim, to): (DimId, usize)) -> f64 {
        let mut point = point.clone();
        point[dim.index()] = to;
        self.at(value, &point)
    }

    fn value(&self, value: &Value, given: &BTreeMap<String, Vec<f64>>) -> Vec<f64> {
        let (op, operands) = match &value.def {
            Def::Parameter { .. } => {
                return given[value.name.as_deref().expect("a parameter has a name")].clone();
            }
            Def::Constant(number) => return vec![*number],
            Def::Pin { operand, .. } => {
                return self.each(&value.dims, |point| self.at(operand.index(), point));
            }
            Def::Op { op, operands } => (op, operands),
        };
        let place = |at: usize| operands[at].index();
        match op {
            Op::Einsum => {
                let all = operands.iter().flat_map(|operand| &self.known[operand.index()].dims);
                let mut over: Vec<DimId> =
                    all.copied().filter(|d| !value.dims.contains(d)).collect();
                over.sort_unstable();
                over.dedup();
                let mut sums = vec![0.0; value.dims.iter().map(|d| self.size(*d)).product()];
                let terms = [&value.dims[..], &over].concat();
                let products = self.each(&terms, |point| {
                    operands.iter().map(|operand| self.at(operand.index(), point)).product()
                });
                let each = products.len() / sums.len().max(1);
                for (at, product) in products.into_iter().enumerate() {
                    sums[at / each] += product;
                }
                sums
            }
            op => self.each(&value.dims, |point| match op {
                Op::Cast(_) => self.at(place(0), point),
                Op::Map(Map::Tanh) => self.at(place(0), point).tanh(),
                Op::Map(Map::Neg) => -self.at(place(0), point),
                Op::Binary(Binary::Add) => self.at(place(0), point) + self.at(place(1), point),
                Op::Binary(Binary::Mul) => self.at(place(0), point) * self.at(place(1), point),
                Op::Reduce { kind: Reduce::Sum, over } => self
                    .each(over, |inner| {
                        let mut at = point.clone();
                        over.iter().for_each(|dim| at[dim.index()] = inner[dim.index()]);
                        self.at(place(0), &at)
                    })
                    .into_iter()
                    .sum(),
                Op::Mask { query, key, window } => {
                    let own = point[query.index()] + self.size(*key) - self.size(*query);
                    let seen = point[key.index()] <= own
                        && window.is_none_or(|w| point[key.index()] + w as usize > own);
                    if seen { self.at(place(0), point) } else { f64::NEG_INFINITY }
                }
                Op::Softmax { over } | Op::SinkSoftmax { over } => {
                    let all =
                        (0..self.size(*over)).map(|at| self.moved(place(0), point, (*over, at)));
                    let sink = operands.get(1).map_or(0.0, |of| self.at(of.index(), point).exp());
                    self.at(place(0), point).exp() / (all.map(f64::exp).sum::<f64>() + sink)
                }
                Op::Concat { left, right, to } => {
                    match point[to.index()].checked_sub(self.size(*left)) {
                        None => self.moved(place(0), point, (*left, point[to.index()])),
                        Some(behind) => self.moved(place(1), point, (*right, behind)),
                    }
                }
                other => panic!("{other:?} stands in no attention of these tests"),
            }),
        }
    }
}
