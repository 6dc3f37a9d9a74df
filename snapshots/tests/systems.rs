//! The compiler chooses by cost what the sources report of their systems; and by how much this is
//! better.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use shard_cost::Hardware;
use shard_search::{LowerOptions, lower};
use shard_snapshots::files::{read, root};
use shard_snapshots::judge::{check, compile};

/// The time of a layer in each phase in which its layouts divide, and its layout of `keys`.
fn phases(source: &str, chip: &Hardware) -> BTreeMap<String, (u64, String)> {
    // A layout that splits one sequence over four devices is an error of the phase that has one.
    let wrong = check(source).diagnostics.into_iter().any(|d| d.is_error());
    let source = if wrong {
        source.replace("\nphase one { B = 1, S = 131072 }", "")
    } else {
        source.to_string()
    };
    let of = |program: &shard_ir::Program| {
        let phase = program.phase.as_ref().expect("a phase").name.clone();
        let lowered = lower(program, chip, &LowerOptions::default()).expect("a plan");
        let keys = lowered
            .plan
            .ids()
            .find(|id| lowered.plan.instruction(*id).name.as_deref() == Some("keys"));
        let layout = keys.map(|id| lowered.plan.layout_text(id)).unwrap_or_default();
        (phase, (lowered.optimality.cost.0, layout))
    };
    compile(&source).iter().map(of).collect()
}

#[test]
fn with_more_devices_than_heads_of_keys_copies_the_batch_or_the_sequence_are_taken_whichever_is_cheapest()
 {
    let source = read(&root().join("examples/llama/more_devices_than_kv_heads.shard"));
    let chip = Hardware::built_in("tpu-v5p-face").expect("a built-in chip");
    let chosen = phases(&source, &chip);
    let ways = ["BSK_yD", "B_zSK_yD", "BS_zK_yD"].map(|layout| {
        let pinned = source.replace("cache bf16 BSK_yD?c", &format!("cache bf16 {layout}"));
        let pinned = pinned.replace("1: bf16 BSK_yD?c", &format!("1: bf16 {layout}"));
        assert!(!pinned.contains("?c"), "{pinned}");
        (layout, phases(&pinned, &chip))
    });
    let mut table = String::new();
    for (phase, (time, layout)) in &chosen {
        let _ = writeln!(table, "{phase}: {layout}, {:.2} us", *time as f64 / 1e6);
        let mut least = u64::MAX;
        for (way, phases) in &ways {
            let Some((other, _)) = phases.get(phase) else {
                let _ = writeln!(table, "  {way}: does not divide");
                continue;
            };
            let _ = writeln!(table, "  {way}: {:.2} us", *other as f64 / 1e6);
            least = least.min(*other);
        }
        assert_eq!(*time, least, "{table}");
    }
    insta::with_settings!({ snapshot_path => root().join("snapshots/systems"), prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("kv_heads", table);
    });
}
