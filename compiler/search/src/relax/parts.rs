//! Parts of the bound that reach across a program: a label, whose places all have one layout, and
//! the memory of a device, in which the stored weights and caches have to fit together.
//!
//! A part has *places*: parameters, pins and results. Each layout of a place falls in a *class* of
//! the part. For a label the class is the layout as the label sees it; for a memory it is the
//! number of bytes that the layout takes. A place pays a *side price* for its class, and the part
//! is paid it, so that over a plan side prices cancel like all other prices:
//!
//! ```text
//! least of a label   =  min over its layouts L of            - sum over its places of side(place, L)
//! least of a memory  =  min over classes that fit together of - sum over its places of side(place, class)
//! ```
//!
//! One set of side prices bounds all layouts of all labels, and all ways of filling the memory, at
//! once.

mod knapsack;

use rustc_hash::FxHashMap;
use shard_ir::{Layout, LayoutPattern, Program, ValueId};

use super::graph::FAR;
use super::serving::{add, least_of};
use crate::kernel::Kernels;
use crate::labels::{label_layout, layouts_of_label};
use crate::memory::DeviceMemory;
use knapsack::Knapsack;

/// Stands for the class of a layout that the part forbids.
pub(crate) const NO_CLASS: u32 = u32::MAX;

/// What a place of a part is: a value or a result of the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Seat {
    /// The layout in which a parameter is given, or a pin passes its operand on.
    Value(ValueId),
    /// The layout of a result.
    Output(usize),
}

/// A place of a part: where it is, and the class of each of its layouts.
#[derive(Clone, Debug)]
pub(crate) struct PartPlace {
    pub(crate) seat: Seat,
    class_of: FxHashMap<Layout, u32>,
    /// The number of classes.
    pub(crate) classes: usize,
}

impl PartPlace {
    /// The class of a layout; [`NO_CLASS`] if the part forbids the layout.
    pub(crate) fn class(&self, layout: Layout) -> u32 {
        self.class_of.get(&layout).copied().unwrap_or(NO_CLASS)
    }
}

/// What a part demands of the classes of its places.
#[derive(Clone, Debug)]
pub(crate) enum PartKind {
    /// All places have the same class; there is one class for each layout of the label.
    Label { layouts: Vec<Layout> },
    /// The classes fit together: `bytes` has, for each place, the bytes of its classes over the
    /// whole stack, ascending, and their sum is at most `most`.
    Memory { bytes: Vec<Vec<u64>>, most: u64 },
}

/// A label or a memory, with its places.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) kind: PartKind,
    pub(crate) places: Vec<PartPlace>,
}

/// What a part costs at least at some side prices: over all choices of classes, and for each class
/// of each place over the choices with that class.
#[derive(Clone, Debug)]
pub(crate) struct PartLeast {
    pub(crate) least: i64,
    pub(crate) with: Vec<Vec<i64>>,
}

impl Part {
    /// The parts of a program: its labels in order, then the memories of all phases, where memory
    /// is a constraint. Values on which no result depends have no place, since plans do not have
    /// them.
    pub(crate) fn all(kernels: &Kernels, memory: Option<&DeviceMemory<'_>>) -> Vec<Part> {
        let program = kernels.program.as_ref();
        let labels = (0..program.labels.len()).map(|label| Part::label(kernels, label));
        let memories = memory.into_iter().flat_map(|memory| {
            let part =
                move |(kept, most): (Vec<ValueId>, u64)| Part::memory(program, memory, &kept, most);
            memory.memories().into_iter().map(part)
        });
        labels.chain(memories).collect()
    }

    /// Whether all weights and caches fit in each memory, however they are stored.
    pub(crate) fn all_fits(kernels: &Kernels, memory: &DeviceMemory<'_>) -> bool {
        let fits = |part: &Part| match &part.kind {
            PartKind::Label { .. } => true,
            PartKind::Memory { bytes, most } => {
                let largest = bytes.iter().filter_map(|bytes| bytes.last());
                largest.fold(0u64, |sum, bytes| sum.saturating_add(*bytes)) <= *most
            }
        };
        Part::all(kernels, Some(memory)).iter().all(fits)
    }

    /// The same part, where a memory has at most this many bytes.
    pub(crate) fn keeping_at_most(&self, bytes: u64) -> Part {
        let mut part = self.clone();
        if let PartKind::Memory { most, .. } = &mut part.kind {
            *most = bytes.min(*most);
        }
        part
    }

    /// Whether results are among the places.
    pub(crate) fn has_results(&self) -> bool {
        self.places.iter().any(|place| matches!(place.seat, Seat::Output(_)))
    }

