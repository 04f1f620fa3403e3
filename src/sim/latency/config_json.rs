//! Reads the `config.json` of a model on Hugging Face (spec, simulator 17.1 and 17.4).

use serde_json::{Map, Value};

use super::error::Error;
use super::shape::{Experts, Model, Shape};

/// Where the number of experts may stand, in the order of search.
const EXPERT_COUNTS: [&str; 5] = [
    "num_experts",
    "moe_num_experts",
    "n_routed_experts",
    "num_local_experts",
    "num_routed_experts",
];

/// The model that `text` describes.
pub(super) fn parse(name: &str, text: &str) -> Result<Model, Error> {
    let syntax = |problem: String| Error::ConfigSyntax {
        model: name.to_owned(),
        problem,
    };
    let value: Value = serde_json::from_str(text).map_err(|error| syntax(error.to_string()))?;
    let Value::Object(mut fields) = value else {
        return Err(syntax("expected an object".to_owned()));
    };
    // Of a model of several media, the part that reads and writes text is the one that is served.
    if let Some(Value::Object(nested)) = fields.remove("text_config") {
        fields.extend(nested.into_iter().filter(|(_, value)| !value.is_null()));
    }
    let config = Config { model: name, fields };

    let layers = config.needed(&["num_hidden_layers"])?;
    let hidden = config.needed(&["hidden_size"])?;
    let heads = config.needed(&["num_attention_heads"])?;
    if heads > hidden {
        return Err(config.wrong(
            "num_attention_heads",
            format!("is {heads}, expected no more than `hidden_size`, {hidden}"),
        ));
    }
    let kv_heads = config.count(&["num_key_value_heads", "num_kv_heads", "multi_query_group_num"])?;
    let width = config.needed(&["intermediate_size"])?;
    let value_bytes = config.value_bytes()?;
    let shape = Shape {
        layers,
        hidden,
        heads,
        kv_heads: kv_heads.unwrap_or(heads),
        head_dim: config.count(&["head_dim"])?,
        dense_width: config.count(&["intermediate_size_mlp"])?.unwrap_or(width),
        vocabulary: config.needed(&["vocab_size"])?,
        tied_embeddings: config.get("tie_word_embeddings").and_then(Value::as_bool) == Some(true),
        value_bytes,
        weight_bytes: config.weight_bytes()?.unwrap_or(value_bytes),
        experts: config.experts(width)?,
        latent_width: config.latent_width()?,
        context: config.context()?,
    };
    let activation = config.text("hidden_act").or_else(|| config.text("hidden_activation"));
    Ok(Model {
        name: name.to_owned(),
        shape,
        activation: activation.unwrap_or_default().to_owned(),
    })
}

/// The fields, and whose they are.
struct Config<'a> {
    model: &'a str,
    fields: Map<String, Value>,
}

