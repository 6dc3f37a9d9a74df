//! Finds edits of annotations that make the optimum better. Each edit is tried by lowering the
//! layer with it.

mod source_line;
mod words;

use shard_cost::Hardware;
use shard_ir::Dtype;

use super::optimum::{Choice, Optimum, optimum};
use super::sharding::Spec;
use super::translate::{Class, Expression, Layer, Parameter};
use crate::axes::NamedMesh;
use crate::compare::{Advice, Barrier, Comparison};
use crate::hlo::tables::Place;
use crate::report::Totals;

/// The most plans that are searched for one audit; edits beyond are not tried.
const MOST_PLANS: usize = 240;

/// The most statements of all these plans together, so that fewer plans of a large layer are
/// searched, but at least `FEWEST_PLANS`.
const MOST_STATEMENTS: usize = 12_000;

/// The plans that are searched for a layer of any size.
const FEWEST_PLANS: usize = 24;

/// The most edits that are made one after another.
const MOST_EDITS: usize = 8;

/// The most ways to lay out several stacks that are compared.
const MOST_WAYS: usize = 64;

/// Gives the text of a file of the user's program, if it can be read.
pub type Files<'a> = &'a mut dyn FnMut(&str) -> Option<String>;

/// An edit that can be tried.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Another spec of parameters that are laid out alike (a weight and what an optimiser keeps of
    /// it), and of the results that they become.
    Parameters {
        /// The parameters of the layer, by index.
        parameters: Vec<usize>,
        /// The results of the layer, by index.
        outputs: Vec<usize>,
        /// Their spec.
        spec: Spec,
    },
    /// Another spec of a constraint.
    Constraint {
        /// Where the constraint stands in turns of a loop that are written out, as indices of the
        /// layer's constraints.
        turns: Vec<usize>,
        /// The spec.
        spec: Spec,
    },
    /// Results laid out as the arguments of their dims: the index of each, and its spec.
    Outputs(Vec<(usize, Spec)>),
    /// A dim of a parameter as two dims.
    Parted {
        /// The parameter of the layer, by index.
        parameter: usize,
        /// The dim.
        class: Class,
        /// Into how many parts it is cut.
        parts: u64,
        /// The first line that cuts it.
        place: Option<Place>,
    },
}

/// One of the edits that are made one after another.
#[derive(Clone, Debug)]
pub struct Step {
    /// The edit.
    pub edit: Edit,
    /// What a person reads of it.
    pub advice: Advice,
}

impl Step {
    /// Whether the edit changes the shape of an argument, which no sharding does.
    pub fn is_another_program(&self) -> bool {
        match self.edit {
            Edit::Parted { .. } => true,
            Edit::Parameters { .. } | Edit::Constraint { .. } | Edit::Outputs(_) => false,
        }
    }
}

/// Makes an edit of a choice.
pub fn apply(edit: &Edit, choice: &mut Choice) {
    match edit {
        Edit::Parameters { parameters, outputs, spec } => {
            for at in parameters {
                choice.parameters[*at] = Some(spec.clone());
            }
            for at in outputs {
                choice.outputs[*at] = Some(spec.clone());
            }
        }
        Edit::Constraint { turns, spec } => {
            for at in turns {
                choice.constraints[*at] = Some(spec.clone());
            }
        }
        Edit::Outputs(all) => {
            for (at, spec) in all {
                choice.outputs[*at] = Some(spec.clone());
            }
        }
        Edit::Parted { class, parts, .. } => choice.parted = Some((*class, *parts)),
    }
}

struct Advisor<'a> {
    layer: &'a Layer,
    mesh: &'a NamedMesh,
    hardware: &'a Hardware,
    plans: usize,
}

