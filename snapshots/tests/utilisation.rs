//! How well each example uses its chips: never above their peaks.

use shard_check::{CheckOptions, check_source};
use shard_cost::{DimRoles, Hardware, Summary, price};
use shard_grammar::SourceFile;
use shard_search::{LowerOptions, lower};
use shard_snapshots::files::{examples, root};

#[test]
fn no_example_uses_more_of_its_chips_than_there_is() {
    let mut judged = 0;
    for example in examples() {
        let checked = check_source(
            &SourceFile::new(&*example.path, &*example.text),
            &CheckOptions::default(),
        );
        for program in &checked.programs {
            let hardware = chip(
                program.hardware.as_deref().expect("every example names its chip"),
                &example.path,
            );
            let options = LowerOptions { any_size: true, ..LowerOptions::default() };
            let plan = lower(program, &hardware, &options)
                .unwrap_or_else(|e| panic!("{}: {e}", example.path))
                .plan;
            let price = price(&plan, &hardware);
            let summary = Summary::of(
                &plan,
                &price,
                &hardware,
                DimRoles::of(&plan),
                price.totals.serial_time,
            );
            let Some(found) = summary.utilisation else { continue };
            let what = format!("{} {} {:?}: {found:?}", example.path, program.name, program.phase);
            assert!((0.0..=1.0).contains(&found.hardware), "{what}");
            assert!(
                found.model.is_none_or(|mfu| 0.0 < mfu && mfu <= found.hardware * (1.0 + 1e-9)),
                "{what}"
            );
            judged += usize::from(found.model.is_some());
        }
    }
    assert!(judged > 30, "{judged} layers multiply by weights");
}

fn chip(name: &str, example: &str) -> Hardware {
    Hardware::built_in(name).unwrap_or_else(|| {
        let path = root().join(example).with_file_name(name);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Hardware::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
    })
}
