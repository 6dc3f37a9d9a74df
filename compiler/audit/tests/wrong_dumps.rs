//! A dump that is cut off or changed gives a count or an error with a place, and never a panic;
//! what is looked at grows with the text.

use crate::common::{builds, counts, folders, mesh, own};
use shard_audit::before::optimum::{self, Choice};
use shard_audit::before::read::read;
use shard_audit::before::translate::{Layer, translate};
use shard_audit::collectives::collectives;
use shard_audit::hlo::{Module, ReadError};
use shard_cost::Hardware;
use shard_ir::Random;

fn audit(text: &str) -> Result<usize, ReadError> {
    let module = Module::read(text)?;
    collectives(&module, None).map(|found| found.collectives.len())
}

/// The place is in the text, and the sentence says something.
fn is_clear(error: &ReadError, text: &str) {
    let ReadError { message, span } = error;
    assert!(span.start <= text.len() && span.end <= text.len().max(span.start), "{error:?}");
    assert!(message.len() > 10 && !message.ends_with('.') && !message.contains('\n'), "{message}");
}

/// A dump with something changed, in text that stays UTF-8.
fn mutated(text: &str, numbers: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=numbers.index(3) {
        let at = numbers.index(bytes.len());
        match numbers.index(6) {
            0 => bytes.truncate(at.max(1)),
            1 => drop(bytes.remove(at)),
            2 => bytes[at] = b"(){}[]\"',%=0129-\n ax"[numbers.index(20)],
            3 => {
                let to = (at + numbers.index(200)).min(bytes.len());
                bytes.drain(at..to);
            }
            4 => {
                let to = (at + numbers.index(400)).min(bytes.len());
                let part = bytes[at..to].to_vec();
                let into = numbers.index(bytes.len());
                bytes.splice(into..into, part);
            }
            _ => {
                let digits: Vec<usize> =
                    (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit()).collect();
                if let Some(at) = digits.get(numbers.index(digits.len().max(1))) {
                    bytes.splice(*at..*at, *b"99999999999");
                }
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn mutate(times: usize) {
    let builds = builds(&own());
    let mut numbers = Random::new(17);
    let mut refused = 0;
    for turn in 0..times {
        let build = &builds[turn % builds.len()];
        let text = mutated(&build.text, &mut numbers);
        if let Err(error) = audit(&text) {
            is_clear(&error, &text);
            refused += 1;
        }
    }
    assert!(refused * 4 > times, "{refused} of {times}");
}

#[test]
fn a_changed_dump_gives_a_count_or_a_clear_error() {
    mutate(2_000);
}

#[test]
#[ignore = "slow: 40,000 more of the same"]
fn forty_thousand_changed_dumps_give_a_count_or_a_clear_error() {
    mutate(40_000);
}

/// Reads a program before partitioning, and translates it if that is possible.
fn before(text: &str, mesh: &[(String, u64)]) -> Result<Option<Layer>, ReadError> {
    Ok(translate(&read(text, Some(mesh))?).ok())
}

#[test]
fn a_changed_program_before_gives_a_layer_or_a_clear_error_or_a_reason() {
    let mut numbers = Random::new(71);
    let (mut refused, mut layers) = (0, 0);
    for turn in 0..3_000 {
        let folders = folders(&own());
        let folder = &folders[turn % folders.len()];
        let text = std::fs::read_to_string(folder.join("stablehlo.loc.mlir")).expect("StableHLO");
        let mesh = mesh(&counts(folder));
        let text = mutated(&text, &mut numbers);
        match before(&text, &mesh) {
            Err(error) => {
                is_clear(&error, &text);
                refused += 1;
            }
            Ok(Some(layer)) => {
                layers += 1;
                // Any layer can be written as text; the driver reports what is wrong with the text.
                let choice = Choice::of(&layer);
                assert!(optimum::text(&layer, &mesh, &choice).contains("layer main("));
                if turn % 40 == 0 {
                    let hardware = Hardware::built_in("tpu-v5e").expect("a built-in chip");
                    let _ = optimum::optimum(&layer, &mesh, &choice, &hardware);
                }
            }
            Ok(None) => {}
        }
    }
    assert!(refused > 200 && layers > 200, "{refused} refused, {layers} layers");
}

#[test]
fn a_program_before_that_is_cut_off_is_refused() {
    for folder in folders(&own()) {
        let text = std::fs::read_to_string(folder.join("stablehlo.loc.mlir")).expect("StableHLO");
        let mesh = mesh(&counts(&folder));
        let end = text.rfind("\n}").expect("the end of the module");
        let mut numbers = Random::new(5);
        for _ in 0..40 {
            let cut = numbers.index(end);
            let error = before(&text[..cut], &mesh).expect_err("cut off");
            is_clear(&error, &text[..cut]);
        }
    }
}

#[test]
fn a_dump_that_is_cut_off_anywhere_is_refused() {
    for build in builds(&own()) {
        let text = &build.text;
        // A text cut behind the last brace lacks nothing.
        let end = text.trim_end().len() - 1;
        let mut numbers = Random::new(4);
        for _ in 0..60 {
            let cut = numbers.index(end);
            if !text.is_char_boundary(cut) {
                continue;
            }
            let error = audit(&text[..cut]).expect_err(&build.name);
            is_clear(&error, &text[..cut]);
        }
    }
}

#[test]
fn what_is_looked_at_grows_with_the_text() {
    for build in builds(&own()) {
        let module = Module::read(&build.text).expect("it is right");
        assert!(module.work < 8 * build.text.len() as u64, "{}: {}", build.name, module.work);
    }
}

#[test]
fn nothing_deep_takes_stack_and_nothing_round_is_followed() {
    let head = "HloModule m, num_partitions=4\n\n";
    let deep = "(".repeat(100_000);
    let text =
        format!("{head}ENTRY %e (p: f32[]) -> f32[] {{\n  %p = {deep}f32[] parameter(0)\n}}\n");
    is_clear(&audit(&text).expect_err("too deep"), &text);
    let ring = format!(
        "{head}%a (p: f32[]) -> f32[] {{\n  %p = f32[] parameter(0)\n  ROOT %c = f32[] \
        call(%p), to_apply=%b\n}}\n\n%b (p: f32[]) -> f32[] {{\n  %p = f32[] parameter(0)\n  ROOT \
        %c = f32[] call(%p), to_apply=%a\n}}\n\nENTRY %e (p: f32[]) -> f32[] {{\n  %p = f32[] \
        parameter(0)\n  ROOT %c = f32[] call(%p), to_apply=%a\n}}\n"
    );
    let error = audit(&ring).expect_err("a ring");
    assert!(error.message.contains("ring"), "{error:?}");
    // Each computation calls the next one twice: 2^200 runs, and 200 computations to look at.
    let mut text = head.to_string();
    text.push_str(
        "%c0 (p: f32[8]) -> f32[8] {\n  %p = f32[8]{0} parameter(0)\n  ROOT %r = \
        f32[8]{0} all-reduce(%p), channel_id=1, replica_groups={}, to_apply=%none\n}\n\n",
    );
    for n in 1..200 {
        let of = n - 1;
        text.push_str(&format!(
            "%c{n} (p: f32[8]) -> f32[8] {{\n  %p = f32[8]{{0}} parameter(0)\n  %a = f32[8]{{0}} \
            call(%p), to_apply=%c{of}\n  ROOT %b = f32[8]{{0}} call(%a), to_apply=%c{of}\n}}\n\n"
        ));
    }
    text.push_str(
        "ENTRY %e (p: f32[8]) -> f32[8] {\n  %p = f32[8]{0} parameter(0)\n  ROOT %c = \
        f32[8]{0} call(%p), to_apply=%c199\n}\n",
    );
    let module = Module::read(&text).expect("it is right");
    let found = collectives(&module, None).expect("it is right");
    assert_eq!((found.collectives.len(), found.collectives[0].wire_bytes()), (1, u64::MAX));
}
