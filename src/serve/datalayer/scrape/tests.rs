use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::super::testing::{Recorded, Recorder, endpoint, recorder};
use super::*;
use crate::engine::config::data_layer::{CoreMetricsExtractorParams, MetricsSourceParams};
use crate::engine::config::yaml;

const PAGE: &str = "vllm:num_requests_waiting 1\nvllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.5\n\
                    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n";

const TOLD: &str = "default/a waiting=Some(1) running=Some(2) kv=Some(0.5)";

/// A server that answers request after request with the answers of a script; the last one again and again.
#[derive(Clone)]
struct Server {
    script: Arc<[String]>,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn with(script: &[&str]) -> Self {
        Self {
            script: script.iter().map(|&answer| answer.to_owned()).collect(),
            requests: Arc::default(),
            connections: Arc::default(),
        }
    }

    /// Serves on a port of its own until the runtime ends.
    async fn listen(&self, tls: Option<TlsAcceptor>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.connections.fetch_add(1, Ordering::SeqCst);
                let (server, tls) = (server.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => server.answer(stream).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => server.answer(stream).await,
                            Err(error) => Err(error),
                        },
                    }
                });
            }
        });
        address
    }

    async fn answer(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut request = Vec::new();
        loop {
            while !request.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut request).await? == 0 {
                    return Ok(());
                }
            }
            request.clear();
            let number = self.requests.fetch_add(1, Ordering::SeqCst).min(self.script.len() - 1);
            stream.write_all(self.script[number].as_bytes()).await?;
            stream.flush().await?;
        }
    }
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn source(params: &str) -> MetricsSource {
    yaml::decode::<MetricsSourceParams>(params).unwrap().compile().unwrap()
}

fn scraper(params: &str) -> (Scraper<Recorder>, Recorded) {
    let (sink, recorded) = recorder();
    let mapping = CoreMetricsExtractorParams::default().compile().unwrap();
    let stats = Arc::new(ScrapeStats::default());
    let scraper = Scraper::new(source(params), mapping, SHORTEST_PERIOD, stats, sink).unwrap();
    (scraper, recorded)
}

/// One look at `address` by a client with these parameters.
async fn fetch(params: &str, address: SocketAddr) -> Result<Page, ScrapeError> {
    let (scraper, _recorded) = scraper(params);
    let shared = &scraper.shared;
    let mut look = Look::new(&endpoint("a", address, &[]), shared);
    shared
        .client
        .fetch(&look.uri, &mut look.reader, || Timestamp::ZERO)
        .await?;
    Ok(look.reader.finish())
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test]
async fn an_endpoint_that_comes_is_told_first_and_then_what_it_reports() {
    let server = Server::with(&[&answer("200 OK", PAGE)]);
    let address = server.listen(None).await;
    let (scraper, mut recorded) = scraper("{}");

    scraper.changed(vec![PoolChange::Upsert(endpoint("a", address, &[]))]);

    assert_eq!(recorded.next().await, format!("+ default/a {address}"));
    assert_eq!(recorded.next().await, TOLD);
    assert_eq!(recorded.next().await, "default/a can be scraped");
    assert_eq!(recorded.next().await, TOLD);
    assert_eq!(recorded.next().await, TOLD);
    assert_eq!(
        (scraper.stats().poll_errors(), scraper.stats().extract_errors()),
        (0, 0)
    );
}

