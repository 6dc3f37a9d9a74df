//! The page's tables of bars: where the time goes, and what is sent over which axes.

use super::{class, time_and_share, timed};
use crate::Layer;
use crate::explain_totals::sent_over;
use crate::notation::{phrase, value_name};
use crate::scale;

/// Rows of one measure.
pub(super) struct Table {
    pub(super) title: &'static str,
    /// Whether colours are explained above it.
    pub(super) is_coloured: bool,
    pub(super) rows: Vec<BarRow>,
}

/// A bar with its name and figures.
pub(super) struct BarRow {
    pub(super) name: String,
    pub(super) class: &'static str,
    /// In percent of the longest.
    pub(super) width: String,
    pub(super) figures: Vec<String>,
}

/// A part as a width, in percent of the most.
fn width(part: u64, most: u64) -> String {
    format!("{:.2}", 100.0 * part as f64 / most.max(1) as f64)
}

pub(super) fn time_table(layer: &Layer<'_>) -> Table {
    let plan = layer.plan();
    let steps = timed(layer);
    let most = steps.iter().map(|(_, time)| time.0).max().unwrap_or(1);
    let row = |(id, time): &(shard_ir::InstrId, shard_ir::Picoseconds)| BarRow {
        name: format!("{}: {}", value_name(plan, *id), phrase(plan, *id)),
        class: class(layer, *id),
        width: width(time.0, most),
        figures: time_and_share(layer, *time).into(),
    };
    Table { title: "Time", is_coloured: true, rows: steps.iter().map(row).collect() }
}

/// `None` where nothing is sent.
pub(super) fn traffic_table(layer: &Layer<'_>) -> Option<Table> {
    let sent = sent_over(layer);
    let most = sent.iter().map(|(_, bytes, _)| bytes.0).max()?;
    let row = |(axes, bytes, _): &(String, shard_cost::Bytes, _)| BarRow {
        name: format!("over {axes}"),
        class: "move",
        width: width(bytes.0, most),
        figures: vec![scale::bytes(*bytes)],
    };
    let rows = sent.iter().map(row).collect();
    Some(Table { title: "Bytes sent by each device", is_coloured: false, rows })
}
