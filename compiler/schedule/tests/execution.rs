//! Timelines as devices execute them: which task waits for which, and which errors the run of a
//! changed execution finds.

use shard_cost::{Hardware, Memory, price};
use shard_ir::{Execution, InstrId, Plan, Work};
use shard_runtime::{Report, RunError, RunOptions, run_on_streams};
use shard_schedule::overlap::{ExecutionError, executable, verify_execution, verify_times};
use shard_schedule::{overlap, verify_timeline};

fn executed(text: &str, chip: &str) -> (Execution, Report) {
    let plan = shard_ir::text::parse(&format!("shir 1\n{text}")).expect("well formed").remove(0);
    assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
    let execution = execution(&plan, chip);
    assert_eq!(verify_execution(&execution), Ok(()), "{execution:#?}");
    let hardware = Hardware::built_in(chip).expect("built in");
    assert_eq!(verify_times(&execution, &hardware), Ok(()), "{execution:#?}");
    let report = run(&execution).unwrap_or_else(|error| panic!("{error}\n{execution:#?}"));
    assert!(report.equal, "{execution:#?}");
    assert_eq!(report.peak_bytes, execution.peak_bytes);
    (execution, report)
}

fn execution(plan: &Plan, chip: &str) -> Execution {
    let chip = Hardware::built_in(chip).expect("built in");
    let price = price(plan, &chip);
    let timeline = overlap(plan, &price, &chip);
    executable(plan, &price, timeline.whole(), 0).expect("it can be written out").execution
}

fn run(execution: &Execution) -> Result<Report, RunError> {
    run_on_streams(&execution.plan, execution, &RunOptions::default())
}

const FSDP: &str = "layer forward repeat 4\nmesh x=4\ndims B=8, D=8, F=16\n\
    %0 = parameter x : bf16 B_xD\n%1 = parameter w_in : weight bf16 D_xF\n%2 = parameter w_out : \
    weight bf16 FD_x\n%3 = all-gather %1 over x along D : bf16 DF @w_in\n%4 = einsum BD,DF->BF \
    %0, %3 : bf16 B_xF @h\n%5 = all-gather %2 over x along D : bf16 FD @w_out\n%6 = einsum \
    BF,FD->BD %4, %5 : bf16 B_xD @y\nreturn y = %6 : B_xD\n";

#[test]
fn a_stack_is_executed_with_its_gathers_beside_its_products() {
    let (execution, report) = executed(FSDP, "tpu-v4-flat");
    assert_eq!(report.collectives.len(), 8);
    assert_eq!(execution.tasks.len(), 16);
}

const LOOPS: &str = "layer l\nmesh x=4, y=2\ndims B=8, E=16, F=8\n%0 = parameter x : f32 B_yE_x\n\
    %1 = parameter w : weight f32 EF_x\n%2 = parameter v : weight f32 F_xE\n%3 = \
    collective-einsum BE,EF->BF %0, %1 all-gather 0 over x along E : f32 B_yF_x @h\n%4 = relu %3 \
    : f32 B_yF_x @a\n%5 = collective-einsum BF,FE->BE %4, %2 reduce-scatter over x along E : f32 \
    B_yE_x @y\nreturn y = %5 : B_yE_x\n";

#[test]
fn loops_are_executed_chunk_by_chunk() {
    for chip in ["tpu-v4-flat", "tpu-v4-face"] {
        let (execution, report) = executed(LOOPS, chip);
        let chunks = execution.tasks.iter().filter(|task| matches!(task.work, Work::Chunk(_)));
        assert_eq!(chunks.count(), 8);
        assert_eq!(report.collectives.len(), 2);
    }
}

