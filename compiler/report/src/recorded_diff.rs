//! `diff` where a side is a plan that was written down: what tells two [`Recorded`] plans apart.
//!
//! It says what [`diff`](crate::diff) says of two plans that were both lowered now, and how far
//! each was proven.

use std::collections::BTreeSet;

use shard_cost::Bytes;
use shard_ir::Picoseconds;

use crate::diff::{apart, change};
use crate::page::Page;
use crate::recorded::{Dim, Recorded, Step, picoseconds};
use crate::same::{Kind, Known, same};
use crate::scale;

/// Two sides of a layer; `None` where only one side has it.
pub type Pair<'a> = (Option<&'a Recorded>, Option<&'a Recorded>);

/// What tells two plans apart. The same value in both is one of the same name, or made in the same
/// way of the same values.
#[derive(Default)]
pub(crate) struct Comparison<'a> {
    /// Moves with traffic of one plan alone.
    pub(crate) went: Vec<&'a Step>,
    pub(crate) came: Vec<&'a Step>,
    /// Moves of both whose bytes or time differ.
    pub(crate) resized: Vec<(&'a Step, &'a Step)>,
    /// Parameters and ops of both that lie otherwise, and those that lie as before and take another
    /// time.
    pub(crate) relaid: Vec<(&'a Step, &'a Step)>,
    pub(crate) retimed: Vec<(&'a Step, &'a Step)>,
    /// Parameters and ops of one plan alone.
    pub(crate) values_went: Vec<&'a Step>,
    pub(crate) values_came: Vec<&'a Step>,
}

/// The steps of two plans, each with the step of the other plan that is the same one.
pub(crate) struct Matched<'a> {
    /// Moves with traffic of both plans, in the order of the first.
    pub(crate) moves: Vec<(&'a Step, &'a Step)>,
    /// Parameters and ops of both plans, in the order of the first.
    pub(crate) values: Vec<(&'a Step, &'a Step)>,
    /// Moves, and parameters and ops, of one plan alone, in its order.
    pub(crate) moves_went: Vec<&'a Step>,
    pub(crate) moves_came: Vec<&'a Step>,
    pub(crate) values_went: Vec<&'a Step>,
    pub(crate) values_came: Vec<&'a Step>,
}

impl<'a> Matched<'a> {
    pub(crate) fn of(a: &'a Recorded, b: &'a Recorded) -> Matched<'a> {
        let (first, second) = (known(a), known(b));
        let found = same(&first, &second);
        let steps = |pairs: &[(usize, usize)]| {
            pairs.iter().map(|(x, y)| (&a.instructions[*x], &b.instructions[*y])).collect()
        };
        let alone = |of: &'a Recorded, known: &[Known], paired: BTreeSet<usize>, kinds: &[Kind]| {
            let is_left = |at: &usize| !paired.contains(at) && kinds.contains(&known[*at].kind);
            (0..known.len()).filter(is_left).map(|at| &of.instructions[at]).collect()
        };
        let in_first = |pairs: &[(usize, usize)]| pairs.iter().map(|(at, _)| *at).collect();
        let in_second = |pairs: &[(usize, usize)]| pairs.iter().map(|(_, at)| *at).collect();
        let of_values = [Kind::Parameter, Kind::Op];
        Matched {
            moves: steps(&found.moves),
            values: steps(&found.values),
            moves_went: alone(a, &first, in_first(&found.moves), &[Kind::Move]),
            moves_came: alone(b, &second, in_second(&found.moves), &[Kind::Move]),
            values_went: alone(a, &first, in_first(&found.values), &of_values),
            values_came: alone(b, &second, in_second(&found.values), &of_values),
        }
    }
}

impl<'a> Comparison<'a> {
    pub(crate) fn of(a: &'a Recorded, b: &'a Recorded) -> Comparison<'a> {
        let matched = Matched::of(a, b);
        let figures = |step: &Step| (step.bytes(), step.time());
        let resized = matched.moves.into_iter().filter(|(x, y)| figures(x) != figures(y));
        let (relaid, stayed): (Vec<_>, Vec<_>) =
            matched.values.into_iter().partition(|(x, y)| x.layout != y.layout);
        Comparison {
            went: matched.moves_went,
            came: matched.moves_came,
            resized: resized.collect(),
            relaid,
            retimed: stayed.into_iter().filter(|(x, y)| x.time() != y.time()).collect(),
            values_went: matched.values_went,
            values_came: matched.values_came,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let steps = [&self.went, &self.came, &self.values_went, &self.values_came];
        let pairs = [&self.resized, &self.relaid, &self.retimed];
        steps.iter().all(|all| all.is_empty()) && pairs.iter().all(|all| all.is_empty())
    }
}

