//! [`Torus`]: links from chip to chip along each axis.

use shard_ir::Picoseconds;

use super::kind::{Figure, Gathered, Kind, Moved, SlicesOf, part, unequal};
use super::{Slice, SliceAxis, Wire, WireKind};
use crate::collective::{ExchangeLoad, How, PermuteLoad, Term};
use crate::hardware::{CHIPS, MAX_TORUS_AXES, SliceProblem, Table, latency, rate, whole};

/// Every device has two links along each torus axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Torus {
    /// Bytes per second over one link, one way.
    pub link_bandwidth: u64,
    /// The time that a hop from a chip to its neighbour takes at least.
    pub hop_latency: Picoseconds,
    /// Which torus axes are rings.
    pub wraparound: Wraparound,
    /// The size of the largest slice along each axis; empty if the file does not say.
    pub pod: Vec<u64>,
    /// Whether meshes are faces of larger slices, whose other axes they do not name.
    pub face: bool,
}

/// Which axes of a torus wrap around, so that they are rings; the others are lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wraparound {
    /// All axes.
    Always,
    /// No axis.
    Never,
    /// `multiple-of-4`: all axes if the slice consists of whole 4x4x4 cubes (it has three axes,
    /// multiples of 4), else none.
    WholeCubes,
    /// `full-axis-N`: the axes of N chips, which is the whole length of the pod.
    FullAxis(u64),
}

/// Edge of the cube of `multiple-of-4`, in chips.
pub const CUBE: u64 = 4;

/// Axes of the cube.
const CUBE_AXES: usize = 3;

/// The words of the hardware file for which axes wrap around; the last one is an example of any
/// length.
const RULES: [&str; 4] = ["multiple-of-4", "always", "never", "full-axis-16"];

impl Wraparound {
    fn read(table: &mut Table<'_, '_>) -> Option<Wraparound> {
        let (rule, span) = table.need_string("wraparound", "add `wraparound = \"always\"`")?;
        let full_axis = || {
            rule.strip_prefix("full-axis-").and_then(|n| n.parse::<u64>().ok()).filter(|n| *n > 1)
        };
        match rule.as_str() {
            "always" => Some(Wraparound::Always),
            "never" => Some(Wraparound::Never),
            "multiple-of-4" => Some(Wraparound::WholeCubes),
            _ => full_axis().map(Wraparound::FullAxis).or_else(|| {
                let known = RULES.map(|rule| format!("\"{rule}\"")).to_vec();
                let help = format!("the rules are {} (or another length)", known.join(", "));
                table.error(
                    "wraparound",
                    span,
                    format!("unknown wraparound rule `{rule}`"),
                    Some(help),
                    known,
                );
                None
            }),
        }
    }

    fn word(self) -> String {
        match self {
            Wraparound::Always => "always".to_string(),
            Wraparound::Never => "never".to_string(),
            Wraparound::WholeCubes => "multiple-of-4".to_string(),
            Wraparound::FullAxis(chips) => format!("full-axis-{chips}"),
        }
    }
}

impl Torus {
    /// Whether slices that are larger than one cube consist of whole cubes.
    fn has_cubes(&self) -> bool {
        self.wraparound == Wraparound::WholeCubes
    }
}

