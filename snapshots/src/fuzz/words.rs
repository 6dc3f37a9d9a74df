//! The words of the languages that are fuzzed, in groups: those of one group may stand in each other's place.

/// Of `.shard` files.
pub(super) const SHARD: &[&[&str]] = &[
    &["gelu", "relu", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "square", "abs"],
    &["sum", "mean", "max"],
    &["softmax", "rmsnorm", "layernorm"],
    &["maximum", "minimum"],
    &["bf16", "f32", "f16", "f8", "int8", "int4", "int32", "bool"],
    &["weight", "cache", "weight host", "cache host", ""],
    &["+", "-", "*", "/"],
    &["?", "?l", "?m", ""],
    &[
        "(partialsum-x)",
        "(partialsum-yz)",
        "(partialmax-x)",
        "(partialsum-x, partialmax-y)",
        "(partialsum-{data,model})",
    ],
    &[
        "einsum", "reshard", "rename", "split", "merge", "concat", "slice", "append", "causal", "rope", "take", "cast",
        "route",
    ],
    &["let", "return", "layer", "strict layer", "dim", "mesh", "phase", "expect", "hardware", "repeat 3"],
    &[
        "tpu-v4-flat",
        "tpu-v4",
        "tpu-v5p",
        "tpu-v5e",
        "tpu-v6e",
        "a100",
        "h100",
        "\"chip.toml\"",
        "\"../x.toml\"",
        "\"\"",
    ],
    &["x", "y", "z", "data", "model", "fsdp"],
    &["B", "L", "E", "F", "S", "H", "K", "G", "D", "Q", "V", "Batch", "Ä", "E2"],
    &[
        "[]",
        "[B, L]",
        "[B_x, L_y]",
        "BLE_xyz",
        "E_xF_yz",
        "E_(xy)",
        "B_{data}L",
        "BLE?",
        "E_x?",
        "[Batch_{data,model}]",
    ],
    &["1", "0.5", "2e-3", "1e308", "0", "1e-320"],
    &["over E", "over BL", "over []", "at L", "-> BLF", "-> S", "-> C, 2", ": bf16 BLE", "pad 64", "host"],
    &["expect time <= 1 ms", "expect no all-gather", "expect proven", "expect strategy fsdp", "expect memory <= 1 GB"],
];

/// Of `.shir` files.
pub(super) const SHIR: &[&[&str]] = &[
    &["gelu", "relu", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "square", "abs", "neg"],
    &["add", "sub", "mul", "div", "maximum", "minimum"],
    &["sum", "mean", "max"],
    &["softmax", "rmsnorm", "layernorm"],
    &["bf16", "f32", "f16", "f8", "int8", "int4", "int32", "bool"],
    &["weight", "cache", "weight host", ""],
    &[
        "all-gather",
        "slice",
        "reduce-scatter",
        "all-reduce",
        "all-to-all",
        "collective-permute",
        "exchange",
        "to-partial",
    ],
    &["parameter", "constant", "einsum", "rename", "split", "merge", "concat", "slice-dim", "append", "mask", "causal"],
    &["rope", "take", "cast", "collective-einsum", "route"],
    &["along", "over", "from", "to", "at", "in", "of", "useful", "repeat", "phase", "return", "layer", "mesh", "dims"],
    &["%0", "%1", "%2", "%3", "%4", "%5", "%99", "%4294967295", "%4294967296"],
    &["x", "y", "z", "xy", "yx", "{data}", "{x,y}"],
    &["B", "E", "F", "L", "S", "H", "BE,EF->BF", "BE,BE->", "->", "BE->EB", "->B", "[]"],
    &["(partialsum-x)", "(partialmax-x)", "(partialsum-x, partialmax-y)", ""],
    &["; rule", "@name", "@\"odd name\"", "in layer", "of softmax 3", "size E", "0.5", "1e308", "inf", "nan", "-0"],
];

