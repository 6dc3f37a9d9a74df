//! A model from the `config.json` that lies beside the weights of a model on Hugging Face.

use serde_json::{Map, Value};
use shard_check::diagnostics::ConfigProblem;
use shard_grammar::{SourceFile, Span};

use shard_ir::Dtype;

use super::{Attention, Experts, GATES, Model, PLACES};

/// Context of the cache where the model allows more; `-D S=` gives another.
const CONTEXT: u64 = 4096;
/// The largest size that a configuration may state.
const LARGEST: u64 = 1 << 32;

/// The `model_type`s that are understood.
pub const KNOWN: &[&str] = &["llama", "mistral", "qwen2", "mixtral", "gpt2", "gpt_neox"];

/// Reads a configuration, or says what is wrong with it.
pub fn read(file: &SourceFile) -> Result<Model, ConfigProblem> {
    let value: Value = serde_json::from_str(&file.text).map_err(|error| not_json(file, &error))?;
    let Value::Object(keys) = value else {
        return Err(ConfigProblem::NotJson {
            message: "it is an array or a plain value".to_string(),
            span: Span::new(0, 0),
        });
    };
    let config = Config { file, keys: &keys };
    let kind = config.text(&["model_type"])?;
    let Some(kind) = KNOWN.iter().copied().find(|known| *known == kind) else {
        let known = KNOWN.iter().map(|known| known.to_string()).collect();
        return Err(ConfigProblem::Unknown {
            span: config.span("model_type"),
            model_type: kind,
            known,
        });
    };
    let mut model = match kind {
        "gpt2" => gpt2(&config)?,
        "gpt_neox" => gpt_neox(&config)?,
        _ => llama(&config, kind)?,
    };
    model.left_out.extend(config.left_out(model.attention.as_ref().is_some_and(|a| a.rotary)));
    match &model.attention {
        Some(a) if !a.heads.is_multiple_of(a.kv_heads) => Err(ConfigProblem::Indivisible {
            what: "num_attention_heads",
            size: a.heads,
            by: "num_key_value_heads",
            parts: a.kv_heads,
            span: config.span("num_key_value_heads"),
        }),
        _ => Ok(model),
    }
}

/// Llama, and what is built like it.
fn llama(config: &Config<'_>, kind: &'static str) -> Result<Model, ConfigProblem> {
    let width = config.number(&["hidden_size"])?;
    let heads = config.number(&["num_attention_heads"])?;
    let mut left_out = vec!["the learned scales of the norms".to_string()];
    if kind == "qwen2" || config.is_true("attention_bias") || config.is_true("mlp_bias") {
        left_out.push("biases".to_string());
    }
    if config.keys.get("sliding_window").is_some_and(|window| !window.is_null()) && kind != "qwen2"
    {
        left_out.push("the sliding window".to_string());
    }
    let head = match config.optional("head_dim")? {
        Some(head) => head,
        None => config.part(width, heads, "num_attention_heads")?,
    };
    let experts = match kind {
        "mixtral" => {
            let count = config.number(&["num_local_experts"])?;
            let chosen = config.number(&["num_experts_per_tok"])?;
            let span = config.span("num_experts_per_tok");
            if chosen > count {
                return Err(ConfigProblem::Value {
                    key: "num_experts_per_tok".to_string(),
                    wanted: format!("a number up to {count}, the number of experts"),
                    span,
                });
            }
            left_out.extend([GATES, PLACES].map(str::to_string));
            Some(Experts { count, chosen })
        }
        _ => None,
    };
    Ok(Model {
        title: format!("The layers of {}", config.title(kind)),
        name: kind,
        left_out,
        dtype: config.dtype()?,
        tied: config.is_true("tie_word_embeddings"),
        layers: config.number(&["num_hidden_layers"])?,
        width,
        inner: config.number(&["intermediate_size"])?,
        gated: true,
        map: config.map(&["hidden_act"])?,
        norm: "rmsnorm",
        parallel: false,
        attention: Some(Attention {
            heads,
            kv_heads: config.optional("num_key_value_heads")?.unwrap_or(heads),
            head,
            context: config.optional("max_position_embeddings")?.unwrap_or(CONTEXT).min(CONTEXT),
            rotary: true,
        }),
        experts,
        vocabulary: Some(config.number(&["vocab_size"])?),
    })
}

