//! What an engine has sent, beside what the plan says: by kind of collective, in elements, since an
//! engine computes in dtypes of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use shard_audit::collectives::collectives;
use shard_audit::hlo::Module;
use shard_export::EngineSystem;
use shard_report::json::run::EngineSent;

/// Elements and bytes that the busiest device has sent, by kind.
type Sent = BTreeMap<String, (u64, u64)>;

/// What a run in a folder has sent, beside what the plan says, by kind; or why that is not known.
pub(crate) fn sent(
    system: EngineSystem,
    folder: &Path,
    devices: u64,
    planned: &BTreeMap<&'static str, u64>,
) -> Result<Vec<EngineSent>, String> {
    let found = match system {
        EngineSystem::Jax => by_xla(&read(&folder.join("compiled.hlo"))?)?,
        EngineSystem::Torch => {
            let of = |device: u64| read(&folder.join(format!("sent.{device}")));
            by_calls(&(0..devices).map(of).collect::<Result<Vec<_>, _>>()?)?
        }
    };
    let mut kinds: Vec<&str> = planned.keys().copied().collect();
    kinds.extend(found.keys().map(String::as_str));
    kinds.sort_unstable();
    kinds.dedup();
    let of_kind = |kind: &str| {
        let (elements, wire_bytes) = found.get(kind).copied().unwrap_or_default();
        let plan_elements = planned.get(kind).copied().unwrap_or(0);
        EngineSent { kind: kind.to_string(), elements, wire_bytes, plan_elements }
    };
    // Kinds that sent nothing and should not are left out.
    Ok(kinds.into_iter().map(of_kind).filter(|of| of.elements + of.plan_elements > 0).collect())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}

/// The collectives of a program that XLA compiled, each as often as it runs.
fn by_xla(hlo: &str) -> Result<Sent, String> {
    let module = Module::read(hlo).map_err(|error| error.message)?;
    let program = collectives(&module, None).map_err(|error| error.message)?;
    let mut sent = Sent::new();
    for one in &program.collectives {
        let brought = one.operands.iter().map(|array| array.bytes().zip(array.elements()));
        let (bytes, count) = brought.flatten().fold((0u128, 0u128), |(bytes, count), (b, n)| {
            (bytes + u128::from(b), count + u128::from(n))
        });
        let wire_bytes = one.wire_bytes();
        let elements = u128::from(wire_bytes) * count / bytes.max(1);
        let sum = sent.entry(one.kind.name().to_string()).or_default();
        sum.0 += u64::try_from(elements).unwrap_or(u64::MAX);
        sum.1 += wire_bytes;
    }
    Ok(sent)
}

/// The collectives that processes have called, all of them the same ones in the same order; of each
/// what the busiest process sent.
fn by_calls(texts: &[String]) -> Result<Sent, String> {
    let mut calls: Vec<(&str, u64, u64)> = Vec::new();
    for text in texts {
        for (at, line) in text.lines().enumerate() {
            let not = || format!("`{line}` is no collective");
            let [kind, elements, bytes] = line.split(' ').collect::<Vec<_>>()[..] else {
                return Err(not());
            };
            let elements: u64 = elements.parse().map_err(|_| not())?;
            let bytes: u64 = bytes.parse().map_err(|_| not())?;
            match calls.get_mut(at) {
                None => calls.push((kind, elements, bytes)),
                Some(known) if known.0 == kind => known.1 = known.1.max(elements),
                Some(_) => return Err("two processes have called other collectives".to_string()),
            }
        }
    }
    let mut sent = Sent::new();
    for (kind, elements, bytes) in calls {
        let sum = sent.entry(kind.to_string()).or_default();
        sum.0 += elements;
        sum.1 += elements * bytes;
    }
    Ok(sent)
}

/// What was sent, in words: one line where it is what the plan says.
pub(crate) fn describe(engine: &str, sent: &[EngineSent]) -> String {
    let of = |one: &EngineSent| {
        format!("{} {} elements ({} bytes)", one.kind, one.elements, one.wire_bytes)
    };
    let (right, wrong): (Vec<&EngineSent>, Vec<&EngineSent>) =
        sent.iter().partition(|one| one.elements == one.plan_elements);
    let mut text = match (right.as_slice(), wrong.as_slice()) {
        ([], []) => format!("  {engine} sent nothing, as the plan says\n"),
        ([], _) => String::new(),
        (right, _) => {
            let all: Vec<String> = right.iter().map(|one| of(one)).collect();
            format!(
                "  {engine} sent from the busiest device, as the plan says: {}\n",
                all.join(", ")
            )
        }
    };
    for one in wrong {
        let said = one.plan_elements;
        text.push_str(&format!("  {engine} sent {}, and the plan says {said} elements\n", of(one)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_call_the_busiest_process_counts() {
        let texts =
            ["all-gather 6 8\ncollective-permute 0 4", "all-gather 6 8\ncollective-permute 5 4"];
        let sent = by_calls(&texts.map(str::to_string)).expect("the same calls");
        assert_eq!(sent["all-gather"], (6, 48));
        assert_eq!(sent["collective-permute"], (5, 20));
        for bad in
            [["all-gather 6 8", "all-reduce 6 8"], ["all-gather x 8", ""], ["all-gather", ""]]
        {
            assert!(by_calls(&bad.map(str::to_string)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_compiled_program_is_counted_in_elements_as_often_as_it_sends() {
        let hlo = "HloModule m, entry_computation_layout={(f64[4]{0})->f64[16]{0}}, \
            num_partitions=4\n\nENTRY %main (x: f64[4]) -> f64[16] {\n  %x = f64[4]{0} \
            parameter(0)\n  ROOT %g = f64[16]{0} \
            all-gather(%x), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, \
            use_global_device_ids=true\n}\n";
        assert_eq!(by_xla(hlo).expect("HLO")["all-gather"], (12, 96));
    }
}
