//! Curves as text.

use std::fmt::Write;

use crate::cases::Curve;
use crate::measure::Measured;

const WIDTH: f64 = 48.0;

/// What a curve shows, what its points count, and how growth is put in a number.
fn described(curve: Curve) -> (&'static str, &'static str, Growth) {
    match curve {
        Curve::Chain => ("a chain of einsums on 3 axes", "ops", Growth::Power),
        Curve::PalmStack => ("different PaLM blocks, decode, on 3 axes", "blocks", Growth::Power),
        Curve::PalmPrefillStack => {
            ("different PaLM blocks, prefill, on 3 axes", "blocks", Growth::Power)
        }
        Curve::LlamaStack => ("different Llama blocks, decode, on 3 axes", "blocks", Growth::Power),
        Curve::PalmAxes => ("one PaLM block, decode", "axes", Growth::Factor),
        Curve::PalmPrefillAxes => ("one PaLM block, prefill", "axes", Growth::Factor),
        Curve::FeedForwardDims => {
            ("feed-forward layer on 3 axes, activations of", "dims", Growth::Factor)
        }
    }
}

const CURVES: [Curve; 7] = [
    Curve::Chain,
    Curve::PalmStack,
    Curve::PalmPrefillStack,
    Curve::LlamaStack,
    Curve::PalmAxes,
    Curve::PalmPrefillAxes,
    Curve::FeedForwardDims,
];

enum Growth {
    /// The time is about the count to some power.
    Power,
    /// Each step takes some times the one before.
    Factor,
}

/// Every curve, as bars whose length is the logarithm of the time.
pub(crate) fn curves(measured: &[Measured<'_>]) -> String {
    let mut text = String::new();
    for curve in CURVES {
        let mut points: Vec<(usize, f64)> = measured
            .iter()
            .flat_map(|m| {
                m.case
                    .curves
                    .iter()
                    .filter_map(|(c, at)| (*c == curve).then_some((*at, m.milliseconds()?)))
            })
            .collect();
        points.sort_by_key(|(at, _)| *at);
        let (title, unit, growth) = described(curve);
        if let ([first, .., last], n) = (points.as_slice(), points.len()) {
            let rate = match growth {
                Growth::Power => {
                    let power = (last.1 / first.1).ln() / (last.0 as f64 / first.0 as f64).ln();
                    format!("time grows as {unit}^{power:.2}")
                }
                Growth::Factor => {
                    let factor = (last.1 / first.1).powf(1.0 / (n - 1) as f64);
                    format!("{factor:.1} times the time with each more")
                }
            };
            let _ = writeln!(text, "{title} ({unit}; {rate})");
            for (at, time) in &points {
                let _ =
                    writeln!(text, "{at:>5} {:<w$} {time:.2} ms", bar(*time), w = WIDTH as usize);
            }
            text.push('\n');
        }
    }
    text
}

/// From 0.1 ms to 100 s.
fn bar(milliseconds: f64) -> String {
    let part = ((milliseconds.log10() + 1.0) / 6.0).clamp(0.02, 1.0);
    "#".repeat((part * WIDTH).round() as usize)
}
