//! Side prices: what the places of a program pay to its labels and memories ([`Part`]), and what
//! these cost at least.

use std::sync::Arc;

use shard_ir::{Layout, ValueId};

use super::factors::Factors;
use super::graph::{FAR, NodeId};
use super::parts::{NO_CLASS, Part, PartKind, PartLeast, PartPlace, Seat};
use super::serving::add;
use super::terms::Terms;

/// The side prices of a problem, in ticks. A class whose price is [`FAR`] is in no plan.
#[derive(Clone, Debug)]
pub(crate) struct Sides {
    pub(crate) parts: Arc<Vec<Part>>,
    /// For each part, place and class, the price that the place pays.
    paid: Vec<Vec<Vec<i64>>>,
    /// For each part and place, the class of each choice of the place: of the strategies of a
    /// value, or of the allowed layouts of a result.
    class: Vec<Vec<Vec<u32>>>,
    /// The least cost of each part: terms of the bound.
    least: Terms,
    /// For each value and each result, the price that each choice pays to all parts; empty for one
    /// that has no place.
    of_value: Vec<Vec<i64>>,
    of_output: Vec<Vec<i64>>,
    /// For each value with places, by how much each choice costs more than the cheapest, all prices
    /// included.
    spared: Vec<Vec<i64>>,
    /// For each part, place and class, a lower bound on the plans with that class there.
    pub(crate) through: Vec<Vec<Vec<i64>>>,
    /// Whether all places of a memory pay the same price for a byte. Sweeps then gain faster;
    /// prices that differ between places give a larger bound in the end.
    pub(crate) at_a_rate: bool,
    /// For each part, place and class, the cost of the class to the part when it last saw all of
    /// its places.
    looked_at: Vec<Vec<Vec<i64>>>,
    /// The finite number that stands for an infinite price, where all prices have to be finite:
    /// [`Sides::in_numbers`].
    infinity: Option<i64>,
    /// For each part, place and class, whether the memory has no room for the class whatever the
    /// other places store; empty where infinite prices say this.
    no_room: Vec<Vec<Vec<bool>>>,
}

/// The number that stands for an infinite price is this many times the target of the prices, so
/// that even a share of it, divided among many readers, is too dear for any plan.
const TIMES_THE_TARGET: i64 = 64;

/// The largest number that stands for an infinite price, so that the sum of many stays below
/// [`FAR`].
const LARGEST_INFINITY: i64 = FAR >> 8;

impl Sides {
    /// The side prices of a program without parts.
    pub(crate) fn none(problem: &Factors) -> Sides {
        Sides::new(Arc::default(), problem)
    }

    /// Side prices of 0 for all classes.
    pub(crate) fn new(parts: Arc<Vec<Part>>, problem: &Factors) -> Sides {
        let zeros = |part: &Part| part.places.iter().map(|p| vec![0; p.classes]).collect();
        let paid: Vec<Vec<Vec<i64>>> = parts.iter().map(zeros).collect();
        let mut sides = Sides {
            through: paid
                .iter()
                .map(|part| part.iter().map(|place| vec![-FAR; place.len()]).collect())
                .collect(),
            looked_at: paid.clone(),
            at_a_rate: true,
            infinity: None,
            no_room: Vec::new(),
            paid,
            class: Vec::new(),
            least: Terms::zero(parts.len()),
            of_value: vec![Vec::new(); problem.factors.len()],
            of_output: vec![Vec::new(); problem.outputs.len()],
            spared: vec![Vec::new(); problem.factors.len()],
            parts,
        };
        sides.look_up_classes(problem);
        sides
    }

    /// The same side prices without infinite ones. A checker adds up all prices, so those that
    /// places and readers pay and are paid have to be numbers that cancel; a large number stands
    /// for the price of what a label or a memory forbids. `target` is the bound that the prices are
    /// to show, in ticks.
    pub(crate) fn in_numbers(mut self, problem: &Factors, target: i64) -> Sides {
        self.infinity = Some(target.saturating_mul(TIMES_THE_TARGET).clamp(1, LARGEST_INFINITY));
        self.look_up_classes(problem);
        self
    }

