//! The answer to a GET of `/metrics`: sent piece by piece, as fast as the client reads, and compressed if it likes.

use std::io::{self, Write as _};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::Admin;
use crate::serve::driver::Picker as _;
use crate::serve::observe::metrics::{Page, PoolView, media_type};

/// The most pages that are made at a time. A page is kept in memory until its client has read it.
const MAX_AT_A_TIME: usize = 4;

/// The time that a client has to read a page.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Pieces that wait for a client to read them.
const PIECES_AHEAD: usize = 2;

/// Bounds the pages that are made at a time.
#[derive(Clone, Debug)]
pub struct Pages {
    free: Arc<Semaphore>,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            free: Arc::new(Semaphore::new(MAX_AT_A_TIME)),
        }
    }
}

pub(super) async fn metrics(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let Ok(permit) = admin.pages.free.clone().try_acquire_owned() else {
        let retry = [(header::RETRY_AFTER, "1")];
        let reason = format!("metrics: {MAX_AT_A_TIME} pages are being read already\n");
        return (StatusCode::SERVICE_UNAVAILABLE, retry, reason).into_response();
    };
    let driver = &admin.driver;
    let pool = || {
        let now = driver.now();
        driver.inspect(|engine| PoolView::of(engine, now))
    };
    match admin.telemetry.metrics.page(&admin.pool, pool, &admin.process) {
        Ok(page) => {
            let encoding = Encoding::wanted(&headers);
            let common = [(header::CONTENT_TYPE, media_type()), (header::VARY, "accept-encoding")];
            let encoded = (encoding == Encoding::Gzip).then_some([(header::CONTENT_ENCODING, "gzip")]);
            (common, encoded, body(page, encoding, permit)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {error}\n")).into_response(),
    }
}

/// How a page is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Plain,
    /// A tenth of the size or less, for some tenths of a second of CPU time at 10 MB.
    Gzip,
}

impl Encoding {
    /// Gzip if the client takes it, as Prometheus does.
    fn wanted(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
        let mut accepted = accepted
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        let takes_gzip = accepted.any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let refuses = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
            name.trim().eq_ignore_ascii_case("gzip") && !refuses
        });
        match takes_gzip {
            true => Self::Gzip,
            false => Self::Plain,
        }
    }
}

/// A body that ends with an error if the page could not be sent as a whole, so that no client takes a part of it for all.
fn body(page: Page, encoding: Encoding, permit: OwnedSemaphorePermit) -> Body {
    let (pieces, sent) = mpsc::channel(PIECES_AHEAD);
    // A task of its own: a body is not asked for anything while its client does not read.
    tokio::spawn(async move {
        let _permit = permit;
        let _ = timeout(READ_TIMEOUT, send(page, encoding, pieces)).await;
    });
    Body::from_stream(stream::unfold(Some(sent), async |sent| {
        let mut sent = sent?;
        match sent.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(sent))),
            Some(Piece::End) => None,
            None => Some((Err(io::Error::other("the page was broken off")), None)),
        }
    }))
}

enum Piece {
    Bytes(Bytes),
    End,
}

