//! Clients that open and do not speak, send and do not end, or do not read: others are served meanwhile.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use forebay::serve::demo::children::Signal;
use forebay::serve::demo::envoy::{Bootstrap, PickerSecurity};
use rustix::process::{Pid, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::support::cluster::{ModelServer, Plan, document};
use crate::support::envoy::Envoy;
use crate::support::happens;
use crate::support::http::{Ask, Client};
use crate::support::service::is_ready;

/// Bound for what a loaded machine may take long for.
const PATIENCE: Duration = Duration::from_secs(60);

/// More than the picker takes on a port of this many connections.
const MANY: usize = 100;
const FEW: &str = "--max-connections=32";

async fn silent_connections(address: SocketAddr) -> Vec<TcpStream> {
    let mut connections = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        connections.push(TcpStream::connect(address).await.unwrap());
    }
    connections
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out_of_any_port() {
    let cluster = Plan::new().flag(FEW).start().await;
    assert_eq!(cluster.complete("before").await.status, 200);
    let mut silent = Vec::new();
    for port in [cluster.picker.grpc, cluster.picker.health, cluster.picker.metrics] {
        silent.extend(silent_connections(port).await);
    }

    assert_eq!(cluster.page("/metrics").await.status, 200);
    assert!(is_ready(cluster.picker.health).await);
    assert_eq!(cluster.complete("after").await.status, 200);
}

#[tokio::test]
async fn tls_handshakes_that_do_not_go_on_hold_up_no_others() {
    let plan = Plan::new().tls().flag(FEW);
    let cluster = plan
        .envoy(|bootstrap, _| bootstrap.security = PickerSecurity::Tls)
        .start()
        .await;
    // Envoy connects to the picker with the first request.
    let _silent = silent_connections(cluster.picker.grpc).await;

    assert_eq!(cluster.complete("hello").await.status, 200);
}

#[tokio::test]
async fn bodies_for_which_there_is_no_memory_are_refused_and_others_are_served() {
    const MEBIBYTE: usize = 1 << 20;
    // Half of it is for requests.
    let cluster = Plan::new().flag("--memory-limit=32Mi").start().await;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        8 * MEBIBYTE
    );

    // Each lacks its last byte, so that none but those that are refused are answered.
    let mut uploads = Vec::new();
    for _ in 0..6 {
        let mut upload = TcpStream::connect(cluster.envoy.ingress).await.unwrap();
        upload.write_all(head.as_bytes()).await.unwrap();
        // One that is refused may be cut off.
        let _ = upload.write_all(&vec![b' '; 8 * MEBIBYTE - 1]).await;
        uploads.push(upload);
    }

    let mut answer = vec![0; 4096];
    let last = uploads.last_mut().unwrap();
    let read = tokio::time::timeout(PATIENCE, last.read(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    for part in ["rejected-memory-exhausted", "retry-after: 1", "--memory-limit"] {
        assert!(answer.contains(part), "{part} is not in {answer}");
    }
    assert_eq!(cluster.complete("small").await.status, 200);

    drop(uploads);
    happens("a large body is taken again", PATIENCE, async || {
        let mut body = document("hello", 1);
        body["user"] = "x".repeat(4 * MEBIBYTE).into();
        let body = body.to_string();
        let reply = cluster.client.try_send(cluster.completion(body)).await?;
        (reply.status == 200).then_some(()).ok_or_else(|| reply.text())
    })
    .await;
}

#[tokio::test]
async fn a_log_that_nobody_reads_stops_neither_requests_nor_pages_nor_the_end() {
    let directory = TempDir::with_prefix("forebay-test-").unwrap();
    let server = ModelServer::start("a", 100.0).await;
    let endpoints = directory.path().join("endpoints.yaml");
    let (ip, port) = (server.address.ip(), server.address.port());
    std::fs::write(
        &endpoints,
        format!("endpoints: [{{name: a, address: {ip}, port: \"{port}\"}}]\n"),
    )
    .unwrap();
    let mut picker = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .env_remove("RUST_LOG")
        .arg(format!("--endpoints-file={}", endpoints.display()))
        .args([
            "--bind-address=127.0.0.1",
            "--secure-serving=false",
            "--zap-encoder=json",
            "-v=5",
        ])
        .args([
            "--grpc-port=0",
            "--grpc-health-port=0",
            "--metrics-port=0",
            "--drain-quiet=0s",
        ])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // Its end stays open, and is not read any more.
    let mut log = BufReader::new(picker.stderr.take().unwrap()).lines();
    let mut listening = Value::Null;
    loop {
        let line: Value = serde_json::from_str(&log.next_line().await.unwrap().unwrap()).unwrap();
        match line["message"].as_str() {
            Some("listening") => listening = line,
            Some("ready") => break,
            _ => {}
        }
    }
    let address = |of: &str| -> SocketAddr { listening[of].as_str().unwrap().parse().unwrap() };

    let client = Client::new();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let document_of_envoy = Bootstrap::new(any, any, address("grpc")).document();
    let envoy = Envoy::start_document(&document_of_envoy, Path::new(directory.path()), &client).await;
    let url = format!("http://{}/v1/completions", envoy.ingress);
    // A pipe holds 64 KiB: far less than is said of so many requests.
    for number in 0..500 {
        let ask = Ask::post(&url, document(&format!("question {number}"), 1).to_string());
        assert_eq!(client.send(ask).await.status, 200, "request {number}");
    }
    let page = client
        .fetch(&format!("http://{}/metrics", address("metrics")))
        .await
        .unwrap();
    assert_eq!(page.status, 200);

    let pid = Pid::from_raw(i32::try_from(picker.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = tokio::time::timeout(PATIENCE, picker.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
    drop(log);
}

/// Puts a new certificate and its key where the picker finds them.
fn write_certificate(directory: &Path) {
    let made = rcgen::generate_simple_self_signed(["picker".to_owned()]).unwrap();
    std::fs::write(directory.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn sighup_has_files_read_again_and_ends_nothing() {
    let certificates = TempDir::with_prefix("forebay-test-").unwrap();
    write_certificate(certificates.path());
    let plan = Plan::new().tls().flag("--enable-cert-reload=false");
    let cluster = plan
        .flag(format!("--cert-path={}", certificates.path().display()))
        .envoy(|bootstrap, _| bootstrap.security = PickerSecurity::Tls)
        .start()
        .await;
    write_certificate(certificates.path());

    cluster.picker.child.signal(Signal::HUP);

    cluster.picker.says("certificate reloaded").await;
    assert_eq!(cluster.complete("hello").await.status, 200);
}
