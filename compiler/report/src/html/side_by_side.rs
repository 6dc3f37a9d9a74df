//! `diff --emit html`: two plans side by side on one page, which fetches nothing and has no script.
//! Steps that are the same step in both plans stand beside each other.

use askama::Template;
use shard_cost::Bytes;
use shard_ir::{Picoseconds, never};

use crate::comparison::{ComparedPlan, Comparison, Matched};
use crate::diff::{Fact, Pair, facts};
use crate::recorded::{Recorded, RecordedStep};
use crate::scale;

/// Rows of equal steps are folded where at least so many stand together.
const FOLDED: usize = 4;

/// The page.
#[derive(Template)]
#[template(path = "diff.html")]
struct DiffPage {
    title: String,
    sections: Vec<PairSection>,
}

/// A layer of both sides, or of one.
#[derive(Template)]
#[template(path = "diff_layer.html")]
struct PairSection {
    at: usize,
    title: String,
    /// What the section says where nothing is compared.
    note: Option<&'static str>,
    columns: [SideHead; 2],
    facts: Vec<Fact>,
    blocks: Vec<Block>,
}

/// What stands above the steps of a side.
struct SideHead {
    name: String,
    /// Whether its plan is proven; `None` where it was not searched for.
    badge: Option<String>,
    /// The width of the bar of its time, in percent of the longer one.
    width: String,
}

/// Rows that stand together.
struct Block {
    /// How many steps are folded; `None` where the rows are shown at once.
    folded: Option<usize>,
    rows: Vec<StepPair>,
}

/// A step of each plan, or of one of them.
struct StepPair {
    a: Option<Cell>,
    b: Option<Cell>,
    alike: Alike,
}

shard_ir::worded! {
    /// How alike the two cells of a row are.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Alike {
        /// The same step, which costs the same and has the same layout.
        Same = "same",
        /// The same step, of another cost or layout.
        Changed = "changed",
        /// The cells are no pair: they stand beside each other by chance.
        Alone = "alone",
    }
    /// The class of the row in the style sheet.
    fn class;
}

/// A step.
struct Cell {
    id: u32,
    class: &'static str,
    what: String,
    line: Option<usize>,
    figures: String,
    layouts: String,
    /// Its dtype, and its elements on each device.
    shape: String,
    why: Option<String>,
}

/// Two sets of plans as one HTML file; `names` are those of the two sides.
pub fn page(pairs: &[Pair<&Recorded>], names: [&str; 2]) -> String {
    let names = names.map(super::file_name);
    let title = format!("shardc diff {} {}", names[0], names[1]);
    let sections = pairs.iter().enumerate().map(|(at, pair)| section(pair, at, names)).collect();
    let page = DiffPage { title, sections };
    // Writing to memory cannot fail. A template ends without the last line's end.
    page.render().unwrap_or_else(|_| never!("a page that cannot be written", String::new())) + "\n"
}

fn section(pair: &Pair<&Recorded>, at: usize, names: [&str; 2]) -> PairSection {
    let longest = [pair.0, pair.1].into_iter().flatten().map(serial).fold(0.0, f64::max);
    let column = |letter: char, name: &str, plan: Option<&Recorded>| SideHead {
        name: format!("{letter}: {name}"),
        badge: plan.and_then(|plan| plan.optimality.as_ref()).map(|found| found.status.clone()),
        width: match plan {
            Some(plan) if longest > 0.0 => format!("{:.2}", 100.0 * serial(plan) / longest),
            _ => "0".to_string(),
        },
    };
    let columns = [column('A', names[0], pair.0), column('B', names[1], pair.1)];
    let (title, note, facts, rows) = match *pair {
        (Some(x), Some(y)) => {
            let title = match (x.title(), y.title()) {
                (x, y) if x == y => x,
                (x, y) => format!("{x} → {y}"),
            };
            let facts = facts(x, y);
            let same = Comparison::of(x, y).is_empty() && !facts.iter().any(Fact::differs);
            (title, same.then_some("The plans do not differ."), facts, rows(x, y))
        }
        (Some(x), None) => (x.title(), Some("Only A has this layer."), Vec::new(), Vec::new()),
        (None, Some(y)) => (y.title(), Some("Only B has this layer."), Vec::new(), Vec::new()),
        (None, None) => (String::new(), None, Vec::new(), Vec::new()),
    };
    PairSection { at, title, note, columns, facts, blocks: blocks(rows) }
}

/// The time of all steps, in seconds.
fn serial(plan: &Recorded) -> f64 {
    plan.totals.serial_time_s
}

