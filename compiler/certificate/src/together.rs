//! Forms bounded together (`spec/certificate.md`): the sum of what all forms have in common and of
//! the least alternative of each cluster.
//!
//! One form is solved, and its prices are kept. At the border of a cluster these prices are the
//! same in every form, whatever the form chooses in the cluster. So the bound of any form is the
//! bound of the solved form outside of all clusters, plus for each cluster the bound of the
//! alternative that the form takes at these prices; and each of these is no less than the least
//! alternative of its cluster.

use std::collections::{BTreeMap, BTreeSet};

use shard_cost::Hardware;
use shard_ir::{Def, FoldId, ValueId};

use crate::bound::in_picoseconds;
use crate::carried::PartialSoftmax;
use crate::format::{CertificateError, PriceSet, ReaderPrices, Together};
use crate::forms::{Choices, Class, Form, Region};
use crate::moves::Moves;
use crate::phases::Joint;
use crate::sides::Sides;
use crate::space::{Common, Extent, Reader, Space};
use crate::sums::{NEVER, Sum, plus};

/// What all forms are bounded on.
#[derive(Clone, Copy)]
pub struct Ground<'g> {
    /// The phases side by side.
    pub joint: &'g Joint,
    /// The chip.
    pub hardware: &'g Hardware,
    /// Whether einsums may do a collective in their loops.
    pub loops: bool,
}

/// A solved form, whose alternatives of clusters may be replaced by others.
pub struct Solved<'s> {
    choices: &'s Choices<'s>,
    ground: Ground<'s>,
    common: Common,
    picks: Vec<usize>,
    form: Form,
    prices: PriceSet,
    /// The prices of readers across the borders of clusters, by the class that is read, the class
    /// that reads it, and the place among its operands.
    borders: BTreeMap<(Class, Class, usize), ReaderPrices>,
    /// The side prices of places in the solved form.
    places: Sides,
    outlines: BTreeMap<Class, (Region, Outline)>,
    /// The bound of what is outside of clusters, and of the form's own alternative of each cluster.
    rest: Sum,
    own: Vec<Sum>,
    inequalities: u64,
}

/// Everything that the bound of a value depends on, prices aside. It must be the same in all forms
/// for a value outside of clusters.
#[derive(Clone, PartialEq, Debug)]
struct Outline {
    /// How the value is computed, with classes in the place of operands.
    def: Def,
    /// Its readers: a class and the place among its operands, or a result.
    readers: BTreeSet<(Option<Class>, usize)>,
    times: u64,
    fold: Option<FoldId>,
    /// Its moves, by address: values with the same moves share them.
    moves: *const Moves,
    joins: Option<Joined>,
    joined_by: Option<Class>,
    /// For the last value of an attention, the members and the pins of the attention.
    attention: Option<(BTreeSet<Class>, BTreeSet<Class>)>,
    /// How it may be `partialsoftmax`, if it may.
    partial_softmax: Option<PartialSoftmax>,
}

/// How a value joins a kernel, with classes in the place of values
/// ([`Joins`](crate::kernel::Joins)).
#[derive(Clone, PartialEq, Debug)]
struct Joined {
    maker: Class,
    pins: BTreeSet<Class>,
    from_maker: Vec<usize>,
    reads: Vec<bool>,
}