/// Of hardware files.
pub(super) const HARDWARE: &[&[&str]] = &[
    &["flat", "torus", "switched", "mesh"],
    &["always", "never", "multiple-of-4", "full-axis-16", "full-axis-0", "multiple-of-0"],
    &["bf16", "f32", "f16", "f8", "int8", "int4", "int32", "bool"],
    &["kind", "node", "node_bandwidth", "nic_bandwidth", "alpha", "link_bandwidth", "hop_latency", "wraparound"],
    &[
        "hbm_bytes",
        "hbm_bandwidth",
        "flops",
        "efficiency",
        "matmul_tile",
        "pcie_bandwidth",
        "layer_overhead",
        "latency",
    ],
    &["[chip]", "[network]", "[host]", "[network.axes]", "[[chip]]", "[chip.flops]", "[efficiency]"],
    &[
        "x = { torus = [2, 2] }",
        "y = { kind = \"flat\", bandwidth = 1e9, latency = 0 }",
        "pod = [16, 20, 28]",
        "cube = [4, 4, 4]",
    ],
    &["1e-12", "1e30", "1e18", "9.3e18", "1", "0.5", "-1", "true", "\"x\"", "[]", "{}", "1979-05-27"],
];

/// Of a model's `config.json`.
pub(super) const CONFIG: &[&[&str]] = &[
    &["llama", "mistral", "qwen2", "mixtral", "gpt2", "gpt_neox", "bert"],
    &["silu", "swish", "gelu", "gelu_new", "gelu_fast", "relu", "quick_gelu"],
    &[
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ],
    &["n_embd", "n_head", "n_inner", "n_layer", "n_positions", "vocab_size", "max_position_embeddings"],
    &["num_local_experts", "num_experts_per_tok", "sliding_window", "attention_bias", "use_parallel_residual"],
    &["torch_dtype", "quantization_config", "_name_or_path", "tie_word_embeddings", "rope_scaling", "model_type"],
    &["null", "true", "false", "[]", "{}", "\"\"", "\"\\ud800\"", "1.5", "-1", "\"bfloat16\"", "\"float8\""],
    &["1", "2", "64", "127", "4294967296", "4294967297", "18446744073709551615", "1e3"],
];

/// Of certificates.
pub(super) const CERTIFICATE: &[&[&str]] = &[
    &["certificate", "search", "none"],
    &["true", "false", "null", "[]", "{}", "\"\""],
    &["value", "reader", "paid", "forms", "plan", "layer", "proof", "cost_ps", "lower_bound_ps", "inputs"],
    &["source", "dims", "mesh", "strict", "fuse", "hardware", "file", "schema", "label_layouts"],
    &["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "slice", "einsum", "parameter", "collective-permute"],
    &["B", "E", "F", "L", "x", "y", "z"],
    &["%0", "%1", "%2", "%3", "%4"],
    &["-281474976710656", "281474976710656", "-1", "4294967295", "9223372036854775807", "-9223372036854775808"],
];

/// Of what an editor sends.
pub(super) const EDITOR: &[&[&str]] = &[
    &["Content", "Length", "Content-Length: 0\r\n\r\n", "\r\n\r\n", "Content-Type: x\r\n"],
    &["jsonrpc", "id", "method", "params", "result", "error"],
    &["initialize", "initialized", "shutdown", "exit", "textDocument", "workspace", "$/cancelRequest"],
    &["didOpen", "didChange", "didClose", "hover", "definition", "references", "prepareRename", "rename", "completion"],
    &["formatting", "codeAction", "inlayHint", "didSave"],
    &["uri", "text", "version", "position", "line", "character", "newName", "range", "contentChanges", "start", "end"],
    &["null", "true", "[]", "{}", "\"\"", "\"\\ud800\"", "-1", "1.5", "4294967295", "file:///a.shard", "x:"],
];

/// Of command lines.
pub(super) const ARGUMENTS: &[&[&str]] = &[
    &["check", "fmt", "explain", "cost", "lower", "run", "diff", "sweep", "snapshot", "new", "hardware", "man"],
    &["--layer", "--phase", "-D", "--mesh", "--hardware", "--objective", "--strict", "--fuse", "--format", "--color"],
    &["serial", "overlap", "comm", "memory", "text", "json", "csv", "github", "sarif", "html", "dot", "ir"],
    &["case.shard", "-", "nosuch.shard", ".", "", "case.toml"],
    &["--", "-h", "--version", "--help", "-DB=1", "--seed=18446744073709551616"],
];
