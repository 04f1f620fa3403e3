//! The stand-in for a vLLM server: OpenAI requests over HTTP in front of the instance model, in real time.
//!
//! It takes as long as a GPU would, batches, caches prefixes and reports `/metrics` as vLLM does, and its answers are
//! words without meaning that depend on the prompt and a seed only. An answer always has as many tokens as the client
//! allows, and ends with the reason `length`. Four bytes of text are one token, of prompts and of answers.
//!
//! One task (`owner.rs`) owns the [`Instance`](crate::sim::instance::Instance) and drives it. The routes
//! (`routes.rs`) read what the client asks (`document.rs`), hold a `Generation` for each sequence and write what comes
//! out (`answer.rs`). Dropping a generation, as happens when a client goes away, takes its sequence out of the batch.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::serve::ListenerExt;
use http::HeaderValue;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::sim::instance::{InstanceConfig, LinearStepTime};

mod answer;
mod document;
mod error;
mod lax;
mod metrics;
mod owner;
mod routes;
mod text;

/// What a stand-in is and how fast.
#[derive(Clone, Debug)]
pub struct ModelServerConfig {
    /// What the server calls itself in the header `x-served-by`. Default: `model-server`.
    pub name: String,
    /// The base model. Default: `stand-in`.
    pub model: Arc<str>,
    /// LoRA adapters that are served beside the base model. Default: none.
    pub adapters: Vec<Arc<str>>,
    /// The limits of the instance. Its longest sequence is what the KV cache holds unless set, and may not be more.
    pub instance: InstanceConfig,
    /// How long its steps take.
    pub step_time: LinearStepTime,
    /// Chooses the words of the answers. Default: 0.
    pub seed: u64,
    /// The largest request body; a larger one is refused with 413. Default: 64 MiB.
    pub max_body_bytes: usize,
    /// Time that answers under way have to finish after the shutdown began. Then they are cut. Default: 2 s.
    pub grace: Duration,
}

impl Default for ModelServerConfig {
    fn default() -> Self {
        Self {
            name: "model-server".to_owned(),
            model: Arc::from("stand-in"),
            adapters: Vec::new(),
            instance: InstanceConfig::default(),
            step_time: LinearStepTime::default(),
            seed: 0,
            max_body_bytes: 64 << 20,
            grace: Duration::from_secs(2),
        }
    }
}

/// Why a stand-in does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The name cannot be sent in a header.
    #[error("the name `{0}` cannot be the value of a header; visible ASCII characters are needed")]
    Name(String),
    /// Requests would be taken in that cannot be finished.
    #[error("requests of `{max_model_len}` tokens cannot be served: the kv cache holds `{capacity}`")]
    TooLong {
        /// Tokens of the longest request.
        max_model_len: NonZeroU32,
        /// Tokens of the cache.
        capacity: u32,
    },
    /// The listener failed.
    #[error("accepting connections failed")]
    Accept(#[from] std::io::Error),
}

/// Serves on `listener` until `shutdown` is done and then until what is under way has finished, or the grace is over.
///
/// # Errors
///
/// If the name cannot be sent in a header, the longest request exceeds the KV cache, or the listener fails.
pub async fn serve(
    mut config: ModelServerConfig,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let served_by = HeaderValue::from_str(&config.name).map_err(|_| ServeError::Name(config.name.clone()))?;
    // Every answer has as many tokens as its client allows, so that none may be taken in that the cache would cut short.
    let capacity = config.instance.capacity_tokens();
    match config.instance.max_model_len {
        Some(max_model_len) if max_model_len.get() > capacity => {
            return Err(ServeError::TooLong {
                max_model_len,
                capacity,
            });
        }
        Some(_) => {}
        None => config.instance.max_model_len = NonZeroU32::new(capacity),
    }
    let grace = config.grace;
    let (owner, handle) = owner::new(&config);
    let _owner = AbortOnDropHandle::new(tokio::spawn(owner.run()));
    let router = routes::router(config, handle, served_by);
    let listener = listener.tap_io(|connection| {
        // A connection that is gone already is noticed when it is read.
        let _ = connection.set_nodelay(true);
    });

    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        shutdown.await;
        stop.cancel();
    });
    let cut = async {
        stopping.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        result = server => Ok(result?),
        () = cut => Ok(()),
    }
}

/// Time since the Unix epoch, for what clients and Prometheus read as a date. Nothing is decided by it.
#[expect(clippy::disallowed_methods, reason = "a date for others to read")]
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests;