fn gpt2(config: &Config<'_>) -> Result<Model, ConfigProblem> {
    let width = config.number(&["n_embd", "hidden_size"])?;
    let heads = config.number(&["n_head", "num_attention_heads"])?;
    let inner = match config.optional("n_inner")? {
        Some(inner) => inner,
        None => 4 * width,
    };
    Ok(Model {
        title: format!("The layers of {}", config.title("gpt2")),
        name: "gpt2",
        left_out: ["the learned scales of the norms", "biases", "the embedding of positions"]
            .map(str::to_string)
            .to_vec(),
        dtype: config.dtype()?,
        // The table of GPT-2 is both, unless a configuration says otherwise.
        tied: config.keys.get("tie_word_embeddings") != Some(&Value::Bool(false)),
        layers: config.number(&["n_layer", "num_hidden_layers"])?,
        width,
        inner,
        gated: false,
        map: config.map(&["activation_function"])?,
        norm: "layernorm",
        parallel: false,
        attention: Some(Attention {
            heads,
            kv_heads: heads,
            head: config.part(width, heads, "n_head")?,
            context: config.number(&["n_positions", "max_position_embeddings"])?.min(CONTEXT),
            rotary: false,
        }),
        experts: None,
        vocabulary: Some(config.number(&["vocab_size"])?),
    })
}

fn gpt_neox(config: &Config<'_>) -> Result<Model, ConfigProblem> {
    let width = config.number(&["hidden_size"])?;
    let heads = config.number(&["num_attention_heads"])?;
    Ok(Model {
        title: format!("The layers of {}", config.title("gpt_neox")),
        name: "gpt_neox",
        left_out: [
            "the learned scales of the norms",
            "biases",
            "a rotary part smaller than the head",
        ]
        .map(str::to_string)
        .to_vec(),
        dtype: config.dtype()?,
        tied: config.is_true("tie_word_embeddings"),
        layers: config.number(&["num_hidden_layers"])?,
        width,
        inner: config.number(&["intermediate_size"])?,
        gated: false,
        map: config.map(&["hidden_act"])?,
        norm: "layernorm",
        parallel: config
            .keys
            .get("use_parallel_residual")
            .is_none_or(|parallel| *parallel != Value::Bool(false)),
        attention: Some(Attention {
            heads,
            kv_heads: heads,
            head: config.part(width, heads, "num_attention_heads")?,
            context: config.number(&["max_position_embeddings"])?.min(CONTEXT),
            rotary: true,
        }),
        experts: None,
        vocabulary: Some(config.number(&["vocab_size"])?),
    })
}

/// Keys that sizes and ops are read from.
const READ: &[&str] = &[
    "model_type",
    "hidden_size",
    "n_embd",
    "intermediate_size",
    "n_inner",
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "head_dim",
    "num_hidden_layers",
    "n_layer",
    "vocab_size",
    "hidden_act",
    "activation_function",
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "num_local_experts",
    "num_experts_per_tok",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "attention_bias",
    "mlp_bias",
    "use_parallel_residual",
    "torch_dtype",
    "dtype",
    "tie_word_embeddings",
    "rotary_pct",
    "rotary_emb_base",
    "rope_theta",
    "rope_scaling",
    "quantization_config",
    "layer_types",
    "_name_or_path",
];

/// Keys that say nothing of sizes, layouts or time: names, tokens, training, and how a library runs
/// the model.
const NO_MATTER: &[&str] = &[
    "architectures",
    "transformers_version",
    "auto_map",
    "task_specific_params",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    "initializer_range",
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "norm_eps",
    "attention_dropout",
    "hidden_dropout",
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "pretraining_tp",
    "use_cache",
    "router_aux_loss_coef",
    "output_router_logits",
    "router_jitter_noise",
    "classifier_dropout",
    "gradient_checkpointing",
    "id2label",
    "label2id",
    "is_decoder",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "scale_attn_weights",
    "reorder_and_upcast_attn",
    "scale_attn_by_inverse_layer_idx",
    "vocab_file",
    "tokenizer_class",
    "attn_implementation",
    "_attn_implementation",
];

/// The base that `rope` turns with.
const ROPE_BASE: f64 = 10_000.0;

/// The keys of a configuration, and its text for the places of errors.
struct Config<'a> {
    file: &'a SourceFile,
    keys: &'a Map<String, Value>,
}

