use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::super::testing::vllm_page;
use super::*;
use crate::engine::config::data_layer::CoreMetricsExtractorParams;
use crate::engine::config::engine_metrics::EngineMapping;

fn engine(name: &str) -> Arc<EngineMetrics> {
    let mapping: EngineMapping = CoreMetricsExtractorParams::default().compile().unwrap();
    mapping.engine(name).unwrap().clone()
}

fn read(engine_name: &str, text: &str) -> Page {
    let mut reader = PageReader::new(&engine(engine_name));
    reader.feed(text.as_bytes());
    reader.finish()
}

fn vllm(text: &str) -> Page {
    read("vllm", text)
}

fn names(names: &[&str]) -> Arc<[Box<str>]> {
    names.iter().map(|&name| Box::from(name)).collect()
}

#[test]
fn a_page_of_vllm_tells_everything() {
    let page = vllm(&vllm_page(1));

    let expected = SignalUpdate {
        waiting: Some(3),
        running: Some(17),
        kv_usage: Some(0.375),
        lora: Some(Lora {
            active: names(&["sql-adapter", "chat"]),
            waiting: names(&["summaries"]),
            max: 4,
        }),
        block_tokens: Some(16),
        total_blocks: Some(27_648),
        ..SignalUpdate::default()
    };
    assert_eq!(page.signals, expected);
    assert_eq!((page.missing.len(), page.malformed), (0, 0));
}

#[test]
fn the_older_name_of_the_cache_usage_counts_where_the_newer_one_is_not_there() {
    let (old, new) = ("vllm:gpu_cache_usage_perc 0.25\n", "vllm:kv_cache_usage_perc 0.5\n");

    assert_eq!(vllm(old).signals.kv_usage, Some(0.25));
    assert_eq!(vllm(&format!("{old}{new}")).signals.kv_usage, Some(0.5));
    assert_eq!(vllm(&format!("{new}{old}")).signals.kv_usage, Some(0.5));
}

#[test]
fn sglang_tells_its_cache_in_labels_of_its_own() {
    let text = "sglang:num_queue_reqs{model=\"m\"} 2\nsglang:num_running_reqs 5.0\nsglang:token_usage 0.1\n\
                sglang:cache_config_info{page_size=\"64\",num_pages=\"100\"} 1\n";

    let page = read("sglang", text);

    let signals = page.signals;
    assert_eq!(
        (signals.waiting, signals.running, signals.kv_usage),
        (Some(2), Some(5), Some(0.1))
    );
    assert_eq!((signals.block_tokens, signals.total_blocks), (Some(64), Some(100)));
    assert!(page.missing.is_empty());
}

#[test]
fn triton_tells_several_things_under_one_name() {
    let text = "nv_trt_llm_request_metrics{model=\"t\",request_type=\"waiting\",version=\"1\"} 4\n\
                nv_trt_llm_request_metrics{model=\"t\",request_type=\"scheduled\",version=\"1\"} 6\n\
                nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.75\n\
                nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 64\n\
                nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 1000\n";

    let signals = read("triton-tensorrt-llm", text).signals;

    assert_eq!(
        (signals.waiting, signals.running, signals.kv_usage),
        (Some(4), Some(6), Some(0.75))
    );
    assert_eq!((signals.block_tokens, signals.total_blocks), (Some(64), Some(1000)));
}

#[test]
fn a_series_counts_whatever_its_type_and_without_one() {
    for head in [
        "",
        "# TYPE vllm:num_requests_waiting gauge\n",
        "# TYPE vllm:num_requests_waiting untyped\n",
    ] {
        assert_eq!(
            vllm(&format!("{head}vllm:num_requests_waiting 7\n")).signals.waiting,
            Some(7),
            "{head:?}"
        );
    }
}

#[test]
fn the_first_of_several_series_counts_unless_one_has_a_later_date() {
    let series = |value, at: &str| format!("vllm:num_requests_waiting{{engine=\"{value}\"}} {value} {at}\n");
    let waiting = |lines: &[String]| vllm(&lines.concat()).signals.waiting;

    assert_eq!(waiting(&[series(1, ""), series(2, "")]), Some(1));
    assert_eq!(waiting(&[series(1, ""), series(2, "-5")]), Some(2));
    assert_eq!(
        waiting(&[series(1, "100"), series(2, "300"), series(3, "200")]),
        Some(2)
    );
    assert_eq!(waiting(&[series(1, "100"), series(2, "100"), series(3, "")]), Some(1));
}

