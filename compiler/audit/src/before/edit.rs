//! Edits the text of the program before partitioning: the shardings that stand in it, and new
//! constraints.
//!
//! The edited text is what JAX would lower after a person's edit: it has another sharding of an
//! argument, a result or a `with_sharding_constraint`, or new constraints on what an op gives or
//! takes.

use std::collections::BTreeMap;
use std::fmt::Write;

use shard_words::Span;

use super::optimum::{Choice, Pin};
use super::read::{Stable, Tensor};
use super::sharding::Spec;
use super::translate::{Class, Expression, Layer, Site, Taken};

/// The axes of each dim; `None` for a dim that is left to the compiler.
pub type OpenSpec = Vec<Option<Vec<String>>>;

/// A constraint that the program does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewConstraint {
    /// The op that makes or takes the value, as an index of [`Layer::sites`].
    pub site: usize,
    /// The operand that is constrained, by its name in the text; `None` for the result of the op.
    pub word: Option<String>,
    /// The layout.
    pub spec: OpenSpec,
    /// The axes over which each device keeps a term of the value: `unreduced`.
    pub terms: Vec<String>,
}

impl NewConstraint {
    /// Whether both constrain the same value of the text in the same way: to terms, or to a layout.
    /// A sum may have a constraint to terms, and behind it one to a layout.
    pub fn is_at(&self, other: &NewConstraint, layer: &Layer) -> bool {
        layer.sites[self.site].span == layer.sites[other.site].span
            && self.word == other.word
            && self.terms.is_empty() == other.terms.is_empty()
    }
}

/// Constraints of one place, with the number of pins that ask for each.
type Votes = Vec<(NewConstraint, usize)>;

/// The constraints in the text of the program for which pins of a plan ask. Several pins share one
/// place of the text if its op is in a function that is called several times, or in a loop whose
/// turns are written out. Of different constraints at one place, the one for which most pins ask is
/// taken; of equally many, the first.
pub fn constraints(layer: &Layer, pins: &[Pin]) -> Vec<NewConstraint> {
    let mut found: BTreeMap<(usize, Option<String>, bool), Votes> = BTreeMap::new();
    for one in pins.iter().flat_map(|pin| written(layer, pin)) {
        let key = (layer.sites[one.site].span.start, one.word.clone(), one.terms.is_empty());
        let known = found.entry(key).or_default();
        match known.iter_mut().find(|(other, _)| *other == one) {
            Some((_, count)) => *count += 1,
            None => known.push((one, 1)),
        }
    }
    let most =
        |known: Votes| known.into_iter().rev().max_by_key(|(_, count)| *count).map(|(one, _)| one);
    found.into_values().filter_map(most).collect()
}

/// The constraints for a pin: on the op that makes the value and on ops that give other forms of
/// it, or on the operand of the op that takes it.
fn written(layer: &Layer, pin: &Pin) -> Vec<NewConstraint> {
    let mut found: Vec<NewConstraint> = constraint(layer, pin).into_iter().collect();
    if let (Some(by), Some(one)) = (&pin.by, found.first()) {
        let beside = beside(layer, by, &layer.sites[one.site], pin);
        found.extend(beside);
    }
    if pin.by.is_none() {
        for (at, site) in layer.sites.iter().enumerate() {
            let Some((_, positions)) = site.alias.as_ref().filter(|(of, _)| *of == pin.value)
            else {
                continue;
            };
            if let (false, Some(spec)) = (site.result.is_empty(), spec_of(layer, pin, positions)) {
                found.push(NewConstraint { site: at, word: None, spec, terms: pin.terms.clone() });
            }
        }
    }
    found
}

/// Constraints that lay out the other operands of an op like the pinned value, if the plan knows
/// nothing of them: the ids of a scatter. XLA partitions a scatter along whatever splits its ids.
fn beside(layer: &Layer, by: &str, site: &Site, pin: &Pin) -> Vec<NewConstraint> {
    let Some(statement) = layer.statement(by) else { return Vec::new() };
    let Expression::Einsum(operands, ..) = &statement.expression else { return Vec::new() };
    // The layer's einsum has all operands of a product of the program, and of a scatter the rows
    // only.
    let is_one_of = |name: &str| operands.iter().any(|operand| operand == name);
    let known = |taken: &Taken| {
        is_one_of(&taken.name)
            || taken.name == pin.value
            || operands.iter().any(|operand| {
                layer.statement(operand).is_some_and(|made| {
                    matches!(&made.expression, Expression::Rename(of, ..) if *of == taken.name)
                })
            })
    };
    let spec = |taken: &Taken| {
        let spec = spec_of(layer, pin, &taken.positions)?;
        Some(NewConstraint {
            site: statement.site,
            word: Some(taken.word.clone()),
            spec,
            terms: Vec::new(),
        })
    };
    let unknown = site.takes.iter().filter(|taken| !known(taken));
    unknown.filter_map(spec).collect()
}

