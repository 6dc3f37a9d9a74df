//! Hardware and memory: raised by the passes that know the chip.

use shard_grammar::Span;

use super::words::{bytes, name_list};
use crate::diagnostic::Diagnostic;

/// What can be wrong with the hardware of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum HardwareProblem {
    /// A name that no built-in chip has.
    Unknown {
        /// The name.
        name: String,
        /// Where it stands; `None` where the command line gave it.
        span: Option<Span>,
        /// The built-in names.
        known: Vec<String>,
    },
    /// A hardware file that cannot be read or is wrong.
    File {
        /// Its path as written.
        path: String,
        /// Where it stands; `None` where the command line gave it.
        span: Option<Span>,
        /// What is wrong with it, one clause.
        message: String,
        /// The built-in chip of that name, which is no file.
        built_in: Option<String>,
    },
    /// A second `hardware` line.
    SecondLine {
        /// The second line.
        span: Span,
        /// The first one.
        first: Span,
    },
    /// No plan fits in the memory of a chip.
    NoPlanFits(NoPlanFits),
    /// Neither the file nor the command line names the hardware, and it is needed.
    None {
        /// The built-in names.
        known: Vec<String>,
    },
    /// One value alone is larger than the memory of a chip, in the layout that it has.
    ValueTooLarge {
        /// The value.
        name: String,
        /// Where it is declared.
        span: Span,
        /// Its layout.
        layout: String,
        /// Its bytes on one device.
        needed: u64,
        /// The chip.
        chip: String,
        /// The bytes of its memory that the program may use.
        capacity: u64,
        /// Why the program may not use all memory of the chip, if it may not.
        limited: Option<String>,
    },
    /// Weights are kept in host memory, and the hardware file says nothing of the way there.
    NoHost {
        /// The weight.
        weight: String,
        /// Its declaration; `None` in IR text.
        span: Option<Span>,
        /// The chip.
        chip: String,
    },
    /// The hardware file has no peak for an arithmetic type, and another one's is taken.
    MissingArithmetic {
        /// The dtype.
        dtype: String,
        /// The dtype whose peak is taken instead.
        taken: String,
        /// The chip.
        chip: String,
        /// Where the first op of this type is.
        span: Option<Span>,
    },
    /// The hardware file lays a mesh axis over torus axes that do not multiply to its size.
    Fold {
        /// The mesh axis.
        axis: String,
        /// Its size.
        size: u64,
        /// The torus axes.
        torus: Vec<u64>,
        /// The chip.
        chip: String,
        /// The mesh line; `None` where the command line gave it.
        span: Option<Span>,
    },
    /// No slice of the chip has the shape of the mesh.
    NoSuchSlice {
        /// The chip.
        chip: String,
        /// The torus axes that the mesh asks for.
        shape: Vec<u64>,
        /// Which slices there are.
        reason: String,
        /// A mesh axis, and torus axes over which the mesh would fit.
        fold: Option<(String, Vec<u64>)>,
        /// The nearest mesh of as many devices that is a slice: its axes and their sizes.
        nearest: Option<Vec<(String, u64)>>,
        /// The mesh line; `None` where the command line gave it.
        span: Option<Span>,
    },
    /// The mesh is a face of a slice that would wrap around, and no slice by itself.
    Face {
        /// The chip.
        chip: String,
        /// The torus axes that the mesh asks for.
        shape: Vec<u64>,
        /// The built-in chip for which every mesh is such a face, if there is one.
        faced: Option<String>,
        /// The mesh line; `None` where the command line gave it.
        span: Option<Span>,
    },
    /// The groups of a mesh axis are larger than a node, and cannot be cut so that they fill nodes.
    Straddles {
        /// The mesh axis.
        axis: String,
        /// Devices in a node.
        node: u64,
        /// How many devices along the axis could share a node.
        fits: u64,
        /// How many devices along the axis do share a node.
        inside: u64,
        /// The chip.
        chip: String,
        /// The mesh line; `None` where the command line gave it.
        span: Option<Span>,
    },
}

/// `4x4`, or `4, 4`.
fn sizes(sizes: &[u64], between: &str) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(between)
}

/// What is known where no plan fits in the memory of a chip.
#[derive(Clone, Debug, PartialEq)]
pub struct NoPlanFits {
    /// The layer.
    pub layer: String,
    /// The phase that has no plan, where the layer comes in several.
    pub phase: Option<String>,
    /// Its header.
    pub span: Span,
    /// The chip.
    pub chip: String,
    /// The bytes of its memory that the program may use.
    pub capacity: u64,
    /// Why the program may not use all memory of the chip, if it may not.
    pub limited: Option<String>,
    /// What the weights and caches of any plan take on one device, over the whole stack.
    pub least: u64,
    /// Whether it is proven that there is none; else the search may have missed one.
    pub proven: bool,
    /// The bytes that the fastest plan needs on one device, by what they hold: `weights`, `caches`,
    /// `activations`.
    pub parts: Vec<(String, u64)>,
    /// The values that need most, as `w_in: weight bf16 E_xF_y`, with their bytes and the place
    /// where each is declared.
    pub largest: Vec<(String, u64, Option<Span>)>,
    /// Changes with which a plan fits, each as text that can be typed.
    pub ways_out: Vec<String>,
}

