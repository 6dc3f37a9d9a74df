//! Tries edits by XLA itself: the program is compiled again with each edit, and with constraints
//! that plans ask for, until it sends at most a twentieth more than the optimum.

use shard_cost::{Hardware, Weights};

use super::advise::{Step, apply};
use super::constrain::constrain;
use super::edit::{NewConstraint, OpenSpec, edited};
use super::optimum::{Choice, Optimum, optimum};
use super::read::Stable;
use super::sharding::{Spec, whole_partition_spec};
use super::translate::Layer;
use crate::axes::NamedMesh;
use crate::collectives::{Kind, Program, collectives};
use crate::compare::{Advice, AdviceKind, Comparison, Left, Recompiled, Tried};
use crate::hlo::Module;

/// Weights with which a plan sends little, whatever it computes.
const WIRES: Weights = Weights { ops: 1, moves: 1000 };

/// The most collectives that are shown if XLA stays above the optimum.
const MOST_LEFT: usize = 8;

/// A program that XLA compiled.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The optimised HLO, as text.
    pub text: String,
    /// The kind of device that it is for: `cpu`, `tpu`, `gpu`.
    pub platform: String,
}

/// Compiles the text of a program; the error is a clause that says why not.
pub type Compiler<'a> = &'a mut dyn FnMut(&str) -> Result<Compiled, String>;

/// The program that is compiled again and again.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its text.
    pub text: &'a str,
    /// The text, read.
    pub stable: &'a Stable,
    /// The program as a layer.
    pub layer: &'a Layer,
    /// The mesh.
    pub mesh: &'a NamedMesh,
    /// The chip that plans are made for.
    pub hardware: &'a Hardware,
}

/// Compiles a program again and again, and counts how often.
pub(super) struct Trier<'a> {
    pub(super) subject: Subject<'a>,
    compile: Compiler<'a>,
    pub(super) count: usize,
    platform: String,
}

/// What a compiled program sends.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    program: Program,
    /// The bytes that a device sends, counted so that they compare with those of a plan.
    pub(super) bytes: u64,
}

/// Tries the edits of the advice by compiling, then new constraints, and rewrites the advice by
/// what XLA sends with them.
pub fn recompile(
    subject: Subject<'_>,
    steps: &[Step],
    found: &mut Comparison,
    compile: Compiler<'_>,
) {
    let mut trier = Trier { subject, compile, count: 0, platform: String::new() };
    if let Err(why) = trier.run(steps, found) {
        found.not_compiled = Some(why);
    }
}

