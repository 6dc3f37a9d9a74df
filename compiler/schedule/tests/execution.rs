//! Timelines as devices execute them: what waits for what, and what the run of a spoilt one finds.

use shard_cost::{Hardware, price};
use shard_ir::{Execution, Plan, Work};
use shard_runtime::{Report, RunError, RunOptions, run_on_streams};
use shard_schedule::overlap;
use shard_schedule::overlap::{ExecutionError, executable, verify_execution, verify_times};

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