    /// The same part without places at those results for which `is_left_out` says yes.
    pub(crate) fn without_results(mut self, is_left_out: &dyn Fn(usize) -> bool) -> Part {
        match self.kind {
            PartKind::Label { .. } => self
                .places
                .retain(|place| !matches!(place.seat, Seat::Output(at) if is_left_out(at))),
            // A memory has places at values alone.
            PartKind::Memory { .. } => {}
        }
        self
    }

    fn label(kernels: &Kernels, label: usize) -> Part {
        let program = kernels.program.as_ref();
        let of = |pattern: &LayoutPattern| pattern.label.is_some_and(|l| usize::from(l.0) == label);
        let layouts = layouts_of_label(program, shard_ir::LabelId(label as u16));
        let place = |seat: Seat, value: ValueId, pattern: &LayoutPattern| {
            let dims = &program.value(value).dims;
            let known: FxHashMap<Layout, u32> =
                layouts.iter().enumerate().map(|(i, l)| (*l, i as u32)).collect();
            let allowed = crate::space::layouts_allowed(program, value, pattern);
            let class_of =
                allowed.into_iter().filter_map(|l| Some((l, *known.get(&label_layout(dims, l))?)));
            PartPlace { seat, class_of: class_of.collect(), classes: layouts.len() }
        };
        let mut places = Vec::new();
        for id in program.value_ids().filter(|id| kernels.live[id.index()]) {
            if let Some(pattern) = program.value(id).def.pattern().filter(|p| of(p)) {
                places.push(place(Seat::Value(id), id, pattern));
            }
        }
        for (i, output) in
            program.outputs.iter().enumerate().filter(|(_, output)| of(&output.pattern))
        {
            places.push(place(Seat::Output(i), output.value, &output.pattern));
        }
        Part { kind: PartKind::Label { layouts }, places }
    }

    fn memory(program: &Program, memory: &DeviceMemory<'_>, kept: &[ValueId], most: u64) -> Part {
        let (mut places, mut bytes) = (Vec::new(), Vec::new());
        for id in kept {
            let Some(pattern) = program.value(*id).def.pattern() else { continue };
            let stored: Vec<(Layout, u64)> = crate::space::layouts_allowed(program, *id, pattern)
                .into_iter()
                .map(|layout| (layout, memory.kept(*id, layout)))
                .collect();
            let mut levels: Vec<u64> = stored.iter().map(|(_, bytes)| *bytes).collect();
            levels.sort_unstable();
            levels.dedup();
            let class = |kept: u64| levels.binary_search(&kept).map_or(NO_CLASS, |at| at as u32);
            let class_of = stored.into_iter().map(|(layout, kept)| (layout, class(kept))).collect();
            places.push(PartPlace { seat: Seat::Value(*id), class_of, classes: levels.len() });
            bytes.push(levels);
        }
        Part { kind: PartKind::Memory { bytes, most }, places }
    }

    /// What the part costs at least, where the class `c` of the place `n` costs `cost[n][c]`:
    /// [`FAR`] if the place has no layout of that class.
    pub(crate) fn least(&self, cost: &[Vec<i64>]) -> PartLeast {
        match &self.kind {
            PartKind::Label { layouts } => {
                let sums: Vec<i64> = (0..layouts.len())
                    .map(|l| cost.iter().fold(0, |sum, place| add(sum, place[l])))
                    .collect();
                let least = least_of(sums.iter().copied());
                PartLeast { least, with: vec![sums; cost.len()] }
            }
            PartKind::Memory { bytes, most } => {
                Knapsack::new(bytes, *most, cost).least(bytes, cost)
            }
        }
    }

    /// The least alone, which is faster to compute.
    pub(crate) fn least_alone(&self, cost: &[Vec<i64>]) -> i64 {
        match &self.kind {
            PartKind::Label { .. } => self.least(cost).least,
            PartKind::Memory { bytes, most } => {
                Knapsack::new(bytes, *most, cost).least_alone(bytes, cost)
            }
        }
    }

    /// The cheapest class of each place, given that the classes have to go together; of ties the
    /// first.
    pub(crate) fn best(&self, cost: &[Vec<i64>]) -> Vec<u32> {
        match &self.kind {
            PartKind::Memory { bytes, most } => {
                Knapsack::new(bytes, *most, cost).best(bytes, *most, cost)
            }
            PartKind::Label { .. } => {
                let PartLeast { with, .. } = self.least(cost);
                // A label has the same class at all places.
                let best = with.first().and_then(|l| (0..l.len()).min_by_key(|class| l[*class]));
                vec![best.unwrap_or(0) as u32; cost.len()]
            }
        }
    }
}

/// A price of memory: `time` ticks for `bytes` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    time: i64,
    bytes: u64,
}

impl Rate {
    /// The price of this many bytes, rounded down.
    pub(crate) fn of(self, bytes: u64) -> i64 {
        let price = i128::from(self.time) * i128::from(bytes) / i128::from(self.bytes.max(1));
        i64::try_from(price).unwrap_or(FAR).clamp(0, FAR - 1)
    }
}