/// The axes of a pin, for dims in the order of the text; `None` if the pin lacks a dim.
fn spec_of(layer: &Layer, pin: &Pin, positions: &[Option<Class>]) -> Option<OpenSpec> {
    let of = |class: &Option<Class>| match class {
        None => Some(None),
        Some(class) => pin.axes.get(&layer.root(*class)).map(|axes| Some(axes.clone())),
    };
    positions.iter().map(of).collect()
}

fn constraint(layer: &Layer, pin: &Pin) -> Option<NewConstraint> {
    let spec_of = |positions: &[Option<Class>]| spec_of(layer, pin, positions);
    let (site, word, spec) = match &pin.by {
        None => {
            let site = layer.statement(&pin.value)?.site;
            let gives = layer.sites.get(site)?.gives.as_ref()?;
            if *gives != pin.value || layer.sites[site].result.is_empty() {
                return None;
            }
            (site, None, spec_of(&layer.statement(&pin.value)?.positions)?)
        }
        Some(by) => {
            let site = layer.statement(by)?.site;
            let taken = taken(layer, &layer.sites[site], &pin.value)?;
            match spec_of(&taken.positions) {
                Some(spec) => (site, Some(taken.word.clone()), spec),
                // A dim that is renamed for this op has the place of the old one.
                None => {
                    let positions = &layer.statement(&pin.value)?.positions;
                    (site, Some(taken.word.clone()), spec_of(positions)?)
                }
            }
        }
    };
    Some(NewConstraint { site, word, spec, terms: pin.terms.clone() })
}

/// The operand of an op that is a value of the layer: the value itself, a constrained form of it,
/// or the value before a dim of it was renamed.
fn taken<'l>(layer: &Layer, site: &'l Site, value: &str) -> Option<&'l Taken> {
    let is_it = |taken: &&Taken| {
        taken.name == value
            || layer
                .statement(&taken.name)
                .is_some_and(|s| matches!(&s.expression, Expression::Constrain(a, _) if a == value))
    };
    site.takes.iter().find(is_it).or_else(|| match &layer.statement(value)?.expression {
        Expression::Rename(of, ..) => site.takes.iter().find(|taken| taken.name == *of),
        Expression::Einsum(..)
        | Expression::Binary(..)
        | Expression::Map(..)
        | Expression::Reduce(..)
        | Expression::Split(..)
        | Expression::Merge(..)
        | Expression::Slice(..)
        | Expression::Concat(..)
        | Expression::Take(..)
        | Expression::Cast(..)
        | Expression::Constrain(..) => None,
    })
}

/// The text with the specs of a choice and new constraints; `None` if the text names no mesh, as
/// that of JAX before Shardy.
pub fn edited(
    text: &str,
    stable: &Stable,
    layer: &Layer,
    choice: &Choice,
    new: &[NewConstraint],
) -> Option<String> {
    let mesh = stable.mesh_name.as_deref()?;
    let main = stable.functions.get("main")?;
    let mut changes: Vec<(Span, String)> = Vec::new();
    for (parameter, spec) in layer.parameters.iter().zip(&choice.parameters) {
        let (Some(at), Some(spec)) = (parameter.argument, spec) else { continue };
        // The layer has a slice of a stack, whose first dim no edit splits.
        if parameter.spec.as_ref() != Some(spec) {
            let port = main.arguments.get(at)?;
            changes.push((sharding_in(text, port.span)?, dims(&closed(spec))));
        }
    }
    for (output, spec) in layer.outputs.iter().zip(&choice.outputs) {
        if let Some(spec) = spec.as_ref().filter(|spec| output.spec.as_ref() != Some(*spec)) {
            let port = main.results.get(output.result?)?;
            changes.push((sharding_in(text, port.span)?, dims(&closed(spec))));
        }
    }
    for (constraint, spec) in layer.constraints.iter().zip(&choice.constraints) {
        if let Some(spec) = spec.as_ref().filter(|spec| **spec != constraint.spec) {
            changes.push((sharding_in(text, constraint.span)?, dims(&closed(spec))));
        }
    }
    changes.extend(constrained(text, layer, new, mesh)?);
    Some(replaced(text, changes))
}

