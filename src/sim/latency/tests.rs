//! The numbers of the specification, and what holds for every model of time.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::sim::instance::{LinearStepTime, Phase, ScheduledTokens};

fn count(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("it is not zero")
}

fn prefill(prompt: u32, context: u32, new: u32) -> ScheduledTokens {
    ScheduledTokens {
        phase: Phase::Prefill,
        prompt,
        context,
        new,
    }
}

fn decode(prompt: u32, context: u32) -> ScheduledTokens {
    ScheduledTokens {
        phase: Phase::Decode,
        prompt,
        context,
        new: 1,
    }
}

/// The batches of the specification's table: one prefill, a chunk of one, one decode, 32 decodes, and those with the
/// first.
fn batches() -> [Vec<ScheduledTokens>; 5] {
    let decodes: Vec<_> = (600..632).map(|context| decode(512, context)).collect();
    let mut mixed = decodes.clone();
    mixed.push(prefill(512, 0, 512));
    [
        vec![prefill(512, 0, 512)],
        vec![prefill(2048, 512, 256)],
        vec![decode(512, 512)],
        decodes,
        mixed,
    ]
}

fn step_times(latency: &dyn LatencyModel) -> [u128; 5] {
    batches().map(|batch| latency.step_time(&batch).as_micros())
}

fn resolved(spec: &Spec<'_>) -> Resolved {
    resolve(spec).expect("everything is known and fits")
}

fn refused(spec: &Spec<'_>) -> String {
    resolve(spec).expect_err("something is wrong").to_string()
}

/// Model, GPUs, GPU; step times by trained-physics and by roofline; bytes of a token; KV blocks if the model fits.
type Row = (&'static str, u32, &'static str, [u128; 5], [u128; 5], u64, Option<u32>);

/// Spec, simulator 36.4.
#[rustfmt::skip]
const VECTORS: [Row; 16] = [
    ("qwen3-14b", 1, "H100", [14291, 13271, 12210, 14177, 16311], [22428, 11396, 5784, 6728, 24563], 163840, Some(15909)),
    ("qwen3-14b", 1, "A100-80", [25825, 22592, 19152, 22295, 29053], [84234, 42803, 9503, 11283, 95518], 163840, Some(15909)),
    ("qwen3-14b", 1, "L40S", [48905, 46119, 43274, 50506, 56330], [86200, 43802, 22428, 26086, 108079], 163840, Some(4113)),
    ("llama-3.1-8b-instruct", 1, "H100", [7965, 7429, 6873, 8474, 9609], [11884, 6059, 3065, 3819, 13019], 131072, Some(26312)),
    ("llama-3.1-8b-instruct", 2, "H100", [4621, 4323, 4015, 4888, 5518], [5942, 3029, 1532, 1909, 6509], 65536, Some(125278)),
    ("qwen2.5-7b-instruct", 1, "H100", [7388, 6885, 6354, 7131, 8187], [10753, 5466, 2769, 3100, 11777], 57344, Some(61048)),
    ("llama-2-7b-hf", 1, "H100", [7476, 6980, 6581, 12574, 13629], [11730, 5982, 3085, 6094, 12850], 524288, Some(6886)),
    ("llama-3.1-70b-instruct", 4, "H100", [19804, 18247, 16643, 17722, 20913], [28745, 14519, 7424, 7897, 31466], 81920, Some(121801)),
    ("mistral-nemo-instruct-2407", 1, "H100", [12560, 11681, 10772, 13196, 15050], [19775, 10070, 5102, 6280, 21661], 163840, Some(17512)),
    ("codellama-34b-instruct-hf", 2, "H100", [18025, 16647, 15211, 16457, 19304], [28476, 14413, 7347, 7914, 31176], 98304, Some(50822)),
    ("yi-34b", 2, "H100", [18553, 17159, 15706, 17227, 20116], [28613, 14498, 7380, 8089, 31330], 122880, Some(40001)),
    ("mixtral-8x7b-v0.1", 2, "H100", [21114, 20594, 20065, 20937, 22011], [10263, 9400, 2654, 9761, 11236], 65536, Some(48956)),
    ("qwen3-30b-a3b", 1, "H100", [26002, 25834, 25636, 26322, 26707], [11846, 11835, 999, 10637, 12138], 98304, Some(5276)),
    ("deepseek-v2-lite", 1, "H100", [14284, 14107, 13971, 16578, 16961], [6270, 6279, 862, 7268, 7574], 31104, Some(74312)),
    ("llama-4-scout-17b-16e-instruct-fp8-dynamic", 2, "H100", [25507, 25219, 24933, 26175, 26783], [5912, 5900, 1367, 5831, 6493], 98304, Some(27345)),
    ("glm-5.2-fp8", 8, "H100", [42473, 42095, 41776, 44612, 45386], [19244, 19248, 1062, 13813, 20657], 89856, None),
];

