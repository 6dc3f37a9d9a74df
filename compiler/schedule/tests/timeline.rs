//! Timelines: which units run beside which, stacks, memory, and which timelines `verify_timeline`
//! refuses.

use shard_cost::{Hardware, Memory, PlanPrice, Streams, price};
use shard_ir::{InstrId, Picoseconds, Plan};
use shard_schedule::overlap::{Part, buffers, placed, verify_addresses};
use shard_schedule::{Timeline, TimelineError, overlap, verify_timeline};

struct Laid {
    plan: Plan,
    price: PlanPrice,
    hardware: Hardware,
    timeline: Timeline,
}

fn laid_on(text: &str, hardware: Hardware) -> Laid {
    let plan = shard_ir::text::parse(&format!("shir 1\n{text}")).expect("well formed").remove(0);
    assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
    let price = price(&plan, &hardware);
    let timeline = overlap(&plan, &price, &hardware);
    assert_eq!(verify_timeline(&plan, &price, &hardware, &timeline), Ok(()));
    Laid { plan, price, hardware, timeline }
}

fn laid(text: &str, chip: &str) -> Laid {
    laid_on(text, Hardware::built_in(chip).expect("built in"))
}

impl Laid {
    fn verdict(&self, timeline: &Timeline) -> Result<(), TimelineError> {
        verify_timeline(&self.plan, &self.price, &self.hardware, timeline)
    }
}

/// The layer of "How to Scale Your Model", part 5: weights are gathered, activations stay.
fn fsdp(repeat: u64, batch: u64) -> String {
    format!(
        "layer forward repeat {repeat}\nmesh x=32\ndims B={batch}, D=8192, F=28672\n\
         %0 = parameter x : bf16 B_xD\n%1 = parameter w_in : weight bf16 D_xF\n%2 = parameter \
         w_out : weight bf16 FD_x\n\
         %3 = all-gather %1 over x along D : bf16 DF @w_in\n%4 = einsum BD,DF->BF %0, %3 : bf16 \
         B_xF @h\n\
         %5 = all-gather %2 over x along D : bf16 FD @w_out\n%6 = einsum BF,FD->BD %4, %5 : bf16 \
         B_xD @y\n\
         return y = %6 : B_xD\n"
    )
}

const MANY_TOKENS: u64 = 131_072;

#[test]
fn fsdp_hides_its_gathers_in_a_stack_without_a_loop() {
    let laid = laid(&fsdp(30, MANY_TOKENS), "tpu-v4-flat");
    let arithmetic = laid.price.totals.compute_time.0 * 30;
    let whole = laid.timeline.whole().makespan.0;
    assert!(whole * 100 <= arithmetic * 103, "{whole} ps for {arithmetic} ps of arithmetic");
    assert!(
        laid.timeline.makespan.0 * 30 * 100 > arithmetic * 103,
        "one layer alone waits for its first gather"
    );
}

#[test]
fn every_layer_beyond_the_listed_ones_takes_one_period() {
    for batch in [4096, 16_384, MANY_TOKENS] {
        let time = |repeat| laid(&fsdp(repeat, batch), "tpu-v4-flat").timeline.whole().makespan.0;
        let period = time(9) - time(8);
        assert_eq!(time(1000), time(8) + 992 * period);
        assert!(period < time(1), "a layer of a stack starts before the one before is done");
    }
}

#[test]
fn a_layer_that_cannot_follow_itself_is_no_stack() {
    let laid = laid(
        "layer l repeat 4\nmesh x=4\ndims B=64, E=64, F=64\n%0 = parameter x : bf16 B_xE\n\
         %1 = parameter w : weight bf16 EF\n%2 = einsum BE,EF->BF %0, %1 : bf16 B_xF @y\nreturn y \
         = %2 : B_xF\n",
        "tpu-v4-flat",
    );
    assert!(laid.timeline.stack.is_none());
    assert_eq!(laid.timeline.of_all_layers(&laid.plan), laid.timeline.makespan.times(4));
}

#[test]
fn gathers_go_only_so_far_ahead_as_there_is_memory() {
    let whole_chip = laid(&fsdp(30, MANY_TOKENS), "tpu-v4-flat");
    let least = Memory::of(&whole_chip.plan).peak().0;
    assert!(
        whole_chip.timeline.whole().peak_bytes > least,
        "the next layer's weights are there while one computes"
    );
    let times: Vec<u64> = [least, least + 100_000_000, least + 200_000_000, least + 10_000_000_000]
        .map(|bytes| {
            let chip =
                Hardware::built_in("tpu-v4-flat").expect("built in").with_memory_limit(bytes);
            let laid = laid_on(&fsdp(30, MANY_TOKENS), chip);
            assert!(laid.timeline.whole().peak_bytes <= bytes);
            laid.timeline.whole().makespan.0
        })
        .to_vec();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert!(times[0] > times[3], "{times:?}");
}

