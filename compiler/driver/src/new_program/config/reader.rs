//! The keys of a configuration. Which keys were read is remembered, so that the others can be
//! listed as left out.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};
use shard_check::diagnostics::ConfigProblem;
use shard_grammar::{SourceFile, Span};
use shard_ir::Dtype;

use super::super::model::{Block, Embedding, Model, SCALES, Scores};
use super::super::order::Piece;

/// The largest size that a configuration may state.
const LARGEST: u64 = 1 << 32;
/// The most layers of several kinds.
const MOST_LAYERS: u64 = 1 << 12;
/// Factors and bounds must lie between this and its inverse.
const SMALLEST: f64 = 1e-6;

/// Keys that state no sizes, layouts or times, separated by blanks: names, tokens, training, and
/// how a library runs the model.
const NO_MATTER: &str = "architectures transformers_version auto_map task_specific_params bos_token_id eos_token_id \
    pad_token_id sep_token_id unk_token_id decoder_start_token_id initializer_range rms_norm_eps \
    layer_norm_eps layer_norm_epsilon norm_eps attention_dropout hidden_dropout attn_pdrop \
    embd_pdrop resid_pdrop summary_activation summary_first_dropout summary_proj_to_labels \
    summary_type summary_use_proj pretraining_tp use_cache router_aux_loss_coef \
    output_router_logits router_jitter_noise classifier_dropout gradient_checkpointing id2label \
    label2id is_decoder output_attentions output_hidden_states return_dict scale_attn_weights \
    reorder_and_upcast_attn scale_attn_by_inverse_layer_idx pad_vocab_size cache_implementation \
    layer_norm_rms_eps embedding_dropout embd_dropout head_dropout attention_softmax_in_fp32 \
    masked_softmax_fusion bias_dropout_fusion slow_but_exact seq_length unk_token \
    original_max_position_embeddings max_length _attn_implementation_autoset aux_loss_alpha \
    seq_aux ep_size output_past use_flash_attn image_token_index boi_token_index eoi_token_index \
    mm_tokens_per_image router_z_loss_coef initial_context_length torchscript for_llm_compressor \
    layer_norm_bias_eps skip_bias_add skip_bias_add_qkv offset_alibi vocab_file tokenizer_class \
    attn_implementation _attn_implementation";

/// Replaces `rope_parameters` of transformers 5 by the keys of earlier versions: the base, and the
/// part of a head that turns, of all layers or of each kind of layer. The key stays where it scales
/// the embedding.
fn lift_rope_parameters(keys: &mut Map<String, Value>) {
    let Some(Value::Object(rope)) = keys.get("rope_parameters").cloned() else { return };
    let of = |kind: &str| rope.get(kind).and_then(Value::as_object);
    let whole = of("full_attention").unwrap_or(&rope);
    let kinds = [Some(whole), of("sliding_attention")];
    let mut lift = |key: &str, value: Option<&Value>| {
        if let (Some(value), true) = (value, keys.get(key).is_none_or(Value::is_null)) {
            keys.insert(key.to_string(), value.clone());
        }
    };
    lift("rope_theta", whole.get("rope_theta"));
    lift("partial_rotary_factor", whole.get("partial_rotary_factor"));
    lift("rope_local_base_freq", kinds[1].and_then(|local| local.get("rope_theta")));
    let is_plain = |rope: &Map<String, Value>| {
        ["rope_type", "type"].iter().all(|key| rope.get(*key).is_none_or(|is| is == "default"))
    };
    if kinds.into_iter().flatten().all(is_plain) {
        keys.remove("rope_parameters");
    }
}

/// The base of the language's `rope`.
const ROPE_BASE: f64 = 10_000.0;

/// The value of a key that a configuration leaves out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Assumed {
    Number(u64),
    Word(&'static str),
}

/// The keys of a configuration, and its text for the places of errors.
pub(super) struct Config<'a> {
    /// The file.
    pub file: &'a SourceFile,
    keys: Map<String, Value>,
    read: RefCell<BTreeSet<String>>,
    /// Keys that the configuration leaves out, each with the value that it was given.
    assumed: Vec<String>,
}

impl<'a> Config<'a> {
    /// A configuration. Where the text model of several models has keys of its own, these come
    /// before the keys around them.
    pub(super) fn new(file: &'a SourceFile, keys: Map<String, Value>) -> Config<'a> {
        let mut keys = keys;
        if let Some(Value::Object(inner)) = keys.remove("text_config") {
            keys.extend(inner);
        }
        lift_rope_parameters(&mut keys);
        Config { file, keys, read: RefCell::default(), assumed: Vec::new() }
    }

    /// The same configuration with defaults for keys that are not there: files on Hugging Face
    /// leave out values that the library running the model has by default.
    pub(super) fn with_defaults(mut self, defaults: &[(&str, Assumed)]) -> Config<'a> {
        for (key, assumed) in defaults {
            if self.keys.get(*key).is_some_and(|value| !value.is_null()) {
                continue;
            }
            let value = match assumed {
                Assumed::Number(number) => Value::from(*number),
                Assumed::Word(word) => Value::from(*word),
            };
            self.assumed.push(format!("{key} = {value}"));
            self.keys.insert(key.to_string(), value);
        }
        self
    }