impl Part {
    /// The price of memory that gives the largest bound when each place chooses its class by
    /// itself; `None` for a label.
    ///
    /// The bound at a price is the sum over the places of their least cost, bytes paid for, less
    /// the price of all bytes of the memory. It is piecewise linear in the price, and bends only
    /// where two classes of a place cost the same; so only those prices are tried.
    pub(crate) fn rate(&self, cost: &[Vec<i64>]) -> Option<Rate> {
        let PartKind::Memory { bytes, most } = &self.kind else { return None };
        let mut rates = vec![Rate { time: 0, bytes: 1 }];
        for (cost, bytes) in cost.iter().zip(bytes) {
            for small in 0..bytes.len() {
                for large in small + 1..bytes.len() {
                    if cost[small] < FAR && cost[large] < FAR && cost[large] < cost[small] {
                        rates.push(Rate {
                            time: cost[small] - cost[large],
                            bytes: bytes[large] - bytes[small],
                        });
                    }
                }
            }
        }
        let comes_to = |rate: &Rate| {
            let place = |(cost, bytes): (&Vec<i64>, &Vec<u64>)| {
                least_of(cost.iter().zip(bytes).map(|(cost, bytes)| add(*cost, rate.of(*bytes))))
            };
            let places: i128 = cost.iter().zip(bytes).map(place).map(i128::from).sum();
            places - i128::from(rate.of(*most))
        };
        rates.into_iter().rev().max_by_key(comes_to)
    }
}

#[cfg(test)]
mod tests {
    use super::knapsack::STEPS;
    use super::*;

    fn memory(bytes: Vec<Vec<u64>>, most: u64) -> Part {
        let place = |b: &Vec<u64>| PartPlace {
            seat: Seat::Output(0),
            class_of: FxHashMap::default(),
            classes: b.len(),
        };
        let places = bytes.iter().map(place).collect();
        Part { kind: PartKind::Memory { bytes, most }, places }
    }

    #[test]
    fn memory_takes_the_cheapest_classes_that_fit_together() {
        let part = memory(vec![vec![1, 4, 16], vec![2, 8]], 18);
        let cost = [vec![9, 5, 0], vec![6, 0]];
        let least = part.least(&cost);
        // The least is 4 + 8 bytes at 5; 16 + 2 bytes cost 6.
        assert_eq!(least.least, 5);
        assert_eq!(least.with, vec![vec![9, 5, 6], vec![6, 5]]);
        assert_eq!(part.best(&cost), [1, 1]);
    }

    /// All choices of one class for each place.
    fn choices(bytes: &[Vec<u64>]) -> impl Iterator<Item = Vec<u32>> {
        let count: usize = bytes.iter().map(Vec::len).product();
        (0..count).map(|mut number| {
            let digit = |bytes: &Vec<u64>| {
                let class = number % bytes.len();
                number /= bytes.len();
                class as u32
            };
            bytes.iter().map(digit).collect()
        })
    }

    #[test]
    fn the_best_is_the_cheapest_of_all_choices_that_fit() {
        let mut random = shard_runtime::Random::new(7);
        for round in 0..400 {
            let mut upto = |most: u64| random.below(most);
            let places = 1 + upto(6) as usize;
            let bytes: Vec<Vec<u64>> = (0..places)
                .map(|_| {
                    let mut bytes: Vec<u64> = (0..=upto(4)).map(|_| 1 + upto(60)).collect();
                    bytes.sort_unstable();
                    bytes.dedup();
                    bytes
                })
                .collect();
            let mut price = |_: &u64| if upto(8) == 0 { FAR } else { upto(30) as i64 - 15 };
            let cost: Vec<Vec<i64>> =
                bytes.iter().map(|bytes| bytes.iter().map(&mut price).collect()).collect();
            let most = 20 + upto(150);
            let part = memory(bytes.clone(), most);
            let taken = |best: &[u32]| -> u64 {
                bytes.iter().zip(best).map(|(bytes, class)| bytes[*class as usize]).sum()
            };
            let comes_to = |best: &[u32]| {
                cost.iter().zip(best).fold(0, |sum, (cost, class)| add(sum, cost[*class as usize]))
            };
            let fitting = choices(&bytes).filter(|choice| taken(choice) <= most);
            let cheapest = fitting.map(|choice| comes_to(&choice)).min().filter(|sum| *sum < FAR);
            let best = part.best(&cost);
            if let Some(cheapest) = cheapest {
                assert!(taken(&best) <= most, "round {round}");
                assert_eq!(comes_to(&best), cheapest, "round {round}");
            }
            assert_eq!(part.least(&cost).least, cheapest.unwrap_or(FAR), "round {round}");
        }
    }

