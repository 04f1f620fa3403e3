//! WebSockets and CONNECT.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::support::cluster::{Cluster, Plan, sum};
use crate::support::{happens, soon};

const UPGRADE: &str = "GET /v1/realtime HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// A server that speaks no HTTP beyond what opens a tunnel, and says everything twice.
struct Echo {
    address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(echo(stream));
            }
        });
        Self {
            address,
            _task: AbortOnDropHandle::new(task),
        }
    }
}

async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    let read = stream.read(&mut buffer).await?;
    let first = &buffer[..read];
    if first.starts_with(b"GET /metrics") {
        return stream
            .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
    }
    let mut said = Vec::new();
    if first.starts_with(b"GET ") {
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(switch).await?;
    } else {
        said.extend_from_slice(first);
    }
    loop {
        stream.write_all(&said.repeat(2)).await?;
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        said = buffer[..read].to_vec();
    }
}

/// The connection manager, its first route, and the picker's filter.
fn parts(document: &mut Value) -> &mut Value {
    &mut document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
}

async fn cluster(upstream: &Echo, modes: [&'static str; 2], kind: &'static str) -> Cluster {
    Plan::new()
        .upstream(upstream.address)
        .document(move |document| {
            let manager = parts(document);
            manager["upgrade_configs"] = json!([{ "upgrade_type": kind }]);
            let filter = manager["http_filters"]
                .as_array_mut()
                .unwrap()
                .iter_mut()
                .find(|filter| filter["name"] == "envoy.filters.http.ext_proc")
                .unwrap();
            let config = &mut filter["typed_config"];
            config["processing_mode"]["request_body_mode"] = json!(modes[0]);
            config["processing_mode"]["response_body_mode"] = json!(modes[1]);
            config["allow_mode_override"] = json!(true);
            if kind == "CONNECT" {
                let route = &mut manager["route_config"]["virtual_hosts"][0]["routes"][0];
                route["match"] = json!({ "connect_matcher": {} });
                route["route"]["upgrade_configs"] = json!([{ "upgrade_type": "CONNECT", "connect_config": {} }]);
            }
        })
        .start()
        .await
}

/// Opens a tunnel with `request`, and gives the status.
async fn open(cluster: &Cluster, request: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(cluster.envoy.ingress).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon("the tunnel is answered", stream.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    (stream, head.split(' ').nth(1).unwrap().to_owned())
}

/// What is said on one side comes out on the other, twice.
async fn passes(stream: &mut TcpStream) {
    for word in ["ping", "pong", &"long".repeat(20_000)] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut heard = vec![0; 2 * word.len()];
        soon("the echo comes", stream.read_exact(&mut heard)).await.unwrap();
        let count = |text: &[u8]| text.iter().filter(|&&byte| byte == b'n').count();
        assert_eq!(count(&heard), 2 * count(word.as_bytes()));
    }
}

#[tokio::test]
async fn a_websocket_passes_both_ways() {
    let upstream = Echo::start().await;
    for modes in [
        ["FULL_DUPLEX_STREAMED"; 2],
        ["STREAMED"; 2],
        ["BUFFERED"; 2],
        ["BUFFERED", "STREAMED"],
        ["NONE"; 2],
    ] {
        let cluster = cluster(&upstream, modes, "websocket").await;

        let (mut stream, status) = open(&cluster, UPGRADE).await;

        assert_eq!(status, "101", "{modes:?}");
        passes(&mut stream).await;
    }
}

#[tokio::test]
async fn a_websocket_runs_until_it_is_closed() {
    let upstream = Echo::start().await;
    let cluster = cluster(&upstream, ["FULL_DUPLEX_STREAMED"; 2], "websocket").await;
    let (mut stream, _) = open(&cluster, UPGRADE).await;
    passes(&mut stream).await;
    assert_eq!(cluster.running().await, Ok(1.0));

    drop(stream);

    happens(
        "nothing runs",
        std::time::Duration::from_secs(20),
        async || match cluster.running().await? {
            0.0 => Ok(()),
            some => Err(format!("{some} run")),
        },
    )
    .await;
    let page = cluster.page("/metrics").await.text();
    assert_eq!(sum(&page, "forebay_requests_ended_total"), 1.0, "{page}");
}

#[tokio::test]
async fn a_connect_tunnel_passes_both_ways() {
    let upstream = Echo::start().await;
    let cluster = cluster(&upstream, ["FULL_DUPLEX_STREAMED"; 2], "CONNECT").await;

    let (mut stream, status) = open(&cluster, "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n").await;

    assert_eq!(status, "200");
    passes(&mut stream).await;
}
