//! Diagnostics of the lowering: annotations out of reach, strict layers, and annotations that cost
//! time.

use shard_grammar::Span;

use super::words::seconds;
use crate::diagnostic::{Diagnostic, Edit, Help};

/// What can be wrong with a program that checks.
#[derive(Clone, Debug, PartialEq)]
pub enum LoweringProblem {
    /// No chain of collectives leads to a pinned layout.
    Unreachable {
        /// The value.
        name: String,
        /// The annotation.
        span: Span,
        /// The layout that is asked for.
        wanted: String,
        /// Why, one clause.
        reason: String,
        /// Where the value comes from, and in which layout.
        source: Option<(Span, String)>,
    },
    /// A strict layer in which the compiler would have to insert a collective.
    StrictCollective {
        /// What it would insert: `all-gather over yz along E`.
        collective: String,
        /// The value that it moves.
        name: String,
        /// Where the moved value is used.
        span: Span,
        /// From which layout.
        from: String,
        /// To which layout.
        to: String,
        /// The line that states it: `let x1 = reshard(x, BLE_x)`.
        line: String,
        /// Edits that put the line in and use its name, where they are known.
        edits: Vec<Edit>,
    },
    /// No plan exists: for instance, no one layout does for all places of a label.
    NoPlan {
        /// The layer.
        layer: String,
        /// Its header, or the label.
        span: Span,
        /// Why, one clause.
        reason: String,
    },
    /// The plan space is larger than the search may look at.
    SpaceTooLarge {
        /// The layer.
        layer: String,
        /// Its header.
        span: Span,
        /// What there are too many of: `layouts`, `strategies`.
        limit: String,
        /// How many are allowed.
        count: usize,
        /// The mesh as written.
        mesh: String,
    },
    /// An annotation without any axis, which costs a collective.
    ReplicationCosts {
        /// The value.
        name: String,
        /// The annotation, or the argument of a call.
        span: Span,
        /// Whether the annotation is the type of a parameter of a called layer.
        is_argument: bool,
        /// The layout as written.
        layout: String,
        /// The collective that it costs.
        collective: String,
        /// Its time.
        seconds: f64,
    },
    /// An order of axes that costs a transfer which another order would save.
    AxisOrderCosts {
        /// The layout word, without partials.
        span: Span,
        /// The layout as written.
        written: String,
        /// The layout that would save it.
        better: String,
        /// The layout that leaves the order to the compiler.
        any_order: String,
        /// What it would save.
        seconds: f64,
    },
    /// Layouts whose axes might save time in another order, and that were not searched again with
    /// another order.
    AxisOrdersUnasked {
        /// The layout word of the first, without partials.
        span: Span,
        /// How many layouts these are.
        count: usize,
        /// The first layout with its order left to the compiler.
        any_order: String,
        /// What all orders left open would save together at most, in seconds.
        at_most: f64,
    },
    /// The time was up before any plan was found.
    OutOfTime {
        /// The layer that was searched, where it is known.
        layer: Option<String>,
        /// Its header.
        span: Option<Span>,
    },
    /// A limit of the search was hit, so the plan may not be the best one.
    SearchLimit {
        /// The layer.
        layer: String,
        /// Whether the search was for the layouts of what all phases store.
        of_phases: bool,
        /// Its header.
        span: Span,
        /// The limit's name.
        limit: String,
        /// How far from a proven bound the plan is, as a share of the bound.
        gap: Option<f64>,
        /// Parameters in the layouts of the plan, `w_in: EF_x`: a search with these annotated ended
        /// with a proof. Empty if no such search did.
        proven_with: Vec<String>,
        /// The option that allows as much memory as the fastest plan needs: `--memory-limit
        /// 61.0GB`.
        fits_with: Option<String>,
    },
}

impl From<LoweringProblem> for Diagnostic {
    fn from(problem: LoweringProblem) -> Diagnostic {
        use LoweringProblem::*;
        match problem {
            Unreachable { name, span, wanted, reason, source } => {
                let mut out = Diagnostic::error(
                    "E0801",
                    format!("`{name}` cannot be brought to `{wanted}`: {reason}"),
                )
                .at(span, "asked for here");
                if let Some((span, layout)) = source {
                    out = out.also(span, format!("`{name}` is {layout} here"));
                }
                out.help(
                    "take the annotation away, or end it with `?`, and `shardc explain` shows the \
                        layouts in reach",
                )
            }
            StrictCollective { collective, name, span, from, to, line, edits } => {
                let mut out = Diagnostic::error(
                    "E0802",
                    format!("a strict layer needs the {collective} of `{name}` written out"),
                )
                .at(span, format!("used as {to}, and `{name}` is {from}"))
                .note("in a strict layer every collective is a `reshard` line");
                out.helps.push(Help { text: line, edits });
                out
            }
            NoPlan { layer, span, reason } => {
                Diagnostic::error("E0805", format!("there is no plan for `{layer}`: {reason}"))
                    .at(span, "no plan")
                    .help(
                        "loosen an annotation with `?`, then `shardc explain` shows what the \
                        compiler would take",
                    )
            }
            SpaceTooLarge { layer, span, limit, count, mesh } => Diagnostic::error(
                "E0806",
                format!(
                    "`{layer}` has more {limit} on this mesh than the search may look at ({count})"
                ),
            )
            .at(span, "no plan was searched for")
            .note(format!(
                "the mesh is {mesh}; the number of {limit} grows with the factorial of \
                that of its axes"
            ))
            .help(
                "write axes that are always used together as one, such as `mesh x=16` for `mesh \
                x=4, y=4`",
            ),
            ReplicationCosts { name, span, is_argument, layout, collective, seconds: time } => {
                replication_costs(&name, span, is_argument, &layout, &collective, time)
            }
            AxisOrderCosts { span, written, better, any_order, seconds: time } => {
                Diagnostic::warning(
                    "W0802",
                    format!(
                        "the order of the axes in `{written}` costs {} that `{better}` would save",
                        seconds(time)
                    ),
                )
                .at(span, "this order")
                .mend(better.clone(), span, better)
                .mend(
                    format!("{any_order}    (whichever order is best)"),
                    span,
                    any_order,
                )
            }
            AxisOrdersUnasked { span, count, any_order, at_most } => {
                axis_orders_unasked(span, count, any_order, at_most)
            }
            OutOfTime { layer, span } => out_of_time(layer, span),
            SearchLimit { layer, of_phases, span, limit, gap, proven_with, fits_with } => {
                search_limit(&layer, of_phases, span, &limit, gap, &proven_with, fits_with)
            }
        }
    }
}

