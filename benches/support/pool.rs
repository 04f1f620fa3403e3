//! A pool in the middle of its work.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use forebay::engine::config::{LoadOptions, SourceName, load};
use forebay::engine::pool::{Endpoint, EndpointId, PoolChange, SignalUpdate};
use forebay::engine::scheduling::{Explain, Probe};
use forebay::engine::seed::Seed;
use forebay::engine::time::Timestamp;
use forebay::engine::{Engine, Input};

/// What every engine here is told the time is.
pub(crate) const NOW: Timestamp = Timestamp::ZERO;

/// An engine with the default profile and so many endpoints on each of so many hosts, all of which have reported some
/// load.
pub(crate) fn engine(endpoints: u8, hosts: u8, probe: Box<dyn Probe>) -> Engine {
    let plan = load("", &SourceName::BuiltIn, &LoadOptions::default()).expect("the default is right");
    let mut engine = Engine::new(plan.plan.engine, Seed(1), probe, Explain::default());
    let ids = (0..hosts).flat_map(|host| (0..endpoints).map(move |number| (host, number)));
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
    let changes = changes.collect();
    engine.apply(NOW, Input::PoolChanged { changes });
    engine
}
