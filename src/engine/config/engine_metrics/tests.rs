use super::super::data_layer::CoreMetricsExtractorParams;
use super::super::yaml;
use super::*;

fn spec(text: &str) -> MetricSpec {
    text.parse().expect("the spec is sound")
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn mapping(text: &str) -> Result<EngineMapping, EngineMappingError> {
    yaml::decode::<CoreMetricsExtractorParams>(text)
        .expect("the parameters are known")
        .compile()
}

fn refusal(text: &str) -> String {
    mapping(text).expect_err("the parameters are refused").to_string()
}

#[test]
fn a_spec_is_a_name_perhaps_with_labels() {
    assert_eq!(
        (spec("vllm:x_y").name(), spec("vllm:x_y").labels().len()),
        ("vllm:x_y", 0)
    );
    assert_eq!(spec("a{}"), spec("a"));
    assert_eq!(spec(" a { b = c , d=\"e,f\" } ").to_string(), "a{b=\"c\",d=\"e,f\"}");
    assert_eq!(spec("a{b=\"\"}").labels(), [("b".to_owned(), String::new())]);
}

#[test]
fn a_spec_that_is_none_is_refused_with_its_text() {
    for text in ["", "1a", "a-b", "a{b=c", "a b", "é", "{a=b}"] {
        let expected = format!("not a valid metric specification: \"{text}\"; write `name` or `name{{label=value}}`");
        assert_eq!(text.parse::<MetricSpec>().unwrap_err().to_string(), expected);
    }
    for (text, pair) in [
        ("a{b}", "b"),
        ("a{b=c,}", ""),
        ("a{1=c}", "1=c"),
        ("a{b=\"c}", "b=\"c"),
        ("a{b:c=d}", "b:c=d"),
    ] {
        let expected = format!("invalid label pair \"{pair}\" in metric specification \"{text}\"; write `label=value`");
        assert_eq!(text.parse::<MetricSpec>().unwrap_err().to_string(), expected);
    }
}

#[test]
fn every_name_that_is_built_in_is_one_that_a_user_could_write() {
    for (engine, metrics) in builtin::engines() {
        let specs = [metrics.waiting, metrics.running, metrics.kv_usage].concat();
        let others = [
            metrics.lora,
            metrics.cache_info.map(|info| info.spec),
            metrics.block_tokens,
            metrics.total_blocks,
        ];

        for spec in specs.into_iter().chain(others.into_iter().flatten()) {
            assert_eq!(spec.to_string().parse(), Ok(spec), "{engine}");
        }
    }
}

#[test]
fn an_endpoint_has_the_engine_that_its_labels_name() {
    let mapping = mapping("defaultEngine: triton").unwrap();
    let cases = [
        (labels(&[("llm-d.ai/engine-type", "sglang")]), "sglang"),
        (labels(&[(LEGACY_ENGINE_LABEL, "trtllm-serve")]), "trtllm-serve"),
        (
            labels(&[("llm-d.ai/engine-type", "vllm"), (LEGACY_ENGINE_LABEL, "sglang")]),
            "vllm",
        ),
        (
            labels(&[("llm-d.ai/engine-type", "unheard-of"), (LEGACY_ENGINE_LABEL, "sglang")]),
            "triton",
        ),
        (labels(&[]), "triton"),
    ];

    for (labels, engine) in cases {
        assert_eq!(
            mapping.engine_of(&labels),
            mapping.engine(engine).unwrap(),
            "{labels:?}"
        );
    }
}

#[test]
fn the_engine_label_can_have_another_name() {
    let mapping = mapping("engineLabelKey: engine").unwrap();

    assert_eq!(
        mapping.engine_of(&labels(&[("engine", "sglang")])),
        mapping.engine("sglang").unwrap()
    );
    assert_eq!(
        mapping.engine_of(&labels(&[("llm-d.ai/engine-type", "sglang")])),
        mapping.engine("vllm").unwrap()
    );
}

#[test]
fn a_users_engine_replaces_the_built_in_one_entirely() {
    let mapping = mapping("engineConfigs: [{name: vllm, kvUsageSpec: my_kv}]").unwrap();

    let expected = EngineMetrics {
        kv_usage: vec![spec("my_kv")],
        ..EngineMetrics::default()
    };
    assert_eq!(**mapping.engine("vllm").unwrap(), expected);
    assert!(mapping.engine("sglang").is_some());
}

#[test]
fn every_field_of_a_users_engine_has_its_effect() {
    let text = "
defaultEngine: mine
engineConfigs:
- name: mine
  queuedRequestsSpec: q{a=b}
  runningRequestsSpec: r
  kvUsageSpec: k
  loraSpec: l
  cacheInfoSpec: c
  cacheNumBlocksLabelName: blocks
  cacheBlockSizeSpec: s
  cacheNumBlocksSpec: n
  customMetrics: [{attributeKey: x, metricSpec: y}]
";

    let expected = EngineMetrics {
        waiting: vec![spec("q{a=b}")],
        running: vec![spec("r")],
        kv_usage: vec![spec("k")],
        lora: Some(spec("l")),
        cache_info: Some(CacheInfo {
            spec: spec("c"),
            block_tokens_label: "block_size".to_owned(),
            total_blocks_label: "blocks".to_owned(),
        }),
        block_tokens: Some(spec("s")),
        total_blocks: Some(spec("n")),
    };
    assert_eq!(**mapping(text).unwrap().engine_of(&labels(&[])), expected);
}

#[test]
fn a_mapping_that_cannot_work_is_refused_by_what_is_wrong() {
    assert_eq!(
        refusal("defaultEngine: vlm"),
        "defaultEngine \"vlm\" not found in engineConfigs; known engines: sglang, triton, triton-tensorrt-llm, \
         trtllm-serve, vllm"
    );
    assert_eq!(refusal("engineConfigs: [{}]"), "engineConfigs[0]: `name` is required");
    assert!(refusal("engineConfigs: [{name: default}]").contains("the name `default` is reserved"));
    assert_eq!(
        refusal("engineConfigs: [{name: a}, {name: a}]"),
        "engineConfigs[1]: engine `a` is described twice"
    );
    assert_eq!(
        refusal("engineConfigs: [{name: a, loraSpec: 'x{'}]"),
        "engineConfigs[0] (`a`): loraSpec: not a valid metric specification: \"x{\"; write `name` or \
         `name{label=value}`"
    );
    let custom = |metrics| format!("engineConfigs: [{{name: a, customMetrics: [{metrics}]}}]");
    assert!(refusal(&custom("{attributeKey: k, metricSpec: ''}")).contains("not a valid metric specification: \"\""));
    assert!(
        refusal(&custom(
            "{attributeKey: k, metricSpec: x}, {attributeKey: k, metricSpec: y}"
        ))
        .ends_with("attributeKey `k` is empty or given twice")
    );
}