#[tokio::test]
async fn an_endpoint_is_asked_again_and_again_on_one_connection() {
    let server = Server::with(&[&answer("200 OK", PAGE)]);
    let address = server.listen(None).await;
    let (scraper, mut recorded) = scraper("{}");

    scraper.changed(vec![PoolChange::Upsert(endpoint("a", address, &[]))]);
    for _ in 0..6 {
        recorded.next().await;
    }

    assert!(server.requests.load(Ordering::SeqCst) >= 4);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn failures_are_told_and_counted_and_pass() {
    let server = Server::with(&[
        &answer("500 Internal Server Error", "vllm:num_requests_waiting 9\n"),
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nvllm:",
        &answer("200 OK", PAGE),
    ]);
    let address = server.listen(None).await;
    let (scraper, mut recorded) = scraper("{}");

    scraper.changed(vec![PoolChange::Upsert(endpoint("a", address, &[]))]);
    recorded.next().await;

    assert_eq!(recorded.next().await, "default/a cannot be scraped: status");
    assert_eq!(recorded.next().await, "default/a cannot be scraped: unreadable");
    assert_eq!(recorded.next().await, TOLD);
    assert_eq!(recorded.next().await, "default/a can be scraped");
    assert_eq!(
        scraper.stats().poll_errors(),
        1,
        "an answer other than 200 is a failure"
    );
    assert_eq!(
        scraper.stats().extract_errors(),
        1,
        "a page that says nothing is incomplete"
    );
}

#[tokio::test]
async fn an_endpoint_that_leaves_is_not_asked_any_more() {
    let (scraper, mut recorded) = scraper("{}");
    let gone = endpoint("a", "127.0.0.1:9".parse().unwrap(), &[]);
    scraper.changed(vec![PoolChange::Upsert(Arc::clone(&gone))]);
    assert_eq!(Arc::strong_count(&scraper.shared), 2, "a task looks at the endpoint");

    scraper.changed(vec![PoolChange::Remove(gone.id.clone())]);

    while Arc::strong_count(&scraper.shared) > 1 {
        tokio::task::yield_now().await;
    }
    recorded.next().await;
    assert_eq!(recorded.next().await, "- default/a");
}

#[tokio::test]
async fn all_looking_ends_with_the_scraper() {
    let (scraper, _recorded) = scraper("{}");
    scraper.changed(vec![PoolChange::Upsert(endpoint(
        "a",
        "127.0.0.1:9".parse().unwrap(),
        &[],
    ))]);
    let shared = Arc::downgrade(&scraper.shared);

    drop(scraper);

    while shared.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_endpoint_told_again_unchanged_is_looked_at_as_before() {
    let (scraper, _recorded) = scraper("{}");
    let (first, again, other) = ("127.0.0.1:9", "127.0.0.1:9", "127.0.0.1:10");
    let watched = |scraper: &Scraper<Recorder>| Arc::as_ptr(&scraper.watches.lock()["default/a"].endpoint);
    let tell = |socket: &str| scraper.changed(vec![PoolChange::Upsert(endpoint("a", socket.parse().unwrap(), &[]))]);

    tell(first);
    let before = watched(&scraper);
    tell(again);
    assert_eq!(watched(&scraper), before);
    tell(other);
    assert_ne!(watched(&scraper), before);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_given_up_and_never_asked_twice_at_a_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (scraper, mut recorded) = scraper("{}");

    scraper.changed(vec![PoolChange::Upsert(endpoint(
        "a",
        listener.local_addr().unwrap(),
        &[],
    ))]);
    tokio::time::sleep(Duration::from_secs(10)).await;

    assert!(
        (8..=10).contains(&scraper.stats().poll_errors()),
        "{}",
        scraper.stats().poll_errors()
    );
    assert!(matches!(recorded.try_next(), Some(PoolChange::Upsert(_))));
    while let Some(told) = recorded.try_next() {
        let PoolChange::Scrape(_, Scrape::Failed { failure, began }) = told else {
            panic!("{told:?}");
        };
        assert_eq!(failure, ScrapeFailure::Timeout);
        assert!(began < scraper.now());
    }
}

#[tokio::test]
async fn a_refused_connection_is_told_from_others_where_requests_go_to_the_same_port() {
    let told = async |params: &str, port: u16| {
        let (scraper, mut recorded) = scraper(params);
        let socket = SocketAddr::from(([127, 0, 0, 1], port));
        scraper.changed(vec![PoolChange::Upsert(endpoint("a", socket, &[]))]);
        recorded.next().await;
        recorded.next().await
    };

    assert_eq!(told("{}", 1).await, "default/a cannot be scraped: connection-refused");
    assert_eq!(
        told("{port: 1}", 2).await,
        "default/a cannot be scraped: connection-failure"
    );
}

#[tokio::test]
async fn a_scraper_that_does_not_tell_of_health_reports_what_it_reads() {
    let server = Server::with(&[&answer("500 Internal Server Error", ""), &answer("200 OK", PAGE)]);
    let address = server.listen(None).await;
    let (scraper, mut recorded) = scraper("{}");
    let scraper = scraper.without_health();

    scraper.changed(vec![PoolChange::Upsert(endpoint("a", address, &[]))]);
    recorded.next().await;

    assert_eq!(recorded.next().await, TOLD);
    assert_eq!(recorded.next().await, TOLD);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_is_looked_at_once_in_a_period_and_at_first_without_waiting_for_its_turn() {
    let (scraper, _recorded) = scraper("interval: 10s");
    let nobody = endpoint("a", "127.0.0.1:1".parse().unwrap(), &[]);
    let looks = |scraper: &Scraper<Recorder>| scraper.stats().poll_errors();

    scraper.changed(vec![PoolChange::Upsert(nobody)]);
    tokio::time::sleep(SHORTEST_PERIOD * 2).await;
    assert!(looks(&scraper) >= 1);
    tokio::time::sleep(Duration::from_secs(100)).await;

    assert!((10..=12).contains(&looks(&scraper)), "{}", looks(&scraper));
}

#[tokio::test]
async fn a_page_that_is_too_long_is_not_read() {
    let announced = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", MAX_PAGE_BYTES + 1);
    let piece = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    let endless = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}",
        piece.repeat(9)
    );

    for script in [announced, endless] {
        let address = Server::with(&[&script]).listen(None).await;

        let error = fetch("{}", address).await.unwrap_err();

        assert_eq!(error.to_string(), "the page is longer than 8388608 bytes");
        assert_eq!(error.failure(), ScrapeFailure::TooLong);
    }
}

#[tokio::test]
async fn a_page_in_pieces_is_read_whole() {
    let pieces: String = PAGE
        .as_bytes()
        .chunks(7)
        .map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), str::from_utf8(piece).unwrap()))
        .collect();
    let chunked = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{pieces}0\r\n\r\n");
    let address = Server::with(&[&chunked]).listen(None).await;

    let page = fetch("{}", address).await.unwrap();

    assert_eq!(
        (page.signals.waiting, page.signals.total_blocks, page.missing.len()),
        (Some(1), Some(100), 0)
    );
}