#[test]
fn lora_adapters_are_those_of_the_largest_value() {
    let series = |value: &str, running: &str| {
        format!("vllm:lora_requests_info{{running_lora_adapters=\"{running}\"}} {value}\n")
    };
    let active = |lines: &[String]| vllm(&lines.concat()).signals.lora.map(|lora| lora.active);

    assert_eq!(
        active(&[series("1.7e9", "a"), series("1.8e9", " b ,, c"), series("1.6e9", "d")]),
        Some(names(&["b", "c"]))
    );
    assert_eq!(active(&[series("-1", "a")]), None, "a negative value is no time");
    assert_eq!(
        active(&[series("0", "")]),
        Some(names(&[])),
        "an empty list says that there are none"
    );
    assert!(
        !vllm("").missing.iter().any(|name| name.contains("lora")),
        "servers without adapters do not list them"
    );
}

#[test]
fn what_a_page_does_not_say_is_missing_and_not_zero() {
    let page =
        vllm("vllm:num_requests_running 1\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n");

    assert_eq!((page.signals.waiting, page.signals.total_blocks), (None, None));
    assert_eq!(
        page.missing,
        ["waiting requests", "kv cache usage", "cache block count"]
    );
    assert_eq!(page.signals.block_tokens, Some(16));
}

#[test]
fn values_out_of_range_end_at_the_bounds() {
    let page = vllm("vllm:num_requests_waiting -3\nvllm:num_requests_running 1e12\nvllm:kv_cache_usage_perc 1.0001\n");

    let signals = page.signals;
    assert_eq!(
        (signals.waiting, signals.running, signals.kv_usage),
        (Some(0), Some(u32::MAX), Some(1.0))
    );
}

#[test]
fn values_that_are_not_finite_are_passed_over_and_counted() {
    let page = vllm("vllm:num_requests_waiting NaN\nvllm:num_requests_waiting +Inf\nvllm:num_requests_waiting 2.9\n");

    assert_eq!((page.signals.waiting, page.malformed), (Some(2), 2));
}

#[test]
fn names_that_only_begin_like_a_wanted_one_are_others() {
    let page =
        vllm("vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 9\nvllm:num_requests_waitin 8\nvllm: 1\n");

    assert_eq!((page.signals.waiting, page.malformed), (None, 0));
}

#[test]
fn malformed_lines_are_passed_over_and_counted() {
    let broken = [
        "",
        " ",
        " x",
        "{",
        "{a} 1",
        "{a=b} 1",
        "{a=\"b} 1",
        "{a=\"b\" 1",
        "{a=\"b\",,c=\"d\"} 1",
        "{,} 1",
        "{a=\"\\x\"} 1",
        "{1a=\"b\"} 1",
        "{a=\"b\"}",
        " 1 2 3",
        " 1 x",
        "\"} 1",
    ];
    let lines: Vec<_> = broken
        .iter()
        .map(|rest| format!("vllm:num_requests_waiting{rest}\n"))
        .collect();

    for line in &lines {
        assert_eq!(
            (vllm(line).malformed, vllm(line).signals.waiting),
            (1, None),
            "{line:?}"
        );
    }
    let page = vllm(&(lines.concat() + "vllm:num_requests_waiting 5\n"));
    assert_eq!((page.malformed as usize, page.signals.waiting), (broken.len(), Some(5)));
}

#[test]
fn white_space_escapes_and_missing_line_ends_are_no_trouble() {
    let text = "\t vllm:num_requests_waiting \t{ a = \"\\\"},\\\\\\n\" , } \t 4 \t 12 \r\nvllm:num_requests_running 1";

    let page = vllm(text);

    assert_eq!(
        (page.signals.waiting, page.signals.running, page.malformed),
        (Some(4), Some(1), 0)
    );
}

#[test]
fn adapters_are_named_as_they_are_and_not_as_they_are_escaped() {
    let page = vllm("vllm:lora_requests_info{running_lora_adapters=\"a\\\\b,c\\\"d\"} 1\n");

    assert_eq!(page.signals.lora.unwrap().active, names(&["a\\b", "c\"d"]));
}

#[test]
fn one_page_says_nothing_about_the_next() {
    let mut reader = PageReader::new(&engine("vllm"));
    reader.feed(vllm_page(1).as_bytes());
    reader.finish();
    reader.feed(b"vllm:num_requests_waiting 9\nvllm:num_re");
    reader.forget();
    reader.feed(b"vllm:num_requests_running 2\n");

    let page = reader.finish();

    assert_eq!(
        (page.signals.waiting, page.signals.running, page.signals.lora),
        (None, Some(2), None)
    );
}