    /// The value of a key that is there and not null, which from now on counts as read.
    pub(super) fn at(&self, key: &str) -> Option<&Value> {
        self.read.borrow_mut().insert(key.to_string());
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// The first of some keys that is there and not null, with its value; all of them count as
    /// read.
    fn get(&self, keys: &[&str]) -> Result<(&Value, String), ConfigProblem> {
        for key in keys {
            self.at(key);
        }
        let found = keys.iter().find_map(|key| Some((self.at(key)?, key.to_string())));
        found.ok_or_else(|| ConfigProblem::Missing {
            keys: keys.iter().map(|key| key.to_string()).collect(),
            end: Span::new(0, self.file.text.find('{').map_or(0, |at| at + 1)),
        })
    }

    pub(super) fn text(&self, keys: &[&str]) -> Result<String, ConfigProblem> {
        let (value, key) = self.get(keys)?;
        value.as_str().map(str::to_string).ok_or_else(|| self.wrong(key, "a string"))
    }

    /// A size: positive, and small enough to be one.
    pub(super) fn number(&self, keys: &[&str]) -> Result<u64, ConfigProblem> {
        let (value, key) = self.get(keys)?;
        let size = value.as_u64().filter(|n| (1..=LARGEST).contains(n));
        size.ok_or_else(|| self.wrong(key, &format!("a whole number from 1 to {LARGEST}")))
    }

    pub(super) fn optional(&self, key: &str) -> Result<Option<u64>, ConfigProblem> {
        match self.at(key) {
            None => Ok(None),
            Some(_) => self.number(&[key]).map(Some),
        }
    }

    /// A number that may be absent or 0, which mean the same.
    pub(super) fn count(&self, key: &str) -> Result<u64, ConfigProblem> {
        match self.at(key) {
            Some(value) if value.as_u64() != Some(0) => self.number(&[key]),
            _ => Ok(0),
        }
    }

    /// A factor or a bound.
    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, ConfigProblem> {
        let Some(value) = self.at(key) else { return Ok(None) };
        let given = value.as_f64().filter(|f| (SMALLEST..=1.0 / SMALLEST).contains(f));
        let wanted = format!("a number from {SMALLEST} to {}", 1.0 / SMALLEST);
        given.map(Some).ok_or_else(|| self.wrong(key.to_string(), &wanted))
    }

    pub(super) fn is_true(&self, key: &str) -> bool {
        self.at(key) == Some(&Value::Bool(true))
    }

    /// Whether a key is true or says nothing.
    pub(super) fn is_not_false(&self, key: &str) -> bool {
        self.at(key) != Some(&Value::Bool(false))
    }

    /// The entry for a layer in the list of a key.
    pub(super) fn of_layer(&self, key: &str, layer: u64) -> Option<&Value> {
        self.at(key)?.as_array()?.get(usize::try_from(layer).ok()?)
    }

    /// Checks that a model with several kinds of layers has few enough.
    pub(super) fn few_layers(&self, layers: u64) -> Result<u64, ConfigProblem> {
        let wanted = format!("a whole number from 1 to {MOST_LAYERS}, of layers of several kinds");
        let few = Some(layers).filter(|layers| *layers <= MOST_LAYERS);
        few.ok_or_else(|| self.wrong("num_hidden_layers".to_string(), &wanted))
    }

    /// The dtype of the numbers: bf16 where none is stated.
    pub(super) fn dtype(&self) -> Result<Dtype, ConfigProblem> {
        let given = ["torch_dtype", "dtype"].into_iter().find(|key| self.at(key).is_some());
        let Some(key) = given else { return Ok(Dtype::Bf16) };
        match self.text(&[key])?.trim_start_matches("torch.") {
            "bfloat16" | "auto" => Ok(Dtype::Bf16),
            "float16" | "half" => Ok(Dtype::F16),
            "float32" | "float" => Ok(Dtype::F32),
            _ => Err(self.wrong(key.to_string(), "one of `bfloat16`, `float16`, `float32`")),
        }
    }

    /// The dtype in which quantisation stores the matrices, and what is left out of it. The dtype
    /// is `None` where the language does not have it.
    pub(super) fn quantisation(&self) -> Option<(Option<Dtype>, String)> {
        let quantized = self.at("quantization_config")?;
        let method = quantized.get("quant_method").and_then(Value::as_str);
        let plain = method.filter(|m| {
            m.len() <= 30 && m.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        });
        let bits = quantized.get("bits").and_then(Value::as_u64);
        let stored = match (plain, bits) {
            (Some("fp8"), _) => Some(Dtype::F8),
            (Some("mxfp4"), _) => Some(Dtype::F4),
            (_, Some(4)) => Some(Dtype::Int4),
            (_, Some(8)) => Some(Dtype::Int8),
            _ => None,
        };
        let bits = bits.map_or(String::new(), |bits| format!(" to {bits} bits"));
        let what = format!(
            "quantisation of the weights{bits} ({})",
            plain.unwrap_or("`quantization_config`")
        );
        let of = if stored.is_some() { "the scales of the " } else { "" };
        Some((stored, format!("{of}{what}")))
    }

    /// What the configuration states and the program leaves out, beside what is left out of every
    /// model of its type. `rotary`: the model has a rotary embedding; `scaled`: the program has the
    /// scales of the quantisation.
    pub(super) fn left_out(&self, rotary: bool, scaled: bool) -> Vec<String> {
        let mut out: Vec<String> =
            self.quantisation().filter(|_| !scaled).into_iter().map(|(_, what)| what).collect();
        for (key, what) in [
            ("vision_config", "the vision tower"),
            ("audio_config", "the audio tower"),
            ("num_nextn_predict_layers", "the layer that predicts a second token"),
        ] {
            if self.at(key).is_some_and(|value| value.as_u64() != Some(0)) {
                out.push(what.to_string());
            }
        }
        let bases = ["rope_theta", "rotary_emb_base", "rope_local_base_freq"];
        let base = bases.map(|key| self.at(key).and_then(Value::as_f64)).into_iter().flatten();
        if let Some(base) = base.into_iter().find(|base| rotary && *base != ROPE_BASE) {
            out.push(format!("the base of the rotary embedding ({base}; `rope` has {ROPE_BASE})"));
        }
        let scaling = self.at("rope_scaling").is_some() | self.at("rope_parameters").is_some();
        if scaling && rotary {
            out.push("the scaling of the rotary embedding".to_string());
        }
        let read = self.read.borrow();
        let unknown = |key: &&String| {
            !read.contains(*key) && !NO_MATTER.split(' ').any(|other| other == **key)
        };
        let says_something = |key: &&String| {
            !matches!(self.keys.get(*key), None | Some(Value::Null | Value::Bool(false)))
        };
        let named = |key: &&String| {
            key.len() <= 60 && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let rest: Vec<String> = self
            .keys
            .keys()
            .filter(unknown)
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
    pub(super) fn map(&self, keys: &[&str]) -> Result<&'static str, ConfigProblem> {
        let name = self.text(keys)?;
        match name.as_str() {
            "silu" | "swish" => Ok("silu"),
            "gelu" | "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok("gelu"),
            "relu" => Ok("relu"),
            _ => Err(self.wrong(
                self.get(keys)?.1,
                "one of `silu`, `swish`, `gelu`, `gelu_new`, `gelu_fast`, `relu`",
            )),
        }
    }

    /// The size of a head, where the heads share the width.
    pub(super) fn part(
        &self,
        width: u64,
        heads: u64,
        key: &'static str,
    ) -> Result<u64, ConfigProblem> {
        if width.is_multiple_of(heads) {
            Ok(width / heads)
        } else {
            Err(ConfigProblem::Indivisible {
                what: "the width",
                size: width,
                by: key,
                parts: heads,
                span: self.span(key),
            })
        }
    }

    /// The title of the model: its name in the configuration where that is plain, else its type.
    fn title(&self, kind: &str) -> String {
        let name = self.at("_name_or_path").and_then(Value::as_str).unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if !name.is_empty() && name.len() <= 60 && name.chars().all(plain) {
            format!("{name} ({kind})")
        } else {
            format!("a {kind} model")
        }
    }

    /// A model of so many layers of one kind, with an embedding and its inverse.
    pub(super) fn model(
        &self,
        kind: &'static str,
        dtype: Dtype,
        width: u64,
        norm: &'static str,
        layers: u64,
        block: Block,
    ) -> Result<Model, ConfigProblem> {
        Ok(Model {
            title: format!("The layers of {}", self.title(kind)),
            name: kind,
            left_out: vec![SCALES.to_string()],
            assumed: self.assumed.clone(),
            dtype,
            stored: dtype,
            block: None,
            stored_attention: dtype,
            tied: self.is_true("tie_word_embeddings"),
            width,
            norm,
            embedding: Embedding::default(),
            scores: Scores::default(),
            kinds: vec![block],
            pieces: vec![Piece { kinds: vec![0], times: layers }],
            vocabulary: Some(self.number(&["vocab_size"])?),
        })
    }

    pub(super) fn wrong(&self, key: String, wanted: &str) -> ConfigProblem {
        ConfigProblem::Value { span: self.span(&key), key, wanted: wanted.to_string() }
    }

    /// Where a key stands.
    pub(super) fn span(&self, key: &str) -> Span {
        let quoted = format!("\"{key}\"");
        self.file.text.find(&quoted).map_or(Span::new(0, 0), |at| Span::new(at, at + quoted.len()))
    }
}