/// The memory of a chip that the program may use, in words.
fn has(capacity: u64, limited: Option<String>) -> String {
    match limited {
        None => format!("the chip has {}", bytes(capacity)),
        Some(why) => format!("the program has {} of a chip ({why})", bytes(capacity)),
    }
}

impl From<HardwareProblem> for Diagnostic {
    fn from(problem: HardwareProblem) -> Diagnostic {
        use HardwareProblem::*;
        match problem {
            Unknown { name, span, known } => unknown(&name, span, &known),
            File { path, span, message, built_in } => file(&path, span, &message, built_in),
            SecondLine { span, first } => {
                Diagnostic::error("E0703", "the file has a second `hardware` line")
                    .at(span, "the second")
                    .also(first, "the first")
                    .mend("remove one of them", span, "")
            }
            NoPlanFits(problem) => problem.into(),
            None { known } => Diagnostic::error("E0705", "the hardware is not given")
                .note(
                    "times and memory depend on the chip, and neither the file nor the command \
                    line names one",
                )
                .note(format!("built in: {}", name_list(&known)))
                .help("hardware tpu-v4-flat    (a line of the file; or `--hardware tpu-v4-flat`)"),
            ValueTooLarge { name, span, layout, needed, chip, capacity, limited } => {
                Diagnostic::warning(
                    "W0701",
                    format!("`{name}` alone is larger than the memory of a {chip}"),
                )
                .at(span, format!("{layout} takes {} on each device", bytes(needed)))
                .note(has(capacity, limited))
                .help("split it over more axes, or leave the layout to the compiler with `?`")
            }
            NoHost { weight, span, chip } => Diagnostic::error(
                "E0650",
                format!("`{weight}` is in host memory, and `{chip}` states no way there"),
            )
            .at_if(span, "fetched at each step")
            .help("pcie_bandwidth = 32e9    (under [host] of the hardware file)")
            .help("--hardware a100-80g    (or another chip that has a [host])"),
            MissingArithmetic { dtype, taken, chip, span } => Diagnostic::warning(
                "W0702",
                format!("`{chip}` states no peak for {dtype}, so {taken}'s is taken"),
            )
            .at_if(span, format!("computed in {dtype}"))
            .help(format!("flops = {{ {dtype} = ... }}    (under [chip] of the hardware file)")),
            Fold { axis, size, torus, chip, span } => {
                let shape = sizes(&torus, "x");
                Diagnostic::error(
                    "E0850",
                    format!("mesh axis `{axis}` has {size} devices, and {shape} are not as many"),
                )
                .at_if(span, format!("`{axis}` has {size}"))
                .note(format!(
                    "the hardware file of {chip} lays `{axis}` over torus axes of {shape}"
                ))
                .help(format!("{axis}={}", torus.iter().fold(1u64, |n, s| n.saturating_mul(*s))))
            }
            NoSuchSlice { chip, shape, reason, fold, nearest, span } => {
                no_such_slice(&chip, &shape, &reason, fold, nearest, span)
            }
            Face { chip, shape, faced, span } => face(&chip, &shape, faced, span),
            Straddles { axis, node, fits, inside, chip, span } => Diagnostic::warning(
                "W0850",
                format!("mesh axis `{axis}` cannot be cut so that it fills nodes of {node}"),
            )
            .at_if(span, format!("{inside} of `{axis}` share a node, which has room for {fits}"))
            .note(format!(
                "{chip} has {node} devices in a node; groups are cut into parts of one size, \
                    which are priced as nodes"
            ))
            .help(format!(
                "order and size the axes so that the last ones multiply to {node}, or \
                to a part of it"
            )),
        }
    }
}

impl From<NoPlanFits> for Diagnostic {
    fn from(problem: NoPlanFits) -> Diagnostic {
        let NoPlanFits {
            layer,
            phase,
            span,
            chip,
            capacity,
            limited,
            least,
            proven,
            parts,
            largest,
            ways_out,
        } = problem;
        let needed = parts.iter().map(|(_, n)| *n).fold(0, u64::saturating_add);
        let (label, whose) = if least > capacity {
            (
                format!("needs {} or more on each device", bytes(least)),
                "its weights and caches alone are",
            )
        } else {
            (format!("needs {} on each device when it is fastest", bytes(needed)), "that is")
        };
        let over =
            bytes(least.max(if least > capacity { 0 } else { needed }).saturating_sub(capacity));
        let parts: Vec<String> =
            parts.iter().map(|(what, n)| format!("{what} {}", bytes(*n))).collect();
        let items: Vec<String> =
            largest.iter().map(|(what, n, _)| format!("`{what}` {}", bytes(*n))).collect();
        let whole = phase
            .map_or_else(|| format!("`{layer}`"), |phase| format!("`{layer}` in phase `{phase}`"));
        let message = if proven {
            format!("no plan of {whole} fits in the memory of a {chip}")
        } else {
            format!("no plan of {whole} that fits in the memory of a {chip} was found")
        };
        let out = Diagnostic::error("E0704", message)
            .at(span, label)
            .also_if(largest.first().and_then(|(_, _, span)| *span), "the largest")
            .note(format!("{}; {whose} {over} too much", has(capacity, limited)))
            .note(format!("the fastest plan keeps {}", parts.join(", ")))
            .note(format!("most of it: {}", items.join(", ")));
        // Without a proof the least bytes of any plan are worth a sentence, if there are any.
        let out = match (proven, least) {
            (true, _) => out,
            (false, 0) => {
                out.note("there may be one: the search passed over plans, and did not look at all")
            }
            (false, least) => out.note(format!(
                "there may be one: the search passed over plans, and did not look at all; weights \
                    and caches alone \
                 take {} or more in any",
                bytes(least)
            )),
        };
        if ways_out.is_empty() {
            out.help("a mesh of more devices, or layouts that split what is largest")
        } else {
            ways_out.into_iter().fold(out, Diagnostic::help)
        }
    }
}

