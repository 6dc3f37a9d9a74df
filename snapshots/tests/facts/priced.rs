//! Programs made for a fact, compiled and priced through the public API.

use serde_json::Value;
use shard_cost::{
    Capacity, DimRoles, Hardware, Inventory, Largest, PlanPrice, Summary, largest, price,
};
use shard_ir::{Dim, DimId, ParameterKind, Plan};
use shard_search::{LowerOptions, lower};
use shard_snapshots::judge::compile;

/// A layer with its price.
pub(crate) struct Priced {
    pub(crate) plan: Plan,
    pub(crate) price: PlanPrice,
    pub(crate) summary: Summary,
}

/// A chip of a fact: bf16 flops, memory, memory bandwidth and a flat network; figures that a fact
/// leaves out are 1e15.
pub(crate) fn chip(figures: &[(&str, f64)]) -> Hardware {
    let figure =
        |name: &str| figures.iter().find(|(n, _)| *n == name).map_or(1e15, |(_, value)| *value);
    let int8 = figures
        .iter()
        .find(|(n, _)| *n == "int8")
        .map_or(String::new(), |(_, value)| format!(", int8 = {value:e}"));
    let text = format!(
        "name = \"fact\"\n[chip]\nflops = {{ bf16 = {:e}{int8} }}\nhbm_bytes = {}\nhbm_bandwidth \
            = {:e}\n\
         [network]\nkind = \"flat\"\nbandwidth = {:e}\n",
        figure("flops"),
        figure("memory") as u64,
        figure("hbm"),
        figure("network"),
    );
    Hardware::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Every layer of a source.
pub(crate) fn priced(source: &str, hardware: &Hardware) -> Vec<Priced> {
    let one = |program| {
        let plan = lower(program, hardware, &LowerOptions::default())
            .unwrap_or_else(|e| panic!("{e}\n{source}"))
            .plan;
        let price = price(&plan, hardware);
        let summary =
            Summary::of(&plan, &price, hardware, DimRoles::of(&plan), price.totals.serial_time);
        Priced { plan, price, summary }
    };
    compile(source).iter().map(one).collect()
}

impl Priced {
    pub(crate) fn inventory(&self) -> &Inventory {
        &self.summary.inventory
    }

    /// Parameters of all layers of the stack.
    pub(crate) fn parameters(&self) -> f64 {
        self.inventory().parameters as f64 * self.plan.repeat as f64
    }

    /// Bytes of one copy of the weights, or of the caches, of the whole stack.
    pub(crate) fn bytes(&self, kind: ParameterKind) -> f64 {
        self.inventory().sum(kind, |kept| kept.bytes).times(self.plan.repeat).0 as f64
    }

    /// The largest size of a dim with which the layer fits, where caches may take a share of the
    /// memory.
    pub(crate) fn largest(&self, dim: &str, hardware: &Hardware, cache_share: f64) -> f64 {
        let at = self
            .plan
            .dims
            .iter()
            .position(|d| d.name == dim)
            .unwrap_or_else(|| panic!("no dim {dim}"));
        let dims_with = |size: u64| {
            let mut dims = self.plan.dims.clone();
            dims[at] = Dim { size, useful: size, ..dims[at].clone() };
            Some(dims)
        };
        match largest(
            &self.plan,
            DimId(at as u16),
            &Capacity::of(hardware, cache_share),
            &dims_with,
        ) {
            Largest::Size(size) | Largest::Legal(size) => size as f64,
            Largest::None => 0.0,
            Largest::Unlimited => f64::INFINITY,
        }
    }

    pub(crate) fn fits(&self, hardware: &Hardware) -> bool {
        Capacity::of(hardware, 1.0).holds(&self.inventory().memory)
    }
}

/// An error unless a figure of the fact equals the computed figure within the fact's tolerance.
pub(crate) fn figure(fact: &Value, name: &str, found: f64) -> Result<(), String> {
    let stated = &fact["expected"][name];
    let stated = stated["value"]
        .as_f64()
        .or(stated.as_f64())
        .ok_or(format!("the fact has no figure {name}"))?;
    let tolerance = fact["tolerance"].as_f64().unwrap_or(0.0).max(1e-9);
    if (found - stated).abs() <= tolerance * stated.abs() {
        Ok(())
    } else {
        Err(format!("{name}: found {found}, expected {stated}"))
    }
}

/// A number among the inputs of a fact.
pub(crate) fn input(fact: &Value, name: &str) -> f64 {
    let inputs = &fact["inputs"];
    let value = inputs[name].as_f64().or(inputs["model"][name].as_f64());
    value.unwrap_or_else(|| panic!("{} has no input {name}", fact["id"]))
}
