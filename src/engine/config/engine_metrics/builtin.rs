//! The engines that are known without configuration.

use super::{CacheInfo, EngineMetrics, MetricSpec};

/// Name and metrics of each.
pub(super) fn engines() -> [(&'static str, EngineMetrics); 5] {
    [
        ("vllm", vllm()),
        ("sglang", sglang()),
        ("trtllm-serve", trtllm_serve()),
        ("triton-tensorrt-llm", triton_tensorrt_llm()),
        ("triton", triton()),
    ]
}

fn vllm() -> EngineMetrics {
    EngineMetrics {
        waiting: vec![named("vllm:num_requests_waiting")],
        running: vec![named("vllm:num_requests_running")],
        // The second name is that of releases before 0.10.
        kv_usage: vec![named("vllm:kv_cache_usage_perc"), named("vllm:gpu_cache_usage_perc")],
        lora: Some(named("vllm:lora_requests_info")),
        cache_info: Some(CacheInfo {
            spec: named("vllm:cache_config_info"),
            block_tokens_label: "block_size".to_owned(),
            total_blocks_label: "num_gpu_blocks".to_owned(),
        }),
        ..EngineMetrics::default()
    }
}

fn sglang() -> EngineMetrics {
    EngineMetrics {
        waiting: vec![named("sglang:num_queue_reqs")],
        running: vec![named("sglang:num_running_reqs")],
        kv_usage: vec![named("sglang:token_usage")],
        cache_info: Some(CacheInfo {
            spec: named("sglang:cache_config_info"),
            block_tokens_label: "page_size".to_owned(),
            total_blocks_label: "num_pages".to_owned(),
        }),
        ..EngineMetrics::default()
    }
}

fn trtllm_serve() -> EngineMetrics {
    EngineMetrics {
        waiting: vec![named("trtllm_num_requests_waiting")],
        running: vec![named("trtllm_num_requests_running")],
        kv_usage: vec![named("trtllm_kv_cache_utilization")],
        block_tokens: Some(named("trtllm_kv_cache_tokens_per_block")),
        total_blocks: Some(named("trtllm_kv_cache_max_blocks")),
        ..EngineMetrics::default()
    }
}

fn triton_tensorrt_llm() -> EngineMetrics {
    let requests = |kind| MetricSpec::labelled("nv_trt_llm_request_metrics", "request_type", kind);
    let blocks = |kind| MetricSpec::labelled("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", kind);
    EngineMetrics {
        waiting: vec![requests("waiting")],
        running: vec![requests("scheduled")],
        kv_usage: vec![blocks("fraction")],
        block_tokens: Some(blocks("tokens_per")),
        total_blocks: Some(blocks("max")),
        ..EngineMetrics::default()
    }
}

fn triton() -> EngineMetrics {
    EngineMetrics {
        waiting: vec![named("nv_inference_pending_request_count")],
        running: vec![named("nv_inference_exec_count")],
        ..EngineMetrics::default()
    }
}

fn named(name: &str) -> MetricSpec {
    MetricSpec::named(name)
}