/// A share in percent; less than a hundredth of a percent is said to be less than that.
fn at_most(share: f64) -> String {
    match 100.0 * share {
        percent if percent < 0.01 => "less than 0.01 %".to_string(),
        percent if percent < 1.0 => format!("at most {percent:.2} %"),
        percent => format!("at most {percent:.1} %"),
    }
}

/// The warning about an annotation without any axis that costs a collective of `time` seconds.
fn replication_costs(
    name: &str,
    span: Span,
    is_argument: bool,
    layout: &str,
    collective: &str,
    time: f64,
) -> Diagnostic {
    let said = Diagnostic::warning(
        "W0801",
        format!(
            "`{layout}` pins `{name}` to full replication, which costs {collective} \
        ({})",
            seconds(time)
        ),
    );
    if is_argument {
        said.at(span, "handed to a parameter whose type names no mesh axis")
            .help(format!("{layout}?    (in the type of that parameter: the layout free)"))
    } else {
        said.at(span, "names no mesh axis").mend(
            format!("{layout}?    (the dims alone, the layout free)"),
            Span::at(span.end),
            "?",
        )
    }
}

/// The warning about axis orders of which nothing was asked.
fn axis_orders_unasked(span: Span, count: usize, any_order: String, at_most: f64) -> Diagnostic {
    let (places, they) = if count == 1 { ("place", "it was") } else { ("places", "they were") };
    Diagnostic::warning(
        "W0802",
        format!(
            "the orders of axes at {count} more {places} may cost something: {they} \
                not asked about"
        ),
    )
    .at(span, "from here on")
    .note(format!(
        "all orders left open would save {} at most, where steps come one after \
            another; to ask about each takes as long as the search for the plan",
        seconds(at_most)
    ))
    .mend(format!("{any_order}    (whichever order is best)"), span, any_order)
}

/// The error about a search that found no plan in time.
fn out_of_time(layer: Option<String>, span: Option<Span>) -> Diagnostic {
    let whom = layer.map_or(String::new(), |layer| format!(" for `{layer}`"));
    let mut out =
        Diagnostic::error("E0807", format!("the time was up before any plan{whom} was found"));
    if let Some(span) = span {
        out = out.at(span, "this was being searched");
    }
    out.note("`--time-limit` gives the best plan found by then, and none was").help(
        "--time-limit SECONDS    (more of them, or none: without it a search \
            ends at limits that are counts)",
    )
}

/// The warning about a search that stopped at a limit.
fn search_limit(
    layer: &str,
    of_phases: bool,
    span: Span,
    limit: &str,
    gap: Option<f64>,
    proven_with: &[String],
    fits_with: Option<String>,
) -> Diagnostic {
    let whole = if of_phases {
        format!("what all phases of `{layer}` store")
    } else {
        format!("`{layer}`")
    };
    let message = match limit {
        "time-limit" => {
            format!("the time was up before the search for {whole} had ended")
        }
        limit => format!("the search for {whole} stopped at its limit of {limit}"),
    };
    let mut out =
        Diagnostic::warning("W0803", message).at(span, "the plan may not be the best one");
    let is_memory = limit == "memory";
    if let Some(gap) = gap {
        let takes = if of_phases { "request" } else { "plan" };
        out = out
            .note(format!("it is {} above a time that any {takes} that fits takes", at_most(gap)));
    }
    if limit == "time-limit" {
        return out
            .note(
                "another run may end elsewhere and give another plan: do not rely \
                on this one",
            )
            .help("--time-limit SECONDS    (more of them, or none)");
    }
    if is_memory {
        out = out.note(
            "plans that fit may all be slower than that time, and plans that do not \
            fit faster",
        );
    }
    if let Some(fits_with) = &fits_with {
        out = out.help(format!(
            "{fits_with}    (the fastest plan of all fits there, and is proven: it \
            was tried)"
        ));
    }
    let written: Vec<String> = proven_with.iter().map(|written| format!("`{written}`")).collect();
    match (written.as_slice(), fits_with) {
        ([], None) => out.help("annotate some weights or values, so that there is less to search"),
        ([], Some(_)) => out,
        _ => out.help(format!(
            "annotate {} as in this plan: what is left is proven then (it was tried)",
            written.join(", ")
        )),
    }
}