#[test]
fn step_times_and_capacities_are_those_of_the_specification() {
    for (model, tp, hardware, physics, roofline, kv_bytes, blocks) in VECTORS {
        let label = format!("{model} on {tp} {hardware}");
        let spec = Spec {
            model,
            hardware: Some(hardware),
            tp: Some(count(tp)),
            ..Spec::default()
        };
        match blocks {
            Some(blocks) => assert_eq!(resolved(&spec).kv_blocks, count(blocks), "{label}"),
            None => assert!(refused(&spec).contains("does not fit"), "{label}"),
        }
        for (backend, expected) in [(Backend::TrainedPhysics, physics), (Backend::Roofline, roofline)] {
            let found = resolved(&Spec {
                backend,
                total_kv_blocks: Some(count(1)),
                ..spec.clone()
            });
            let server = found.server.expect("it has a model");

            assert_eq!(step_times(&*found.latency), expected, "{label}, {backend}");
            assert_eq!(server.kv_bytes_per_token(), kv_bytes, "{label}");
            assert!(
                server
                    .single_decode()
                    .contains(&(backend, Duration::from_micros(expected[2] as u64))),
                "{label}, {backend}"
            );
        }
    }
}

#[test]
fn the_run_that_can_be_checked_by_hand_has_its_times() {
    let latency = resolved(&Spec {
        model: "qwen/qwen3-14b",
        ..Spec::default()
    })
    .latency;

    assert_eq!(latency.queueing_time(32), Duration::from_micros(15563));
    assert_eq!(latency.step_time(&[prefill(32, 0, 32)]), Duration::from_micros(12291));
    assert_eq!(latency.step_time(&[decode(32, 32)]), Duration::from_micros(12164));
    assert_eq!(latency.step_time(&[decode(32, 33)]), Duration::from_micros(12164));
    assert_eq!(latency.output_token_time(), Duration::from_micros(45));
    assert_eq!(latency.completion_time(), Duration::from_micros(777));
}

/// Computed from the formulas of the specification by an independent program.
#[test]
fn experts_that_are_spread_over_groups_cost_communication_by_its_family() {
    for (model, tp, dp, all_gather, all_to_all, blocks) in [
        (
            "qwen3-30b-a3b",
            1,
            4,
            [8038, 7992, 7938, 8213, 8321],
            [8098, 8022, 7938, 8217, 8384],
            21104,
        ),
        (
            "qwen3-30b-a3b",
            2,
            2,
            [7874, 7818, 7754, 8030, 8158],
            [7992, 7877, 7754, 8037, 8284],
            214_846,
        ),
        (
            "mixtral-8x7b-v0.1",
            2,
            2,
            [11416, 11152, 10884, 11389, 11936],
            [11439, 11164, 10884, 11390, 11960],
            97912,
        ),
        (
            "deepseek-v2-lite",
            2,
            4,
            [2947, 2920, 2899, 3345, 3406],
            [2975, 2934, 2899, 3347, 3435],
            909_564,
        ),
    ] {
        let spec = |name: &str| Spec {
            model,
            tp: Some(count(tp)),
            dp: count(dp),
            moe_communication: name.parse().expect("it is known"),
            ..Spec::default()
        };
        let (gathered, sent) = (resolved(&spec("naive")), resolved(&spec("pplx")));

        assert_eq!(step_times(&*gathered.latency), all_gather, "{model} {tp} {dp}");
        assert_eq!(step_times(&*sent.latency), all_to_all, "{model} {tp} {dp}");
        assert_eq!(gathered.kv_blocks, count(blocks), "{model} {tp} {dp}");
    }
}