#[tokio::test]
async fn errors_say_what_happened() {
    let refused = fetch("{}", "127.0.0.1:1".parse().unwrap()).await.unwrap_err();
    let status = Server::with(&[&answer("404 Not Found", "")]).listen(None).await;

    assert!(
        error_chain(&refused).starts_with("cannot get the page: "),
        "{}",
        error_chain(&refused)
    );
    assert!(error_chain(&refused).contains("refused"), "{}", error_chain(&refused));
    assert_eq!(
        fetch("{}", status).await.unwrap_err().to_string(),
        "the server answers 404 Not Found instead of 200"
    );
}

#[tokio::test]
async fn labels_and_parameters_say_where_the_page_is_and_how_it_is_read() {
    let (plain, _plain) = scraper("{}");
    let (other, _other) = scraper("{scheme: https, path: '/m?x=1', port: 9400}");
    let at = |socket: &str, labels| endpoint("a", socket.parse().unwrap(), labels);

    assert_eq!(
        page_uri(&plain.shared, &at("10.0.0.1:8000", &[])),
        "http://10.0.0.1:8000/metrics"
    );
    assert_eq!(
        page_uri(&other.shared, &at("[fd00::1]:8000", &[])),
        "https://[fd00::1]:9400/m?x=1"
    );
    let mut look = Look::new(
        &at("10.0.0.1:8000", &[("llm-d.ai/engine-type", "sglang")]),
        &plain.shared,
    );
    look.reader.feed(b"sglang:num_queue_reqs 4\n");
    assert_eq!(look.reader.finish().signals.waiting, Some(4));
}

#[tokio::test]
async fn a_path_that_is_none_is_refused() {
    let (sink, _recorded) = recorder();
    let mapping = CoreMetricsExtractorParams::default().compile().unwrap();

    let error = Scraper::new(source("path: '/a b'"), mapping, SHORTEST_PERIOD, Arc::default(), sink).unwrap_err();

    assert_eq!(error.to_string(), "path `/a b` cannot be part of a URL");
}

#[test]
fn endpoints_are_looked_at_at_different_moments() {
    let moments = (0..100).map(|n| {
        let moment = Phase::of(&EndpointId::new("default", &format!("vllm-{n}"))).within(SHORTEST_PERIOD);
        assert!(moment <= SHORTEST_PERIOD);
        moment
    });
    let moments: Vec<_> = moments.collect();

    for tenth in 0..10 {
        let (from, to) = (SHORTEST_PERIOD / 10 * tenth, SHORTEST_PERIOD / 10 * (tenth + 1));
        let here = moments.iter().filter(|&&moment| from <= moment && moment < to).count();
        assert!((2..=25).contains(&here), "{here} of 100 in tenth {tenth}");
    }
    assert!(moments.iter().collect::<BTreeSet<_>>().len() > 95);
}

