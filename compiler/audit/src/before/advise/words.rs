//! What a person reads of an edit.

use shard_ir::never;

use super::source_line::line_of_spec;
use super::{Advisor, Edit, Files};
use crate::before::optimum::Choice;
use crate::before::sharding::{Spec, partition_spec, whole_partition_spec};
use crate::before::translate::Class;
use crate::compare::{Advice, AdviceKind, Tried};
use crate::hlo::tables::Place;

impl Advisor<'_> {
    /// What a person reads of an edit to a choice, with which the optimum sends `saved` bytes less.
    pub(super) fn advice(
        &self,
        edit: &Edit,
        choice: &Choice,
        saved: u64,
        files: Files<'_>,
    ) -> Advice {
        let (value, source, [from, to]) = match edit {
            Edit::Parameters { parameters, outputs, spec } => {
                self.of_parameters(parameters, outputs, choice, spec, files)
            }
            Edit::Constraint { turns, spec } => {
                let constraint = &self.layer.constraints[turns[0]];
                let from = choice.constraints[turns[0]].clone().unwrap_or_default();
                let of = constraint.of.clone().unwrap_or_else(|| "the value here".to_string());
                (of, constraint.place.clone(), [&from, spec].map(whole_partition_spec))
            }
            Edit::Outputs(outputs) => self.of_outputs(outputs, choice, files),
            Edit::Parted { parameter, class, parts, place } => {
                let texts = self.of_parted(*parameter, *class, *parts, choice);
                (self.layer.parameters[*parameter].name.clone(), place.clone(), texts)
            }
        };
        let kind = match edit {
            Edit::Constraint { .. } => AdviceKind::Constraint,
            Edit::Parameters { .. } | Edit::Outputs(_) | Edit::Parted { .. } => AdviceKind::Spec,
        };
        Advice { kind, value, from, to, saves_bytes: saved, source, tried: Tried::Lowered }
    }

    /// What a person reads of a stack that is split along its slices, and laid out anew.
    pub(super) fn stack_advice(
        &self,
        at: usize,
        choice: &Choice,
        saved: u64,
        files: Files<'_>,
    ) -> Advice {
        let parameter = &self.layer.parameters[at];
        let mut from = parameter.spec.clone().unwrap_or_default();
        if let (Some(first), Some(lead)) = (from.first_mut(), self.lead(at)) {
            *first = lead;
        }
        let to = choice.parameters[at].clone().unwrap_or_default();
        Advice {
            kind: AdviceKind::Spec,
            value: parameter.name.clone(),
            source: line_of_spec(&parameter.name, &from, parameter.used_at.as_ref(), files),
            from: whole_partition_spec(&from),
            to: whole_partition_spec(&to),
            saves_bytes: saved,
            tried: Tried::Lowered,
        }
    }

    /// The names of parameters and of the results that they become, the line that has their spec,
    /// and the spec before and after.
    fn of_parameters(
        &self,
        parameters: &[usize],
        outputs: &[usize],
        choice: &Choice,
        spec: &Spec,
        files: Files<'_>,
    ) -> (String, Option<Place>, [String; 2]) {
        let first = &self.layer.parameters[parameters[0]];
        let from = choice.parameters[parameters[0]].clone().unwrap_or_default();
        let source = line_of_spec(&first.name, &from, first.used_at.as_ref(), files);
        let mut names: Vec<&str> =
            parameters.iter().map(|at| self.layer.parameters[*at].name.as_str()).collect();
        names.dedup();
        let mut value = names.join(", ");
        if !outputs.is_empty() {
            let numbers = self.results(outputs.iter().copied());
            let several = if numbers.len() == 1 { "result" } else { "results" };
            value.push_str(&format!(", {several} {}", numbers.join(", ")));
        }
        (value, source, [&from, spec].map(whole_partition_spec))
    }

    /// The numbers of results, the line that has the spec of the first of them, and that spec
    /// before and all specs after.
    fn of_outputs(
        &self,
        outputs: &[(usize, Spec)],
        choice: &Choice,
        files: Files<'_>,
    ) -> (String, Option<Place>, [String; 2]) {
        let result = |at: usize| self.layer.outputs[at].result;
        let numbers = self.results(outputs.iter().map(|(at, _)| *at));
        let mut to: Vec<String> = Vec::new();
        for (n, (at, spec)) in outputs.iter().enumerate() {
            if n == 0 || result(outputs[n - 1].0) != result(*at) {
                to.push(whole_partition_spec(spec));
            }
        }
        let from = choice.outputs[outputs[0].0].clone().unwrap_or_default();
        let near = self.layer.parameters.iter().find_map(|p| p.used_at.clone());
        let source = line_of_spec("out", &from, near.as_ref(), files);
        let texts = [partition_spec(&from), format!("as the arguments: {}", to.join(", "))];
        (format!("out_shardings of result {}", numbers.join(", ")), source, texts)
    }

    /// The spec and sizes of a parameter, as they are and with a dim in parts.
    fn of_parted(&self, at: usize, class: Class, parts: u64, choice: &Choice) -> [String; 2] {
        let positions = &self.layer.parameters[at].positions;
        let spec = choice.parameters[at].clone().unwrap_or_default();
        let is_parted = |of: &Option<Class>| of.map(|of| self.layer.root(of)) == Some(class);
        let dim = positions.iter().position(is_parted);
        let dim = dim.unwrap_or_else(|| never!("a dim in parts that its parameter lacks", 0));
        let size = |class: &Option<Class>| class.map_or(1, |class| self.layer.size(class));
        let sizes: Vec<u64> = positions.iter().map(size).collect();
        let (mut parted, mut split) = (sizes.clone(), spec.clone());
        parted.splice(dim..=dim, [parts, sizes[dim] / parts]);
        split.insert(dim, Vec::new());
        [
            format!("{} on {sizes:?}", whole_partition_spec(&spec)),
            format!("{} on {parted:?}", whole_partition_spec(&split)),
        ]
    }

    /// The numbers of the results of the program that outputs are; slices of one stack are one.
    fn results(&self, outputs: impl Iterator<Item = usize>) -> Vec<String> {
        let mut numbers: Vec<usize> =
            outputs.filter_map(|at| self.layer.outputs[at].result).collect();
        numbers.dedup();
        numbers.iter().map(ToString::to_string).collect()
    }
}
