//! The report as GitHub workflow commands: a warning on each edit that helps, a notice on each line
//! that sends something.

use shard_cost::Bytes;
use shard_report::github::{data, property};
use shard_report::scale;

use crate::compare::AdviceKind;
use crate::report::Report;

/// The commands: one for each edit, each reason, and each line of the source.
pub fn github(report: &Report) -> String {
    let mut out = String::new();
    for advice in report.comparison.iter().flat_map(|c| &c.advice) {
        let place = advice.source.as_ref().map_or(String::new(), |place| {
            format!(" file={},line={},title=shardc audit", property(&place.file), place.line)
        });
        let saves = scale::bytes(Bytes(advice.saves_bytes));
        let text = match advice.kind {
            AdviceKind::Spec => format!(
                "{} is annotated {}; {} sends {saves} less",
                advice.value, advice.from, advice.to
            ),
            AdviceKind::Constraint => format!(
                "{} has {}; with_sharding_constraint(.., {}) sends {saves} less",
                advice.value, advice.from, advice.to
            ),
        };
        let text = format!("{text} ({})", advice.tried.words());
        out.push_str(&format!("::warning{place}::{}\n", data(&text)));
    }
    for why in report.comparison.iter().filter_map(|c| c.why_not.as_ref()) {
        out.push_str(&format!("::notice title=shardc audit::{}\n", data(why)));
    }
    for line in &report.lines {
        let place = line.place.as_ref().map_or(String::new(), |place| {
            format!(" file={},line={},title=shardc audit", property(&place.file), place.line)
        });
        let mut text = format!(
            "a device sends {} here ({:.1} % of all)",
            scale::bytes(Bytes(line.totals.wire_bytes)),
            100.0 * report.share(line.totals)
        );
        if let Some(time) = line.totals.time {
            text.push_str(&format!(", {}", scale::time(time)));
        }
        for index in &line.collectives {
            let one = &report.program.collectives[*index];
            let causes = one.causes();
            let why = if causes.is_empty() { String::new() } else { format!(": {}", causes[0]) };
            text.push_str(&format!(
                "\n{} over {} x{}{why}",
                one.kind.name(),
                report.over(one),
                one.executions
            ));
        }
        out.push_str(&format!("::notice{place}::{}\n", data(&text)));
    }
    out
}