/// An authority, and what it vouches for.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self {
            issuer,
            folder: tempfile::TempDir::new().unwrap(),
        };
        authority.write("ca.pem", &authority.issuer.pem());
        let (cert, key) = authority.certificate("client");
        authority.write("client.pem", &cert.pem());
        authority.write("client.key", &key.serialize_pem());
        authority
    }

    fn certificate(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Settings of a server; one that `asks` wants to see a certificate of this authority.
    fn acceptor(&self, asks: bool) -> TlsAcceptor {
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let (cert, key) = self.certificate("127.0.0.1");
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = if asks {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from(self.issuer.der().to_vec())).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .unwrap();
            builder.unwrap().with_client_cert_verifier(verifier)
        } else {
            builder.unwrap().with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = builder.with_single_cert(vec![cert.der().clone()], key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

async fn fetch_over_tls(params: &str, acceptor: TlsAcceptor) -> Result<Option<u32>, String> {
    let address = Server::with(&[&answer("200 OK", PAGE)]).listen(Some(acceptor)).await;
    let page = fetch(params, address).await.map_err(|error| error_chain(&error))?;
    Ok(page.signals.waiting)
}

#[tokio::test]
async fn any_certificate_is_taken_unless_checks_are_asked_for() {
    let authority = Authority::new();
    let other = Authority::new();
    let acceptor = || authority.acceptor(false);
    let trusting = format!(
        "{{scheme: https, insecureSkipVerify: false, caCertPath: '{}'}}",
        authority.path("ca.pem")
    );
    let distrusting = format!(
        "{{scheme: https, insecureSkipVerify: false, caCertPath: '{}'}}",
        other.path("ca.pem")
    );

    assert_eq!(fetch_over_tls("scheme: https", acceptor()).await, Ok(Some(1)));
    assert_eq!(fetch_over_tls(&trusting, acceptor()).await, Ok(Some(1)));
    let refusal = fetch_over_tls(&distrusting, acceptor()).await.unwrap_err();
    assert!(refusal.contains("invalid peer certificate"), "{refusal}");
}

#[tokio::test]
async fn a_certificate_is_shown_to_a_server_that_asks_for_one() {
    let authority = Authority::new();
    let with = format!(
        "{{scheme: https, clientCertPath: '{}', clientKeyPath: '{}'}}",
        authority.path("client.pem"),
        authority.path("client.key")
    );

    assert_eq!(fetch_over_tls(&with, authority.acceptor(true)).await, Ok(Some(1)));
    assert!(fetch_over_tls("scheme: https", authority.acceptor(true)).await.is_err());
}

#[tokio::test]
async fn files_for_tls_that_cannot_be_used_are_named_with_their_parameter() {
    let authority = Authority::new();
    authority.write("empty.pem", "");
    let error = |params: &str| error_chain(&Client::new(&source(params).transport, SHORTEST_PERIOD).unwrap_err());
    let with_ca = |path: &str| format!("{{scheme: https, insecureSkipVerify: false, caCertPath: '{path}'}}");

    let (empty, missing) = (authority.path("empty.pem"), authority.path("missing.pem"));
    assert_eq!(
        error(&with_ca(&empty)),
        format!("caCertPath `{empty}`: no certificate in it")
    );
    assert!(error(&with_ca(&missing)).starts_with(&format!("caCertPath `{missing}`: cannot be read as PEM: ")));
    let mismatch = format!(
        "{{scheme: https, clientCertPath: '{}', clientKeyPath: '{}'}}",
        authority.path("client.pem"),
        authority.path("ca.pem")
    );
    assert!(error(&mismatch).starts_with("clientKeyPath `"), "{}", error(&mismatch));
}

#[tokio::test]
async fn objectives_pass_through() {
    let (scraper, mut recorded) = scraper("{}");

    scraper.objectives([("urgent".into(), 10)].into());

    assert_eq!(recorded.try_next_objectives().as_deref(), Some("urgent=10"));
    assert_eq!(recorded.try_next_objectives(), None);
}