/// Compares a compiled program, which sends `sent` bytes, with the optimum of its layer, and finds
/// edits that make the optimum better.
pub fn compare(
    layer: &Layer,
    mesh: &NamedMesh,
    hardware: &Hardware,
    sent: u64,
    files: Files<'_>,
) -> (Comparison, Vec<Step>) {
    let barriers = layer.barriers.iter().map(|(op, count)| Barrier {
        op: op.clone(),
        count: *count,
        share: *count as f64 / layer.ops.max(1) as f64,
    });
    let mut found = Comparison { barriers: barriers.collect(), ..Comparison::default() };
    let mut advisor = Advisor { layer, mesh, hardware, plans: 0 };
    let (mut choice, mut now, laid_anew) = match advisor.start() {
        Ok(start) => start,
        Err(why) => {
            found.why_not = Some(format!("no optimum: {why}"));
            return (found, Vec::new());
        }
    };
    let mut steps = Vec::new();
    let unproven = |optimum: &Optimum| {
        (!optimum.proven).then(|| "the search ended before it had a proof".to_string())
    };
    found.why_not = unproven(&now);
    found.moves.clone_from(&now.moves);
    let mut same = now.totals;
    let moved: u64 = laid_anew.iter().map(|(_, bytes)| *bytes).sum();
    same.wire_bytes = same.wire_bytes.saturating_add(moved);
    same.time = same.time.filter(|_| moved == 0);
    found.same_specs = Some(with_by_hand(same, layer));
    found.by_hand = layer.by_hand;
    let by_hand = layer.by_hand.map_or(0, |totals| totals.wire_bytes);
    let mut before = sent.saturating_sub(by_hand).max(same.wire_bytes);
    if !laid_anew.is_empty() {
        let saved = before.saturating_sub(now.totals.wire_bytes);
        let parts = laid_anew.len() as u64;
        for (at, _) in &laid_anew {
            let advice = advisor.stack_advice(*at, &choice, saved / parts, files);
            let spec = choice.parameters[*at].clone().unwrap_or_default();
            let parameters = advisor.slices_with(*at);
            let edit = Edit::Parameters { parameters, outputs: Vec::new(), spec };
            steps.push(Step { edit, advice });
        }
        before = now.totals.wire_bytes;
    }
    for _ in 0..MOST_EDITS {
        let Some((edit, edited, better)) = advisor.best(&choice, &now) else { break };
        let saved = before.saturating_sub(better.totals.wire_bytes);
        let advice = advisor.advice(&edit, &choice, saved, files);
        before = better.totals.wire_bytes;
        steps.push(Step { edit, advice });
        (choice, now) = (edited, better);
    }
    found.advice = steps.iter().map(|step| step.advice.clone()).collect();
    found.advice.sort_by_key(|advice| std::cmp::Reverse(advice.saves_bytes));
    found.free = Some(with_by_hand(now.totals, layer));
    found.why_not = found.why_not.or_else(|| unproven(&now));
    (found, steps)
}

/// What a plan sends and takes, together with what the program does by hand.
fn with_by_hand(mut totals: Totals, layer: &Layer) -> Totals {
    if let Some(by_hand) = layer.by_hand {
        totals.add(by_hand);
    }
    totals
}

/// The start of the search for edits: a choice, its optimum, and the stacks that have to be laid
/// out anew with the bytes that each sends for that.
type Start = (Choice, Optimum, Vec<(usize, u64)>);

