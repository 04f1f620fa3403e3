//! A page as a model server writes it.

/// A metrics page of the size and shape that vLLM 0.10 serves, from a server with so many engines.
///
/// Every engine has the same histograms; the first one says that 3 requests wait, 17 run and 37.5 % of the cache is used.
pub(crate) fn vllm_page(engines: usize) -> String {
    use std::fmt::Write as _;

    const MODEL: &str = "model_name=\"meta-llama/Llama-3.1-8B-Instruct\"";
    const HISTOGRAMS: [(&str, usize); 18] = [
        ("vllm:time_to_first_token_seconds", 22),
        ("vllm:time_per_output_token_seconds", 20),
        ("vllm:inter_token_latency_seconds", 20),
        ("vllm:request_time_per_output_token_seconds", 20),
        ("vllm:e2e_request_latency_seconds", 21),
        ("vllm:request_queue_time_seconds", 21),
        ("vllm:request_inference_time_seconds", 21),
        ("vllm:request_prefill_time_seconds", 21),
        ("vllm:request_decode_time_seconds", 21),
        ("vllm:request_prompt_tokens", 18),
        ("vllm:request_generation_tokens", 18),
        ("vllm:request_max_num_generation_tokens", 18),
        ("vllm:request_params_max_tokens", 18),
        ("vllm:request_params_n", 6),
        ("vllm:iteration_tokens_total", 14),
        ("http_request_size_bytes", 1),
        ("http_response_size_bytes", 1),
        ("http_request_duration_highr_seconds", 22),
    ];
    let mut page = String::new();
    let head = |page: &mut String, name: &str, kind: &str| {
        let _ = writeln!(
            page,
            "# HELP {name} What this metric is about, in about as many words.\n# TYPE {name} {kind}"
        );
    };
    for name in ["python_gc_objects_collected_total", "python_gc_collections_total"] {
        head(&mut page, name, "counter");
        for generation in 0..3 {
            let _ = writeln!(page, "{name}{{generation=\"{generation}\"}} 12345.0");
        }
    }
    for name in [
        "process_virtual_memory_bytes",
        "process_resident_memory_bytes",
        "process_open_fds",
    ] {
        head(&mut page, name, "gauge");
        let _ = writeln!(page, "{name} 1.3404889088e+010");
    }
    for (name, step) in [("running", 14), ("waiting", 0)] {
        head(&mut page, &format!("vllm:num_requests_{name}"), "gauge");
        for engine in 0..engines {
            let value = 3 + step + engine;
            let _ = writeln!(
                page,
                "vllm:num_requests_{name}{{engine=\"{engine}\",{MODEL}}} {value}.0"
            );
        }
    }
    head(&mut page, "vllm:kv_cache_usage_perc", "gauge");
    for engine in 0..engines {
        let _ = writeln!(page, "vllm:kv_cache_usage_perc{{engine=\"{engine}\",{MODEL}}} 0.375");
    }
    for name in [
        "prefix_cache_queries",
        "prefix_cache_hits",
        "num_preemptions",
        "prompt_tokens",
        "generation_tokens",
    ] {
        head(&mut page, &format!("vllm:{name}_total"), "counter");
        for engine in 0..engines {
            let _ = writeln!(page, "vllm:{name}_total{{engine=\"{engine}\",{MODEL}}} 8.1934123e+07");
        }
    }
    head(&mut page, "vllm:request_success_total", "counter");
    for engine in 0..engines {
        for reason in ["stop", "length", "abort"] {
            let _ = writeln!(
                page,
                "vllm:request_success_total{{engine=\"{engine}\",finished_reason=\"{reason}\",{MODEL}}} 4711.0"
            );
        }
    }
    for (name, buckets) in HISTOGRAMS {
        head(&mut page, name, "histogram");
        for engine in 0..engines {
            for bucket in 0..buckets {
                let bound = 0.001 * 2_f64.powi(i32::try_from(bucket).unwrap_or(0));
                let _ = writeln!(
                    page,
                    "{name}_bucket{{engine=\"{engine}\",le=\"{bound}\",{MODEL}}} {bucket}23.0"
                );
            }
            let _ = writeln!(page, "{name}_bucket{{engine=\"{engine}\",le=\"+Inf\",{MODEL}}} 9923.0");
            let _ = writeln!(page, "{name}_count{{engine=\"{engine}\",{MODEL}}} 9923.0");
            let _ = writeln!(page, "{name}_sum{{engine=\"{engine}\",{MODEL}}} 8123.2399");
        }
    }
    head(&mut page, "vllm:cache_config_info", "gauge");
    for engine in 0..engines {
        let _ = writeln!(
            page,
            "vllm:cache_config_info{{block_size=\"16\",cache_dtype=\"auto\",calculate_kv_scales=\"False\",\
             cpu_kvcache_space_bytes=\"None\",cpu_offload_gb=\"0\",enable_prefix_caching=\"True\",engine=\"{engine}\",\
             gpu_memory_utilization=\"0.9\",is_attention_free=\"False\",num_cpu_blocks=\"None\",num_gpu_blocks=\"27648\",\
             num_gpu_blocks_override=\"None\",prefix_caching_hash_algo=\"builtin\",sliding_window=\"None\",\
             swap_space=\"4\",swap_space_bytes=\"4294967296\"}} 1.0"
        );
    }
    head(&mut page, "vllm:lora_requests_info", "gauge");
    page +=
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 1.7587e+09\n";
    page += "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"sql-adapter, chat\",\
             waiting_lora_adapters=\"summaries\"} 1.7588e+09\n";
    page
}
