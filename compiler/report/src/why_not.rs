//! `explain --why-not`: the best plan that has what was asked for, beside the chosen one.

use shard_cost::{Bytes, Objective};
use shard_ir::Picoseconds;
use shard_search::{SearchLimit, Status};

use crate::Layer;
use crate::comparison::{ComparedPlan, Comparison, Side};
use crate::diff::in_line;
use crate::page::Page;
use crate::scale;
use crate::strategy::strategies;

/// One answer.
#[derive(Clone, Debug)]
pub struct WhyNot<'a> {
    /// What was asked for, in words: "`h` as BLF_xyz".
    pub asked: String,
    /// The chosen plan.
    pub chosen: Layer<'a>,
    /// The best plan that has it; the chosen one, where that has it.
    pub other: Layer<'a>,
    /// Whether the chosen plan has it.
    pub is_chosen: bool,
    /// What could be written into the source to have it: `let h: BLF_xyz = ...`.
    pub stated: Vec<String>,
    /// How many ways of having it were searched.
    pub ways: usize,
    /// Whether there were more ways than were searched.
    pub cut: bool,
    /// The figures at which it would win.
    pub crossings: Vec<Crossing>,
}

/// The figure that a crossing varies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Varied {
    /// The size of a dim.
    Dim(String),
    /// Every bandwidth of the network, in parts of what the chip has: [`NETWORK_UNIT`] is all of
    /// it.
    Network,
}

/// The bandwidth that the chip has, as figures of [`Varied::Network`] count it.
pub const NETWORK_UNIT: u64 = 256;

/// What becomes of the answer as one figure grows and shrinks.
#[derive(Clone, PartialEq, Debug)]
pub struct Crossing {
    /// The figure that is varied.
    pub varied: Varied,
    /// Its value in the program that was asked about.
    pub now: u64,
    /// Whether only some of the ways of having it were tried at each figure, so that the plan is
    /// behind by no more than is said.
    pub at_most: bool,
    /// As it grows.
    pub up: Turn,
    /// As it shrinks.
    pub down: Turn,
}

/// Where one plan overtakes another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// At this size it takes no longer than the best plan; at the size searched before it, it took
    /// `behind` more.
    Wins {
        /// The first size searched at which it wins.
        at: u64,
        /// The last one at which it loses.
        loses_at: u64,
        /// By how much it loses there.
        behind: Picoseconds,
    },
    /// It wins nowhere up (or down) to this size, the last one searched, where it takes `behind`
    /// more.
    Never {
        /// The last size searched.
        to: u64,
        /// By how much it loses there.
        behind: Picoseconds,
    },
    /// No other size could be searched.
    Unknown,
}

/// A plan as comparisons take it.
pub(crate) fn side<'a>(layer: &Layer<'a>) -> Side<'a> {
    Side { plan: &layer.schedule.plan, price: layer.price, source: layer.source }
}

/// Why the chosen plan is not the one that takes less time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Faster {
    /// The faster one needs more memory than a device has.
    DoesNotFit,
    /// The search for the chosen one stopped at a limit.
    Bounded,
    /// The chosen one was chosen for something else than its serial time.
    Objective,
    /// The chosen plan is the best of the layer as it is written; the faster one is of the layer
    /// with what was asked for written into it.
    Outside,
}

impl Faster {
    /// `None` where the other plan takes as long, or longer.
    pub(crate) fn of(a: &WhyNot<'_>) -> Option<Faster> {
        if time(&a.other) >= time(&a.chosen) {
            return None;
        }
        let bounded = a.chosen.optimality.is_some_and(|o| o.status == Status::Bounded);
        Some(match a.chosen.objective {
            _ if !fits(&a.other) => Faster::DoesNotFit,
            Objective::Comm | Objective::Overlap | Objective::Memory => Faster::Objective,
            Objective::Serial if bounded => Faster::Bounded,
            Objective::Serial => Faster::Outside,
        })
    }

    fn words(self, a: &WhyNot<'_>) -> String {
        match self {
            Faster::DoesNotFit => {
                "The chosen plan is the best that was found of those that fit.".to_string()
            }
            Faster::Bounded => {
                let limit = a.chosen.optimality.and_then(|o| o.stopped_by);
                let limit = limit.map_or("steps", SearchLimit::name);
                format!(
                    "The chosen plan is not proven best: its search stopped at its limit of \
                        {limit}, and this question \
                     found a better one."
                )
            }
            Faster::Objective => "The chosen plan was not chosen for the time of its steps one \
                after another."
                .to_string(),
            Faster::Outside => {
                "The chosen plan is the best of the layer as it is written: this one is a plan of \
                    the layer with what was \
                 asked for written into it."
                    .to_string()
            }
        }
    }
}

