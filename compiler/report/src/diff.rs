//! `diff`: what tells two plans of a layer apart, down to the line of the source.

use serde::Serialize;
use shard_cost::InstrPrice;
use shard_ir::{InstrId, Picoseconds};

use crate::Layer;
use crate::comparison::{Comparison, Side, told};
use crate::json::text as json_text;
use crate::notation::phrase;
use crate::page::Page;
use crate::scale;
use crate::strategy::strategy;
use crate::why_not::{MoveJson, move_json, move_line};

/// Two sides of a layer; `None` where only one side has it.
pub type Pair<'a> = (Option<Layer<'a>>, Option<Layer<'a>>);

fn side<'a>(layer: &Layer<'a>) -> Side<'a> {
    Side { plan: &layer.schedule.plan, price: layer.price, source: layer.source }
}

/// Whether anything differs.
pub fn differs(pairs: &[Pair<'_>]) -> bool {
    pairs.iter().any(|pair| match pair {
        (Some(a), Some(b)) => {
            !Comparison::of(side(a), side(b)).is_empty() || facts(a, b).iter().any(|f| f.before != f.after)
        }
        _ => true,
    })
}

/// One line of the head: a fact before and after.
struct Fact {
    name: &'static str,
    before: String,
    after: String,
}

fn facts(a: &Layer<'_>, b: &Layer<'_>) -> Vec<Fact> {
    let mesh = |l: &Layer<'_>| {
        if l.plan().mesh.declared().is_empty() { "none".to_string() } else { l.plan().mesh.to_string() }
    };
    let dims = |l: &Layer<'_>| {
        let dims = l.plan().dims.iter().map(|d| {
            if d.size == d.useful {
                format!("{}={}", d.name, d.size)
            } else {
                format!("{}={} pad {}", d.name, d.useful, d.size)
            }
        });
        dims.collect::<Vec<_>>()
    };
    let names = |l: &Layer<'_>| strategy(l.plan()).into_iter().map(|s| s.name()).collect::<Vec<_>>().join(", ");
    let (x, y) = (dims(a), dims(b));
    let only = |of: &[String], other: &[String]| {
        of.iter().filter(|d| !other.contains(d)).cloned().collect::<Vec<_>>().join(", ")
    };
    let (s, t) = (&a.price.totals, &b.price.totals);
    let peak = |layer: &Layer<'_>| scale::bytes(layer.price.memory.peak());
    let fact = |name, before, after| Fact { name, before, after };
    vec![
        fact("mesh", mesh(a), mesh(b)),
        fact("hardware", a.hardware.name.clone(), b.hardware.name.clone()),
        fact("dims", only(&x, &y), only(&y, &x)),
        fact("strategy", names(a), names(b)),
        fact("bytes sent", scale::bytes(s.comm_bytes), scale::bytes(t.comm_bytes)),
        fact("communication", scale::time(s.comm_time), scale::time(t.comm_time)),
        fact("memory at the peak", peak(a), peak(b)),
        fact("all steps", scale::time(s.serial_time), scale::time(t.serial_time)),
    ]
}