/// The steps of both plans, each plan's in its own order. Steps that are the same one share a row
/// where that keeps both orders; between two such rows, what is left stands in the order of the
/// plans.
fn rows(a: &Recorded, b: &Recorded) -> Vec<StepPair> {
    let matched = Matched::of(a, b);
    let mut both: Vec<(&RecordedStep, &RecordedStep)> = [matched.moves, matched.values].concat();
    both.sort_by_key(|(x, _)| x.id);
    let kept = longest_in_order(&both);
    // What is matched out of order stands alone in both columns, as in any comparison of texts.
    let mut left: Vec<&RecordedStep> = [matched.moves_went, matched.values_went].concat();
    let mut right: Vec<&RecordedStep> = [matched.moves_came, matched.values_came].concat();
    for (at, (x, y)) in both.iter().enumerate() {
        if !kept[at] {
            left.push(x);
            right.push(y);
        }
    }
    left.sort_by_key(|step| step.id);
    right.sort_by_key(|step| step.id);
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    let mut out = Vec::new();
    let mut alone = |until: Option<(u32, u32)>, out: &mut Vec<StepPair>| loop {
        let x = left.next_if(|step| until.is_none_or(|(x, _)| step.id < x));
        let y = right.next_if(|step| until.is_none_or(|(_, y)| step.id < y));
        if x.is_none() && y.is_none() {
            break;
        }
        let (a, b) = (x.map(|x| cell(a, x)), y.map(|y| cell(b, y)));
        out.push(StepPair { a, b, alike: Alike::Alone });
    };
    for (x, y) in both.iter().enumerate().filter(|(at, _)| kept[*at]).map(|(_, pair)| *pair) {
        alone(Some((x.id, y.id)), &mut out);
        let alike = if is_same(x, y) { Alike::Same } else { Alike::Changed };
        out.push(StepPair { a: Some(cell(a, x)), b: Some(cell(b, y)), alike });
    }
    alone(None, &mut out);
    out
}

/// For each pair, given in the first plan's order, whether it belongs to a longest subsequence that
/// is in the second plan's order too.
fn longest_in_order(pairs: &[(&RecordedStep, &RecordedStep)]) -> Vec<bool> {
    // For each length the last pair of the best subsequence so long, and for each pair the pair
    // before it.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::new();
    for (at, (_, y)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1.id < y.id);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        ends.truncate(length.max(ends.len()));
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut kept = vec![false; pairs.len()];
    let mut next = ends.last().copied();
    while let Some(at) = next {
        kept[at] = true;
        next = before[at];
    }
    kept
}

/// Whether two steps that are the same step cost the same and have the same layout, dtype and
/// shape.
fn is_same(x: &RecordedStep, y: &RecordedStep) -> bool {
    let of = |step: &RecordedStep| (step.bytes(), step.time());
    of(x) == of(y)
        && x.layout == y.layout
        && x.fused == y.fused
        && x.dtype == y.dtype
        && x.local_shape == y.local_shape
}

fn cell(plan: &Recorded, step: &RecordedStep) -> Cell {
    let source = plan.source(step).filter(|_| step.is_move());
    let what = match (source, &step.name) {
        (Some(source), _) => format!("{} of {}", step.phrase(), plan.told(source)),
        (None, Some(name)) => format!("{name} = {}", step.phrase()),
        (None, None) => step.phrase(),
    };
    let time = Picoseconds(step.time());
    let figures = match (step.bytes(), time) {
        (_, Picoseconds(0)) => String::new(),
        (0, time) => scale::time(time),
        (bytes, time) => format!("{} · {}", scale::bytes(Bytes(bytes)), scale::time(time)),
    };
    let sizes: Vec<String> = step.local_shape.iter().map(u64::to_string).collect();
    let shape = format!("{} {}", step.dtype, sizes.join(" × "));
    Cell {
        id: step.id,
        class: match step.bound.as_deref() {
            _ if step.is_move() => "move",
            Some("network") => "move",
            Some("compute") => "compute",
            Some("memory") => "memory",
            _ => "",
        },
        what,
        line: step.line(),
        figures,
        layouts: match source {
            Some(source) => format!("{} → {}", source.layout, step.layout),
            None => step.layout.clone(),
        },
        shape: shape.trim_end().to_string(),
        why: step.reason.clone(),
    }
}

/// Rows with long runs of equal steps folded.
fn blocks(rows: Vec<StepPair>) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    for row in rows {
        let is_same = row.alike == Alike::Same;
        match out.last_mut() {
            Some(block) if block.folded.is_some() == is_same => block.rows.push(row),
            _ => out.push(Block { folded: is_same.then_some(0), rows: vec![row] }),
        }
    }
    for block in &mut out {
        let folds = block.folded.is_some() && block.rows.len() >= FOLDED;
        block.folded = folds.then_some(block.rows.len());
    }
    out
}