    /// Looks up the classes of the choices of each place again, after the choices of the problem
    /// changed.
    pub(crate) fn look_up_classes(&mut self, problem: &Factors) {
        let class = |part: &Part| {
            let of = |place: &PartPlace| -> Vec<u32> {
                let (value, nodes): (ValueId, &[NodeId]) = match place.seat {
                    Seat::Value(value) => (value, &problem.factors[value.index()].out),
                    Seat::Output(i) => (problem.outputs[i].0, &problem.outputs[i].1),
                };
                let class = |node: &NodeId| {
                    problem.layout(value, *node).map_or(NO_CLASS, |l| place.class(l))
                };
                nodes.iter().map(class).collect()
            };
            part.places.iter().map(of).collect()
        };
        self.class = self.parts.iter().map(class).collect();
        for (part, classes) in self.class.iter().enumerate() {
            let no_choice = self.no_choice(part);
            for (place, classes) in classes.iter().enumerate() {
                for (class, price) in self.paid[part][place].iter_mut().enumerate() {
                    if !classes.contains(&(class as u32)) {
                        *price = no_choice;
                        self.through[part][place][class] = FAR;
                        self.looked_at[part][place][class] = FAR;
                    }
                }
            }
        }
        if self.infinity.is_some() {
            self.no_room = (0..self.parts.len()).map(|part| self.without_room(part)).collect();
        }
        self.add_up();
        let leasts: Vec<i64> = (0..self.parts.len()).map(|part| self.least_alone(part)).collect();
        leasts.into_iter().enumerate().for_each(|(part, least)| self.least.set(part, least));
    }

    /// The price of a class that no choice of the place has. To a memory the place pays [`FAR`], so
    /// that no plan has the class there. Other places of a label may have the class, so in finite
    /// prices the class is made to cost the label more than any plan takes.
    fn no_choice(&self, part: usize) -> i64 {
        match (self.infinity, &self.parts[part].kind) {
            (Some(infinity), PartKind::Label { .. }) => -infinity,
            (Some(_), PartKind::Memory { .. }) | (None, _) => FAR,
        }
    }

    /// For each place and class, whether the memory has no room for the class however little the
    /// other places store.
    fn without_room(&self, part: usize) -> Vec<Vec<bool>> {
        let PartKind::Memory { bytes, most } = &self.parts[part].kind else { return Vec::new() };
        let stored = |place: usize, class: &u32| bytes[place].get(*class as usize).copied();
        let least = |place: usize| {
            let classes = self.class[part][place].iter();
            classes.filter_map(|class| stored(place, class)).min().unwrap_or(0)
        };
        let least: Vec<u64> = (0..bytes.len()).map(least).collect();
        let all = least.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let has_none = |least: &u64, bytes: &u64| (all - least).saturating_add(*bytes) > *most;
        let of_place = |(bytes, least): (&Vec<u64>, &u64)| {
            bytes.iter().map(|bytes| has_none(least, bytes)).collect()
        };
        bytes.iter().zip(&least).map(of_place).collect()
    }

    /// The same side prices, where weights and caches take at most this many bytes in each memory.
    pub(crate) fn keeping_at_most(&self, bytes: u64) -> Sides {
        let parts = self.parts.iter().map(|part| part.keeping_at_most(bytes)).collect();
        let mut sides = Sides { parts: Arc::new(parts), ..self.clone() };
        for part in 0..sides.parts.len() {
            let least = sides.least_alone(part);
            sides.least.set(part, least);
        }
        sides
    }

    /// Whether the program has no labels and no memory that binds.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The price of a layout at a place of a part: [`FAR`] where no plan has the layout there,
    /// `None` where the part has no place at that seat.
    pub(crate) fn price(&self, part: usize, seat: Seat, layout: Layout) -> Option<i64> {
        let place = self.parts[part].places.iter().position(|place| place.seat == seat)?;
        match self.parts[part].places[place].class(layout) {
            NO_CLASS => Some(FAR),
            class => Some(self.paid[part][place][class as usize]),
        }
    }

    /// The sum of the prices of a layout to all parts; [`FAR`] where no plan has the layout there.
    pub(crate) fn price_at(&self, seat: Seat, layout: Layout) -> i64 {
        (0..self.parts.len()).filter_map(|part| self.price(part, seat, layout)).fold(0, add)
    }

    /// The least cost of all parts together.
    pub(crate) fn sum(&self) -> i64 {
        self.least.sum()
    }

    /// The side price of each strategy of a value; empty where the value has no place.
    pub(crate) fn of_value(&self, value: usize) -> &[i64] {
        &self.of_value[value]
    }

    /// The side price of each allowed layout of a result; empty where the result has no place.
    pub(crate) fn of_output(&self, output: usize) -> &[i64] {
        &self.of_output[output]
    }