/// The warning about a mesh that is a face of a slice.
fn face(chip: &str, shape: &[u64], faced: Option<String>, span: Option<Span>) -> Diagnostic {
    let named = sizes(shape, "x");
    let whole: Vec<u64> = shape.iter().copied().chain([1, 1]).take(3).collect();
    Diagnostic::warning("W0851", format!("{named} is a face of a slice of {chip}, and no slice"))
        .at_if(span, format!("{} as a slice", sizes(&whole, "x")))
        .note(
            "axes wrap around where a slice is made of whole 4x4x4 cubes; these are priced as \
            lines",
        )
        .help(match faced {
            Some(faced) if span.is_some() => {
                format!("hardware {faced}    (where the mesh is a face of a larger slice)")
            }
            Some(faced) => {
                format!("--hardware {faced}    (where the mesh is a face of a larger slice)")
            }
            None => "face = true    (under [network] of the hardware file, where the slice is \
                larger)"
                .to_string(),
        })
        .help("mesh x=4, y=4, z=4    (or another slice of whole cubes)")
}

/// The error about a name that no built-in chip has.
fn unknown(name: &str, span: Option<Span>, known: &[String]) -> Diagnostic {
    let nearest = crate::names::nearest(name, known.iter().map(String::as_str)).map(str::to_string);
    let out = Diagnostic::error("E0701", format!("there is no built-in hardware `{name}`"))
        .at_if(span, "unknown hardware")
        .note(format!("built in: {}", name_list(known)));
    let out = match (nearest, span) {
        (Some(near), Some(span)) => out.mend(format!("hardware {near}"), span, near),
        (Some(near), None) => out.help(format!("--hardware {near}")),
        (None, _) => out,
    };
    let is_path = name.ends_with(".toml") || name.contains(['/', '\\']);
    out.help(match span {
        Some(_) => {
            "a file of your own is named by its path in quotes: hardware \"chip.toml\"".to_string()
        }
        None if is_path => format!(
            "shardc cost FILE --hardware {name}    (a file of your own is read with a \
            program)"
        ),
        None => "--hardware ./chip.toml    (a file of your own, by its path)".to_string(),
    })
}

/// The warning about a mesh that no slice of the chip has.
fn no_such_slice(
    chip: &str,
    shape: &[u64],
    reason: &str,
    fold: Option<(String, Vec<u64>)>,
    nearest: Option<Vec<(String, u64)>>,
    span: Option<Span>,
) -> Diagnostic {
    let shape = sizes(shape, "x");
    Diagnostic::warning("W0850", format!("no slice of {chip} is {shape}"))
        .at_if(span, format!("asks for torus axes of {shape}"))
        .note(format!("{reason}; times are those of links that such a slice would have"))
        .help_if(nearest.map(|axes| {
            let mesh = |between: &str| {
                let axes = axes.iter().map(|(name, size)| format!("{name}={size}"));
                axes.collect::<Vec<_>>().join(between)
            };
            let (line, option) = (mesh(", "), mesh(","));
            let typed = match span {
                Some(_) => format!("mesh {line}"),
                None => format!("--mesh {option}"),
            };
            format!("{typed}    (the nearest slice of as many chips)")
        }))
        .help_if(fold.map(|(axis, torus)| {
            let torus = sizes(&torus, ", ");
            format!(
                "{axis} = {{ torus = [{torus}] }}    (under [network.axes] of a \
                    hardware file of your own)"
            )
        }))
}

/// The error about a hardware file that cannot be read or is wrong.
fn file(path: &str, span: Option<Span>, message: &str, built_in: Option<String>) -> Diagnostic {
    let out =
        Diagnostic::error("E0702", format!("the hardware file `{path}` cannot be used: {message}"))
            .at_if(span, "named here");
    let out = match (built_in, span) {
        (Some(chip), Some(span)) => out.mend(format!("hardware {chip}"), span, chip),
        (Some(_) | None, _) => out,
    };
    out.help("`shardc hardware tpu-v4` prints a whole file to start from")
}