/// What a plan needs on each device, over the whole stack.
pub(crate) fn needed(layer: &Layer<'_>) -> Bytes {
    layer.peak()
}

/// Whether a plan fits in the memory of the chip.
pub(crate) fn fits(layer: &Layer<'_>) -> bool {
    needed(layer).0 <= layer.hardware.hbm_bytes
}

/// The time of a plan.
pub(crate) fn time(layer: &Layer<'_>) -> Picoseconds {
    layer.price.totals.serial_time
}

/// The answers as text.
pub fn why_not(answers: &[WhyNot<'_>], width: usize) -> String {
    let texts: Vec<String> = answers.iter().map(|a| answer(a, width)).collect();
    texts.join("\n")
}

fn answer(a: &WhyNot<'_>, width: usize) -> String {
    let mut page = Page::of_width(width);
    let plan = a.chosen.plan();
    page.wrapped_more(0, 2, &format!("layer {}: why not {}?", plan.name, a.asked));
    if a.is_chosen {
        let proven = a.chosen.optimality.is_some_and(|o| o.status == Status::Proven);
        let which =
            if proven { "it is the best plan" } else { "it is the best plan that was found" };
        page.wrapped(
            2,
            &format!("The chosen plan has it: {which}, of {}.", scale::time(time(&a.chosen))),
        );
        return page.text;
    }
    verdict(&mut page, a);
    page.line("");
    differences(&mut page, a);
    totals(&mut page, a);
    page.line("");
    for crossing in &a.crossings {
        page.wrapped_more(2, 2, &crossing_text(crossing));
    }
    if !a.stated.is_empty() {
        page.line("  to have it, write");
        a.stated.iter().for_each(|line| page.line(&format!("    {line}")));
    }
    if a.ways > 1 || a.cut {
        let cut = if a.cut { ", and there are more" } else { "" };
        page.wrapped(2, &format!("The best of {} ways of having it{cut}.", a.ways));
    }
    page.text
}

/// What the best plan with it takes beside the chosen one, and whether it could be had.
fn verdict(page: &mut Page, a: &WhyNot<'_>) {
    let (chosen, other) = (time(&a.chosen), time(&a.other));
    page.row(
        &format!("  chosen: {}", strategies(a.chosen.plan()).join(", ")),
        &scale::time(chosen),
    );
    page.row(
        &format!("  best with it: {}", strategies(a.other.plan()).join(", ")),
        &scale::time(other),
    );
    match Faster::of(a) {
        Some(_) => {
            page.row("  faster by", &dearer(Picoseconds(chosen.0.saturating_sub(other.0)), chosen))
        }
        None => {
            page.row("  dearer by", &dearer(Picoseconds(other.0.saturating_sub(chosen.0)), chosen))
        }
    }
    if !fits(&a.other) {
        let (needed, has) =
            (scale::bytes(needed(&a.other)), scale::bytes(Bytes(a.other.hardware.hbm_bytes)));
        page.wrapped(
            2,
            &format!(
                "It does not fit: it needs {needed} on each device, which has {has}. A \
                slower plan with it may."
            ),
        );
    }
    if let Some(faster) = Faster::of(a) {
        page.wrapped(2, &faster.words(a));
    }
}

/// What the other plan adds, saves and changes.
fn differences(page: &mut Page, a: &WhyNot<'_>) {
    let (x, y) = (side(&a.chosen), side(&a.other));
    let compared = Comparison::of(x, y);
    list(page, "it adds", '+', y, &compared.came);
    list(page, "it saves", '-', x, &compared.went);
    let mut changed = false;
    for (before, after) in compared.relaid.iter().chain(&compared.retimed) {
        if !changed {
            page.line("  it changes");
            changed = true;
        }
        let layouts = match (x.layout(*before), y.layout(*after)) {
            (before, after) if before == after => before,
            (before, after) => format!("{before} -> {after}"),
        };
        let times = match (x.time(*before), y.time(*after)) {
            (before, after) if before == after => String::new(),
            (before, after) => format!("{} -> {}", scale::time(before), scale::time(after)),
        };
        page.row(&format!("    {}: {layouts}", x.told(*before)), &times);
    }
}

/// The sums of both plans.
fn totals(page: &mut Page, a: &WhyNot<'_>) {
    page.line("  in all");
    let (t, u) = (&a.chosen.price.totals, &a.other.price.totals);
    let peak = |layer: &Layer<'_>| scale::bytes(layer.peak());
    for (name, before, after) in [
        ("communication", scale::time(t.comm_time), scale::time(u.comm_time)),
        ("everything else", rest(&a.chosen), rest(&a.other)),
        ("memory at the peak", peak(&a.chosen), peak(&a.other)),
    ] {
        let same = before == after;
        page.row(
            &format!("    {name}"),
            &if same { before } else { format!("{before} -> {after}") },
        );
    }
}

/// Kernels, one after another.
fn rest(layer: &Layer<'_>) -> String {
    let totals = &layer.price.totals;
    scale::time(Picoseconds(totals.serial_time.0.saturating_sub(totals.comm_time.0)))
}

fn dearer(more: Picoseconds, chosen: Picoseconds) -> String {
    match (more, chosen) {
        (Picoseconds(0), _) => "nothing: a tie, which the tie rule decides".to_string(),
        (more, Picoseconds(0)) => scale::time(more),
        (more, chosen) => {
            format!("{} ({:.1} %)", scale::time(more), 100.0 * more.0 as f64 / chosen.0 as f64)
        }
    }
}

fn list<P: ComparedPlan>(page: &mut Page, title: &str, sign: char, plan: P, moves: &[P::Step]) {
    if moves.is_empty() {
        return;
    }
    let sum: Picoseconds = moves.iter().map(|step| plan.time(*step)).sum();
    page.row(&format!("  {title}"), &scale::time(sum));
    moves.iter().for_each(|step| move_lines(page, sign, plan, *step));
}

/// A move with its layouts, line, and the bytes and time of all applications.
pub(crate) fn move_lines<P: ComparedPlan>(page: &mut Page, sign: char, plan: P, step: P::Step) {
    let source = plan.source(step).unwrap_or(step);
    let figures = format!("{}  {}", scale::bytes(plan.bytes(step)), scale::time(plan.time(step)));
    page.row(&format!("    {sign} {}: {}", plan.phrase(step), plan.told(source)), &figures);
    let words = format!("{} -> {}{}", plan.layout(source), plan.layout(step), in_line(plan, step));
    if page.fits(8, &words) {
        page.line(&format!("        {words}"))
    } else {
        page.wrapped_more(8, 2, &words)
    }
}

fn crossing_text(crossing: &Crossing) -> String {
    let most = if crossing.at_most { "at most " } else { "" };
    let place = |n: u64| match &crossing.varied {
        Varied::Dim(dim) => format!("{dim} = {n}"),
        Varied::Network => format!("{} the bandwidth", times(n)),
    };
    let turn = |turn: Turn, word: &str| match turn {
        Turn::Wins { at, loses_at, behind } => {
            let loses_at = match &crossing.varied {
                Varied::Dim(_) => loses_at.to_string(),
                Varied::Network => times(loses_at),
            };
            let (at, behind) = (place(at), scale::time(behind));
            format!("it wins at {at} (at {loses_at} it is {most}{behind} behind)")
        }
        Turn::Never { to, behind } => {
            let (to, behind) = (place(to), scale::time(behind));
            format!("it never wins {word} to {to} (there it is {most}{behind} behind)")
        }
        Turn::Unknown => match &crossing.varied {
            Varied::Dim(_) => format!("no other size was searched {word} from here"),
            Varied::Network => "no bandwidth was searched".to_string(),
        },
    };
    let (up, down) = (turn(crossing.up, "up"), turn(crossing.down, "down"));
    match &crossing.varied {
        Varied::Dim(dim) => {
            format!("With {dim} = {} as it grows, {up}; as it shrinks, {down}.", crossing.now)
        }
        Varied::Network => format!("On a faster network, {up}; on a slower one, {down}."),
    }
}

/// A bandwidth as a multiple of what the chip has: `1.5 times`, `1/8 of`, `3.9 % of`.
fn times(rate: u64) -> String {
    match NETWORK_UNIT.checked_rem(rate) {
        Some(0) if rate < NETWORK_UNIT => format!("1/{} of", NETWORK_UNIT / rate),
        _ if rate < NETWORK_UNIT => format!("{:.1} % of", 100.0 * factor(rate)),
        _ => format!("{} times", factor(rate)),
    }
}

/// A bandwidth in parts of what the chip has.
pub(crate) fn factor(rate: u64) -> f64 {
    rate as f64 / NETWORK_UNIT as f64
}