/// Computed from the formulas of the specification by an independent program.
#[test]
fn fewer_weights_of_step_time_mean_the_larger_of_two_bounds_in_place_of_their_sum() {
    const BETA: [f64; 11] = [0.5, 0.25, 1.5, 0.75, 32.0, 4.0, 126.0, 480.0, 2.0, 3.0, 0.6];
    for (model, weights, expected) in [
        ("qwen3-14b", 7, [20240, 16890, 13248, 13606, 20610]),
        ("qwen3-14b", 8, [20240, 16890, 13248, 13606, 20610]),
        ("qwen3-14b", 9, [20290, 16915, 13248, 13606, 20660]),
        ("qwen3-14b", 10, [20290, 16915, 13323, 16477, 23531]),
        ("qwen3-14b", 11, [20290, 16915, 13323, 16477, 23531]),
        (
            "llama-4-scout-17b-16e-instruct-fp8-dynamic",
            7,
            [16235, 15418, 14515, 14787, 16515],
        ),
        (
            "llama-4-scout-17b-16e-instruct-fp8-dynamic",
            8,
            [27755, 26938, 26035, 26307, 28035],
        ),
        (
            "llama-4-scout-17b-16e-instruct-fp8-dynamic",
            9,
            [27785, 26953, 26035, 26307, 28065],
        ),
        (
            "llama-4-scout-17b-16e-instruct-fp8-dynamic",
            10,
            [27785, 26953, 26078, 27949, 29707],
        ),
    ] {
        let latency = resolved(&Spec {
            model,
            beta: Some(&BETA[..weights]),
            ..Spec::default()
        })
        .latency;

        assert_eq!(step_times(&*latency), expected, "{model}, {weights} weights");
    }
}

#[test]
fn overheads_can_be_given_without_weights() {
    let latency = resolved(&Spec {
        model: "qwen3-14b",
        alpha: Some(&[1.9, 2.0, 0.5]),
        ..Spec::default()
    })
    .latency;

    assert_eq!(latency.queueing_time(1000), Duration::from_micros(1));
    assert_eq!(latency.completion_time(), Duration::from_micros(2));
    assert_eq!(latency.output_token_time(), Duration::ZERO);
    assert_eq!(latency.step_time(&batches()[2]), Duration::from_micros(12210));
}

#[test]
fn roofline_takes_time_for_steps_only() {
    let latency = resolved(&Spec {
        model: "qwen3-14b",
        backend: Backend::Roofline,
        ..Spec::default()
    })
    .latency;

    assert_eq!(latency.queueing_time(1000), Duration::ZERO);
    assert_eq!(latency.output_token_time(), Duration::ZERO);
    assert_eq!(latency.completion_time(), Duration::ZERO);
}

#[test]
fn coefficients_that_make_no_sense_are_refused() {
    let with = |backend, alpha: Option<&[f64]>, beta: Option<&[f64]>| {
        refused(&Spec {
            model: "qwen3-14b",
            backend,
            alpha,
            beta,
            ..Spec::default()
        })
    };
    let physics = Backend::TrainedPhysics;

    assert_eq!(
        with(physics, None, Some(&[1.0; 6])),
        "the latency model `trained-physics` takes 7 to 11 `--beta-coeffs`, found 6"
    );
    assert!(with(physics, None, Some(&[1.0; 12])).contains("found 12"));
    assert!(with(physics, Some(&[1.0; 2]), None).contains("takes 3 `--alpha-coeffs`, found 2"));
    assert_eq!(
        with(physics, None, Some(&[1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0])),
        "coefficient 3 of `--beta-coeffs` is -1, expected a number that is not negative"
    );
    assert!(with(physics, Some(&[f64::NAN, 0.0, 0.0]), None).contains("coefficient 1 of `--alpha-coeffs` is NaN"));
    assert!(with(physics, Some(&[0.0, f64::INFINITY, 0.0]), None).contains("coefficient 2 of `--alpha-coeffs` is inf"));
    assert!(with(Backend::Roofline, Some(&[0.0; 3]), None).contains("`roofline` has no coefficients"));
    assert!(with(Backend::Roofline, None, Some(&[0.0; 7])).contains("`roofline` has no coefficients"));
    assert!(with(Backend::Linear, None, Some(&[0.0; 7])).contains("`linear` takes 3 `--beta-coeffs`, found 7"));
}