/// The differences as text; what is the same is not said.
pub fn diff(pairs: &[Pair<'_>], width: usize) -> String {
    let texts: Vec<String> = pairs.iter().map(|pair| pair_text(pair, width)).collect();
    texts.join("\n")
}

fn pair_text(pair: &Pair<'_>, width: usize) -> String {
    let mut page = Page::of_width(width);
    let (a, b) = match pair {
        (Some(a), Some(b)) => (a, b),
        (Some(a), None) => {
            page.line(&format!("layer {}: only in the first", a.plan().name));
            return page.text;
        }
        (None, Some(b)) => {
            page.line(&format!("layer {}: only in the second", b.plan().name));
            return page.text;
        }
        (None, None) => return page.text,
    };
    let names = (&a.plan().name, &b.plan().name);
    let name = if names.0 == names.1 { names.0.clone() } else { format!("{} -> {}", names.0, names.1) };
    let facts = facts(a, b);
    let compared = Comparison::of(side(a), side(b));
    if compared.is_empty() && facts.iter().all(|f| f.before == f.after) {
        page.line(&format!("layer {name}: no difference"));
        return page.text;
    }
    page.line(&format!("layer {name}"));
    for fact in facts.iter().filter(|f| f.before != f.after) {
        let more = match fact.name {
            "all steps" => change(a.price.totals.serial_time, b.price.totals.serial_time),
            _ => String::new(),
        };
        page.row(&format!("  {}", fact.name), &format!("{} -> {}{more}", fact.before, fact.after));
    }
    let (x, y) = (side(a), side(b));
    if !(compared.went.is_empty() && compared.came.is_empty() && compared.resized.is_empty()) {
        page.line("  collectives");
        compared.went.iter().for_each(|id| move_line(&mut page, '-', x, *id));
        compared.came.iter().for_each(|id| move_line(&mut page, '+', y, *id));
    }
    for (before, after) in &compared.resized {
        let figures = format!("{} -> {}", cost(x, *before), cost(y, *after));
        page.row(&format!("    ~ {}: {}{}", phrase(y.plan, *after), told(y.plan, *after), at(y, *after)), &figures);
    }
    if !compared.relaid.is_empty() {
        page.line("  values that lie otherwise");
    }
    for (before, after) in &compared.relaid {
        let layouts = format!("{} -> {}", x.plan.layout_text(*before), y.plan.layout_text(*after));
        page.row(&format!("    {}{}", told(y.plan, *after), at(y, *after)), &layouts);
    }
    if !compared.retimed.is_empty() {
        page.line("  ops that take another time");
    }
    for (before, after) in &compared.retimed {
        let times = format!("{} -> {}", scale::time(x.time(*before)), scale::time(y.time(*after)));
        page.row(&format!("    {}{}", told(y.plan, *after), at(y, *after)), &times);
    }
    if !(compared.ops_went.is_empty() && compared.ops_came.is_empty()) {
        page.line("  values");
    }
    for (sign, side, ids) in [('-', x, &compared.ops_went), ('+', y, &compared.ops_came)] {
        for id in ids {
            let text = format!("    {sign} {} = {}{}", told(side.plan, *id), phrase(side.plan, *id), at(side, *id));
            page.row(&text, &side.plan.layout_text(*id));
        }
    }
    page.text
}

/// The line of an instruction, in brackets.
fn at(side: Side<'_>, id: InstrId) -> String {
    side.line(id).map_or_else(String::new, |line| format!("  (line {line})"))
}

fn cost(side: Side<'_>, id: InstrId) -> String {
    let bytes = match side.price.of(id) {
        InstrPrice::Move(cost) => format!("{}, ", scale::bytes(cost.bytes)),
        InstrPrice::Free | InstrPrice::Kernel { .. } => String::new(),
    };
    format!("{bytes}{}", scale::time(side.time(id)))
}

/// ` (+39.0 us, +17.8 %)`.
pub(crate) fn change(before: Picoseconds, after: Picoseconds) -> String {
    let (sign, by) = if after >= before { ('+', after.0 - before.0) } else { ('-', before.0 - after.0) };
    match before.0 {
        0 => format!(" ({sign}{})", scale::time(Picoseconds(by))),
        n => format!(" ({sign}{}, {sign}{:.1} %)", scale::time(Picoseconds(by)), 100.0 * by as f64 / n as f64),
    }
}

#[derive(Debug, Serialize)]
struct DiffJson {
    schema: &'static str,
    differs: bool,
    layers: Vec<PairJson>,
}

#[derive(Debug, Serialize)]
struct PairJson {
    a: Option<SideJson>,
    b: Option<SideJson>,
    went: Vec<MoveJson>,
    came: Vec<MoveJson>,
    resized: Vec<[MoveJson; 2]>,
    relaid: Vec<[ValueJson; 2]>,
    retimed: Vec<[ValueJson; 2]>,
    values_went: Vec<ValueJson>,
    values_came: Vec<ValueJson>,
}

#[derive(Debug, Serialize)]
struct SideJson {
    layer: String,
    hardware: String,
    mesh_axes: Vec<(String, u64)>,
    strategy: Vec<&'static str>,
    serial_time_s: f64,
    comm_time_s: f64,
    comm_bytes: u64,
    peak_hbm_bytes: u64,
}

#[derive(Debug, Serialize)]
struct ValueJson {
    id: u32,
    op: &'static str,
    name: Option<String>,
    layout: String,
    time_s: f64,
    line: Option<usize>,
}

fn value_json(side: Side<'_>, id: InstrId) -> ValueJson {
    let instr = side.plan.instruction(id);
    ValueJson {
        id: id.0,
        op: instr.kind.name(),
        name: instr.name.clone(),
        layout: side.plan.layout_text(id),
        time_s: side.time(id).seconds(),
        line: side.line(id),
    }
}

fn side_json(layer: &Layer<'_>) -> SideJson {
    let totals = &layer.price.totals;
    SideJson {
        layer: layer.plan().name.clone(),
        hardware: layer.hardware.name.clone(),
        mesh_axes: layer.plan().mesh.declared().to_vec(),
        strategy: strategy(layer.plan()).into_iter().map(|s| s.name()).collect(),
        serial_time_s: totals.serial_time.seconds(),
        comm_time_s: totals.comm_time.seconds(),
        comm_bytes: totals.comm_bytes.0,
        peak_hbm_bytes: layer.price.memory.peak().0,
    }
}

/// The differences as `shardc.diff/1`.
pub fn json(pairs: &[Pair<'_>]) -> String {
    let layers = pairs.iter().map(|(a, b)| {
        let (Some(first), Some(second)) = (a, b) else {
            return PairJson {
                a: a.as_ref().map(side_json),
                b: b.as_ref().map(side_json),
                went: Vec::new(),
                came: Vec::new(),
                resized: Vec::new(),
                relaid: Vec::new(),
                retimed: Vec::new(),
                values_went: Vec::new(),
                values_came: Vec::new(),
            };
        };
        let (x, y) = (side(first), side(second));
        let compared = Comparison::of(x, y);
        let both = |ids: &[(InstrId, InstrId)]| {
            ids.iter().map(|(i, j)| [value_json(x, *i), value_json(y, *j)]).collect::<Vec<_>>()
        };
        PairJson {
            a: Some(side_json(first)),
            b: Some(side_json(second)),
            went: compared.went.iter().map(|id| move_json(x, *id)).collect(),
            came: compared.came.iter().map(|id| move_json(y, *id)).collect(),
            resized: compared.resized.iter().map(|(i, j)| [move_json(x, *i), move_json(y, *j)]).collect(),
            relaid: both(&compared.relaid),
            retimed: both(&compared.retimed),
            values_went: compared.ops_went.iter().map(|id| value_json(x, *id)).collect(),
            values_came: compared.ops_came.iter().map(|id| value_json(y, *id)).collect(),
        }
    });
    json_text(&DiffJson { schema: "shardc.diff/1", differs: differs(pairs), layers: layers.collect() })
}