impl Config<'_> {
    fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.get(field).and_then(Value::as_str)
    }

    fn wrong(&self, field: &'static str, problem: String) -> Error {
        Error::ConfigField {
            model: self.model.to_owned(),
            field,
            problem,
        }
    }

    /// A number of things under the first of these names that is there. Zero is as good as nothing.
    fn count(&self, names: &[&'static str]) -> Result<Option<u32>, Error> {
        for &field in names {
            let Some(value) = self.get(field) else { continue };
            match whole(value) {
                Some(0) => {}
                Some(count) => return Ok(Some(count)),
                None => {
                    return Err(self.wrong(field, format!("is {value}, expected a whole number up to {}", u32::MAX)));
                }
            }
        }
        Ok(None)
    }

    fn needed(&self, names: &[&'static str; 1]) -> Result<u32, Error> {
        self.count(names)?.ok_or_else(|| {
            self.wrong(
                names[0],
                "is missing or zero, expected a whole number above 0".to_owned(),
            )
        })
    }

    /// Bytes of an activation.
    fn value_bytes(&self) -> Result<f64, Error> {
        let known = "expected one of `float32`, `bfloat16`, `float16`, `int8`, `uint8`, `fp8`, `int4`, `nf4`";
        let named = self.text("torch_dtype").map(|name| ("torch_dtype", name));
        let Some((field, name)) = named.or_else(|| self.text("dtype").map(|name| ("dtype", name))) else {
            return Err(self.wrong("torch_dtype", format!("is missing, and so is `dtype`; {known}")));
        };
        match name.trim_start_matches("torch.").to_ascii_lowercase().as_str() {
            "float32" | "float" | "fp32" => Ok(4.0),
            "float16" | "bfloat16" | "half" | "fp16" | "bf16" => Ok(2.0),
            // Four bits count as a byte too: so they are computed with.
            "int8" | "uint8" | "fp8" | "float8_e4m3fn" | "float8_e5m2" | "int4" | "nf4" => Ok(1.0),
            _ => Err(self.wrong(field, format!("is `{name}`, {known}"))),
        }
    }

    /// Bytes of a weight, if they are quantised.
    fn weight_bytes(&self) -> Result<Option<f64>, Error> {
        let Some(quantization) = self.get("quantization_config") else {
            return Ok(bits_in_name(self.model).map(bytes));
        };
        let bits = |value: &Value, field| match value.as_f64() {
            Some(bits) if bits > 0.0 && bits <= 64.0 => Ok(Some(bytes(bits))),
            _ => Err(self.wrong(field, format!("is {value}, expected a number of bits from 1 to 64"))),
        };
        if let Some(value) = quantization.get("bits").filter(|value| !value.is_null()) {
            return bits(value, "quantization_config.bits");
        }
        match quantization.get("quant_method").and_then(Value::as_str) {
            Some("fp8") => return Ok(Some(1.0)),
            Some("compressed-tensors") => {
                let groups = quantization.get("config_groups").and_then(Value::as_object);
                let first = groups.and_then(|groups| groups.iter().min_by_key(|(name, _)| name.as_str()));
                let of_first = first.and_then(|(_, group)| group.get("weights")?.get("num_bits"));
                if let Some(value) = of_first.filter(|value| !value.is_null()) {
                    return bits(value, "quantization_config.config_groups.*.weights.num_bits");
                }
            }
            _ => {}
        }
        Ok(bits_in_name(self.model).map(bytes))
    }

    fn experts(&self, width: u32) -> Result<Option<Experts>, Error> {
        let mut count = None;
        for field in EXPERT_COUNTS {
            count = count.or(self.count(&[field])?.filter(|&count| count >= 2));
        }
        let Some(count) = count else { return Ok(None) };
        let per_token = self.needed(&["num_experts_per_tok"])?;
        if per_token > count {
            return Err(self.wrong(
                "num_experts_per_tok",
                format!("is {per_token}, expected no more than there are experts, {count}"),
            ));
        }
        let width = self.count(&["moe_intermediate_size"])?.unwrap_or(width);
        let shared_width = match self.count(&["shared_expert_intermediate_size"])? {
            Some(shared_width) => shared_width,
            None => self.count(&["n_shared_experts"])?.unwrap_or(0).saturating_mul(width),
        };
        Ok(Some(Experts {
            count,
            per_token,
            width,
            shared_width,
            leading_dense: self.count(&["first_k_dense_replace"])?.unwrap_or(0),
            interleave: self.count(&["interleave_moe_layer_step"])?.unwrap_or(0),
        }))
    }

    fn latent_width(&self) -> Result<Option<u32>, Error> {
        let Some(rank) = self.count(&["kv_lora_rank"])? else {
            return Ok(None);
        };
        let positions = self.count(&["qk_rope_head_dim"])?.unwrap_or(0);
        Ok(Some(rank.saturating_add(positions)))
    }

    /// The longest sequence, stretched by rope scaling where `max_position_embeddings` is what was trained.
    fn context(&self) -> Result<Option<u32>, Error> {
        let Some(positions) = self.count(&["max_position_embeddings"])? else {
            return Ok(None);
        };
        let is_gemma = self.text("model_type").is_some_and(|kind| kind.starts_with("gemma3"));
        let scaling = self.get("rope_scaling").or_else(|| self.get("rope_parameters"));
        let Some(scaling) = scaling.filter(|_| !is_gemma) else {
            return Ok(Some(positions));
        };
        let kind = scaling.get("rope_type").or_else(|| scaling.get("type"));
        let base = match kind.and_then(Value::as_str) {
            Some("su" | "longrope" | "llama3") => return Ok(Some(positions)),
            Some("yarn") => scaling
                .get("original_max_position_embeddings")
                .and_then(whole)
                .filter(|&original| original > 0)
                .unwrap_or(positions),
            _ => positions,
        };
        let factor = scaling
            .get("factor")
            .and_then(Value::as_f64)
            .filter(|&factor| factor > 1.0);
        // The cast cuts to a whole number, of at most `u32::MAX`.
        Ok(Some(factor.map_or(base, |factor| (f64::from(base) * factor) as u32)))
    }
}

/// A number that is whole and not negative, be it written as 8 or as 8.0.
fn whole(value: &Value) -> Option<u32> {
    let number = value.as_f64()?;
    (number >= 0.0 && number <= f64::from(u32::MAX) && number.fract() == 0.0).then_some(number as u32)
}

fn bytes(bits: f64) -> f64 {
    bits / 8.0
}

/// Bits of a weight by the name of a model: 4 for `...w4a16`, 8 for `...-fp8`.
fn bits_in_name(name: &str) -> Option<f64> {
    let name = name.to_ascii_lowercase();
    let scheme = name.match_indices('w').find_map(|(at, _)| {
        let rest = &name[at + 1..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (bits, activations) = rest.split_at(digits);
        let is_scheme = activations.strip_prefix('a')?.starts_with(|c: char| c.is_ascii_digit());
        let bits: f64 = bits.parse().ok()?;
        (is_scheme && (1.0..=64.0).contains(&bits)).then_some(bits)
    });
    scheme.or_else(|| name.contains("fp8").then_some(8.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A small dense model, with some fields changed; null takes one away.
    fn config(changes: &Value) -> String {
        let mut config = json!({
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "vocab_size": 1000,
            "torch_dtype": "bfloat16",
            "max_position_embeddings": 4096,
        });
        let fields = config.as_object_mut().expect("it is an object");
        fields.extend(changes.as_object().expect("changes are an object").clone());
        config.to_string()
    }

    fn shape(changes: &Value) -> Shape {
        parse("some", &config(changes)).expect("it is right").shape
    }

    fn message(changes: &Value) -> String {
        parse("some", &config(changes)).expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_field_that_is_needed_and_missing_is_named() {
        for field in [
            "num_hidden_layers",
            "hidden_size",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
        ] {
            for value in [json!(null), json!(0)] {
                assert_eq!(
                    message(&json!({ field: value })),
                    format!(
                        "the configuration of model `some`: `{field}` is missing or zero, expected a whole number above 0"
                    )
                );
            }
        }
        assert!(message(&json!({"torch_dtype": null})).contains("`torch_dtype` is missing, and so is `dtype`"));
    }

    #[test]
    fn a_field_that_makes_no_sense_is_named_with_what_it_says() {
        for (changes, part) in [
            (
                json!({"num_hidden_layers": "two"}),
                "`num_hidden_layers` is \"two\", expected a whole number",
            ),
            (
                json!({"hidden_size": -1}),
                "`hidden_size` is -1, expected a whole number",
            ),
            (json!({"head_dim": 1.5}), "`head_dim` is 1.5, expected a whole number"),
            (
                json!({"num_attention_heads": 65}),
                "is 65, expected no more than `hidden_size`, 64",
            ),
            (
                json!({"torch_dtype": "float7"}),
                "`torch_dtype` is `float7`, expected one of `float32`",
            ),
            (json!({"num_experts": 4}), "`num_experts_per_tok` is missing or zero"),
            (
                json!({"num_experts": 4, "num_experts_per_tok": 5}),
                "is 5, expected no more than there are experts, 4",
            ),
            (
                json!({"quantization_config": {"bits": 0}}),
                "`quantization_config.bits` is 0, expected",
            ),
        ] {
            assert!(message(&changes).contains(part), "{}", message(&changes));
        }
        assert!(
            parse("some", "{")
                .expect_err("it is cut off")
                .to_string()
                .contains("is not JSON")
        );
        assert!(
            parse("some", "[]")
                .expect_err("it is a list")
                .to_string()
                .contains("expected an object")
        );
    }

    #[test]
    fn what_is_nested_in_a_text_config_counts_more_than_what_is_beside_it() {
        let nested = shape(&json!({"text_config": {"num_hidden_layers": 7, "hidden_size": null}}));

        assert_eq!((nested.layers, nested.hidden), (7, 64));
    }

    #[test]
    fn kv_heads_have_several_names_and_are_else_as_many_as_heads() {
        for (changes, heads) in [
            (json!({}), 4),
            (json!({"num_key_value_heads": 2, "num_kv_heads": 1}), 2),
            (json!({"num_kv_heads": 1}), 1),
            (json!({"multi_query_group_num": 2}), 2),
        ] {
            assert_eq!(shape(&changes).kv_heads, heads, "{changes}");
        }
    }

    #[test]
    fn the_bytes_of_a_weight_follow_quantisation_then_name_then_type() {
        let of = |name, changes: Value| {
            let shape = parse(name, &config(&changes)).expect("it is right").shape;
            (shape.value_bytes, shape.weight_bytes)
        };
        let compressed = json!({"quantization_config": {"quant_method": "compressed-tensors", "config_groups":
            {"group_0": {"weights": {"num_bits": 8}}}}});

        assert_eq!(of("some", json!({"torch_dtype": "float32"})), (4.0, 4.0));
        assert_eq!(
            of("some", json!({"torch_dtype": null, "dtype": "torch.float16"})),
            (2.0, 2.0)
        );
        assert_eq!(of("w4a16", json!({"quantization_config": {"bits": 8}})), (2.0, 1.0));
        assert_eq!(
            of("some", json!({"quantization_config": {"quant_method": "fp8"}})),
            (2.0, 1.0)
        );
        assert_eq!(of("w4a16", compressed), (2.0, 1.0));
        assert_eq!(
            of("some-quantized.w4a16", json!({"quantization_config": {}})),
            (2.0, 0.5)
        );
        assert_eq!(of("some-FP8-dynamic", json!({})), (2.0, 1.0));
        assert_eq!(of("new-wave-w8", json!({})), (2.0, 2.0));
    }

    #[test]
    fn experts_are_looked_up_in_order_and_one_alone_is_none() {
        let of = |changes: Value| shape(&changes).experts;
        let four = of(
            json!({"n_routed_experts": 4, "num_local_experts": 8, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "n_shared_experts": 3, "first_k_dense_replace": 1}),
        );

        assert_eq!(of(json!({"num_experts": 1})), None);
        assert_eq!(
            four,
            Some(Experts {
                count: 4,
                per_token: 2,
                width: 32,
                shared_width: 96,
                leading_dense: 1,
                interleave: 0,
            })
        );
        let later = of(
            json!({"num_experts": 1, "num_local_experts": 8, "num_experts_per_tok": 2,
            "shared_expert_intermediate_size": 50, "n_shared_experts": 3, "interleave_moe_layer_step": 1}),
        );
        assert_eq!(
            later,
            Some(Experts {
                count: 8,
                per_token: 2,
                width: 128,
                shared_width: 50,
                leading_dense: 0,
                interleave: 1,
            })
        );
    }

    #[test]
    fn rope_scaling_stretches_the_context_unless_its_kind_has_done_so_already() {
        let of = |changes: Value| shape(&changes).context;
        let scaled = |kind: &str, more: Value| {
            let mut scaling = json!({"rope_type": kind, "factor": 8.0});
            scaling
                .as_object_mut()
                .expect("it is an object")
                .extend(more.as_object().cloned().unwrap_or_default());
            of(json!({ "rope_scaling": scaling }))
        };

        assert_eq!(of(json!({"max_position_embeddings": null})), None);
        assert_eq!(of(json!({})), Some(4096));
        assert_eq!(scaled("linear", json!({})), Some(32768));
        assert_eq!(scaled("linear", json!({"factor": 0.5})), Some(4096));
        assert_eq!(scaled("linear", json!({"factor": "much"})), Some(4096));
        for kind in ["su", "longrope", "llama3"] {
            assert_eq!(scaled(kind, json!({})), Some(4096), "{kind}");
        }
        assert_eq!(
            scaled("yarn", json!({"original_max_position_embeddings": 1000})),
            Some(8000)
        );
        assert_eq!(
            of(json!({"rope_scaling": {"type": "dynamic", "factor": 2}})),
            Some(8192)
        );
        assert_eq!(
            of(json!({"model_type": "gemma3_text", "rope_scaling": {"type": "linear", "factor": 8}})),
            Some(4096)
        );
    }
}
