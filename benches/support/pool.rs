//! A pool in the middle of its work, and requests for it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use forebay::engine::Engine;
use forebay::engine::config::{LoadOptions, SourceName, load};
use forebay::engine::pool::{Endpoint, EndpointId, PoolChange, SignalUpdate};
use forebay::engine::prefix::{BlockHasher, BlockLayout};
use forebay::engine::request::{Kind, Request};
use forebay::engine::scheduling::{Explain, Probe};
use forebay::engine::seed::Seed;
use forebay::engine::time::Timestamp;

/// What every engine here is told the time is.
pub(crate) const NOW: Timestamp = Timestamp::ZERO;

/// An engine with the default profile and so many endpoints, each of which has reported some load.
pub(crate) fn engine(endpoints: u8, of_hosts: u8, probe: Box<dyn Probe>) -> Engine {
    let plan = load("", &SourceName::BuiltIn, &LoadOptions::default()).expect("the default is right");
    let mut engine = Engine::new(plan.plan.scheduling, Seed(1), probe, Explain::default());
    let ids = (0..of_hosts).flat_map(|host| (0..endpoints).map(move |number| (host, number)));
    let changes = ids.zip(0_u32..).flat_map(|((host, number), at)| {
        let name = format!("vllm-{host}-{number}");
        let id = EndpointId::new("default", &name);
        let endpoint = Endpoint {
            id: id.clone(),
            name: name.into(),
            address: Ipv4Addr::new(10, 0, host, number).into(),
            port: 8000,
            labels: BTreeMap::new(),
            rank: 0,
        };
        let report = SignalUpdate {
            at: NOW + Duration::from_millis(1),
            waiting: Some(at * 7 % 5),
            running: Some(at * 11 % 32),
            kv_usage: Some(f64::from(at * 13 % 90) / 100.0),
            ..SignalUpdate::default()
        };
        [PoolChange::Upsert(Arc::new(endpoint)), PoolChange::Report(id, report)]
    });
    engine.pool_changed(NOW, changes.collect());
    engine
}

/// Requests with prompts of so many bytes. The first half of the prompt is the same in all of them, as a system
/// prompt is; the second half is the conversation's own.
pub(crate) fn requests(count: u32, prompt_bytes: usize) -> Vec<Request> {
    let request = |number: u32| {
        let mut hasher = BlockHasher::new("llama", "", BlockLayout::default());
        hasher.text("Be brief. ".repeat(prompt_bytes / 20).as_bytes());
        hasher.text(format!("{number:10}").repeat(prompt_bytes / 20).as_bytes());
        hasher.end_prompt();
        let (prompt_tokens, prompt_blocks) = hasher.finish();
        Request {
            model: "llama".into(),
            target_model: "llama".into(),
            prompt_tokens,
            prompt_blocks,
            size_bytes: prompt_bytes as u64,
            ..Request::unknown(Kind::Inference)
        }
    };
    (0..count).map(request).collect()
}
