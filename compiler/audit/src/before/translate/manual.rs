//! `shard_map`: its operands and results have the layouts that it states, and its inside is not
//! translated.

use super::{Output, Scope, Translator, Value};
use crate::before::read::{Op, values};
use crate::before::sharding::{self, Spec};

impl Translator<'_> {
    /// Translates a manual computation. Its operands become results of the layer and its results
    /// parameters of the layer, in the layouts that it states. Its collectives are written by hand,
    /// and nothing inside is translated.
    pub(super) fn manual(&mut self, op: &Op, scope: &mut Scope) -> Result<(), String> {
        let (taken, rest) = op.text.split_once(')').ok_or("a `shard_map` without operands")?;
        let (takes, gives) = rest.split_once("out_shardings=").unwrap_or((rest, ""));
        let gives = gives.split_once("manual_axes").map_or(gives, |(specs, _)| specs);
        let (takes, gives) = (specs(takes), specs(gives));
        self.layer.manual += 1;
        *self.layer.barriers.entry("shard_map".to_string()).or_default() += 1;
        for (at, word) in values(taken).iter().enumerate() {
            let Value::Tensor(value, positions, dtype) = self.value(scope, word)? else { continue };
            let spec = takes.get(at).cloned().flatten();
            if spec.as_ref().is_some_and(|spec| spec.len() == positions.len()) {
                self.layer.outputs.push(Output {
                    value,
                    positions,
                    dtype,
                    spec,
                    result: None,
                    name: None,
                });
            }
        }
        for (n, tensor) in op.types.iter().enumerate() {
            let spec = gives.get(n).cloned().flatten();
            let spec = spec.filter(|spec| spec.len() == tensor.dims.len());
            let value = self.parameter("the result of a shard_map".to_string(), tensor, spec, None);
            let one = (value, Some(tensor.clone()));
            if op.types.len() == 1 {
                scope.insert(op.result.clone(), one.clone());
            }
            scope.insert(format!("{}#{n}", op.result), one);
        }
        Ok(())
    }
}

/// Reads a list of shardings: `[<@mesh, [{"data"}, {}]>, <@mesh, []>]`.
fn specs(text: &str) -> Vec<Option<Spec>> {
    text.split("<@").skip(1).map(sharding::shardy).collect()
}
