//! The time that an attention would take if its queries and keys lay in a striped order.

use serde::Serialize;
use shard_cost::{InstrPrice, Stripes, kernels, striped};
use shard_ir::{InstrId, Picoseconds};

use crate::{Layer, object, scale};

/// Stripes are reported where they save more than one part in so many of an attention's time.
const WORTH: u64 = 20;

/// An attention of a plan, and its time with stripes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Striped {
    /// The first op of its kernel.
    pub(crate) id: InstrId,
    stripes: Stripes,
    own: Picoseconds,
    time: Picoseconds,
}

/// The attentions of a plan that stripes would make faster.
pub(crate) fn all(layer: &Layer<'_>) -> Vec<Striped> {
    let is_attention = |id| layer.plan().instruction(id).origin.attention;
    if !layer.plan().ids().any(is_attention) {
        return Vec::new();
    }
    kernels(layer.plan()).iter().filter_map(|kernel| of_kernel(layer, kernel)).collect()
}

fn of_kernel(layer: &Layer<'_>, kernel: &[InstrId]) -> Option<Striped> {
    let is_attention = |id: &InstrId| layer.plan().instruction(*id).origin.attention;
    let id = *kernel.first().filter(|_| kernel.iter().any(is_attention))?;
    let InstrPrice::Kernel { time: own, .. } = *layer.price.of(id) else { return None };
    let (stripes, time) = striped(layer.plan(), layer.hardware, kernel)?;
    let saves = own.0.saturating_sub(time.0);
    (saves > own.0 / WORTH).then_some(Striped { id, stripes, own, time })
}

impl Striped {
    /// What a report says of it.
    pub(crate) fn text(&self, layer: &Layer<'_>) -> String {
        let name = |at: usize| &layer.plan().dims[self.stripes.dims[at].index()].name;
        let blocks: Vec<String> = (0..2)
            .filter(|at| self.stripes.blocks[*at] > 1)
            .map(|at| format!("{} in block p mod {}", name(at), self.stripes.blocks[at]))
            .collect();
        let mean = self.stripes.all as f64 / self.stripes.devices.max(1) as f64;
        let saves = self.own.0.saturating_sub(self.time.0);
        format!(
            "contiguous blocks leave the busiest device {:.2} times its share of the pairs in \
             sight; striped (position p of {}) this step would take {} and not {}, which saves \
             {:.1} %: what the layer is given has to lie in that order, and masks and rotary \
             embeddings take its positions",
            self.stripes.pairs[0] as f64 / mean,
            blocks.join(" and of "),
            scale::time(self.time),
            scale::time(self.own),
            100.0 * saves as f64 / self.own.0.max(1) as f64,
        )
    }

    /// The same, in JSON.
    pub(crate) fn json(&self, layer: &Layer<'_>) -> impl Serialize + use<> {
        let name = |at: usize| layer.plan().dims[self.stripes.dims[at].index()].name.clone();
        object!(StripedJson {
            id: self.id.0,
            queries: name(0),
            keys: name(1),
            query_blocks: self.stripes.blocks[0],
            key_blocks: self.stripes.blocks[1],
            time_s: self.own.seconds(),
            striped_time_s: self.time.seconds(),
        })
    }
}