#[test]
fn a_task_takes_what_the_chip_takes_for_it_on_the_streams_that_it_needs() {
    let chip = Hardware::built_in("tpu-v4-flat").expect("built in");
    for text in [FSDP, LOOPS] {
        let (execution, _) = executed(text, "tpu-v4-flat");
        for at in 0..execution.tasks.len() {
            let mut bad = execution.clone();
            bad.tasks[at].finish.0 += 1;
            assert!(verify_times(&bad, &chip).is_err(), "task {at} takes a picosecond more");
            let mut bad = execution.clone();
            bad.tasks[at].streams = vec![2, 1, 0];
            assert!(verify_times(&bad, &chip).is_err(), "task {at} takes all streams");
            let mut bad = execution.clone();
            bad.tasks.push(bad.tasks[at].clone());
            assert!(verify_times(&bad, &chip).is_err(), "task {at} is there twice");
        }
        let faster = Hardware::built_in("tpu-v5p").expect("built in");
        assert!(verify_times(&execution, &faster).is_err());
    }
    let (mut execution, _) = executed(FSDP, "tpu-v4-flat");
    execution.streams.pop();
    let wrong = matches!(verify_times(&execution, &chip), Err(ExecutionError::Streams { .. }));
    assert!(wrong);
}

#[test]
fn no_task_makes_a_parameter_or_a_constant() {
    let text = "layer l\ndims B=8\n%0 = parameter x : f32 B\n%1 = constant 2.0 : f32 []\n\
        %2 = mul %0, %1 : f32 B @y\nreturn y = %2 : B\n";
    let (execution, _) = executed(text, "h100");
    for id in [InstrId(0), InstrId(1)] {
        let mut bad = execution.clone();
        let mut first = bad.tasks[0].clone();
        (first.members, first.waits) = (vec![id], Vec::new());
        (first.start, first.finish) = (bad.tasks[0].start, bad.tasks[0].start);
        bad.tasks.push(first);
        let at = bad.tasks.len() - 1;
        assert_eq!(verify_execution(&bad), Err(ExecutionError::NotRun { task: at, id }));
        let mut bad = execution.clone();
        bad.tasks[0].members.insert(0, id);
        assert_eq!(verify_execution(&bad), Err(ExecutionError::NotRun { task: 0, id }));
    }
}

/// A block of a model that leaves a state in place of its cache: `repeat` applications.
fn recurrence(repeat: u64, more: &str) -> Plan {
    let text = format!(
        "shir 1\nlayer m\ndims B=8, E=16\nfold 0 = block repeat {repeat} from %0 to %3\n\
         %0 = parameter x : f32 BE\n%1 = parameter block.state : cache f32 BE in block fold 0\n\
         %2 = add %0, %1 : f32 BE @state1 in block fold 0\n\
         %3 = mul %0, %0 : f32 BE @y in block fold 0\nreturn result = %3 : BE\n\
         keep block.state1 = %2 : BE\n{more}"
    );
    shard_ir::text::parse(&text).expect("well formed").remove(0)
}

#[test]
fn a_state_that_takes_the_place_of_a_cache_is_held_to_the_end_in_each_application() {
    let state = 8 * 16 * 4;
    for repeat in [2, 4, 40] {
        let plan = recurrence(repeat, "");
        assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
        let hardware = Hardware::built_in("h100").expect("built in");
        let price = price(&plan, &hardware);
        let timeline = overlap(&plan, &price, &hardware);
        assert_eq!(verify_timeline(&plan, &price, &hardware, &timeline), Ok(()));
        for most in [0, u64::MAX] {
            let execution =
                executable(&plan, &price, &timeline, most).expect("written out").execution;
            assert_eq!(verify_execution(&execution), Ok(()), "{execution:#?}");
            let report = run(&execution).unwrap_or_else(|error| panic!("{error}"));
            assert!(report.equal);
            assert_eq!(report.peak_bytes, execution.peak_bytes);
        }
        // A parameter and a result, beside a cache and a state for each application.
        let wanted = 2 * state + 2 * repeat * state;
        assert_eq!(Memory::of(&plan).peak().0, wanted);
        assert!((wanted..=wanted + state).contains(&timeline.peak_bytes), "{timeline:#?}");
    }
}

#[test]
fn a_block_that_keeps_what_it_takes_or_hands_on_is_executed() {
    for keeps in ["keep block.x = %0 : BE\n", "keep block.y = %3 : BE\n"] {
        let plan = recurrence(4, keeps);
        assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
        let execution = execution(&plan, "h100");
        assert_eq!(verify_execution(&execution), Ok(()), "{execution:#?}");
        assert!(run(&execution).unwrap_or_else(|error| panic!("{error}")).equal);
    }
}