#[test]
fn heads_that_cannot_be_shared_evenly_are_refused() {
    let on = |model, tp| {
        refused(&Spec {
            model,
            tp: Some(count(tp)),
            total_kv_blocks: Some(count(1)),
            ..Spec::default()
        })
    };

    assert_eq!(
        on("qwen3-14b", 3),
        "model `qwen3-14b` has 40 attention heads, which 3 GPUs cannot share evenly: choose a `--tp` that divides them"
    );
    assert!(on("qwen3-14b", 5).contains("8 KV heads, which 5 GPUs"));
}

#[test]
fn data_parallel_groups_need_experts_and_trained_physics() {
    let spec = |model, backend| Spec {
        model,
        backend,
        dp: count(2),
        ..Spec::default()
    };

    assert_eq!(
        refused(&spec("qwen3-14b", Backend::TrainedPhysics)),
        "`--dp 2` needs a model with experts and the latency model `trained-physics`; here model `qwen3-14b` has no \
         experts"
    );
    assert!(refused(&spec("qwen3-30b-a3b", Backend::Roofline)).contains("here the latency model is `roofline`"));
    assert!(refused(&spec("", Backend::Linear)).contains("here the latency model is `linear`"));
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_the_number_of_gpus_that_would_do() {
    let spec = Spec {
        model: "glm-5.2-fp8",
        tp: Some(count(8)),
        ..Spec::default()
    };
    let message = refused(&spec);

    assert!(
        message.starts_with("model `glm-5.2-fp8` does not fit: its weights are 69"),
        "{message}"
    );
    assert!(
        message.ends_with("8 x H100 leave -133.4 GiB for its KV cache; it needs at least 16 of them (`--tp 16`)"),
        "{message}"
    );
    assert_eq!(
        resolved(&Spec {
            tp: None,
            ..spec.clone()
        })
        .kv_blocks,
        count(326_966)
    );
    assert_eq!(
        resolved(&Spec {
            total_kv_blocks: Some(count(7)),
            ..spec
        })
        .kv_blocks,
        count(7)
    );
}

#[test]
fn memory_that_is_set_aside_holds_no_blocks() {
    let spec = Spec {
        model: "qwen3-14b",
        ..Spec::default()
    };
    let blocks_of_a_gib = (1 << 30) / (163_840 * 16);
    let all = resolved(&spec).kv_blocks.get();
    let rest = resolved(&Spec {
        reserved_gib: 1.0,
        ..spec.clone()
    });

    assert!((all - rest.kv_blocks.get()).abs_diff(blocks_of_a_gib) <= 1);
    for (utilization, reserved_gib, part) in [
        (0.0, 0.0, "`--gpu-memory-utilization` is 0, expected"),
        (1.1, 0.0, "`--gpu-memory-utilization` is 1.1, expected"),
        (f64::NAN, 0.0, "`--gpu-memory-utilization` is NaN, expected"),
        (0.9, -1.0, "is -1 GiB, expected"),
        (0.3, 0.0, "does not fit"),
    ] {
        let message = refused(&Spec {
            gpu_memory_utilization: utilization,
            reserved_gib,
            ..spec.clone()
        });
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn the_longest_sequence_is_that_of_the_model_or_of_the_cache_unless_the_user_says() {
    let of = |model, total, given| {
        let found = resolved(&Spec {
            model,
            total_kv_blocks: NonZeroU32::new(total),
            max_model_len: NonZeroU32::new(given),
            ..Spec::default()
        });
        found.max_model_len.map(NonZeroU32::get)
    };

    assert_eq!(of("qwen3-14b", 0, 0), Some(40960));
    assert_eq!(of("qwen3-14b", 10, 0), Some(160));
    assert_eq!(of("qwen3-14b", 10, 5000), Some(5000));
    assert_eq!(of("llama-4-scout-17b-16e-instruct-fp8-dynamic", 0, 0), Some(27345 * 16));
}

#[test]
fn every_bundled_model_runs_on_the_gpus_that_it_has_by_default() {
    for model in known_models() {
        let found = resolved(&Spec {
            model,
            ..Spec::default()
        });
        let server = found.server.expect("it has a model");

        assert_eq!(server.hardware.name, "H100", "{model}");
        assert_eq!(server.single_decode().len(), 2, "{model}");
    }
}

/// Qwen3-14B by the fields of its `config.json` that matter.
const QWEN3_14B: &str = r#"{
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 17408,
    "max_position_embeddings": 40960, "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 8,
    "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 151936
}"#;

/// DeepSeek-V2-Lite in the same way.
const DEEPSEEK_V2_LITE: &str = r#"{
    "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 10944,
    "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "n_routed_experts": 64,
    "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "qk_rope_head_dim": 64, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"}, "vocab_size": 102400
}"#;