/// What each step of a plan is known by.
fn known(of: &Recorded) -> Vec<Known> {
    let known = |step: &Step| Known {
        kind: match step.op.as_str() {
            "parameter" => Kind::Parameter,
            "constant" => Kind::Constant,
            _ if step.is_move() && step.time() > 0 => Kind::Move,
            _ if step.is_move() => Kind::LocalMove,
            _ => Kind::Op,
        },
        name: step.name.clone().unwrap_or_default(),
        within: step.within.join("/"),
        what: step.phrase(),
        piece_of: step.piece_of.clone().unwrap_or_default(),
        layout: step.layout.clone(),
        operands: step.operands.iter().map(|id| *id as usize).collect(),
    };
    of.instructions.iter().map(known).collect()
}

/// One line of the head: a fact before and after, and what to say behind them.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) more: String,
}

pub(crate) fn facts(a: &Recorded, b: &Recorded) -> Vec<Fact> {
    let mesh = |of: &Recorded| match of.mesh_axes.as_slice() {
        [] => "none".to_string(),
        axes => {
            axes.iter().map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(", ")
        }
    };
    let proof = |of: &Recorded| match &of.optimality {
        None => "not searched for".to_string(),
        Some(found) if found.status == "proven" => "proven".to_string(),
        Some(found) => {
            let by =
                found.stopped_by.as_ref().map_or(String::new(), |limit| format!(" by {limit}"));
            let least = scale::seconds(found.lower_bound_s);
            format!("{}{by}, at least {least} of {}", found.status, scale::seconds(found.cost_s))
        }
    };
    let time = |seconds: f64| scale::time(Picoseconds(picoseconds(seconds)));
    let objective = |of: &Recorded| of.objective.clone().unwrap_or_default();
    let bytes = |bytes: u64| scale::bytes(Bytes(bytes));
    let (s, t) = (&a.totals, &b.totals);
    let (before, after) = (picoseconds(s.serial_time_s), picoseconds(t.serial_time_s));
    let fact = |name, before, after| Fact { name, before, after, more: String::new() };
    let mut out = vec![
        fact("mesh", mesh(a), mesh(b)),
        fact("hardware", a.hardware.clone(), b.hardware.clone()),
        fact("objective", objective(a), objective(b)),
        fact("strategy", a.strategy.join(", "), b.strategy.join(", ")),
        fact("proof", proof(a), proof(b)),
        fact("bytes sent", bytes(s.comm_bytes), bytes(t.comm_bytes)),
        fact("communication", time(s.comm_time_s), time(t.comm_time_s)),
        fact("memory at the peak", bytes(a.peak_bytes()), bytes(b.peak_bytes())),
        fact("all steps", time(s.serial_time_s), time(t.serial_time_s)),
    ];
    if let Some(last) = out.last_mut().filter(|_| before != after) {
        last.more = change(Picoseconds(before), Picoseconds(after));
    }
    let dims = |of: &Recorded| of.dims.iter().map(Dim::sized).collect::<Vec<_>>();
    let results = |of: &Recorded| of.outputs.iter().map(|o| o.name.clone()).collect::<Vec<_>>();
    for (name, x, y) in [("dims", dims(a), dims(b)), ("results", results(a), results(b))] {
        // An earlier document may not have them.
        let known = !x.is_empty() && !y.is_empty();
        let (x, y) = apart(&x, &y);
        if known && x != y {
            out.insert(2, fact(name, x, y));
        }
    }
    out
}