impl Advisor<'_> {
    fn optimum(&mut self, choice: &Choice) -> Result<Optimum, String> {
        self.plans += 1;
        let fitting = MOST_STATEMENTS / self.layer.statements.len().max(1);
        let most = fitting.clamp(FEWEST_PLANS, MOST_PLANS);
        if self.plans > most {
            return Err(format!("{most} plans were searched"));
        }
        optimum(self.layer, self.mesh, choice, self.hardware)
    }

    /// The optimum with the specs of the program. A stack that is split along its slices is laid
    /// out anew before the loop, in the way that is best for the loop.
    fn start(&mut self) -> Result<Start, String> {
        let choice = Choice::of(self.layer);
        // The first slice of a stack stands for all of them.
        let stacks: Vec<usize> = (0..self.layer.parameters.len())
            .filter(|at| self.lead(*at).is_some_and(|lead| !lead.is_empty()))
            .filter(|at| !(0..*at).any(|before| self.is_slice_with(*at, before)))
            .collect();
        if stacks.is_empty() {
            let now = self.optimum(&choice)?;
            return Ok((choice, now, Vec::new()));
        }
        let mut ways = vec![choice];
        for at in &stacks {
            let lead = self.lead(*at).unwrap_or_default();
            let specs = self.with_axes(*at, &self.layer.parameters[*at].spec.clone(), &lead);
            let slices = &self.slices_with(*at);
            ways = ways
                .into_iter()
                .flat_map(|way| {
                    specs.iter().map(move |spec| {
                        let mut way = way.clone();
                        for slice in slices {
                            way.parameters[*slice] = Some(spec.clone());
                        }
                        way
                    })
                })
                .take(MOST_WAYS)
                .collect();
        }
        let mut best: Option<(Choice, Optimum)> = None;
        let mut why = "its stacks can be split along no other dim".to_string();
        for way in ways {
            match self.optimum(&way) {
                Ok(found) if best.as_ref().is_none_or(|(_, b)| found.time < b.time) => {
                    best = Some((way, found));
                }
                Ok(_) => {}
                Err(error) => why = error,
            }
        }
        let (choice, now) = best.ok_or(why)?;
        let moved = stacks.into_iter().map(|at| (at, self.relaid(at))).collect();
        Ok((choice, now, moved))
    }

    /// The axes that split the stack of which a parameter is a slice, along its slices.
    fn lead(&self, at: usize) -> Option<Vec<String>> {
        self.layer.parameters[at].stack.as_ref().map(|stack| stack.axes.clone())
    }

    fn axis(&self, name: &str) -> u64 {
        self.mesh.iter().find(|(known, _)| known == name).map_or(1, |(_, size)| *size)
    }

    /// The bytes that an all-to-all of the whole stack of a parameter sends.
    fn relaid(&self, at: usize) -> u64 {
        let parameter = &self.layer.parameters[at];
        let Some(stack) = &parameter.stack else { return 0 };
        let sizes = parameter.dims.iter().map(|dim| self.layer.size(*dim));
        let elements = sizes.fold(stack.slices, u64::saturating_mul);
        let bytes = parameter.dtype.bytes(elements);
        let group: u64 = stack.axes.iter().map(|axis| self.axis(axis)).product();
        let split: u64 = parameter
            .spec
            .iter()
            .flatten()
            .flatten()
            .map(|axis| self.axis(axis))
            .product::<u64>()
            .saturating_mul(group);
        bytes / split.max(1) * group.saturating_sub(1) / group.max(1)
    }

    /// The specs that have more axes, all on one dim: one spec for each dim that divides.
    fn with_axes(&self, at: usize, spec: &Option<Spec>, axes: &[String]) -> Vec<Spec> {
        let positions = &self.layer.parameters[at].positions;
        let spec = spec.clone().unwrap_or_else(|| vec![Vec::new(); positions.len()]);
        self.added(positions, &spec, axes)
    }

    fn added(&self, positions: &[Option<Class>], spec: &Spec, axes: &[String]) -> Vec<Spec> {
        let more = |dim: usize| {
            let class = (*positions.get(dim)?)?;
            let mut spec = spec.clone();
            spec.get_mut(dim)?.extend(axes.iter().cloned());
            let split: u64 = spec[dim].iter().map(|axis| self.axis(axis)).product();
            self.layer.size(class).is_multiple_of(split.max(1)).then_some(spec)
        };
        (0..positions.len()).filter_map(more).collect()
    }

    /// The edit with which the optimum is best, with its choice and its optimum; `None` if no edit
    /// makes the optimum better.
    fn best(&mut self, choice: &Choice, now: &Optimum) -> Option<(Edit, Choice, Optimum)> {
        let mut best: Option<(Edit, Choice, Optimum)> = None;
        let mut edits = self.edits(choice);
        edits.sort_by_key(|edit| self.rank(edit, choice, now));
        for edit in edits {
            let mut edited = choice.clone();
            apply(&edit, &mut edited);
            let Ok(found) = self.optimum(&edited) else { continue };
            let least = best.as_ref().map_or(now.time, |(_, _, known)| known.time);
            // An edit asks work of a person, and so has to save both time and bytes.
            if found.time < least && found.totals.wire_bytes < now.totals.wire_bytes {
                best = Some((edit, edited, found));
            }
        }
        best
    }

    /// The rank of an edit, the lowest tried first. Edits of parameters come last: first those that
    /// make a weight like its siblings in other blocks, then those of parameters that the plan
    /// moves.
    fn rank(&self, edit: &Edit, choice: &Choice, now: &Optimum) -> usize {
        let Edit::Parameters { parameters, spec, .. } = edit else { return 0 };
        let Some(at) = parameters.first() else { return 0 };
        let key = |name: &str| name.rsplit(['[', '.']).next().map(ToString::to_string);
        let parameter = &self.layer.parameters[*at];
        let is_sibling = |(n, other): (usize, &Parameter)| {
            other.name != parameter.name
                && key(&other.name) == key(&parameter.name)
                && choice.parameters[n].as_ref() == Some(spec)
        };
        if self.layer.parameters.iter().enumerate().any(is_sibling) {
            1
        } else if now.moves.iter().any(|one| one.value.as_ref() == Some(&parameter.name)) {
            2
        } else {
            3
        }
    }

    /// Every edit that is tried: constraints with one axis more, results like arguments, dims in
    /// parts, and parameters with the same axes on other dims.
    fn edits(&self, choice: &Choice) -> Vec<Edit> {
        let mut edits = Vec::new();
        for (at, constraint) in self.layer.constraints.iter().enumerate() {
            let Some(spec) = &choice.constraints[at] else { continue };
            // A constraint of the text may stand in several turns of a loop.
            let turns: Vec<usize> = (0..self.layer.constraints.len())
                .filter(|n| self.layer.constraints[*n].span == constraint.span)
                .collect();
            if turns.first() != Some(&at) {
                continue;
            }
            let idle =
                self.mesh.iter().filter(|(name, _)| !spec.iter().flatten().any(|a| a == name));
            for (axis, _) in idle {
                let more = self.added(&constraint.positions, spec, std::slice::from_ref(axis));
                let edit = |spec| Edit::Constraint { turns: turns.clone(), spec };
                edits.extend(more.into_iter().map(edit));
            }
        }
        let outputs: Vec<(usize, Spec)> =
            (0..self.layer.outputs.len()).filter_map(|at| self.like_argument(at, choice)).collect();
        if !outputs.is_empty() {
            edits.push(Edit::Outputs(outputs));
        }
        edits.extend(self.parted(choice));
        for (at, parameter) in self.layer.parameters.iter().enumerate() {
            let is_handed_on = self.layer.repeat > 1 && parameter.stack.is_none();
            let Some(spec) = choice.parameters[at].as_ref() else { continue };
            let axes: Vec<String> = spec.iter().flatten().cloned().collect();
            let is_argument = parameter.argument.is_some();
            if is_handed_on || !is_argument || parameter.dtype == Dtype::Int32 || axes.is_empty() {
                continue;
            }
            let mut ways = vec![vec![Vec::new(); spec.len()]];
            for axis in &axes {
                ways = ways
                    .iter()
                    .flat_map(|way| {
                        self.added(&parameter.positions, way, std::slice::from_ref(axis))
                    })
                    .take(MOST_WAYS)
                    .collect();
            }
            let (parameters, outputs) = self.laid_with(at, choice);
            // The first of several parameters that are laid out alike stands for all of them.
            if parameters.first() != Some(&at) {
                continue;
            }
            let others = ways.into_iter().filter(|way| way != spec);
            edits.extend(others.map(|spec| {
                let (parameters, outputs) = (parameters.clone(), outputs.clone());
                Edit::Parameters { parameters, outputs, spec }
            }));
        }
        edits
    }

    /// The parameters that have the name of a parameter in the trees of the arguments and its spec,
    /// and the results that have both: a weight, its moments, and the new ones.
    fn laid_with(&self, at: usize, choice: &Choice) -> (Vec<usize>, Vec<usize>) {
        let parameter = &self.layer.parameters[at];
        let Some(key) = parameter.name.find(['[', '.']).map(|from| &parameter.name[from..]) else {
            return (self.slices_with(at), Vec::new());
        };
        let sizes = |positions: &[Option<Class>]| -> Vec<u64> {
            positions.iter().map(|c| c.map_or(1, |class| self.layer.size(class))).collect()
        };
        let spec = &choice.parameters[at];
        let long = sizes(&parameter.positions);
        let parameters = self.layer.parameters.iter().enumerate().filter(|(n, other)| {
            other.name.find(['[', '.']).is_some_and(|from| other.name[from..] == *key)
                && choice.parameters[*n] == *spec
                && sizes(&other.positions) == long
                && other.stack.is_some() == parameter.stack.is_some()
        });
        let parameters: Vec<usize> = parameters.map(|(n, _)| n).collect();
        let outputs = self.layer.outputs.iter().enumerate().filter(|(n, output)| {
            output.name.as_deref().is_some_and(|name| name.ends_with(key))
                && choice.outputs[*n] == *spec
                && sizes(&output.positions) == long
        });
        (parameters, outputs.map(|(n, _)| n).collect())
    }

    /// The parameters that are slices of one stack with a parameter, itself among them.
    fn slices_with(&self, at: usize) -> Vec<usize> {
        (0..self.layer.parameters.len()).filter(|other| self.is_slice_with(at, *other)).collect()
    }

    /// Whether two parameters are the same, or slices of one argument.
    fn is_slice_with(&self, one: usize, other: usize) -> bool {
        let argument = |at: usize| self.layer.parameters[at].argument;
        one == other || argument(one).is_some() && argument(one) == argument(other)
    }

    /// A result with the spec of an argument of the same dims, if the result is replicated now and
    /// the argument has another spec.
    fn like_argument(&self, at: usize, choice: &Choice) -> Option<(usize, Spec)> {
        let output = &self.layer.outputs[at];
        // A value that a `shard_map` takes has the layout that the `shard_map` states.
        output.result?;
        let roots = |positions: &[Option<Class>]| -> Vec<Option<Class>> {
            positions.iter().map(|class| class.map(|class| self.layer.root(class))).collect()
        };
        let now = choice.outputs[at].as_ref()?;
        let wanted = roots(&output.positions);
        if now.iter().flatten().next().is_some() || self.layer.repeat > 1 {
            return None;
        }
        // An argument from which the result is made is preferred: new parameters are made from the
        // old ones.
        let alike: Vec<usize> = (0..self.layer.parameters.len())
            .filter(|p| {
                let parameter = &self.layer.parameters[*p];
                parameter.dtype == output.dtype && roots(&parameter.positions) == wanted
            })
            .collect();
        let made_of = |p: &&usize| self.made_of(&output.value, &format!("p{p}"));
        let like = alike.iter().find(made_of).or(alike.first())?;
        let spec = choice.parameters[*like].clone()?;
        (spec != *now).then_some((at, spec))
    }

    /// Whether a binary op makes a value from another value.
    fn made_of(&self, value: &str, of: &str) -> bool {
        let statement = self.layer.statements.iter().find(|s| s.value == value);
        statement.is_some_and(|s| match &s.expression {
            Expression::Binary(_, a, b) => a == of || b == of,
            _ => false,
        })
    }

    /// Edits that write a split dim as two dims, for parameters with a dim that the program cuts
    /// into equal slices.
    fn parted(&self, choice: &Choice) -> Vec<Edit> {
        if choice.parted.is_some() {
            return Vec::new();
        }
        let mut edits = Vec::new();
        for (at, parameter) in self.layer.parameters.iter().enumerate() {
            for (dim, class) in parameter.positions.iter().enumerate() {
                let split = choice.parameters[at].as_ref().and_then(|spec| spec.get(dim));
                let (Some(class), Some(true)) = (class, split.map(|axes| !axes.is_empty())) else {
                    continue;
                };
                let (root, size) = (self.layer.root(*class), self.layer.size(*class));
                let mut windows = Vec::new();
                let mut place = None;
                for statement in &self.layer.statements {
                    if let Expression::Slice(_, from, to, _) = &statement.expression
                        && self.layer.root(*from) == root
                    {
                        windows.push(self.layer.size(*to));
                        place = place.or_else(|| statement.place.clone());
                    }
                }
                let Some(&window) = windows.first() else { continue };
                if windows.iter().all(|w| *w == window) && size.is_multiple_of(window) {
                    let parts = size / window;
                    edits.push(Edit::Parted { parameter: at, class: root, parts, place });
                }
            }
        }
        edits
    }
}