/// Llama 4 Scout in the same way.
const LLAMA_4_SCOUT: &str = r#"{
    "text_config": {
        "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "interleave_moe_layer_step": 1,
        "intermediate_size": 8192, "intermediate_size_mlp": 16384, "max_position_embeddings": 10485760,
        "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8,
        "num_local_experts": 16, "vocab_size": 202048, "rope_scaling": {"factor": 16.0, "rope_type": "llama3"}
    },
    "quantization_config": {
        "quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}
    },
    "tie_word_embeddings": false, "torch_dtype": "bfloat16"
}"#;

#[test]
fn a_bundled_model_is_the_same_as_its_configuration_file() {
    for (name, text) in [
        ("qwen3-14b", QWEN3_14B),
        ("deepseek-v2-lite", DEEPSEEK_V2_LITE),
        ("llama-4-scout-17b-16e-instruct-fp8-dynamic", LLAMA_4_SCOUT),
    ] {
        assert_eq!(Model::from_config(name, text), Model::bundled(name), "{name}");
    }
}

#[test]
fn a_model_of_ones_own_needs_its_gpus_said() {
    let spec = Spec {
        model: "mine",
        model_config: Some(QWEN3_14B),
        ..Spec::default()
    };
    let on_h100 = Spec {
        hardware: Some("H100"),
        ..spec.clone()
    };

    assert_eq!(refused(&spec), "model `mine` has no default for `--hardware`: give it");
    assert_eq!(refused(&on_h100), "model `mine` has no default for `--tp`: give it");
    let found = resolved(&Spec {
        tp: Some(count(1)),
        ..on_h100
    });
    assert_eq!(found.kv_blocks, count(15909));
}

#[test]
fn an_activation_that_is_not_gated_needs_the_blocks_said() {
    let config = QWEN3_14B.replace("silu", "gelu_pytorch_tanh");
    let spec = Spec {
        model: "mine",
        model_config: Some(&config),
        hardware: Some("H100"),
        tp: Some(count(1)),
        ..Spec::default()
    };

    let message = refused(&spec);
    assert!(
        message.contains("its activation function is `gelu_pytorch_tanh`"),
        "{message}"
    );
    assert!(message.ends_with("give `--total-kv-blocks`"), "{message}");
    let found = resolved(&Spec {
        total_kv_blocks: Some(count(5)),
        ..spec
    });
    assert_eq!(found.kv_blocks, count(5));
}

#[test]
fn linear_needs_neither_model_nor_gpu() {
    let spec = Spec {
        backend: Backend::Linear,
        alpha: Some(&[10.0, 0.5, 3.0]),
        beta: Some(&[100.5, 2.0, 7.0]),
        ..Spec::default()
    };
    let found = resolved(&spec);
    let batch = [decode(5, 5), prefill(9, 3, 4), decode(8, 9)];

    assert_eq!(found.latency.step_time(&batch), Duration::from_micros(122));
    assert_eq!(found.latency.queueing_time(9), Duration::from_micros(14));
    assert_eq!(found.latency.output_token_time(), Duration::from_micros(3));
    assert_eq!(found.latency.completion_time(), Duration::ZERO);
    assert_eq!(found.kv_blocks, count(1_000_000));
    assert_eq!((found.max_model_len, found.server), (None, None));
    assert_eq!(
        resolved(&Spec {
            model: "qwen3-14b",
            ..spec
        })
        .kv_blocks,
        count(15909)
    );
}