/// The changes of the text for new constraints. Of two on the result of one op, the one to terms
/// comes first and the one to a layout behind it.
fn constrained(
    text: &str,
    layer: &Layer,
    new: &[NewConstraint],
    mesh: &str,
) -> Option<Vec<(Span, String)>> {
    let mut changes: Vec<(Span, String)> = Vec::new();
    let mut given: BTreeMap<usize, Vec<(String, &NewConstraint)>> = BTreeMap::new();
    for (number, one) in new.iter().enumerate() {
        let site = &layer.sites[one.site];
        let made = format!("%shardc_{number}");
        let Some(word) = &one.word else {
            given.entry(site.span.start).or_default().push((made, one));
            continue;
        };
        let taken = site.takes.iter().find(|taken| taken.word == *word)?;
        let tensor = type_text(&taken.tensor);
        let line = format!("{}\n    ", constraint_line(&made, word, mesh, one, &tensor));
        changes.push((Span::at(site.span.start), line));
        let places = words_in(text, site.span, word);
        changes.extend(places.into_iter().map(|span| (span, made.clone())));
    }
    for (start, mut chain) in given {
        chain.sort_by_key(|(_, one)| one.terms.is_empty());
        let (first, one) = chain.first()?;
        let site = &layer.sites[one.site];
        let tensor = type_text(site.tensor.as_ref()?);
        changes.push((Span::new(start, start + site.result.len()), first.clone()));
        let behind = chain.iter().skip(1).map(|(made, _)| made).chain([&site.result]);
        let lines = chain.iter().zip(behind).map(|((of, one), made)| {
            format!("\n    {}", constraint_line(made, of, mesh, one, &tensor))
        });
        changes.push((Span::at(site.span.end), lines.collect()));
    }
    Some(changes)
}

/// `%1 = sdy.sharding_constraint %0 <@mesh, [{}], unreduced={"x"}> : tensor<4xf32>`.
fn constraint_line(made: &str, of: &str, mesh: &str, one: &NewConstraint, tensor: &str) -> String {
    let terms: Vec<String> = one.terms.iter().map(|axis| format!("\"{axis}\"")).collect();
    let terms = match terms[..] {
        [] => String::new(),
        _ => format!(", unreduced={{{}}}", terms.join(", ")),
    };
    let spec = dims(&one.spec);
    format!("{made} = sdy.sharding_constraint {of} <{mesh}, {spec}{terms}> : {tensor}")
}

fn closed(spec: &Spec) -> OpenSpec {
    spec.iter().map(|axes| Some(axes.clone())).collect()
}

/// `[{"data"}, {}, {?}]`.
fn dims(spec: &OpenSpec) -> String {
    let dim = |axes: &Option<Vec<String>>| match axes {
        None => "{?}".to_string(),
        Some(axes) => {
            let names: Vec<String> = axes.iter().map(|axis| format!("\"{axis}\"")).collect();
            format!("{{{}}}", names.join(", "))
        }
    };
    format!("[{}]", spec.iter().map(dim).collect::<Vec<_>>().join(", "))
}

fn type_text(tensor: &Tensor) -> String {
    let mut text = "tensor<".to_string();
    for dim in &tensor.dims {
        let _ = write!(text, "{dim}x");
    }
    text + &tensor.dtype + ">"
}

/// The place of the dims of the first sharding in a part of the text: `[{"data"}, {}]` behind
/// `<@mesh, `.
fn sharding_in(text: &str, span: Span) -> Option<Span> {
    let part = text.get(span.start..span.end)?;
    let at = part.find("<@")?;
    let open = at + part[at..].find('[')?;
    // Names of axes have no brackets.
    let close = open + part[open..].find(']')?;
    Some(Span::new(span.start + open, span.start + close + 1))
}

/// The places at which the first line of an op names a value as an operand.
fn words_in(text: &str, span: Span, word: &str) -> Vec<Span> {
    let Some(part) = text.get(span.start..span.end) else { return Vec::new() };
    // Lines behind the first have regions, types and places.
    let begin = part.find(" = ").unwrap_or(0);
    let end = part.find('\n').unwrap_or(part.len());
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '#';
    part[..end]
        .match_indices(word)
        .filter(|(at, _)| *at > begin && !part[at + word.len()..].starts_with(is_of_name))
        .map(|(at, _)| Span::new(span.start + at, span.start + at + word.len()))
        .collect()
}

/// The text with its changes: each span is replaced by a text.
fn replaced(text: &str, mut changes: Vec<(Span, String)>) -> String {
    changes.sort_by_key(|(span, _)| (span.start, span.end));
    let mut out = String::with_capacity(text.len() + 128 * changes.len());
    let mut at = 0;
    for (span, new) in changes {
        // Of two changes that overlap, the first is made.
        if span.start < at {
            continue;
        }
        out.push_str(&text[at..span.start]);
        out.push_str(&new);
        at = span.end;
    }
    out.push_str(&text[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name_and_not_where_it_is_made() {
        let text = "%1 = stablehlo.add %1, %11 : tensor<4xf32>\n%1";
        let found = words_in(text, Span::new(0, text.len()), "%1");
        assert_eq!(found, [Span::new(19, 21)]);
    }

    #[test]
    fn changes_of_one_text_stand_in_order() {
        let changes = vec![
            (Span::at(3), "+".to_string()),
            (Span::new(1, 2), "x".to_string()),
            (Span::new(3, 4), "y".to_string()),
        ];
        assert_eq!(replaced("abcd", changes), "axc+y");
    }

    #[test]
    fn shardings_are_found_behind_their_mesh() {
        let text = "%arg0: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"a\"}, {}]>}";
        let span = sharding_in(text, Span::new(0, text.len())).expect("there is one");
        assert_eq!(&text[span.start..span.end], "[{\"a\"}, {}]");
    }
}