    /// For each place and class, what the class costs the part: the negated price.
    fn cost(&self, part: usize) -> Vec<Vec<i64>> {
        let no_room = self.no_room.get(part);
        let has_none = |place: usize, class: usize| {
            no_room.and_then(|of| of.get(place)).is_some_and(|place| place[class])
        };
        let of_place = |(place, paid): (usize, &Vec<i64>)| {
            let less = |(class, price): (usize, &i64)| {
                if *price >= FAR || has_none(place, class) { FAR } else { -price }
            };
            paid.iter().enumerate().map(less).collect()
        };
        self.paid[part].iter().enumerate().map(of_place).collect()
    }

    /// The least cost of a part, and of the choices with each class.
    fn least(&self, part: usize) -> PartLeast {
        self.parts[part].least(&self.cost(part))
    }

    /// The least cost of a part.
    fn least_alone(&self, part: usize) -> i64 {
        self.parts[part].least_alone(&self.cost(part))
    }

    /// For each place, the class in the choice that was cheapest when the part last saw all of its
    /// places.
    pub(crate) fn best(&self, part: usize) -> Vec<u32> {
        self.parts[part].best(&self.looked_at[part])
    }

    /// For each place of a part, the classes that plans of at most `most` ticks may have there.
    pub(crate) fn live(&self, part: usize, most: i64) -> Vec<Vec<usize>> {
        let may = |through: &Vec<i64>| {
            (0..through.len()).filter(|class| through[*class] <= most).collect()
        };
        self.through[part].iter().map(may).collect()
    }

    fn places(&self, seat: Seat) -> Vec<(usize, usize)> {
        let of = |(part, p): (usize, &Part)| -> Vec<(usize, usize)> {
            let here = |(_, place): &(usize, &PartPlace)| place.seat == seat;
            p.places.iter().enumerate().filter(here).map(|(place, _)| (part, place)).collect()
        };
        self.parts.iter().enumerate().flat_map(of).collect()
    }

    /// Computes anew the price that each choice pays to all parts.
    fn add_up(&mut self) {
        let parts = Arc::clone(&self.parts);
        for seat in parts.iter().flat_map(|part| &part.places).map(|place| place.seat) {
            let sum = self.sum_of(seat);
            match seat {
                Seat::Value(value) => self.of_value[value.index()] = sum,
                Seat::Output(output) => self.of_output[output] = sum,
            }
        }
    }

    fn sum_of(&self, seat: Seat) -> Vec<i64> {
        let places = self.places(seat);
        let count = places.first().map_or(0, |(part, place)| self.class[*part][*place].len());
        let price = |choice: usize| {
            places.iter().fold(0, |sum, (part, place)| match self.class[*part][*place][choice] {
                NO_CLASS => FAR,
                class => add(sum, self.paid[*part][*place][class as usize]),
            })
        };
        (0..count).map(price).collect()
    }

    /// Hands to the parts of a seat what its choices cost beyond the cheapest. `cost` is the cost
    /// of each choice, side prices included, and is lowered by what the parts take. With `stays`,
    /// an even share is left for the operands.
    pub(crate) fn take(&mut self, seat: Seat, cost: &mut [i64], stays: bool) {
        let (places, infinity) = (self.places(seat), self.infinity);
        let Some(least) = cost.iter().copied().min().filter(|least| *least < FAR) else { return };
        for (n, (part, place)) in places.iter().enumerate() {
            let share = (places.len() - n + usize::from(stays)) as i64;
            let classes = &self.class[*part][*place];
            let mut beyond = vec![FAR; self.paid[*part][*place].len()];
            for (class, cost) in
                classes.iter().zip(cost.iter()).filter(|(class, _)| **class != NO_CLASS)
            {
                let beyond = &mut beyond[*class as usize];
                *beyond = (*beyond).min(if *cost >= FAR { FAR } else { *cost - least });
            }
            let no_choice = self.no_choice(*part);
            for (price, beyond) in self.paid[*part][*place].iter_mut().zip(&mut beyond) {
                if *beyond >= FAR {
                    *price = match infinity {
                        Some(infinity) if *price < FAR => (*price).min(-infinity),
                        Some(_) | None => no_choice,
                    };
                } else {
                    *beyond = beyond.div_euclid(share);
                    *price -= *beyond;
                }
            }
            for (class, cost) in
                classes.iter().zip(cost.iter_mut()).filter(|(_, cost)| **cost < FAR)
            {
                *cost = match *class {
                    NO_CLASS => FAR,
                    class if beyond[class as usize] >= FAR => FAR,
                    class => *cost - beyond[class as usize],
                };
            }
        }
        if let Seat::Value(value) = seat
            && !places.is_empty()
        {
            // With operands, what is left is handed to these next, after which all choices cost the
            // same.
            let beyond = |cost: &i64| match *cost {
                _ if stays => 0,
                cost if cost >= FAR => FAR,
                cost => cost - least,
            };
            self.spared[value.index()] = cost.iter().map(beyond).collect();
        }
    }