/// Sends all pieces and the end. Without an end, what was sent counts as broken off.
async fn send(
    page: Page,
    encoding: Encoding,
    pieces: mpsc::Sender<Piece>,
) -> Result<(), mpsc::error::SendError<Piece>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    for piece in page {
        let encoded = piece.map_err(io::Error::other).and_then(|text| match encoding {
            Encoding::Plain => Ok(text),
            Encoding::Gzip => {
                gzip.write_all(&text)?;
                Ok(mem::take(gzip.get_mut()))
            }
        });
        match encoded {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => pieces.send(Piece::Bytes(bytes.into())).await?,
            Err(error) => {
                tracing::error!(%error, "the metrics page is broken off");
                return Ok(());
            }
        }
        // The thread has other work: timers, scrapes, watches.
        tokio::task::yield_now().await;
    }
    if encoding == Encoding::Gzip
        && let Ok(rest) = gzip.finish()
    {
        pieces.send(Piece::Bytes(rest.into())).await?;
    }
    pieces.send(Piece::End).await
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::body::to_bytes;
    use axum::http::HeaderValue;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::engine::Engine;
    use crate::engine::config::{LoadOptions, SourceName, load};
    use crate::engine::scheduling::Explain;
    use crate::engine::seed::Seed;
    use crate::serve::clock::Clock;
    use crate::serve::observe::metrics::{Limits, Metrics, PoolLabels, Process};
    use crate::serve::observe::record::RequestRecord;

    /// A page of many pieces.
    fn page() -> Page {
        let clock = Clock::new();
        let (metrics, probe) = Metrics::register(clock, Arc::default(), None, Limits::default()).unwrap();
        for n in 0..100 {
            let mut record = RequestRecord::new(clock.now());
            record.model = format!("model-{n}").into();
            record.endpoint = None;
            record.outcome = Some(crate::engine::outcome::Outcome::Disconnected);
            metrics.request_ended(&record);
            metrics.response_chunks(&record, &[Duration::from_millis(1)]);
        }
        let plan = load("", &SourceName::BuiltIn, &LoadOptions::default()).unwrap().plan;
        let engine = Engine::new(plan.engine, Seed(1), Box::new(probe), Explain::default());
        let labels = PoolLabels {
            name: "epp".to_owned(),
            staleness: Duration::from_secs(2),
        };
        let pool = || PoolView::of(&engine, clock.now());
        metrics.page(&labels, pool, &Process::default()).unwrap()
    }

    fn permit(pages: &Pages) -> OwnedSemaphorePermit {
        pages.free.clone().try_acquire_owned().unwrap()
    }

    #[tokio::test]
    async fn a_page_is_sent_as_a_whole() {
        let pages = Pages::default();

        let sent = to_bytes(body(page(), Encoding::Plain, permit(&pages)), usize::MAX)
            .await
            .unwrap();

        let pieces: Vec<_> = page().map(Result::unwrap).collect();
        assert!(pieces.len() > PIECES_AHEAD + 1, "{}", pieces.len());
        let (sent, whole) = (
            String::from_utf8_lossy(&sent),
            String::from_utf8(pieces.concat()).unwrap(),
        );
        // What the process takes is different each time.
        let lines = |text: &str| text.lines().filter(|line| !line.starts_with("process_")).count();
        assert_eq!(lines(&sent), lines(&whole));
        tokio::task::yield_now().await;
        assert_eq!(pages.free.available_permits(), MAX_AT_A_TIME);
    }

    #[tokio::test]
    async fn a_client_that_takes_gzip_gets_the_same_page_in_less() {
        let pages = Pages::default();

        let sent = to_bytes(body(page(), Encoding::Gzip, permit(&pages)), usize::MAX)
            .await
            .unwrap();

        let mut text = String::new();
        flate2::read::GzDecoder::new(&*sent).read_to_string(&mut text).unwrap();
        let whole: Vec<_> = page().map(Result::unwrap).collect();
        let lines = |text: &str| text.lines().filter(|line| !line.starts_with("process_")).count();
        assert_eq!(lines(&text), lines(&String::from_utf8(whole.concat()).unwrap()));
        assert!(sent.len() < text.len() / 5, "{} of {}", sent.len(), text.len());
    }

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        let wanted = |accepted: &[&'static str]| {
            let header = |value: &&'static str| (header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            Encoding::wanted(&accepted.iter().map(header).collect())
        };

        for accepted in [&["gzip"][..], &["deflate, GZIP;q=0.5"], &["br", "gzip"]] {
            assert_eq!(wanted(accepted), Encoding::Gzip, "{accepted:?}");
        }
        for accepted in [&[][..], &["identity"], &["gzip;q=0"], &["gzipped"]] {
            assert_eq!(wanted(accepted), Encoding::Plain, "{accepted:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up_and_does_not_get_a_part_for_the_whole() {
        let pages = Pages::default();
        let mut body = body(page(), Encoding::Plain, permit(&pages));
        assert!(body.frame().await.unwrap().is_ok());

        tokio::time::sleep(READ_TIMEOUT + Duration::from_secs(1)).await;

        assert_eq!(pages.free.available_permits(), MAX_AT_A_TIME);
        assert!(body.collect().await.is_err(), "the rest is an error");
    }
}
