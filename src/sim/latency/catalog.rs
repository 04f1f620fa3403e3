//! The models that need no configuration file (spec, simulator 17.5), and the GPUs on which they run unless the user
//! says otherwise.
//!
//! The numbers are those which their makers publish.

use std::num::NonZeroU32;

use super::error::Error;
use super::shape::{Experts, Shape};
use crate::engine::config::suggest;

/// A bundled model.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its name without its maker's, in lower case.
    pub(super) name: &'static str,
    /// How many H100 it runs on by default.
    pub(super) tp: NonZeroU32,
    pub(super) shape: Shape,
}

/// The GPU on which bundled models run by default.
pub(super) const DEFAULT_HARDWARE: &str = "H100";

/// What most of them have in common.
const COMMON: Shape = Shape {
    layers: 32,
    hidden: 4096,
    heads: 32,
    kv_heads: 8,
    head_dim: None,
    dense_width: 14336,
    vocabulary: 32000,
    tied_embeddings: false,
    value_bytes: 2.0,
    weight_bytes: 2.0,
    experts: None,
    latent_width: None,
    context: Some(131_072),
};

/// Every bundled model, by name.
const TABLE: &[Entry] = &[
    Entry {
        name: "codellama-34b-instruct-hf",
        tp: gpus(2),
        shape: Shape {
            layers: 48,
            hidden: 8192,
            heads: 64,
            dense_width: 22016,
            context: Some(16384),
            ..COMMON
        },
    },
    Entry {
        name: "deepseek-v2-lite",
        tp: gpus(1),
        shape: Shape {
            layers: 27,
            hidden: 2048,
            heads: 16,
            kv_heads: 16,
            dense_width: 10944,
            vocabulary: 102_400,
            experts: Some(Experts {
                count: 64,
                per_token: 6,
                width: 1408,
                shared_width: 2 * 1408,
                leading_dense: 1,
                interleave: 0,
            }),
            latent_width: Some(512 + 64),
            context: Some(163_840),
            ..COMMON
        },
    },
    Entry {
        name: "glm-5.2-fp8",
        tp: gpus(16),
        shape: Shape {
            layers: 78,
            hidden: 6144,
            heads: 64,
            kv_heads: 64,
            head_dim: Some(192),
            dense_width: 12288,
            vocabulary: 154_880,
            weight_bytes: 1.0,
            experts: Some(Experts {
                count: 256,
                per_token: 8,
                width: 2048,
                shared_width: 2048,
                leading_dense: 3,
                interleave: 0,
            }),
            latent_width: Some(512 + 64),
            context: Some(1_048_576),
            ..COMMON
        },
    },
    Entry {
        name: "llama-2-7b-hf",
        tp: gpus(1),
        shape: Shape {
            kv_heads: 32,
            dense_width: 11008,
            context: Some(4096),
            ..COMMON
        },
    },
    Entry {
        name: "llama-3.1-70b-instruct",
        tp: gpus(4),
        shape: Shape {
            layers: 80,
            hidden: 8192,
            heads: 64,
            dense_width: 28672,
            vocabulary: 128_256,
            ..COMMON
        },
    },
    Entry {
        name: "llama-3.1-8b-instruct",
        tp: gpus(1),
        shape: Shape {
            vocabulary: 128_256,
            ..COMMON
        },
    },
    Entry {
        name: "llama-4-scout-17b-16e-instruct-fp8-dynamic",
        tp: gpus(2),
        shape: Shape {
            layers: 48,
            hidden: 5120,
            heads: 40,
            head_dim: Some(128),
            dense_width: 16384,
            vocabulary: 202_048,
            weight_bytes: 1.0,
            experts: Some(Experts {
                count: 16,
                per_token: 1,
                width: 8192,
                shared_width: 0,
                leading_dense: 0,
                interleave: 1,
            }),
            context: Some(10_485_760),
            ..COMMON
        },
    },
    Entry {
        name: "mistral-nemo-instruct-2407",
        tp: gpus(1),
        shape: Shape {
            layers: 40,
            hidden: 5120,
            head_dim: Some(128),
            vocabulary: 131_072,
            ..COMMON
        },
    },
    Entry {
        name: "mixtral-8x7b-v0.1",
        tp: gpus(2),
        shape: Shape {
            experts: Some(Experts {
                count: 8,
                per_token: 2,
                width: 14336,
                shared_width: 0,
                leading_dense: 0,
                interleave: 0,
            }),
            context: Some(32768),
            ..COMMON
        },
    },
    Entry {
        name: "qwen2.5-7b-instruct",
        tp: gpus(1),
        shape: Shape {
            layers: 28,
            hidden: 3584,
            heads: 28,
            kv_heads: 4,
            dense_width: 18944,
            vocabulary: 152_064,
            context: Some(32768),
            ..COMMON
        },
    },
    Entry {
        name: "qwen3-14b",
        tp: gpus(1),
        shape: Shape {
            layers: 40,
            hidden: 5120,
            heads: 40,
            head_dim: Some(128),
            dense_width: 17408,
            vocabulary: 151_936,
            context: Some(40960),
            ..COMMON
        },
    },
    Entry {
        name: "qwen3-30b-a3b",
        tp: gpus(1),
        shape: Shape {
            layers: 48,
            hidden: 2048,
            kv_heads: 4,
            head_dim: Some(128),
            dense_width: 6144,
            vocabulary: 151_936,
            experts: Some(Experts {
                count: 128,
                per_token: 8,
                width: 768,
                shared_width: 0,
                leading_dense: 0,
                interleave: 0,
            }),
            context: Some(40960),
            ..COMMON
        },
    },
    Entry {
        name: "yi-34b",
        tp: gpus(2),
        shape: Shape {
            layers: 60,
            hidden: 7168,
            heads: 56,
            dense_width: 20480,
            vocabulary: 64000,
            context: Some(4096),
            ..COMMON
        },
    },
];