impl Kind for Torus {
    fn name(&self) -> &'static str {
        "torus"
    }

    fn read(table: &mut Table<'_, '_>, efficiency: f64) -> Option<Torus> {
        let link = rate(
            table,
            "link_bandwidth",
            efficiency,
            "add `link_bandwidth = 45e9`: one way, one link",
        );
        let hop_latency = latency(table, "hop_latency");
        let wraparound = Wraparound::read(table);
        let face = table.flag("face").unwrap_or(false);
        let pod =
            table.numbers("pod", CHIPS, MAX_TORUS_AXES).map(|pod| whole(&pod)).unwrap_or_default();
        Some(Torus { link_bandwidth: link?, hop_latency, wraparound: wraparound?, pod, face })
    }

    fn figures(&self) -> Vec<(&'static str, Figure)> {
        vec![
            ("link_bandwidth", Figure::Count(self.link_bandwidth)),
            ("hop_latency_s", Figure::Seconds(self.hop_latency.seconds())),
            ("wraparound", Figure::Word(self.wraparound.word())),
            ("pod", Figure::Sizes(self.pod.clone())),
            ("face", Figure::Flag(self.face)),
        ]
    }

    fn rates(&mut self) -> Vec<&mut u64> {
        vec![&mut self.link_bandwidth]
    }

    fn latency(&self) -> Picoseconds {
        self.hop_latency
    }

    fn wires(&self, axes: &[Vec<u64>]) -> Vec<Vec<Wire>> {
        // The links that close a ring connect opposite faces of whole cubes: a slice of fewer than
        // three axes has none.
        let solid = self.face || axes.iter().flatten().count() >= CUBE_AXES;
        let cubes = solid && axes.iter().flatten().all(|size| size.is_multiple_of(CUBE));
        let is_ring = |size: u64| match self.wraparound {
            Wraparound::Always => true,
            Wraparound::Never => false,
            Wraparound::WholeCubes => cubes,
            Wraparound::FullAxis(full) => size == full,
        };
        let wire = |size: &u64| Wire {
            kind: if is_ring(*size) { WireKind::Ring } else { WireKind::Line },
            size: *size,
        };
        axes.iter().map(|sizes| sizes.iter().map(wire).collect()).collect()
    }

    fn is_uniform(&self) -> bool {
        false
    }

    fn has_links(&self) -> bool {
        true
    }

    fn slice_problem(&self, slice: &Slice) -> Option<SliceProblem> {
        let torus = |but: Option<usize>| -> Vec<u64> {
            let others = slice.0.iter().enumerate().filter(|(at, _)| Some(*at) != but);
            others.flat_map(|(_, axis)| axis.torus.iter().copied()).collect()
        };
        let (shape, pod) = (torus(None), &self.pod);
        if !pod.is_empty() && !fits(&shape, pod) {
            let folded = |(at, axis): (usize, &SliceAxis)| {
                fold(axis.size, &torus(Some(at)), pod).map(|torus| (axis.name.clone(), torus))
            };
            let fold = slice.0.iter().enumerate().find_map(folded);
            return Some(SliceProblem::Pod { shape, pod: pod.clone(), fold });
        }
        let whole = shape.iter().all(|size| size.is_multiple_of(CUBE));
        if !self.has_cubes() {
            None
        } else if whole {
            let is_face = !self.face && !shape.is_empty() && shape.len() < CUBE_AXES;
            is_face.then_some(SliceProblem::Face { shape })
        } else {
            let within_one = shape.iter().all(|size| *size <= CUBE);
            (!within_one).then_some(SliceProblem::Cubes { shape })
        }
    }

    /// A part over all lines, one after the other, and a part over all rings at once, each with two
    /// links.
    fn gather(&self, _: u64, wires: &[Wire]) -> Vec<Gathered> {
        let of = |kind: WireKind| wires.iter().filter(move |wire| wire.kind == kind);
        let members = |kind: WireKind| of(kind).map(|wire| wire.size).product();
        let links = 2 * of(WireKind::Ring).count() as u64;
        vec![
            Gathered {
                members: members(WireKind::Line),
                rate: self.link_bandwidth,
                counts_own: false,
            },
            Gathered {
                members: members(WireKind::Ring),
                rate: self.link_bandwidth.saturating_mul(links),
                counts_own: true,
            },
        ]
    }

    fn gather_steps(&self, _: u64, wires: &[Wire]) -> u64 {
        let hops = |wire: &Wire| {
            if wire.kind == WireKind::Ring { wire.size.div_ceil(2) } else { wire.size - 1 }
        };
        wires.iter().map(hops).sum()
    }

    /// The data of a device is cut into n parts, which cross the n axes in different orders. With K
    /// devices along an axis, the busiest link of a ring carries K/8 of what a device holds, that
    /// of a line floor(K/2) ceil(K/2) / K, each divided by n.
    fn all_to_all(&self, members: u64, wires: &[Wire], bits: u128) -> Moved {
        let axes = wires.len() as u64;
        let on_axis = |wire: &Wire| {
            let members = wire.size;
            if wire.kind == WireKind::Ring {
                How::ExchangeOnRing { members, axes }.at(bits, self.link_bandwidth)
            } else {
                How::ExchangeOnLine { members, axes }.at(bits, self.link_bandwidth)
            }
        };
        let steps = self.gather_steps(members, wires);
        Moved { terms: wires.iter().map(on_axis).collect(), at_once: false, steps }
    }

    fn permute_rate(&self, _: &PermuteLoad) -> u64 {
        self.link_bandwidth
    }

    fn exchange(&self, load: &ExchangeLoad, bits: u128) -> Vec<Term> {
        vec![part(load.most, bits, self.link_bandwidth)]
    }

    fn fastest(&self) -> u64 {
        self.link_bandwidth
    }

    /// If slices are cubes, the shape of whole cubes that is nearest to a cube, since only whole
    /// cubes have rings. Else, and if there is none, two axes as near to a square as can be; they
    /// may be a face of a slice that has three.
    fn mesh(&self, chips: u64, last: &[u64], problem: &SlicesOf<'_>) -> Option<Vec<u64>> {
        let cubes = last.iter().filter(|_| self.has_cubes()).flat_map(|y| {
            let rest = chips / *y;
            let parts = (1..=rest)
                .take_while(move |a| a * a <= rest)
                .filter(move |a| rest.is_multiple_of(*a));
            parts.map(move |a| vec![rest / a, a, *y])
        });
        let is_whole = |shape: &Vec<u64>| shape.iter().all(|size| size.is_multiple_of(CUBE));
        let is_slice = |shape: &Vec<u64>| problem(shape) == Some(None);
        let is_face = |shape: &Vec<u64>| {
            matches!(problem(shape), Some(None | Some(SliceProblem::Face { .. })))
        };
        let best = cubes.filter(is_whole).filter(is_slice).min_by_key(|shape| unequal(shape));
        let two = || last.iter().map(|y| vec![chips / y, *y]);
        best.or_else(|| two().filter(is_face).min_by_key(|shape| unequal(shape)))
    }
}

