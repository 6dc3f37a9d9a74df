//! Serial schedules, and which schedules `verify` refuses.

use shard_cost::{Hardware, price};
use shard_ir::{InstrId, Picoseconds, Schedule, Stream};
use shard_schedule::{ScheduleError, schedule, verify};

const PLAN: &str = "shir 1
layer mlp repeat 1
mesh x=4, y=4, z=4
dims B=512, L=1, E=18432, F=73728

%0 = parameter x : bf16 BLE_xyz
%1 = parameter w_in : weight bf16 E_xF_yz
%2 = all-gather %0 over yz along E : bf16 BLE_x @x
%3 = einsum BLE,EF->BLF %2, %1 : bf16 BLF_yz(partialsum-x) @h
%4 = reduce-scatter %3 sum over x along F : bf16 BLF_yzx @h
%5 = gelu %4 : bf16 BLF_yzx @a
%6 = relu %5 : bf16 BLF_yzx
return a = %6 : BLF_yzx
";

fn serial() -> Schedule {
    let plan = shard_ir::text::parse(PLAN).expect("well formed").remove(0);
    shard_ir::verify::verify(&plan).expect("a legal plan");
    let price = price(&plan, &Hardware::built_in("tpu-v4-flat").expect("built in"));
    let total = price.totals.serial_time;
    let schedule = schedule(plan, &price);
    assert_eq!(schedule.makespan(), total);
    assert_eq!(schedule.peak_bytes(), price.totals.peak_hbm_bytes.0);
    schedule
}

#[test]
fn the_serial_schedule_runs_steps_one_after_another() {
    let s = serial();
    assert_eq!(verify(&s), Ok(()));
    assert!(s.steps.windows(2).all(|pair| pair[0].finish == pair[1].start));
    assert_eq!((s.steps[2].start, s.steps[2].finish), (Picoseconds(0), Picoseconds(16_384_000)));
    assert_eq!((s.steps[2].stream, s.steps[3].stream), (Stream::Network, Stream::Compute));
}

#[test]
fn a_fused_op_takes_no_time_of_its_own() {
    let s = serial();
    assert_eq!(s.steps[6].start, s.steps[6].finish);
    assert!(s.steps[5].start < s.steps[5].finish);
}

#[test]
fn a_value_leaves_memory_behind_its_last_reader() {
    let s = serial();
    assert_eq!(s.frees[2], vec![InstrId(0)]);
    assert_eq!(s.frees[3], vec![InstrId(2)]);
    assert!(s.frees.iter().flatten().all(|id| *id != InstrId(1)), "a weight stays");
}

#[test]
fn the_judge_refuses_what_cannot_be_run() {
    let mut s = serial();
    s.steps[3].start = Picoseconds(0);
    assert_eq!(verify(&s), Err(ScheduleError::TooEarly { id: InstrId(3), operand: InstrId(2) }));

    let mut s = serial();
    s.steps.swap(2, 3);
    assert_eq!(verify(&s), Err(ScheduleError::TooEarly { id: InstrId(3), operand: InstrId(2) }));

    let mut s = serial();
    s.steps[3].id = InstrId(2);
    assert_eq!(verify(&s), Err(ScheduleError::NotOnce(InstrId(2))));

    let mut s = serial();
    s.frees[2].push(InstrId(2));
    assert_eq!(verify(&s), Err(ScheduleError::WrongFree { value: InstrId(2), after: InstrId(2) }));

    let mut s = serial();
    s.frees[6].push(InstrId(1));
    assert_eq!(verify(&s), Err(ScheduleError::WrongFree { value: InstrId(1), after: InstrId(6) }));

    let mut s = serial();
    s.steps[4].live_bytes += 1;
    assert!(matches!(verify(&s), Err(ScheduleError::LiveBytes { id: InstrId(4), .. })));

    let mut s = serial();
    s.steps[0].finish = Picoseconds(5);
    s.steps[1].finish = Picoseconds(6);
    s.steps[2].start = Picoseconds(6);
    assert_eq!(
        verify(&s),
        Err(ScheduleError::StreamBusy { first: InstrId(0), second: InstrId(1) })
    );

    let mut s = serial();
    s.steps.pop();
    assert_eq!(verify(&s), Err(ScheduleError::Count { steps: 6, frees: 7, instructions: 7 }));
}