#[test]
fn the_memory_for_a_huge_line_is_given_back() {
    let mut reader = PageReader::new(&engine("vllm"));
    reader.feed(&vec![b'x'; 1 << 20]);
    assert!(reader.begun.capacity() >= 1 << 20);

    reader.finish();

    assert!(reader.begun.capacity() <= KEPT_LINE_BYTES);
}

#[test]
fn an_engine_of_which_nothing_is_wanted_is_read_without_complaint() {
    let mut reader = PageReader::new(&EngineMetrics::default());
    reader.feed(vllm_page(1).as_bytes());

    assert_eq!(reader.finish(), Page::default());
}

proptest! {
    #[test]
    fn a_page_is_read_as_a_parser_of_everything_reads_it(text in page_text()) {
        prop_assert_eq!(vllm(&text), reference::read(&text));
    }

    #[test]
    fn it_does_not_matter_in_which_pieces_a_page_comes(text in page_text(), cuts in proptest::collection::vec(0..400_usize, 0..8)) {
        let mut reader = PageReader::new(&engine("vllm"));
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();

        for piece in cuts.windows(2) {
            reader.feed(&text.as_bytes()[piece[0]..piece[1]]);
        }

        prop_assert_eq!(reader.finish(), vllm(&text));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut reader = PageReader::new(&engine("vllm"));
        for head in [&b""[..], b"vllm:lora_requests_info{running_lora_adapters=\"", b"vllm:num_requests_waiting"] {
            reader.feed(head);
            reader.feed(&bytes);
            reader.finish();
        }
    }
}

/// Pages in which wanted metrics, others, comments and rubbish stand beside each other.
fn page_text() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("vllm:num_requests_waiting"),
        Just("vllm:num_requests_running"),
        Just("vllm:kv_cache_usage_perc"),
        Just("vllm:gpu_cache_usage_perc"),
        Just("vllm:lora_requests_info"),
        Just("vllm:cache_config_info"),
        Just("vllm:num_requests_waiting_total"),
        Just("vllm:n"),
        Just("python_gc_objects"),
        Just("# HELP vllm:num_requests_waiting"),
        Just(""),
    ];
    let label = prop_oneof![
        Just("running_lora_adapters"),
        Just("waiting_lora_adapters"),
        Just("max_lora"),
        Just("block_size"),
        Just("num_gpu_blocks"),
        Just("engine")
    ];
    let pair = (label, "[a-c0-9, ]{0,6}|\\\\\\\\|\\\\n|\\\\\"|\\\\|[}{=]")
        .prop_map(|(label, value)| format!("{label}=\"{value}\""));
    let labels = prop_oneof![
        3 => Just(String::new()),
        3 => proptest::collection::vec(pair, 0..4).prop_map(|pairs| format!("{{{}}}", pairs.join(","))),
        1 => "[{} ,=\"a]{0,5}",
    ];
    let value = prop_oneof![5 => "[0-9]{1,3}|-[0-9]|[0-9]\\.[0-9]e-?[0-9]", 1 => "NaN|[+-]?Inf|x|"];
    let date = prop_oneof![5 => "| [0-9]| -[0-9]", 1 => " x| 1 2"];
    let line = (name, labels, " {1,2}", value, date)
        .prop_map(|(name, labels, space, value, date)| format!("{name}{labels}{space}{value}{date}"));
    proptest::collection::vec(line, 0..30).prop_map(|lines| lines.join("\n"))
}

/// The same by other means: every line is parsed, character by character, before anything is selected.
mod reference {
    use super::*;

    struct Sample {
        labels: Vec<(String, String)>,
        value: f64,
        at: Option<i64>,
    }