const LOOPS: &str = "layer l\nmesh x=4, y=4\ndims B=4096, E=4096, F=65536\n\
    %0 = parameter x : bf16 B_xE_y\n%1 = parameter w : weight bf16 EF_y\n";

const GATHERS: &str = "%2 = collective-einsum BE,EF->BF %0, %1 all-gather 0 over y along E : bf16 \
    B_xF_y @h\nreturn h = %2 : B_xF_y\n";

#[test]
fn the_chunks_of_a_loop_come_over_both_directions_of_its_ring() {
    let laid = laid(&format!("{LOOPS}{GATHERS}"), "tpu-v4-face");
    let names = laid.timeline.streams.names();
    let unit = &laid.timeline.stages.units[0];
    let on = |wanted: &str| -> Vec<Part> {
        unit.busy.iter().filter(|busy| names[busy.stream] == wanted).map(|busy| busy.part).collect()
    };
    assert_eq!(on("compute"), [0, 1, 2, 3].map(Part::Chunk));
    assert_eq!(on("y up"), [1, 2, 3].map(Part::Send));
    assert_eq!(on("y down"), on("y up"));
    assert_eq!(on("x up"), []);
}

#[test]
fn directions_of_axes_nodes_and_the_link_to_the_host_are_streams() {
    let names = |chip: &str, mesh: &str| {
        let text = format!(
            "layer l\nmesh {mesh}\ndims B=64\n%0 = parameter x : bf16 B\n%1 = gelu %0 : bf16 B \
                @y\nreturn y = %1 : B\n"
        );
        laid(&text, chip).timeline.streams.names()[2..].join(", ")
    };
    assert_eq!(names("tpu-v4-flat", "x=4, y=4"), "network");
    assert_eq!(names("tpu-v4-face", "x=4, y=4"), "x up, x down, y up, y down");
    assert_eq!(names("h100", "x=4, y=8"), "between nodes, inside nodes");
    assert_eq!(names("tpu-v4-face", "dcn=2, x=4"), "dcn: network, x up, x down");
}

#[test]
fn what_goes_between_nodes_and_what_stays_inside_go_on_at_once() {
    let gathers = "layer l\nmesh x=4, y=8\ndims B=4096, E=4096\n%0 = parameter a : bf16 B_xE\n%1 \
        = parameter b : bf16 B_yE\n\
        %2 = all-gather %0 over x along B : bf16 BE @a\n%3 = all-gather %1 over y along B : bf16 \
        BE @b\n\
        return a = %2 : BE\nreturn b = %3 : BE\n";
    let laid = laid(gathers, "h100");
    let longest = [2, 3].map(|id| laid.price.of(InstrId(id)).time()).into_iter().max();
    assert_eq!(Some(laid.timeline.makespan), longest);
}

#[test]
fn a_weight_comes_from_the_host_while_the_layer_before_computes() {
    let text = "layer l repeat 12\nmesh x=4\ndims B=65536, E=4096, F=4096\n%0 = parameter x : \
        bf16 B_xE\n\
        %1 = parameter w : weight host bf16 EF\n%2 = parameter v : weight host bf16 EF\n%3 = \
        fetch %1 : bf16 EF @w\n\
        %4 = einsum BE,EF->BF %0, %3 : bf16 B_xF @h\n%5 = fetch %2 : bf16 EF @v\n\
        %6 = einsum BF,EF->BE %4, %5 : bf16 B_xE @y\nreturn y = %6 : B_xE\n";
    let laid = laid(text, "a100-80g");
    let computing = [4, 6].map(|id| laid.price.of(InstrId(id)).time().0).iter().sum::<u64>();
    let fetching = [3, 5].map(|id| laid.price.of(InstrId(id)).time().0).iter().sum::<u64>();
    let whole = laid.timeline.whole();
    assert!(whole.makespan.0 < 12 * computing.max(fetching) + computing + fetching);
    assert!(whole.stages.units[0].busy.iter().all(|busy| busy.stream == Streams::HOST));
}