    /// Each part looks at all of its places at once, and hands back to each place an even share of
    /// what each class costs the part. `rest` is the bound without the parts; it is `None` on the
    /// way up, where places have not yet handed over all that they have. `seen` is called before
    /// anything is handed back, with the least of each part.
    pub(crate) fn balance(
        &mut self,
        rest: Option<i64>,
        mut seen: impl FnMut(&Sides, &[PartLeast]),
    ) {
        if self.is_empty() {
            return;
        }
        // On the way up, only parts with places at results hand back. The places of values have set
        // their prices by what they pay now, and these payments may only grow.
        let hands_back = |part: &Part| rest.is_some() || part.has_results();
        let least = |part: usize| {
            if hands_back(&self.parts[part]) {
                self.least(part)
            } else {
                // The places pay what they paid when the part was last looked at.
                PartLeast { least: self.least.of(part), with: Vec::new() }
            }
        };
        let leasts: Vec<PartLeast> = (0..self.parts.len()).map(least).collect();
        for (part, least) in leasts.iter().enumerate() {
            self.least.set(part, least.least);
        }
        if let Some(rest) = rest {
            let bound = add(rest, self.sum());
            for (part, PartLeast { least, with }) in leasts.iter().enumerate() {
                self.looked_at[part] = self.cost(part);
                for (through, with) in
                    self.through[part].iter_mut().flatten().zip(with.iter().flatten())
                {
                    *through = (*through).max(add(bound, add(*with, -*least)));
                }
            }
        }
        seen(self, &leasts);
        let (parts, infinity) = (Arc::clone(&self.parts), self.infinity);
        let back =
            || parts.iter().zip(&leasts).enumerate().filter(|(_, (part, _))| hands_back(part));
        for (part, (_, PartLeast { least, with })) in back() {
            if self.at_a_rate && self.pay_at_a_rate(part, with) {
                continue;
            }
            let places = with.len() as i64;
            for (paid, with) in self.paid[part].iter_mut().zip(with) {
                for (price, with) in paid.iter_mut().zip(with) {
                    *price = match infinity {
                        _ if *price >= FAR => FAR,
                        Some(infinity) if *with >= FAR => *price + infinity / places,
                        None if *with >= FAR => FAR,
                        Some(_) | None => *price + (*with - *least).div_euclid(places),
                    };
                }
            }
        }
        self.add_up();
        for (part, _) in back() {
            let now = self.least_alone(part);
            self.least.set(part, now);
        }
    }

    /// Hands back to the places of a memory all that they handed over, and has each pay the same
    /// rate for a byte; returns `false` for a label.
    fn pay_at_a_rate(&mut self, part: usize, with: &[Vec<i64>]) -> bool {
        let (parts, infinity) = (Arc::clone(&self.parts), self.infinity);
        let (PartKind::Memory { bytes, .. }, Some(rate)) =
            (&parts[part].kind, parts[part].rate(&self.cost(part)))
        else {
            return false;
        };
        for ((paid, with), bytes) in self.paid[part].iter_mut().zip(with).zip(bytes) {
            for ((price, with), bytes) in paid.iter_mut().zip(with).zip(bytes) {
                *price = match infinity {
                    _ if *price >= FAR => FAR,
                    Some(infinity) if *with >= FAR => rate.of(*bytes).saturating_add(infinity),
                    None if *with >= FAR => FAR,
                    Some(_) | None => rate.of(*bytes),
                };
            }
        }
        true
    }

    /// By how much each choice of a value raises the bound: by how much the parts cost more with
    /// the class of the choice, and by how much the choice costs more than the cheapest.
    pub(crate) fn pushed(&self, value: ValueId, leasts: &[PartLeast]) -> Vec<i64> {
        let places = self.places(Seat::Value(value));
        let mut pushed = self.spared[value.index()].clone();
        for (part, place) in places {
            for (more, class) in pushed.iter_mut().zip(&self.class[part][place]) {
                *more = match *class {
                    NO_CLASS => FAR,
                    class => add(
                        *more,
                        add(leasts[part].with[place][class as usize], -leasts[part].least),
                    ),
                };
            }
        }
        pushed
    }
}