impl Config<'_> {
    /// The first of some keys that is there and not null.
    fn get(&self, keys: &[&str]) -> Result<(&Value, String), ConfigProblem> {
        let found = keys
            .iter()
            .find_map(|key| Some((self.keys.get(*key).filter(|v| !v.is_null())?, key.to_string())));
        found.ok_or_else(|| ConfigProblem::Missing {
            keys: keys.iter().map(|key| key.to_string()).collect(),
            end: Span::new(0, self.file.text.find('{').map_or(0, |at| at + 1)),
        })
    }

    fn text(&self, keys: &[&str]) -> Result<String, ConfigProblem> {
        let (value, key) = self.get(keys)?;
        value.as_str().map(str::to_string).ok_or_else(|| self.wrong(key, "a string"))
    }

    /// A size: positive, and small enough to be one.
    fn number(&self, keys: &[&str]) -> Result<u64, ConfigProblem> {
        let (value, key) = self.get(keys)?;
        let size = value.as_u64().filter(|n| (1..=LARGEST).contains(n));
        size.ok_or_else(|| self.wrong(key, &format!("a whole number from 1 to {LARGEST}")))
    }

    fn optional(&self, key: &str) -> Result<Option<u64>, ConfigProblem> {
        match self.keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.number(&[key]).map(Some),
        }
    }

    fn is_true(&self, key: &str) -> bool {
        self.keys.get(key) == Some(&Value::Bool(true))
    }

    /// What numbers are stored in: bf16 where nothing is said.
    fn dtype(&self) -> Result<Dtype, ConfigProblem> {
        let given = ["torch_dtype", "dtype"]
            .into_iter()
            .find(|key| self.keys.get(*key).is_some_and(|v| !v.is_null()));
        let Some(key) = given else { return Ok(Dtype::Bf16) };
        match self.text(&[key])?.trim_start_matches("torch.") {
            "bfloat16" | "auto" => Ok(Dtype::Bf16),
            "float16" | "half" => Ok(Dtype::F16),
            "float32" | "float" => Ok(Dtype::F32),
            _ => Err(self.wrong(key.to_string(), "one of `bfloat16`, `float16`, `float32`")),
        }
    }

    /// What the configuration says that the program has not, beside what is left out of every model
    /// of its type.
    fn left_out(&self, rotary: bool) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(quantized) = self.keys.get("quantization_config").filter(|v| !v.is_null()) {
            let method =
                quantized.get("quant_method").and_then(Value::as_str).filter(|m| m.len() <= 30);
            let plain =
                method.filter(|m| m.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)));
            let bits = quantized
                .get("bits")
                .and_then(Value::as_u64)
                .map_or(String::new(), |bits| format!(" to {bits} bits"));
            out.push(format!(
                "quantisation of the weights{bits} ({})",
                plain.unwrap_or("`quantization_config`")
            ));
        }
        let base = self
            .keys
            .get("rope_theta")
            .or(self.keys.get("rotary_emb_base"))
            .and_then(Value::as_f64);
        if rotary && base.is_some_and(|base| base != ROPE_BASE) {
            out.push(format!(
                "the base of the rotary embedding ({}; `rope` has {ROPE_BASE})",
                base.unwrap_or_default()
            ));
        }
        if self.keys.get("rope_scaling").is_some_and(|v| !v.is_null()) {
            out.push("the scaling of the rotary embedding".to_string());
        }
        let known =
            |key: &&String| !READ.contains(&key.as_str()) && !NO_MATTER.contains(&key.as_str());
        let says_something = |key: &&String| {
            !matches!(self.keys.get(*key), None | Some(Value::Null | Value::Bool(false)))
        };
        let named = |key: &&String| {
            key.len() <= 60 && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let rest: Vec<String> = self
            .keys
            .keys()
            .filter(known)
            .filter(says_something)
            .filter(named)
            .map(|key| format!("`{key}`"))
            .collect();
        if !rest.is_empty() {
            out.push(format!("what else the configuration says: {}", rest.join(", ")));
        }
        out
    }

    /// The map of a feed-forward layer, as the language calls it.
    fn map(&self, keys: &[&str]) -> Result<&'static str, ConfigProblem> {
        let name = self.text(keys)?;
        match name.as_str() {
            "silu" | "swish" => Ok("silu"),
            "gelu" | "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok("gelu"),
            "relu" => Ok("relu"),
            _ => Err(self.wrong(
                keys.join(" or "),
                "one of `silu`, `swish`, `gelu`, `gelu_new`, `gelu_fast`, `relu`",
            )),
        }
    }

    /// The size of a head, where the heads share the width.
    fn part(&self, width: u64, heads: u64, key: &'static str) -> Result<u64, ConfigProblem> {
        match width.is_multiple_of(heads) {
            true => Ok(width / heads),
            false => Err(ConfigProblem::Indivisible {
                what: "the width",
                size: width,
                by: key,
                parts: heads,
                span: self.span(key),
            }),
        }
    }

    /// What the model is called: by the configuration where that is a plain name, else by its type.
    fn title(&self, kind: &str) -> String {
        let name = self.keys.get("_name_or_path").and_then(Value::as_str).unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if !name.is_empty() && name.len() <= 60 && name.chars().all(plain) {
            format!("{name} ({kind})")
        } else {
            format!("a {kind} model")
        }
    }

    fn wrong(&self, key: String, wanted: &str) -> ConfigProblem {
        ConfigProblem::Value { span: self.span(&key), key, wanted: wanted.to_string() }
    }

    /// Where a key stands.
    fn span(&self, key: &str) -> Span {
        let quoted = format!("\"{key}\"");
        self.file.text.find(&quoted).map_or(Span::new(0, 0), |at| Span::new(at, at + quoted.len()))
    }
}

/// What JSON's reader says, at its place.
fn not_json(file: &SourceFile, error: &serde_json::Error) -> ConfigProblem {
    let before: usize =
        file.text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let mut at = (before + error.column().saturating_sub(1)).min(file.text.len());
    while !file.text.is_char_boundary(at) {
        at -= 1;
    }
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default().to_string();
    ConfigProblem::NotJson { message, span: Span::new(at, at) }
}
