//! `sweep --plot`: the points that fit as marks in a plane.

use shard_cost::Bytes;

use crate::paint::{Paint, Style};
use crate::scale;
use crate::sweep::SweepRow;

/// Lines of a plot between its axes.
const PLOT_LINES: usize = 20;

/// The points that fit as marks in a plane: the time of a step to the right, the chip time of a
/// token upwards (the memory at the peak, where its limits are swept), both logarithmic. `*` is on
/// the frontier, `.` is beaten.
pub fn plot(rows: &[SweepRow], width: usize, paint: Paint) -> String {
    let of_memory = rows.iter().any(|row| row.memory_limit.is_some());
    let place = |row: &SweepRow| {
        let figures = row.usable()?;
        let y = if of_memory {
            figures.memory.0 as f64
        } else {
            figures.efficiency?.chip_seconds_per_token
        };
        let x = figures.time.seconds();
        (x > 0.0 && y > 0.0).then(|| (x.ln(), y.ln(), row.on_frontier))
    };
    let upwards = |value: f64| {
        if of_memory { scale::bytes(Bytes(value.round() as u64)) } else { scale::seconds(value) }
    };
    let places: Vec<(f64, f64, bool)> = rows.iter().filter_map(place).collect();
    if places.is_empty() {
        let why = if of_memory { "none fits" } else { "none both fits and works on tokens" };
        return format!("no point to plot: {why}\n");
    }
    let range = |of: &dyn Fn(&(f64, f64, bool)) -> f64| {
        let low = places.iter().map(of).fold(f64::INFINITY, f64::min);
        let high = places.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        (low, high)
    };
    let ((left, right), (bottom, top)) = (range(&|p| p.0), range(&|p| p.1));
    let margin = 10;
    let columns = width.saturating_sub(margin + 2).clamp(10, 100);
    let cell = |value: f64, low: f64, high: f64, cells: usize| {
        let part = if high > low { (value - low) / (high - low) } else { 0.5 };
        (part * (cells - 1) as f64).round() as usize
    };
    let mut grid = vec![vec![' '; columns]; PLOT_LINES];
    // The frontier is drawn last: a beaten point never hides it.
    for on_frontier in [false, true] {
        for (x, y, _) in places.iter().filter(|p| p.2 == on_frontier) {
            let line = PLOT_LINES - 1 - cell(*y, bottom, top, PLOT_LINES);
            grid[line][cell(*x, left, right, columns)] = if on_frontier { '*' } else { '.' };
        }
    }
    let heading = if of_memory { "memory of a device at the peak" } else { "chip time of a token" };
    let mut text = paint.style(heading, Style::Heading) + "\n";
    for (at, line) in grid.iter().enumerate() {
        let label = match at {
            0 => upwards(top.exp()),
            at if at + 1 == PLOT_LINES => upwards(bottom.exp()),
            _ => String::new(),
        };
        let marks: String = line.iter().collect();
        let marks = marks.trim_end().replace('*', &paint.style("*", Style::Good));
        text.push_str(format!("{label:>margin$} |{marks}").trim_end());
        text.push('\n');
    }
    text.push_str(&format!("{:>margin$} +{}\n", "", "-".repeat(columns)));
    let (first, last) = (scale::seconds(left.exp()), scale::seconds(right.exp()));
    let gap = columns.saturating_sub(first.len() + last.len()).max(1);
    text.push_str(&format!("{:>margin$}  {first}{:gap$}{last}\n", "", ""));
    text.push_str(&format!("{:>margin$}  {}\n", "", paint.style("time of a step", Style::Heading)));
    text
}