/// Whether anything differs.
pub fn differs(pairs: &[Pair<'_>]) -> bool {
    pairs.iter().any(|pair| match pair {
        (Some(a), Some(b)) => {
            !Comparison::of(a, b).is_empty() || facts(a, b).iter().any(|f| f.before != f.after)
        }
        _ => true,
    })
}

/// The differences as text; what is the same is not said.
pub fn text(pairs: &[Pair<'_>], width: usize) -> String {
    let texts: Vec<String> = pairs.iter().map(|pair| pair_text(pair, width)).collect();
    texts.join("\n")
}

fn pair_text(pair: &Pair<'_>, width: usize) -> String {
    let mut page = Page::of_width(width);
    let (a, b) = match pair {
        (Some(a), Some(b)) => (*a, *b),
        (Some(one), None) => {
            page.line(&format!("layer {}: only in the first", one.title()));
            return page.text;
        }
        (None, Some(one)) => {
            page.line(&format!("layer {}: only in the second", one.title()));
            return page.text;
        }
        (None, None) => return page.text,
    };
    let name =
        if a.title() == b.title() { a.title() } else { format!("{} -> {}", a.title(), b.title()) };
    let (facts, compared) = (facts(a, b), Comparison::of(a, b));
    if compared.is_empty() && facts.iter().all(|f| f.before == f.after) {
        page.line(&format!("layer {name}: no difference"));
        return page.text;
    }
    page.line(&format!("layer {name}"));
    for fact in facts.iter().filter(|f| f.before != f.after) {
        page.row(
            &format!("  {}", fact.name),
            &format!("{} -> {}{}", fact.before, fact.after, fact.more),
        );
    }
    if !(compared.went.is_empty() && compared.came.is_empty() && compared.resized.is_empty()) {
        page.line("  collectives");
    }
    compared.went.iter().for_each(|step| move_lines(&mut page, '-', a, step));
    compared.came.iter().for_each(|step| move_lines(&mut page, '+', b, step));
    for (before, after) in &compared.resized {
        page.row(
            &format!("    ~ {}: {}{}", after.phrase(), told(b, after), at(after)),
            &format!("{} -> {}", figures(before), figures(after)),
        );
    }
    let mut changed = |title: &str, pairs: &[(&Step, &Step)], of: &dyn Fn(&Step) -> String| {
        if !pairs.is_empty() {
            page.line(title);
        }
        for (before, after) in pairs {
            page.row(
                &format!("    {}{}", told(b, after), at(after)),
                &format!("{} -> {}", of(before), of(after)),
            );
        }
    };
    changed("  values that lie otherwise", &compared.relaid, &|step| step.layout.clone());
    changed("  ops that take another time", &compared.retimed, &|step| {
        scale::time(Picoseconds(step.time()))
    });
    if !(compared.values_went.is_empty() && compared.values_came.is_empty()) {
        page.line("  values");
    }
    for (sign, side, steps) in [('-', a, &compared.values_went), ('+', b, &compared.values_came)] {
        for step in steps {
            page.row(
                &format!("    {sign} {} = {}{}", told(side, step), step.phrase(), at(step)),
                &step.layout,
            );
        }
    }
    page.text
}

/// A move with what it moves.
fn move_lines(page: &mut Page, sign: char, of: &Recorded, step: &Step) {
    let source = of.source(step).unwrap_or(step);
    let figures =
        format!("{}  {}", scale::bytes(Bytes(step.bytes())), scale::time(Picoseconds(step.time())));
    page.row(&format!("    {sign} {}: {}", step.phrase(), told(of, source)), &figures);
    page.wrapped_more(8, 2, &format!("{} -> {}{}", source.layout, step.layout, at(step)));
}

/// How a value is spoken of: by its name, that of what it is another layout of, or by what makes
/// it.
pub(crate) fn told(of: &Recorded, step: &Step) -> String {
    let mut at = step;
    while at.name.is_none() && at.is_move() {
        match of.source(at) {
            Some(source) => at = source,
            None => break,
        }
    }
    match &at.name {
        Some(name) => name.clone(),
        None if at.op == "constant" => "a constant".to_string(),
        None => format!("the {}", at.phrase()),
    }
}

/// The line of an instruction, in brackets.
fn at(step: &Step) -> String {
    step.line().map_or_else(String::new, |line| format!("  (line {line})"))
}

fn figures(step: &Step) -> String {
    format!("{}, {}", scale::bytes(Bytes(step.bytes())), scale::time(Picoseconds(step.time())))
}