/// The names of the bundled models, in alphabetical order.
pub fn known_models() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|entry| entry.name)
}

/// The bundled model of that name: the part after the last slash, in any case.
pub(super) fn find(name: &str) -> Option<&'static Entry> {
    let short = short(name);
    TABLE.iter().find(|entry| entry.name.eq_ignore_ascii_case(short))
}

/// Says that no bundled model is called `name`, and which one may be meant.
pub(super) fn unknown(name: &str) -> Error {
    let short = short(name).to_ascii_lowercase();
    let begun = known_models().find(|known| !short.is_empty() && known.starts_with(&short));
    let known = match begun {
        Some(begun) => format!(
            "did you mean `{begun}`? known models: {}",
            suggest::listed(known_models())
        ),
        None => suggest::or_known(&short, "known models", known_models()),
    };
    Error::UnknownModel {
        name: name.to_owned(),
        known,
    }
}

fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name).trim()
}

const fn gpus(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).expect("a model runs on at least one GPU")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_in_lower_case() {
        let names: Vec<_> = known_models().collect();

        assert_eq!(names.len(), 13);
        assert!(names.is_sorted());
        for name in names {
            assert_eq!(name, name.to_ascii_lowercase());
        }
    }

    #[test]
    fn a_model_is_found_by_the_part_after_the_slash_in_any_case() {
        for name in ["qwen/qwen3-14b", "Qwen/Qwen3-14B", "qwen3-14b"] {
            assert_eq!(find(name).map(|entry| entry.name), Some("qwen3-14b"), "{name}");
        }
        assert!(find("qwen3-14b/").is_none());
    }

    #[test]
    fn an_unknown_model_is_answered_with_what_may_be_meant_and_the_way_to_use_any_other() {
        let slip = unknown("qwen/qwen3-14").to_string();
        let begun = unknown("meta-llama/Llama-3.1-8B").to_string();
        let strange = unknown("gpt2").to_string();

        assert!(
            slip.starts_with("unknown model `qwen/qwen3-14`: did you mean `qwen3-14b`? known models: `codellama"),
            "{slip}"
        );
        assert!(begun.contains("did you mean `llama-3.1-8b-instruct`?"), "{begun}");
        assert!(strange.starts_with("unknown model `gpt2`: known models: "), "{strange}");
        assert!(strange.contains("`--model-config FILE`"), "{strange}");
    }
}