impl<'s> Solved<'s> {
    /// The form of these picks at some prices. Prices that do not fit it are refused.
    pub fn new(
        choices: &'s Choices<'s>,
        picks: &[usize],
        prices: &PriceSet,
        ground: Ground<'s>,
    ) -> Result<Solved<'s>, CertificateError> {
        let refused = |what: &str| Err(CertificateError::new(what));
        let Some(form) = choices.form(picks) else {
            return refused("the prices are of a form that the program does not have");
        };
        let is_number = |value: ValueId| form.regions[value.index()] == Region::Number;
        if form.program.outputs.iter().any(|output| is_number(output.value)) {
            return refused("a result is a number, and forms are bounded together");
        }
        let clusters = choices.alternatives().len();
        let mut solved = Solved {
            choices,
            ground,
            common: Common::default(),
            picks: picks.to_vec(),
            form: form.clone(),
            prices: prices.clone(),
            borders: BTreeMap::new(),
            places: Sides::default(),
            outlines: BTreeMap::new(),
            rest: 0,
            own: Vec::new(),
            inequalities: 0,
        };
        let rest = solved.space(&form, Region::Rest)?;
        solved.outlines = outlines(&rest, &form, None);
        solved.read_borders(&rest)?;
        let sides = rest.sides(prices)?;
        solved.places = sides.of_places();
        let of_rest = solved.of_region(&rest, Region::Rest);
        solved.rest = solved.sum(&rest, &of_rest, sides)?;
        for cluster in 0..clusters {
            let region = Region::Cluster(cluster);
            let space = solved.space(&form, region)?;
            let (prices, places) = (solved.of_region(&space, region), solved.places.clone());
            let own = solved.sum(&space, &prices, places)?;
            solved.own.push(own);
        }
        Ok(solved)
    }

    /// The solved form.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// The plan space of a region of a form.
    pub fn space<'a>(&self, form: &'a Form, of: Region) -> Result<Space<'a>, CertificateError>
    where
        's: 'a,
    {
        let Ground { joint, hardware, loops } = self.ground;
        let extent = Extent { regions: &form.regions, of };
        Space::of_part(&form.program, hardware, loops, &joint.present, Some(extent), &self.common)
    }

    /// The bound of what is outside of clusters, in the fractions of a picosecond that prices
    /// count.
    pub fn rest(&self) -> i128 {
        self.rest
    }

    /// The bound of the form's own alternative of a cluster, in the same fractions.
    pub fn own(&self, cluster: usize) -> i128 {
        self.own[cluster]
    }

    /// The form with another alternative of one cluster; `None` where there is no such form.
    pub fn form_with(&self, cluster: usize, alternative: usize) -> Option<Form> {
        let mut picks = self.picks.clone();
        *picks.get_mut(cluster)? = alternative;
        self.choices.form(&picks)
    }

    /// The bound of another alternative of a cluster, in the same fractions. `within` gives, for
    /// the plan space of the cluster in the other form, and for that form, the prices of readers in
    /// the cluster of values that are computed in it.
    pub fn alternative(
        &mut self,
        cluster: usize,
        alternative: usize,
        within: impl FnOnce(&Space<'_>, &Form) -> Result<Vec<ReaderPrices>, CertificateError>,
    ) -> Result<i128, CertificateError> {
        let region = Region::Cluster(cluster);
        // No alternative of one cluster needs itself, but the alternatives of several clusters may.
        let form = self.form_with(cluster, alternative);
        let form = form
            .ok_or_else(|| CertificateError::new("choices of several clusters need each other"))?;
        let space = self.space(&form, region)?;
        let outlines = outlines(&space, &form, Some(region));
        if !self.outlines.iter().filter(|(_, (at, _))| *at != region).eq(outlines.iter()) {
            return Err(CertificateError::new("a choice changes what is outside of its cluster"));
        }
        let within = within(&space, &form)?;
        let crosses = |of: &ReaderPrices| {
            let readers = space.readers.get(of.value as usize);
            let reader = readers.and_then(|readers| readers.get(of.reader as usize));
            reader.is_some_and(|reader| space.is_border(of.value as usize, reader))
        };
        if let Some(of) = within.iter().find(|of| crosses(of)) {
            let (value, reader) = (of.value, of.reader);
            let what = format!(
                "reader {reader} of value {value} has prices of one alternative, and is outside \
                    of it"
            );
            return Err(CertificateError::new(what));
        }
        let classes: BTreeMap<Class, ValueId> =
            form.classes.iter().copied().zip(form.program.value_ids()).collect();
        let now: Vec<Option<ValueId>> =
            self.form.classes.iter().map(|class| classes.get(class).copied()).collect();
        let places = self.places.in_another_form(form.classes.len(), &now);
        let readers = within.into_iter().chain(self.across_borders(&space, &form)).collect();
        let prices = PriceSet { readers, ..self.empty() };
        self.sum(&space, &prices, places)
    }

    /// The bound on all forms in picoseconds, given the bound of the least alternative of each
    /// cluster; `None` where there is no plan.
    pub fn in_picoseconds(&self, least: impl IntoIterator<Item = i128>) -> Option<u64> {
        in_picoseconds(least.into_iter().fold(self.rest, plus), i64::from(self.prices.scale))
    }

    fn empty(&self) -> PriceSet {
        PriceSet { scale: self.prices.scale, ..PriceSet::default() }
    }

    /// The prices of the solved form whose value or reader is in a region.
    fn of_region(&self, space: &Space<'_>, region: Region) -> PriceSet {
        let at = |value: u32| self.form.regions.get(value as usize).copied();
        let reads = |of: &&ReaderPrices| {
            let reader = space
                .readers
                .get(of.value as usize)
                .and_then(|readers| readers.get(of.reader as usize));
            let by = reader.and_then(|reader| match reader {
                Reader::Operand(by, _) => at(by.0),
                Reader::Result(_) => None,
            });
            at(of.value) == Some(region) || by == Some(region)
        };
        let readers = self.prices.readers.iter().filter(reads).cloned().collect();
        PriceSet { readers, ..self.empty() }
    }

    /// Stores the prices of readers across borders.
    fn read_borders(&mut self, rest: &Space<'_>) -> Result<(), CertificateError> {
        for of in &self.prices.readers {
            let region = |value: ValueId| self.form.regions[value.index()];
            let known = rest
                .readers
                .get(of.value as usize)
                .and_then(|readers| readers.get(of.reader as usize));
            let (Some(reader), Some(class)) = (known, self.form.classes.get(of.value as usize))
            else {
                let (value, reader) = (of.value, of.reader);
                let what = format!(
                    "there are prices for reader {reader} of value {value}, which the program \
                        does not have"
                );
                return Err(CertificateError::new(what));
            };
            if region(ValueId(of.value)) == Region::Number {
                return Err(CertificateError::new(format!(
                    "value {} is a number, and its readers pay nothing",
                    of.value
                )));
            }
            if let Reader::Operand(by, place) = reader
                && region(*by) != region(ValueId(of.value))
            {
                let key = (*class, self.form.classes[by.index()], *place);
                if self.borders.insert(key, of.clone()).is_some() {
                    let (value, reader) = (of.value, of.reader);
                    return Err(CertificateError::new(format!(
                        "reader {reader} of value {value} has prices twice"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The prices of readers across the border of a part of a form, taken from the solved form.
    pub fn across_borders(&self, space: &Space<'_>, form: &Form) -> Vec<ReaderPrices> {
        let mut all = Vec::new();
        for id in &space.present {
            for (number, reader) in space.readers[id.index()].iter().enumerate() {
                let Reader::Operand(by, place) = reader else { continue };
                if !space.is_border(id.index(), reader) {
                    continue;
                }
                let key = (form.classes[id.index()], form.classes[by.index()], *place);
                if let Some(of) = self.borders.get(&key) {
                    all.push(ReaderPrices {
                        value: id.0,
                        reader: number as u32,
                        paid: of.paid.clone(),
                    });
                }
            }
        }
        all
    }

    /// The bound of a part.
    fn sum(
        &mut self,
        space: &Space<'_>,
        prices: &PriceSet,
        sides: Sides,
    ) -> Result<Sum, CertificateError> {
        let bound = space.bound_with(prices, sides)?;
        self.inequalities += bound.alternatives;
        Ok(space.sum_under(&bound, &[]))
    }
}

/// The outlines of the values of a form by class, except for numbers and for the values of one
/// region.
fn outlines(
    space: &Space<'_>,
    form: &Form,
    but: Option<Region>,
) -> BTreeMap<Class, (Region, Outline)> {
    let class = |id: ValueId| form.classes[id.index()];
    let by_class = |id: ValueId| ValueId(class(id) as u32);
    let outside = space.present.iter().filter(|id| {
        let region = form.regions[id.index()];
        region != Region::Number && Some(region) != but
    });
    let outline = |id: &ValueId| {
        let value = form.program.value(*id);
        let def = match &value.def {
            Def::Op { op, operands } => Def::Op {
                op: op.clone(),
                operands: operands.iter().map(|o| by_class(*o)).collect(),
            },
            Def::Pin { operand, pattern, written } => Def::Pin {
                operand: by_class(*operand),
                pattern: pattern.clone(),
                written: *written,
            },
            given @ (Def::Parameter { .. } | Def::Constant(_)) => given.clone(),
        };
        let readers = space.readers[id.index()].iter().map(|reader| match reader {
            Reader::Operand(by, place) => (Some(class(*by)), *place),
            Reader::Result(i) => (None, *i),
        });
        let joins = space.joins[id.index()].as_ref().map(|joins| Joined {
            maker: class(joins.maker),
            pins: joins.pins.iter().map(|pin| class(*pin)).collect(),
            from_maker: joins.from_maker.clone(),
            reads: joins.reads.clone(),
        });
        let joined_by = space.joined_by[id.index()].map(class);
        let attention = space.attentions[id.index()].as_ref().map(|found| {
            let classes = |ids: &[ValueId]| ids.iter().map(|id| class(*id)).collect();
            let widest = found.widest();
            (classes(&widest.members), classes(&widest.pins))
        });
        let (readers, times, fold) = (readers.collect(), value.times, value.fold);
        let moves = std::rc::Rc::as_ptr(&space.moves[id.index()]);
        let partial_softmax = space.partial_softmaxes[id.index()];
        (
            class(*id),
            (
                form.regions[id.index()],
                Outline {
                    def,
                    readers,
                    times,
                    fold,
                    moves,
                    joins,
                    joined_by,
                    attention,
                    partial_softmax,
                },
            ),
        )
    };
    outside.map(outline).collect()
}

/// The least bound over all forms of a program, in picoseconds, and the number of alternatives that
/// it rests on.
pub(crate) fn bound_together(
    together: &Together,
    choices: &Choices<'_>,
    ground: Ground<'_>,
) -> Result<(u64, u64), CertificateError> {
    let Together { picks, prices, alternatives } = together;
    let picks: Vec<usize> = picks.iter().map(|pick| *pick as usize).collect();
    let mut given: BTreeMap<(usize, usize), &[ReaderPrices]> = BTreeMap::new();
    for of in alternatives {
        let which = (of.cluster as usize, of.alternative as usize);
        let exists = choices.alternatives().get(which.0).is_some_and(|count| which.1 < *count);
        if !exists || picks.get(which.0) == Some(&which.1) {
            let what = format!("cluster {} has no other alternative {}", which.0, which.1);
            return Err(CertificateError::new(what));
        }
        if given.insert(which, &of.readers).is_some() {
            return Err(CertificateError::new(format!(
                "alternative {} of cluster {} has prices twice",
                which.1, which.0
            )));
        }
    }
    let mut solved = Solved::new(choices, &picks, prices, ground)?;
    let mut least = Vec::new();
    for (cluster, count) in choices.alternatives().into_iter().enumerate() {
        let mut best = solved.own(cluster);
        for alternative in (0..count).filter(|alternative| *alternative != picks[cluster]) {
            let within = given.get(&(cluster, alternative)).copied().unwrap_or(&[]);
            best = best.min(solved.alternative(cluster, alternative, |_, _| Ok(within.to_vec()))?);
        }
        least.push(best);
    }
    debug_assert!(least.iter().all(|sum| *sum <= NEVER));
    Ok((solved.in_picoseconds(least).unwrap_or(u64::MAX), solved.inequalities))
}
