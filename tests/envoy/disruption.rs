//! Clients that leave, endpoints that come and go, and pickers that end.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use forebay::serve::demo::children::Signal;
use forebay::serve::demo::envoy::{BodyMode, Destination, FailureMode};
use forebay::serve::ext_proc::only_for_pickers;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use serde_json::json;

use crate::support::cluster::{Cluster, MODEL, ModelServer, Plan, document, sum};
use crate::support::http::Ask;
use crate::support::load::Load;
use crate::support::upstream::Upstream;
use crate::support::{happens, soon};

/// Bound for what a loaded machine may take long for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the picker and the model servers work on so many requests.
async fn running(cluster: &Cluster, wanted: f64) {
    happens(&format!("{wanted} requests run"), PATIENCE, async || {
        let picker = cluster.running().await?;
        let mut servers = 0.0;
        for server in &cluster.servers {
            servers += server.running(&cluster.client).await?;
        }
        if picker == wanted && servers == wanted {
            return Ok(());
        }
        Err(format!("{picker} for the picker, {servers} for the model servers"))
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_stream_leaves_nothing_behind() {
    let cluster = Plan::new().speed(1.0).start().await;
    let endless = json!({ "model": MODEL, "prompt": "Hello", "max_tokens": 100_000, "stream": true });
    let mut response = cluster.client.open(cluster.completion(endless.to_string())).await;
    soon("words come", response.frame()).await.unwrap().unwrap();
    running(&cluster, 1.0).await;

    drop(response);

    running(&cluster, 0.0).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_its_answer_leaves_nothing_behind() {
    let cluster = Plan::new().speed(1.0).start().await;
    let ask = cluster.completion(document("Hello", 100_000).to_string());
    let client = cluster.client.clone();
    let request = tokio::spawn(async move { client.try_send(ask).await });
    running(&cluster, 1.0).await;

    request.abort();

    running(&cluster, 0.0).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_its_body_ends_leaves_nothing_behind() {
    let cluster = Plan::new().start().await;
    let asked = async |wanted: u64| {
        happens(
            &format!("Envoy asks the picker about {wanted} requests"),
            PATIENCE,
            async || match cluster.envoy.stat("cluster.picker.upstream_rq_active").await? {
                found if found == wanted => Ok(()),
                found => Err(format!("it asks about {found}")),
            },
        )
        .await;
    };

    happens("the picker counts a client that left", PATIENCE, async || {
        let half = stream::iter([Bytes::from_static(b"{\"model\": ")]).chain(stream::pending());
        let ask = Ask::post_pieces(&cluster.url("/v1/completions"), half);
        let client = cluster.client.clone();
        let request = tokio::spawn(async move { client.try_send(ask).await });
        asked(1).await;
        request.abort();
        asked(0).await;
        // A stream that is reset before the picker has read of it is none.
        let page = cluster.page("/metrics").await.text();
        let left = sum(&page, "forebay_requests_ended_total{outcome=\"cancelled\"}");
        if left > 0.0 { Ok(()) } else { Err(page) }
    })
    .await;

    assert_eq!(cluster.running().await, Ok(0.0));
    assert_eq!(cluster.complete("Hello").await.status, 200);
}

#[tokio::test]
async fn endpoints_come_and_go_under_load_and_no_request_fails() {
    let cluster = Plan::new().start().await;
    let late = ModelServer::start("c", 20.0).await;
    let of = |server: &ModelServer| (server.name, server.address);
    let [a, b] = &cluster.servers[..] else {
        panic!("there are two servers");
    };
    let load = Load::start(&cluster, 4);
    let serves = async |load: &Load, name: &str, from: usize| {
        happens(&format!("{name} serves"), PATIENCE, async || {
            if load.served_by(name, from) > 0 {
                Ok(())
            } else {
                Err(format!("{} answers", load.answered()))
            }
        })
        .await;
    };
    serves(&load, "a", 0).await;

    cluster.tell_endpoints(&[of(a), of(b), ("c", late.address)]);
    serves(&load, "c", 0).await;
    cluster.tell_endpoints(&[of(b), ("c", late.address)]);
    happens("a gets no more requests", PATIENCE, async || {
        let before = load.answered();
        happens("twenty more answers", PATIENCE, async || {
            if load.answered() >= before + 20 {
                Ok(())
            } else {
                Err(format!("{} answers", load.answered()))
            }
        })
        .await;
        match load.served_by("a", before) {
            0 => Ok(()),
            some => Err(format!("{some} of the last answers are its")),
        }
    })
    .await;

    load.end_without_failures().await;
}

#[tokio::test]
async fn sigterm_under_load_loses_nothing() {
    let mut cluster = Plan::new().speed(1.0).flag("--drain-quiet=2s").start().await;
    // Some two seconds each.
    let long = join_all((0..8).map(|number| {
        let ask = cluster.completion(document(&format!("Long question {number}"), 200).to_string());
        let client = cluster.client.clone();
        // Two seconds at best: how long it takes is up to the machine.
        tokio::spawn(async move { client.try_send(ask).await })
    }));
    running(&cluster, 8.0).await;

    cluster.picker.child.signal(Signal::TERM);
    cluster.picker.says("draining").await;
    for number in 0..8 {
        let late = cluster.complete(&format!("Late question {number}")).await;
        assert_eq!(late.status, 200, "{}", late.text());
    }
    for answer in long.await {
        let answer = answer.unwrap().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["usage"]["completion_tokens"], 200);
    }

    let status = soon("the picker ends", cluster.picker.child.wait()).await.unwrap();
    assert!(status.success(), "{status}");
    cluster.picker.says("drained").await;
}

#[tokio::test]
async fn a_second_signal_ends_the_picker_at_once() {
    let mut cluster = Plan::new().speed(1.0).start().await;
    let ask = cluster.completion(document("Hello", 100_000).to_string());
    let client = cluster.client.clone();
    let request = tokio::spawn(async move { client.try_send(ask).await });
    running(&cluster, 1.0).await;

    cluster.picker.child.signal(Signal::TERM);
    cluster.picker.says("draining").await;
    cluster.picker.child.signal(Signal::TERM);

    soon("the picker ends", cluster.picker.child.wait()).await.unwrap();
    request.abort();
}

#[tokio::test]
async fn without_a_picker_requests_fail_where_envoy_fails_closed() {
    let mut cluster = Plan::new().start().await;
    assert_eq!(cluster.complete("Hello").await.status, 200);

    cluster.kill_picker().await;

    let reply = cluster.complete("Hello").await;
    assert!(reply.status >= 500, "{}", reply.status);
    assert!(!reply.headers.contains_key("x-served-by"));
}

/// A cluster that goes on without its picker.
async fn open_cluster(mode: BodyMode) -> Cluster {
    let plan = Plan::new()
        .flag("--health-checking")
        .envoy(move |bootstrap, endpoints| {
            bootstrap.failure = FailureMode::Open;
            bootstrap.destination = Destination::Known(endpoints);
            bootstrap.request_body = mode;
            bootstrap.response_body = mode;
        });
    plan.start().await
}

#[tokio::test]
async fn without_a_picker_requests_are_served_in_turn_where_envoy_fails_open() {
    let mut cluster = open_cluster(BodyMode::FullDuplexStreamed).await;
    assert_eq!(cluster.complete("Hello").await.status, 200);

    cluster.kill_picker().await;

    // Envoy has to notice first: a request of which the picker was sent a part cannot go on without it.
    happens(
        "requests are served without the picker",
        PATIENCE,
        async || match cluster.complete("Hello").await.status {
            200 => Ok(()),
            status => Err(format!("status {status}")),
        },
    )
    .await;
    let mut served = BTreeSet::new();
    for number in 0..8 {
        served.insert(
            cluster
                .complete(&format!("Hello {number}"))
                .await
                .served_by()
                .to_owned(),
        );
    }
    assert_eq!(served, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
}

#[tokio::test]
async fn a_picker_that_hangs_is_noticed_where_envoy_fails_open() {
    let cluster = open_cluster(BodyMode::FullDuplexStreamed).await;
    assert_eq!(cluster.complete("Hello").await.status, 200);

    cluster.picker.child.signal(Signal::STOP);

    happens("Envoy takes the picker for unhealthy", PATIENCE, async || match cluster
        .envoy
        .stat("cluster.picker.membership_healthy")
        .await?
    {
        0 => Ok(()),
        some => Err(format!("{some} healthy")),
    })
    .await;
    for number in 0..4 {
        let reply = cluster.complete(&format!("Hello {number}")).await;
        assert!(["a", "b"].contains(&reply.served_by()));
    }
}

#[tokio::test]
async fn a_client_steers_nothing_where_envoy_goes_on_without_a_picker() {
    let upstream = Upstream::start().await;
    let plan = Plan::new().upstream(upstream.address).flag("--health-checking");
    let mut cluster = plan
        .envoy(|bootstrap, endpoints| {
            bootstrap.failure = FailureMode::Open;
            bootstrap.destination = Destination::Known(endpoints);
            bootstrap.request_body = BodyMode::Buffered;
            bootstrap.response_body = BodyMode::Buffered;
        })
        .start()
        .await;
    cluster.kill_picker().await;
    let ask = cluster.completion(document("Hello", 4).to_string());

    let ask = only_for_pickers().fold(ask, |ask, name| ask.header(name, "6.6.6.6:6"));
    let reply = cluster.client.send(ask).await;

    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = upstream.only().headers;
    let leaked: Vec<_> = only_for_pickers().filter(|name| seen.contains_key(*name)).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

#[tokio::test]
async fn no_request_fails_without_a_picker_where_bodies_are_buffered_and_envoy_fails_open() {
    let mut cluster = open_cluster(BodyMode::Buffered).await;
    assert_eq!(cluster.complete("Hello").await.status, 200);

    cluster.kill_picker().await;

    for number in 0..4 {
        let reply = cluster.complete(&format!("Hello {number}")).await;
        assert!(["a", "b"].contains(&reply.served_by()));
    }
}

#[tokio::test]
async fn a_known_destination_follows_the_pick() {
    let cluster = Plan::new()
        .servers(&["a", "b", "c"])
        .envoy(|bootstrap, endpoints| bootstrap.destination = Destination::Known(endpoints))
        .start()
        .await;

    for number in 0..12 {
        let id = format!("r-{number}");
        let ask = cluster.completion(document(&format!("Question {number}"), 2).to_string());
        let reply = cluster.client.send(ask.header("x-request-id", &id)).await;

        assert_eq!(reply.served_by(), cluster.explanation(&id).await["endpoint"]);
    }
}

#[tokio::test]
async fn a_picker_that_comes_back_is_asked_again() {
    let mut cluster = Plan::new().start().await;
    assert_eq!(cluster.complete("Hello").await.status, 200);
    cluster.kill_picker().await;
    assert!(cluster.complete("Hello").await.status >= 500);

    cluster.restart_picker().await;

    happens("requests are served again", PATIENCE, async || {
        match cluster.complete("Hello").await.status {
            200 => Ok(()),
            status => Err(format!("status {status}")),
        }
    })
    .await;
    for number in 0..8 {
        let reply = cluster.complete(&format!("Hello {number}")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}