    /// With bytes rounded down, more would fit than there is room for. The choice fits all the
    /// same, and costs hardly more than the cheapest.
    #[test]
    fn the_best_of_rounded_bytes_fits() {
        let bytes: Vec<Vec<u64>> = (0..10)
            .map(|i| vec![1_009 * (i + 1), 1_000_003 + i * 17_321, 2_000_081 + i * 50_331])
            .collect();
        let cost: Vec<Vec<i64>> =
            (0..10).map(|i| vec![10_000 + i * 331, 5_000 + i * 77, 0]).collect();
        let (mut of_best, mut of_cheapest) = (0, 0);
        for most in (300_000..20_000_000).step_by(654_321) {
            let part = memory(bytes.clone(), most);
            let best = part.best(&cost);
            let taken = |best: &[u32]| -> u64 {
                bytes.iter().zip(best).map(|(bytes, class)| bytes[*class as usize]).sum()
            };
            let comes_to = |best: &[u32]| -> i64 {
                cost.iter().zip(best).map(|(cost, class)| cost[*class as usize]).sum()
            };
            assert!(taken(&best) <= most, "{most}");
            let fitting = choices(&bytes).filter(|choice| taken(choice) <= most);
            let cheapest = fitting.map(|choice| comes_to(&choice)).min().expect("one fits");
            of_best += comes_to(&best);
            of_cheapest += cheapest;
        }
        assert!(of_best * 100 <= of_cheapest * 101, "{of_best} where {of_cheapest} would do");
    }

    #[test]
    fn what_each_class_comes_to_is_that_of_all_choices_with_it_whether_falls_are_few_or_many() {
        // The first case has few sizes far apart, which are sorted; the second has many falls in
        // few steps, which are listed by step.
        let few = vec![vec![0, 701, 977], vec![0, 499], vec![0, 313, 947], vec![0, 601]];
        let many = (1..5).map(|n| (0..4).map(|class| class * n).collect()).collect();
        for (bytes, most) in [(few, 1900), (many, 14)] {
            let bytes: Vec<Vec<u64>> = bytes;
            let of_place = |place: usize| {
                let cost = |class: usize| 90 - (class as i64 * 23 + place as i64 * 7) % 61;
                (0..bytes[place].len()).map(cost).collect()
            };
            let cost: Vec<Vec<i64>> = (0..bytes.len()).map(of_place).collect();
            let fits = |choice: &Vec<u32>| {
                let taken = choice.iter().zip(&bytes).map(|(class, bytes)| bytes[*class as usize]);
                taken.sum::<u64>() <= most
            };
            let sum = |choice: Vec<u32>| -> i64 {
                choice.iter().zip(&cost).map(|(class, cost)| cost[*class as usize]).sum()
            };
            let part = memory(bytes.clone(), most);
            let found = part.least(&cost);
            assert_eq!(Some(found.least), choices(&bytes).filter(fits).map(sum).min());
            assert_eq!(part.least_alone(&cost), found.least);
            for (place, with) in found.with.iter().enumerate() {
                for (class, with) in with.iter().enumerate() {
                    let has = |choice: &Vec<u32>| choice[place] == class as u32;
                    let least = choices(&bytes).filter(fits).filter(has).map(sum).min();
                    assert_eq!(*with, least.unwrap_or(FAR), "{place} {class}");
                }
            }
        }
    }

    #[test]
    fn memory_without_room_has_no_least() {
        let part = memory(vec![vec![3], vec![4]], 6);
        assert_eq!(part.least(&[vec![0], vec![0]]).least, FAR);
    }

    #[test]
    fn many_sizes_are_rounded_so_that_more_fits_and_never_less() {
        let bytes: Vec<Vec<u64>> =
            (0..8).map(|i| vec![0, 1_000_003 + i * 17, 2_000_081 + i * 5]).collect();
        let cost: Vec<Vec<i64>> = (0..8).map(|i| vec![10 + i, 5, 0]).collect();
        let exact = |most: u64| {
            let class = |pick: usize, i: usize| pick / 3usize.pow(i as u32) % 3;
            let fits =
                |pick: &usize| (0..8).map(|i| bytes[i][class(*pick, i)]).sum::<u64>() <= most;
            let cost = |pick: usize| (0..8).map(|i| cost[i][class(pick, i)]).sum::<i64>();
            (0..3usize.pow(8)).filter(fits).map(cost).min().unwrap_or(FAR)
        };
        let most = 8_000_300;
        let least = memory(bytes.clone(), most).least(&cost).least;
        // The bytes of each place may be rounded by one step.
        let more = most + 8 * most.div_ceil(STEPS);
        assert!(exact(more) <= least && least <= exact(most), "{least}");
    }
}
