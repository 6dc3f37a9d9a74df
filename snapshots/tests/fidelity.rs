//! `spec/fidelity.md` has the figures of the model, and the calibrated chip has the factors of the
//! fit.

use shard_cost::Hardware;
use shard_snapshots::fidelity::fit::TableD2;
use shard_snapshots::fidelity::paper::TABLE_2;
use shard_snapshots::fidelity::{CALIBRATED, PAGE, System, fit, page};
use shard_snapshots::files::{read, root};

fn calibrated() -> Hardware {
    Hardware::parse(&read(&root().join(CALIBRATED))).expect("the calibrated chip")
}

#[test]
fn every_latency_of_table_2_is_within_20_percent_and_the_median_within_10() {
    let chip = calibrated();
    let error = |column: &shard_snapshots::fidelity::paper::Column| {
        let step = System::lower(column.paper.0, column.paper.1, None, &chip).step(&chip);
        (step * column.steps as f64 / column.latency - 1.0).abs()
    };
    let mut errors: Vec<f64> = TABLE_2.iter().map(error).collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors[3] < 0.2 && (errors[1] + errors[2]) / 2.0 < 0.1, "{errors:?}");
}

#[test]
fn the_page_is_what_the_command_prints() {
    let printed = page();
    let held = read(&root().join(PAGE));
    assert_eq!(held, printed, "cargo run -p shard-snapshots --bin fidelity -- --write");
}

#[test]
fn the_calibrated_chip_is_the_fit_and_physical() {
    let factors = fit(&TableD2::lower(|_| true));
    assert_eq!(
        read(&root().join(CALIBRATED)),
        factors.file(),
        "cargo run -p shard-snapshots --bin fidelity -- --fit --write"
    );
    for part in [factors.matmul, factors.hbm, factors.network] {
        assert!(part > 0.0 && part < 1.0, "{factors:?}");
    }
}
