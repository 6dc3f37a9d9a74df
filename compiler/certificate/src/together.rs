//! Forms bounded together (`spec/certificate.md`): what every form has alike, and the least of each
//! cluster.
//!
//! A form is solved, and its prices are kept. Over the border of a cluster they are the same in
//! every form, whatever is chosen in it. So a form takes at least what the solved one has outside
//! of clusters, and of each cluster what the alternative that it takes comes to, at these prices:
//! and that is no less than the least of all alternatives.

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

/// What the plan spaces of all forms have in common.
#[derive(Clone, Copy)]
pub struct Ground<'g> {
    /// The phases side by side.
    pub joint: &'g Joint,
    /// The chip.
    pub hardware: &'g Hardware,
    /// Whether einsums may do a collective in their loops.
    pub loops: bool,
}

/// A solved form, of which clusters may be replaced.
pub struct Solved<'s> {
    choices: &'s Choices<'s>,
    ground: Ground<'s>,
    common: Common,
    picks: Vec<usize>,
    form: Form,
    prices: PriceSet,
    /// The prices of readers across the borders of clusters: by what is read, and who reads it as
    /// which operand.
    borders: BTreeMap<(Class, Class, usize), ReaderPrices>,
    /// What places of labels and memories pay in the solved form.
    places: Sides,
    outlines: BTreeMap<Class, (Region, Outline)>,
    /// What is outside of clusters, and what the form's own alternative of each cluster comes to.
    rest: Sum,
    own: Vec<Sum>,
    inequalities: u64,
}

/// All that the part of a value in the bound hangs on, prices aside: the same in all forms for what
/// is in no cluster.
#[derive(Clone, PartialEq, Debug)]
struct Outline {
    /// How it is computed, operands by their classes.
    def: Def,
    /// Who reads it: a class and which of its operands, or a result.
    readers: BTreeSet<(Option<Class>, usize)>,
    times: u64,
    fold: Option<FoldId>,
    /// Which moves it has: values that have the same share them.
    moves: *const Moves,
    joins: Option<Joined>,
    joined_by: Option<Class>,
    /// Of what an attention ends with, its ops and the pins in it.
    attention: Option<(BTreeSet<Class>, BTreeSet<Class>)>,
    /// How it may be `partialsoftmax`, if it may.
    partial_softmax: Option<PartialSoftmax>,
}

/// What a value joins the kernel of, the pins between, which of its operands are fed by it, and
/// which it has to read.
#[derive(Clone, PartialEq, Debug)]
struct Joined {
    maker: Class,
    pins: BTreeSet<Class>,
    fed: Vec<usize>,
    reads: Vec<bool>,
}

impl<'s> Solved<'s> {
    /// A form at some prices. Prices that do not fit it are refused.
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

    /// What is outside of clusters, in the parts of a picosecond that prices count.
    pub fn rest(&self) -> i128 {
        self.rest
    }

    /// What the form's own alternative of a cluster comes to.
    pub fn own(&self, cluster: usize) -> i128 {
        self.own[cluster]
    }

    /// The form with another alternative of one cluster; `None` where there is no such form.
    pub fn form_with(&self, cluster: usize, alternative: usize) -> Option<Form> {
        let mut picks = self.picks.clone();
        *picks.get_mut(cluster)? = alternative;
        self.choices.form(&picks)
    }

    /// What another alternative of a cluster comes to. `within` says, given its plan space and its
    /// form, prices for those who read in it what is computed in it.
    pub fn alternative(
        &mut self,
        cluster: usize,
        alternative: usize,
        within: impl FnOnce(&Space<'_>, &Form) -> Result<Vec<ReaderPrices>, CertificateError>,
    ) -> Result<i128, CertificateError> {
        let region = Region::Cluster(cluster);
        // Choices of one cluster do not need each other in a circle; those of several might.
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

    /// What all forms take at least, where the least alternative of each cluster comes to so much;
    /// `None` where there is no plan.
    pub fn in_picoseconds(&self, least: impl IntoIterator<Item = i128>) -> Option<u64> {
        in_picoseconds(least.into_iter().fold(self.rest, plus), i64::from(self.prices.scale))
    }

    fn empty(&self) -> PriceSet {
        PriceSet { scale: self.prices.scale, ..PriceSet::default() }
    }

    /// The prices that the file has of the solved form, as far as they are of one region.
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

    /// Notes the prices of readers across borders.
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

    /// The prices of readers across the border of a part of another form.
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

    /// What a part comes to.
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

/// The outlines of the values of a form, but for numbers and for those of one region.
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
            fed: joins.fed.clone(),
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

/// The least over all forms of a program that are made of choices, in picoseconds, and how many
/// alternatives it rests on.
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