#[test]
fn linear_without_coefficients_is_the_linear_step_time_of_an_instance() {
    let found = resolved(&Spec {
        backend: Backend::Linear,
        ..Spec::default()
    });
    let own: &dyn LatencyModel = &LinearStepTime::default();

    assert_eq!(step_times(&*found.latency), step_times(own));
    assert_eq!(found.latency.queueing_time(9), own.queueing_time(9));
}

#[test]
fn names_are_known_and_others_are_answered_with_them() {
    for backend in Backend::ALL {
        assert_eq!(backend.name().parse(), Ok(backend));
    }
    assert_eq!(
        "rofline".parse::<Backend>().expect_err("it is a slip").to_string(),
        "unknown latency model `rofline`: did you mean `roofline`? known ones: `trained-physics`, `roofline`, `linear`"
    );
    for (name, family) in MoeCommunication::NAMES {
        assert_eq!(name.parse(), Ok(family));
    }
    assert!("nccl".parse::<MoeCommunication>().is_err());
    assert!(refused(&Spec::default()).starts_with("no model is named"));
}

#[test]
fn times_beyond_all_measure_are_the_longest_there_is() {
    let longest = Duration::from_micros(i64::MAX as u64);

    assert_eq!(whole_microseconds(f64::NAN), longest);
    assert_eq!(whole_microseconds(1e30), longest);
    assert_eq!(whole_microseconds(2.99), Duration::from_micros(2));
    assert_eq!(whole_microseconds(-3.0), Duration::ZERO);
    assert_eq!(step_microseconds(0.3), Duration::from_micros(1));
    let latency = resolved(&Spec {
        model: "qwen3-14b",
        beta: Some(&[f64::MAX; 7]),
        ..Spec::default()
    })
    .latency;
    assert_eq!(latency.step_time(&[prefill(u32::MAX, u32::MAX, u32::MAX)]), longest);
}

fn any_part() -> impl Strategy<Value = ScheduledTokens> {
    let decodes = (1..20_000_u32, 0..5000_u32).prop_map(|(prompt, generated)| decode(prompt, prompt + generated));
    let prefills = (0..20_000_u32, 1..2048_u32, 0..20_000_u32)
        .prop_map(|(context, new, rest)| prefill(context + new + rest, context, new));
    prop_oneof![decodes, prefills]
}

fn any_latency() -> impl Strategy<Value = std::sync::Arc<dyn LatencyModel>> {
    let models: Vec<_> = known_models().collect();
    let backends = prop::sample::select(Backend::ALL.to_vec());
    (prop::sample::select(models), backends).prop_map(|(model, backend)| {
        resolved(&Spec {
            model,
            backend,
            ..Spec::default()
        })
        .latency
    })
}

proptest! {
    #[test]
    fn a_step_takes_whole_microseconds_and_not_less_than_one(
        latency in any_latency(),
        batch in prop::collection::vec(any_part(), 0..40),
    ) {
        let time = latency.step_time(&batch);

        prop_assert!(time >= Duration::from_micros(1));
        prop_assert_eq!(time.subsec_nanos() % 1000, 0);
    }

    #[test]
    fn more_work_takes_no_less_time(
        latency in any_latency(),
        mut batch in prop::collection::vec(any_part(), 1..40),
        more in any_part(),
        tokens in 1..1000_u32,
    ) {
        let time = latency.step_time(&batch);
        batch.push(more);
        let with_one_more = latency.step_time(&batch);
        prop_assert!(with_one_more >= time);

        for part in &mut batch {
            part.context += tokens;
            part.prompt += tokens;
        }
        let with_longer_contexts = latency.step_time(&batch);
        prop_assert!(with_longer_contexts >= with_one_more);

        for part in batch.iter_mut().filter(|part| part.phase == Phase::Prefill) {
            part.new += tokens;
        }
        prop_assert!(latency.step_time(&batch) >= with_longer_contexts);
    }

    #[test]
    fn the_order_of_a_batch_does_not_matter(
        latency in any_latency(),
        batch in prop::collection::vec(any_part(), 1..40),
    ) {
        let backwards: Vec<_> = batch.iter().rev().copied().collect();

        prop_assert_eq!(latency.step_time(&batch), latency.step_time(&backwards));
    }
}