impl Trier<'_> {
    fn run(&mut self, steps: &[Step], found: &mut Comparison) -> Result<(), String> {
        let layer = self.subject.layer;
        let mut choice = Choice::of(layer);
        let as_is = self.sent(&choice, &[])?;
        let mut now = as_is.clone();
        let mut kept: Vec<Advice> = Vec::new();
        for step in steps {
            let mut next = choice.clone();
            apply(&step.edit, &mut next);
            let mut advice = step.advice.clone();
            // Only the user can write a program in which a weight has one dim more.
            if step.is_another_program() {
                kept.push(advice);
                continue;
            }
            let sent = self.sent(&next, &[])?;
            advice.tried = Tried::Compiled;
            advice.saves_bytes = now.bytes.saturating_sub(sent.bytes);
            if sent.bytes < now.bytes {
                kept.push(advice);
                (choice, now) = (next, sent);
            }
        }
        let best = optimum(layer, self.subject.mesh, &choice, self.subject.hardware)?;
        let target = self.counted(&best);
        let without = now.clone();
        let mut new = Vec::new();
        if !is_near(now.bytes, target) {
            (now, new) = constrain(self, &choice, &best, target, &without);
        }
        // A plan that takes longer in the cost model may have moves that XLA makes as well.
        if !is_near(now.bytes, target) {
            let wires = self.subject.hardware.weighted(WIRES);
            let sparing = optimum(layer, self.subject.mesh, &choice, &wires)?;
            let (sent, chosen) = constrain(self, &choice, &sparing, target, &without);
            if sent.bytes < now.bytes {
                (now, new) = (sent, chosen);
            }
        }
        kept.extend(self.constraint_advice(&new, without.bytes.saturating_sub(now.bytes)));
        let left =
            if is_near(now.bytes, target) { Vec::new() } else { left(&now, self.subject.mesh) };
        kept.sort_by_key(|advice| std::cmp::Reverse(advice.saves_bytes));
        found.advice = kept;
        found.compiled = Some(Recompiled {
            platform: self.platform.clone(),
            as_is: as_is.bytes,
            edited: now.bytes,
            optimum: target,
            constraints: new.len(),
            left,
            compilations: self.count,
        });
        Ok(())
    }

    /// What XLA sends for the program with the specs of a choice and new constraints.
    pub(super) fn sent(&mut self, choice: &Choice, new: &[NewConstraint]) -> Result<Sent, String> {
        let Subject { text, stable, layer, mesh, .. } = self.subject;
        let text = edited(text, stable, layer, choice, new)
            .ok_or("the program before names no mesh whose shardings could be edited")?;
        self.count += 1;
        let compiled = (self.compile)(&text)?;
        self.platform = compiled.platform;
        let wrong = |error: crate::hlo::ReadError| error.message;
        let module = Module::read(&compiled.text).map_err(wrong)?;
        let program = collectives(&module, Some(mesh)).map_err(wrong)?;
        let bytes = program.collectives.iter().map(|one| {
            // XLA for CPU makes no reduce-scatter. An all-reduce of which each device uses its part
            // would be one elsewhere, which sends half.
            let scattered =
                self.platform == "cpu" && one.kind == Kind::AllReduce && one.flow.is_only_sliced;
            one.wire_bytes() / if scattered { 2 } else { 1 }
        });
        let bytes = bytes.fold(0, u64::saturating_add);
        Ok(Sent { program, bytes })
    }

    /// The bytes of a plan and of what is done by hand, with floats as wide as this XLA sends them.
    fn counted(&self, best: &Optimum) -> u64 {
        let plan = if self.platform == "cpu" { best.bytes_as_f32 } else { best.totals.wire_bytes };
        let by_hand = self.subject.layer.by_hand.map_or(0, |totals| totals.wire_bytes);
        plan.saturating_add(by_hand)
    }

    /// What a person reads of new constraints. The bytes that they save together are divided
    /// equally among them, since one constraint by itself may save nothing.
    fn constraint_advice(&self, new: &[NewConstraint], saved: u64) -> Vec<Advice> {
        let layer = self.subject.layer;
        let one = |one: &NewConstraint| {
            let site = &layer.sites[one.site];
            let value = match &one.word {
                None => site.gives.clone().or(site.alias.as_ref().map(|(of, _)| of.clone())),
                Some(word) => {
                    site.takes.iter().find(|taken| taken.word == *word).map(|t| t.name.clone())
                }
            };
            let origin = value.as_ref().and_then(|value| layer.origin(value));
            let what = match (&one.word, origin.and_then(|origin| origin.name)) {
                (None, _) => origin.map_or("the value here".to_string(), |origin| origin.words()),
                (Some(_), None) => "what is taken here".to_string(),
                (Some(_), Some(name)) => format!("{name} as it is taken here"),
            };
            let what = if site.of_gradient { format!("{what}, in the gradient") } else { what };
            Advice {
                kind: AdviceKind::Constraint,
                value: what,
                from: "no constraint".to_string(),
                to: with_terms(whole_partition_spec(&spec_of(&one.spec)), &one.terms),
                saves_bytes: saved / new.len().max(1) as u64,
                source: site.place.clone(),
                tried: Tried::Compiled,
            }
        };
        new.iter().map(one).collect()
    }
}

/// A spec with the axes over which each device keeps a term: `P(None, unreduced={"model"})`.
fn with_terms(spec: String, terms: &[String]) -> String {
    let Some(dims) = spec.strip_suffix(')').filter(|_| !terms.is_empty()) else { return spec };
    let names: Vec<String> = terms.iter().map(|axis| format!("\"{axis}\"")).collect();
    let comma = if dims.ends_with('(') { "" } else { ", " };
    format!("{dims}{comma}unreduced={{{}}})", names.join(", "))
}

fn spec_of(spec: &OpenSpec) -> Spec {
    spec.iter().map(|axes| axes.clone().unwrap_or_default()).collect()
}

/// Whether a program sends at most a twentieth more than a plan.
pub fn is_near(sent: u64, target: u64) -> bool {
    u128::from(sent) * 20 <= u128::from(target) * 21
}

/// What a compiled program still sends, by kind, axes and line; what sends most comes first.
fn left(sent: &Sent, mesh: &NamedMesh) -> Vec<Left> {
    let mut found: Vec<Left> = Vec::new();
    for one in &sent.program.collectives {
        let axes: Vec<String> =
            one.axes.iter().flatten().map(|axis| mesh[*axis].0.clone()).collect();
        let (op, place) = (one.kind.name(), one.source().cloned());
        let same = found.iter_mut().find(|l| l.op == op && l.axes == axes && l.place == place);
        match same {
            Some(known) => known.wire_bytes = known.wire_bytes.saturating_add(one.wire_bytes()),
            None => found.push(Left { op, axes, place, wire_bytes: one.wire_bytes() }),
        }
    }
    found.sort_by_key(|left| std::cmp::Reverse(left.wire_bytes));
    found.truncate(MOST_LEFT);
    found
}