    pub(super) fn read(text: &str) -> Page {
        let mut samples: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
        let mut malformed = 0;
        for line in text.split('\n') {
            let end = line
                .find(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)))
                .unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            match sample(rest) {
                Some(sample) if sample.value.is_finite() => samples.entry(name).or_default().push(sample),
                _ if WANTED.contains(&name) => malformed += 1,
                _ => {}
            }
        }
        let newest = |name: &str| {
            let all = samples.get(name).map_or(&[][..], Vec::as_slice);
            let at = all.iter().map(|sample| sample.at).max()?;
            all.iter().find(|sample| sample.at == at)
        };
        let value = |name| newest(name).map(|sample| sample.value);
        let info = |label| -> Option<u32> {
            let text = label_of(newest("vllm:cache_config_info")?, label)?;
            Some(text.trim().parse::<f64>().ok()?.max(0.0) as u32)
        };
        let lora = samples
            .get("vllm:lora_requests_info")
            .into_iter()
            .flatten()
            .filter(|sample| sample.value >= 0.0);
        let lora = lora
            .rev()
            .max_by(|a, b| a.value.partial_cmp(&b.value).expect("values are finite"))
            .map(|sample| Lora {
                active: list(sample, "running_lora_adapters"),
                waiting: list(sample, "waiting_lora_adapters"),
                max: label_of(sample, "max_lora")
                    .and_then(|max| max.trim().parse().ok())
                    .unwrap_or(0),
            });
        let signals = SignalUpdate {
            waiting: value("vllm:num_requests_waiting").map(|value| value.max(0.0) as u32),
            running: value("vllm:num_requests_running").map(|value| value.max(0.0) as u32),
            kv_usage: value("vllm:kv_cache_usage_perc")
                .or_else(|| value("vllm:gpu_cache_usage_perc"))
                .map(|value| value.clamp(0.0, 1.0)),
            lora,
            block_tokens: info("block_size"),
            total_blocks: info("num_gpu_blocks"),
            ..SignalUpdate::default()
        };
        let checks = [
            ("waiting requests", signals.waiting.is_none()),
            ("running requests", signals.running.is_none()),
            ("kv cache usage", signals.kv_usage.is_none()),
            ("cache block size", signals.block_tokens.is_none()),
            ("cache block count", signals.total_blocks.is_none()),
        ];
        Page {
            missing: checks
                .into_iter()
                .filter(|check| check.1)
                .map(|check| check.0)
                .collect(),
            signals,
            malformed,
        }
    }

    const WANTED: [&str; 6] = [
        "vllm:num_requests_waiting",
        "vllm:num_requests_running",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "vllm:lora_requests_info",
        "vllm:cache_config_info",
    ];

    fn label_of<'a>(sample: &'a Sample, label: &str) -> Option<&'a str> {
        sample
            .labels
            .iter()
            .find(|(name, _)| name == label)
            .map(|(_, value)| value.as_str())
    }

    fn list(sample: &Sample, label: &str) -> Arc<[Box<str>]> {
        let text = label_of(sample, label).unwrap_or("");
        text.split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(Box::from)
            .collect()
    }

    fn sample(rest: &str) -> Option<Sample> {
        let chars: Vec<char> = rest.chars().collect();
        let mut at = blanks(&chars, 0);
        let mut labels = Vec::new();
        if chars.get(at) == Some(&'{') {
            at = blanks(&chars, at + 1);
            while chars.get(at)? != &'}' {
                let mut name = String::new();
                while chars.get(at)?.is_ascii_alphanumeric() || chars[at] == '_' {
                    name.push(chars[at]);
                    at += 1;
                }
                at = expect(&chars, at, '=')?;
                at = blanks(&chars, at);
                if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || chars.get(at)? != &'"' {
                    return None;
                }
                at += 1;
                let mut value = String::new();
                while chars.get(at)? != &'"' {
                    if chars[at] == '\\' {
                        at += 1;
                        value.push(match chars.get(at)? {
                            'n' => '\n',
                            c @ ('"' | '\\') => *c,
                            _ => return None,
                        });
                    } else {
                        value.push(chars[at]);
                    }
                    at += 1;
                }
                labels.push((name, value));
                at = blanks(&chars, at + 1);
                match chars.get(at)? {
                    ',' => at = blanks(&chars, at + 1),
                    '}' => {}
                    _ => return None,
                }
            }
            at += 1;
        }
        let numbers: String = chars[at..].iter().collect();
        let numbers: Vec<&str> = numbers
            .split([' ', '\t', '\r'])
            .filter(|number| !number.is_empty())
            .collect();
        let (value, at) = match numbers[..] {
            [value] => (value.parse().ok()?, None),
            [value, at] => (value.parse().ok()?, Some(at.parse().ok()?)),
            _ => return None,
        };
        Some(Sample { labels, value, at })
    }

    fn blanks(chars: &[char], from: usize) -> usize {
        from + chars[from..].iter().take_while(|c| [' ', '\t'].contains(c)).count()
    }

    fn expect(chars: &[char], at: usize, wanted: char) -> Option<usize> {
        let at = blanks(chars, at);
        (chars.get(at)? == &wanted).then_some(at + 1)
    }
}
