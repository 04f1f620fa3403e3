//! The page of a run, in a browser.

use std::sync::Arc;

use forebay::sim::record::{
    Counts, End, InstanceSample, InstanceTotals, Judge, RequestRecord, RunRecord, Sample, Series,
};
use forebay::sim::report::{Metrics, ReportOptions, html};
use forebay::sim::request::{Client, RequestName};
use serde_json::Value;

use crate::support::chromium;

/// Looks at the page as a reader would, moves the pointer over every plot, and writes what it saw into the page.
const LOOK: &str = include_str!("fixtures/report/look.js");
/// Widths of a window on a desk and, as narrow as a browser goes, in a hand.
const WIDE: u32 = 1280;
const NARROW: u32 = 500;
/// A name that is markup.
const HOSTILE: &str = "</script><script>document.title='broken'</script>";
/// What has to come before the findings, and after.
const FINDINGS: [&str; 2] = ["<pre id=\"findings\">", "</pre>"];

#[test]
fn the_page_of_a_run_shows_every_plot_and_raises_no_error() {
    let run = run(4);
    let found = look(&run, &options(), WIDE);

    assert_eq!(found["errors"], Value::Array(Vec::new()));
    assert_eq!(found["title"], format!("{HOSTILE} & co"), "the title is text");
    assert_eq!(
        found["plots"].as_object().unwrap().keys().collect::<Vec<_>>(),
        [
            "decisions",
            "delay",
            "e2e",
            "endpoint-saturation",
            "gateway",
            "in-flight",
            "itl",
            "kv-usage",
            "running",
            "saturation",
            "ttft",
            "waiting",
            "waits"
        ]
    );
    // Four endpoints; 240 points each, of 480 samples.
    assert_eq!(
        found["plots"]["waiting"]["points"],
        serde_json::json!([240, 240, 240, 240])
    );
    assert_eq!(
        found["plots"]["in-flight"]["points"],
        serde_json::json!([240, 240, 240, 240])
    );
    assert_eq!(found["plots"]["saturation"]["points"], serde_json::json!([240]));
    assert_eq!(
        found["plots"]["endpoint-saturation"]["points"],
        serde_json::json!([240, 240, 240, 240])
    );
    // All, and two classes; as many points as can be told apart.
    let curves = found["plots"]["ttft"]["points"].as_array().unwrap();
    assert_eq!(curves.len(), 3);
    for points in curves {
        assert!((50..=402).contains(&points.as_u64().unwrap()), "{curves:?}");
    }
    // Six different gaps, three of each class; a stair has two points for each.
    assert_eq!(found["plots"]["itl"]["points"], serde_json::json!([12, 6, 6]));
    assert_eq!(found["plots"]["decisions"]["cells"], 4 * 48);
    // Two kinds of wait for each of three tenants.
    assert_eq!(found["plots"]["waits"]["ranges"], 6);
}

#[test]
fn every_plot_answers_the_pointer_and_stays_in_its_frame() {
    for width in [WIDE, NARROW] {
        let found = look(&run(4), &options(), width);

        assert_eq!(found["scrolls_sideways"], false, "the page is wider than {width}");
        for (name, plot) in found["plots"].as_object().unwrap() {
            let axes = if name == "decisions" || name == "waits" { 1 } else { 2 };
            assert_ne!(plot["tip"], "", "{name} says nothing at the pointer");
            assert_eq!(
                plot["outside"],
                serde_json::json!([]),
                "{name} draws outside its frame, at {width}"
            );
            assert_eq!(
                plot["overlapping"],
                serde_json::json!([]),
                "texts of {name} overlap, at {width}"
            );
            assert_eq!(plot["titles"], axes, "{name} has an axis without a title");
        }
        let tip = found["plots"]["waiting"]["tip"].as_str().unwrap();
        assert!(tip.contains("instance_0: ") && tip.contains("instance_3: "), "{tip}");
    }
}

#[test]
fn the_page_of_many_endpoints_has_heat_maps() {
    let found = look(&run(24), &options(), WIDE);

    assert_eq!(found["errors"], Value::Array(Vec::new()));
    // 24 endpoints over 48 spans.
    assert_eq!(found["plots"]["waiting"]["cells"], 24 * 48);
    assert_eq!(found["plots"]["decisions"]["cells"], 24 * 48);
    assert_eq!(found["plots"]["waiting"]["overlapping"], Value::Array(Vec::new()));
}