#[test]
fn the_judge_refuses_what_cannot_be_run() {
    let laid = laid(&fsdp(30, MANY_TOKENS), "tpu-v4-flat");
    let good = *laid.timeline.stack.clone().expect("a stack");
    let refused = |change: &dyn Fn(&mut Timeline)| {
        let mut bad = good.clone();
        change(&mut bad);
        laid.verdict(&bad).expect_err("a defect")
    };
    let run = |unit: usize, copy: u64| {
        good.runs.iter().position(|run| (run.unit, run.copy) == (unit, copy)).expect("a run")
    };
    let early = refused(&|t| t.runs[run(3, 1)].start.0 -= 1);
    assert!(matches!(early, TimelineError::TooEarly { id: InstrId(6), .. }), "{early}");
    let busy = refused(&|t| t.runs[run(2, 0)].start.0 -= 1);
    assert!(
        matches!(busy, TimelineError::StreamBusy { first: InstrId(3), second: InstrId(5), .. }),
        "{busy}"
    );
    let first = refused(&|t| t.runs[run(1, 0)].start = Picoseconds(0));
    assert_eq!(first, TimelineError::TooEarly { id: InstrId(4), copy: 0, operand: InstrId(3) });
    let ahead = refused(&|t| t.runs[run(0, 5)].start = Picoseconds(0));
    assert!(
        matches!(ahead, TimelineError::TooFarAhead { copy: 8, .. }),
        "copies are counted with three unlisted ones: {ahead}"
    );
    let twice = refused(&|t| {
        let again = t.runs[run(2, 1)];
        t.runs.push(again);
    });
    assert_eq!(twice, TimelineError::NotOnce(InstrId(5)));
    let never = refused(&|t| {
        t.runs.remove(run(2, 1));
    });
    assert_eq!(never, TimelineError::NotOnce(InstrId(5)));
    let short = refused(&|t| t.stages.units[0].busy[0].until.0 -= 1);
    assert_eq!(short, TimelineError::Work(InstrId(3)));
    let elsewhere = refused(&|t| t.stages.units[0].busy[0].stream = Streams::HOST);
    assert_eq!(elsewhere, TimelineError::Work(InstrId(3)));
    let faster = refused(&|t| t.makespan.0 -= 1);
    assert!(matches!(faster, TimelineError::Figures { .. }), "{faster}");
    let smaller = refused(&|t| t.peak_bytes -= 1);
    assert!(matches!(smaller, TimelineError::Figures { .. }), "{smaller}");
    let narrow = refused(&|t| t.limit = t.peak_bytes - 1);
    assert!(matches!(narrow, TimelineError::Memory { .. }), "{narrow}");
    let period = refused(&|t| t.steady[0].period.0 -= 1);
    assert!(!matches!(period, TimelineError::Figures { .. }), "{period}");
    let fewer = refused(&|t| t.stages.stages[0].copies -= 1);
    assert!(matches!(fewer, TimelineError::NotOnce(_)), "{fewer}");
}

#[test]
fn the_judge_refuses_a_chunk_before_its_transfer() {
    {
        let laid = laid(&format!("{LOOPS}{GATHERS}"), "tpu-v4-face");
        let mut bad = laid.timeline.clone();
        let busy = &mut bad.stages.units[0].busy;
        let at = |wanted: Part| busy.iter().position(|busy| busy.part == wanted).expect("a part");
        let (first, last) = (at(Part::Chunk(0)), at(Part::Chunk(3)));
        (busy[first].part, busy[last].part) = (busy[last].part, busy[first].part);
        assert_eq!(laid.verdict(&bad), Err(TimelineError::Chunk { id: InstrId(2), chunk: 3 }));
        let mut bad = laid.timeline.clone();
        let busy = &mut bad.stages.units[0].busy;
        let sent = busy.iter().position(|busy| busy.part == Part::Send(2)).expect("a transfer");
        busy[sent].part = Part::Send(1);
        assert_eq!(laid.verdict(&bad), Err(TimelineError::Work(InstrId(2))));
    }
}

#[test]
fn buffers_that_live_at_once_have_addresses_of_their_own() {
    let laid = laid(&fsdp(12, MANY_TOKENS), "tpu-v4-flat");
    let held = buffers(&laid.plan, laid.timeline.whole(), u64::MAX);
    let mut at = placed(&held);
    assert_eq!(verify_addresses(&at), Ok(()));
    let extent = at.iter().map(|p| p.address + p.buffer.bytes).max().expect("buffers");
    assert!(
        extent * 100 <= (held.peak() - held.kept) * 105,
        "{extent} for {}",
        held.peak() - held.kept
    );
    at.iter_mut().for_each(|placed| placed.address = 0);
    assert!(matches!(verify_addresses(&at), Err(TimelineError::Address { .. })));
}
