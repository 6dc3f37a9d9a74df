//! What ESTI ("Efficiently Scaling Transformer Inference") prints.

/// A row of Table D.2: 20 tokens in, 8 out, on 64 chips, 2D partitioning.
#[derive(Clone, Copy, Debug)]
pub struct RowD2 {
    /// Sequences.
    pub batch: u64,
    /// PaLM 540B, prefill of the 20 tokens, in milliseconds.
    pub palm_prefill: f64,
    /// PaLM 540B, all 8 steps, in milliseconds.
    pub palm_generate: f64,
    /// Megatron-Turing NLG 530B, both, in milliseconds.
    pub mt_nlg_total: f64,
}

const fn row(batch: u64, palm_prefill: f64, palm_generate: f64, mt_nlg_total: f64) -> RowD2 {
    RowD2 { batch, palm_prefill, palm_generate, mt_nlg_total }
}

/// Table D.2.
pub const TABLE_D2: [RowD2; 9] = [
    row(4, 34.0, 255.0, 289.0),
    row(8, 40.0, 226.0, 304.0),
    row(16, 58.0, 234.0, 339.0),
    row(32, 99.0, 235.0, 420.0),
    row(64, 186.0, 265.0, 532.0),
    row(128, 356.0, 312.0, 740.0),
    row(256, 668.0, 415.0, 1151.0),
    row(512, 1366.0, 671.0, 2151.0),
    row(1024, 2785.0, 1257.0, 4082.0),
];

/// A column of Table 2: PaLM 540B on 64 chips, a context of 2048.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// The layouts of feed-forward and attention, in the paper's words.
    pub form: &'static str,
    /// The program with these layouts.
    pub paper: (&'static str, &'static [(&'static str, &'static str)]),
    /// The program and phase that leaves the layouts open.
    pub open: (&'static str, &'static str),
    /// The number of steps in the latency.
    pub steps: u64,
    /// Latency, in seconds.
    pub latency: f64,
    /// Model-flops utilisation.
    pub mfu: f64,
}

/// Table 2.
pub const TABLE_2: [Column; 4] = [
    Column {
        name: "low latency, prefill",
        form: "int8, batch 1: WS 2D, heads",
        paper: (
            "examples/calibration/palm_540b_2d_int8.shard",
            &[("B", "1"), ("L", "2048"), ("S", "2048")],
        ),
        open: ("examples/palm/540b_int8.shard", "prefill"),
        steps: 1,
        latency: 0.29,
        mfu: 0.43,
    },
    Column {
        name: "low latency, decode",
        form: "int8, batch 64: WS 2D, batch",
        paper: (
            "examples/calibration/palm_540b_2d_int8.shard",
            &[("B", "64"), ("L", "1"), ("S", "2048")],
        ),
        open: ("examples/palm/540b_int8.shard", "decode"),
        steps: 64,
        latency: 1.82,
        mfu: 0.14,
    },
    Column {
        name: "high throughput, prefill",
        form: "bf16, batch 512: WG XYZ, batch",
        paper: ("examples/calibration/palm_540b_xyz.shard", &[]),
        open: ("examples/palm/540b.shard", "prefill"),
        steps: 1,
        latency: 85.2,
        mfu: 0.76,
    },
    Column {
        name: "high throughput, decode",
        form: "bf16, batch 512: WS 2D, batch",
        paper: (
            "examples/calibration/palm_540b_2d.shard",
            &[("B", "512"), ("L", "1"), ("S", "2048")],
        ),
        open: ("examples/palm/540b.shard", "decode"),
        steps: 64,
        latency: 6.0,
        mfu: 0.33,
    },
];