fn look(record: &RunRecord, options: &ReportOptions, width: u32) -> Value {
    let metrics = Metrics::of(record, options);
    assert!(metrics.conservation.is_ok(), "{:?}", metrics.conservation);
    let page = html::page(record, &metrics, options, None);
    let page = page.replace("</body>", &format!("<script>{LOOK}</script></body>"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.html");
    std::fs::write(&file, page).unwrap();
    if let Some(keep) = std::env::var_os("FOREBAY_KEEP_PAGES") {
        let name = format!("run-{}.html", record.instances.len());
        std::fs::copy(&file, std::path::Path::new(&keep).join(name)).unwrap();
    }

    let seen = chromium::load(&file, width);

    assert_eq!(seen.console, Vec::<String>::new());
    let (_, rest) = seen.dom.split_once(FINDINGS[0]).expect("the page has its findings");
    let (findings, _) = rest.split_once(FINDINGS[1]).unwrap();
    let findings = findings.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&findings).unwrap()
}

fn options() -> ReportOptions {
    ReportOptions {
        title: format!("{HOSTILE} & co"),
        num_requests: 900,
        instance_names: vec![
            "instance_0".to_owned(),
            format!("model-server-with-a-long-name{HOSTILE}"),
        ],
        fitness: Some("p99_ttft:1".parse().unwrap()),
        settings: vec![
            ("routing-policy".to_owned(), "weighted".into()),
            ("seed".to_owned(), 42.into()),
        ],
        ..ReportOptions::default()
    }
}

/// A run that looks like one: a wave of load that some endpoints feel more than others.
fn run(instances: u32) -> RunRecord {
    let client = |number: u64| {
        Arc::new(Client {
            tenant: Arc::from(["blue", "red", HOSTILE][number as usize % 3]),
            slo_class: Arc::from(["critical", "batch"][number as usize % 2]),
            ..Client::default()
        })
    };
    let mut itl = [("critical", Counts::default()), ("batch", Counts::default())];
    let mut instance_itl = vec![Counts::default(); instances as usize];
    let requests = (0..900).map(|number: u64| {
        let rejected = number % 9 == 8;
        let instance = (number * number % 7 % u64::from(instances)) as u32;
        // Noise that is the same in every run.
        let noise = number.wrapping_mul(2_654_435_761) % 1_000;
        let wave = 1_000 * number.min(900 - number);
        let gateway = wave * (1 + number % 3) / 4;
        let scheduling = gateway + wave / 2 + 40 * noise;
        let ttft = scheduling + 12_000 + 9 * noise * noise / 10;
        let gap = 9_000 + 1_500 * (noise % 6);
        let mut request = RequestRecord {
            name: RequestName::Numbered(number),
            client: client(number),
            session: None,
            arrival_us: number * 70_000,
            prompt_tokens: 400,
            output_tokens: 0,
            cached_tokens: 0,
            end: End::Rejected,
            instance: None,
            gateway_delay_us: None,
            scheduling_delay_us: None,
            ttft_us: None,
            itl_sum_us: 0,
            e2e_us: None,
            length_capped: false,
        };
        if !rejected {
            let tokens = 2 + (noise % 200) as u32;
            let itl_sum_us = gap * u64::from(tokens - 1);
            for _ in 1..tokens {
                itl[number as usize % 2].1.add(gap);
                instance_itl[instance as usize].add(gap);
            }
            request = RequestRecord {
                output_tokens: tokens,
                end: End::Completed,
                instance: Some(instance),
                gateway_delay_us: Some(gateway),
                scheduling_delay_us: Some(scheduling),
                ttft_us: Some(ttft),
                itl_sum_us,
                e2e_us: Some(ttft + itl_sum_us),
                ..request
            };
        }
        request
    });
    let requests: Vec<_> = requests.collect();
    let samples = (0..480_u64).map(|at| {
        let wave = (at.min(480 - at)) as f64 / 240.0;
        let of_instance = |index: u32| {
            let share = wave * (1.0 + f64::from(index % 4)) / 4.0;
            let ripple = ((at * 7 + u64::from(index) * 13) % 11) as f64 / 11.0;
            InstanceSample {
                waiting: (share * 20.0 + share * ripple * 8.0) as u32,
                running: (share * 30.0) as u32,
                in_flight: (share * 50.0 + ripple * 4.0) as u32,
                kv_usage: (share * 0.9 + ripple * 0.05).min(1.0),
                saturation: share * 0.9,
            }
        };
        Sample {
            at_us: at * 131_250,
            gateway_waiting: (wave * wave * 60.0) as u64,
            saturation: wave * 0.9,
            instances: (0..instances).map(of_instance).collect(),
        }
    });
    RunRecord {
        requests,
        instances: (0..instances)
            .map(|index| InstanceTotals {
                preemptions: u64::from(index),
                block_hits: 700,
                block_misses: 300 + 100 * u64::from(index),
                input_tokens: 80_000,
                steps: 5_000,
                waiting_sum: 9_000 * u64::from(index),
                ..InstanceTotals::default()
            })
            .collect(),
        itl: itl.map(|(class, counts)| (Arc::from(class), counts)).into(),
        instance_itl,
        end_us: 64_000_000,
        series: Series {
            every_us: 131_250,
            judge: Judge::Detector,
            samples: samples.collect(),
        },
    }
}
