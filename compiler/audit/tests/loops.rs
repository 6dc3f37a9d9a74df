//! Causes of collectives on values that a loop carries.

use shard_audit::collectives::collectives;
use shard_audit::hlo::Module;

/// A loop of five turns whose tuple has a counter and `x`, which is `%a` in a turn and `%g` when it
/// has moved; `next` is what a turn hands on.
fn dump(next: &str) -> String {
    format!(
        "HloModule m, num_partitions=4\n\n\
         %body (p: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {{\n  \
         %p = (s32[], f32[8,8]{{1,0}}) parameter(0)\n  \
         %i = s32[] get-tuple-element(%p), index=0\n  \
         %a = f32[8,8]{{1,0}} get-tuple-element(%p), index=1\n  \
         %g = f32[8,8]{{1,0}} collective-permute(%a), \
         source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}\n  \
         %one = s32[] constant(1)\n  %n = s32[] add(%i, %one)\n  \
         ROOT %t = (s32[], f32[8,8]{{1,0}}) tuple(%n, {next})\n}}\n\n\
         %cond (p: (s32[], f32[8,8])) -> pred[] {{\n  \
         %p = (s32[], f32[8,8]{{1,0}}) parameter(0)\n  \
         %i = s32[] get-tuple-element(%p), index=0\n  %k = s32[] constant(5)\n  \
         ROOT %lt = pred[] compare(%i, %k), direction=LT\n}}\n\n\
         ENTRY %main (x: f32[8,8]) -> f32[8,8] {{\n  %x = f32[8,8]{{1,0}} parameter(0)\n  \
         %z = s32[] constant(0)\n  %t0 = (s32[], f32[8,8]{{1,0}}) tuple(%z, %x)\n  \
         %w = (s32[], f32[8,8]{{1,0}}) while(%t0), condition=%cond, body=%body, \
         backend_config={{\"known_trip_count\":{{\"n\":\"5\"}}}}\n  \
         ROOT %r = f32[8,8]{{1,0}} get-tuple-element(%w), index=1\n}}\n"
    )
}

fn causes(next: &str) -> Vec<String> {
    let text = dump(next);
    let module = Module::read(&text).expect("it is read");
    let found = collectives(&module, None).expect("it is counted");
    found.collectives[0].causes()
}

#[test]
fn a_value_that_each_turn_hands_on_moved_does_not_stay_the_same() {
    let same = "parameter `x` is laid out anew in every turn, though it stays the same";
    assert_eq!(causes("%a"), [same]);
    assert!(causes("%g").is_empty(), "{:?}", causes("%g"));
}