/// Whether a shape, with its axes in some order, fits into a pod.
fn fits(shape: &[u64], pod: &[u64]) -> bool {
    let sorted = |sizes: &[u64]| {
        let mut sizes: Vec<u64> = sizes.iter().copied().filter(|s| *s > 1).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    };
    let (shape, pod) = (sorted(shape), sorted(pod));
    shape.len() <= pod.len() && shape.iter().zip(&pod).all(|(s, p)| s <= p)
}

/// At least two torus axes whose product is a size and that fit into a pod beside the axes of
/// `rest`, longest first: of several the ones whose longest is shortest.
fn fold(size: u64, rest: &[u64], pod: &[u64]) -> Option<Vec<u64>> {
    let free = pod.len().checked_sub(rest.len()).filter(|free| *free > 1)?;
    let mut best: Option<Vec<u64>> = None;
    let mut open: Vec<Vec<u64>> = vec![vec![]];
    while let Some(found) = open.pop() {
        let left = size / found.iter().product::<u64>();
        let most = found.last().copied().unwrap_or(u64::MAX).min(pod.iter().copied().max()?);
        if left == 1 {
            let whole: Vec<u64> = found.iter().chain(rest).copied().collect();
            let better = best.as_ref().is_none_or(|b| found[0] < b[0]);
            if found.len() > 1 && fits(&whole, pod) && better {
                best = Some(found);
            }
        } else if found.len() < free {
            open.extend(
                (2..=most.min(left))
                    .filter(|f| left.is_multiple_of(*f))
                    .map(|f| [&found[..], &[f]].concat()),
            );
        }
    }
    best
}
