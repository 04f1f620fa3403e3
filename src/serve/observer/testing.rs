//! Requests, and a server, for tests.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::ask::Ask;
use super::run::{Heard, Server, Trouble};
use crate::serve::parse::Usage;
use crate::sim::request::{Client, Media, RequestName, SimRequest};

/// A request of nobody, with ten tokens to come.
pub(super) fn request(number: u64, prompt_tokens: u32) -> SimRequest {
    SimRequest {
        name: RequestName::Numbered(number),
        client: Arc::new(Client::default()),
        arrival_us: 0,
        prompt_tokens,
        output_tokens: 10,
        max_output_tokens: Some(10),
        deadline_us: None,
        slo_target_us: None,
        session: None,
        media: Media::default(),
        reason_ratio: 0.0,
        chain: Arc::default(),
    }
}

/// A server of which a test says how it answers. Knows no sockets: time is tokio's, which tests pause.
#[derive(Debug)]
pub(super) struct Script {
    latency: Duration,
    trouble: Option<Trouble>,
    prompt_tokens: u64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    asked: Vec<Ask>,
    at: Vec<Duration>,
    began: Option<Instant>,
    under_way: usize,
    most_at_once: usize,
}

/// Counts a request for as long as it is there, however it goes.
struct UnderWay<'s>(&'s Mutex<Seen>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

impl Script {
    /// A server that answers with as many pieces as it is asked for: the first one after `latency`, and the others each
    /// after as much.
    pub(super) fn answering(latency: Duration) -> Self {
        Self {
            latency,
            trouble: None,
            prompt_tokens: 0,
            seen: Mutex::default(),
        }
    }

    /// A server that fails at once.
    pub(super) fn failing(trouble: Trouble) -> Self {
        Self {
            trouble: Some(trouble),
            ..Self::answering(Duration::ZERO)
        }
    }

    /// It says that prompts have so many tokens.
    pub(super) fn counting(mut self, prompt_tokens: u64) -> Self {
        self.prompt_tokens = prompt_tokens;
        self
    }

    /// What it was asked.
    pub(super) fn asked(&self) -> Vec<Ask> {
        self.seen.lock().asked.clone()
    }

    /// When it was asked, in milliseconds from the first time on.
    pub(super) fn asked_at_ms(&self) -> Vec<u128> {
        self.seen.lock().at.iter().map(Duration::as_millis).collect()
    }

    /// How many requests were under way at once.
    pub(super) fn most_at_once(&self) -> usize {
        self.seen.lock().most_at_once
    }

    fn begin(&self, ask: &Ask) -> UnderWay<'_> {
        let now = Instant::now();
        let mut seen = self.seen.lock();
        let began = *seen.began.get_or_insert(now);
        seen.at.push(now - began);
        seen.asked.push(ask.clone());
        seen.under_way += 1;
        seen.most_at_once = seen.most_at_once.max(seen.under_way);
        UnderWay(&self.seen)
    }
}

impl Server for Script {
    async fn answer(&self, ask: &Ask, heard: &mut Heard) -> Result<(), Trouble> {
        let _under_way = self.begin(ask);
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        for _ in 0..ask.output_tokens {
            sleep(self.latency).await;
            heard.piece(" sea", None);
        }
        heard.piece("", Some("length".to_owned()));
        heard.usage(Some(Usage {
            prompt: self.prompt_tokens,
            completion: ask.output_tokens.into(),
            ..Usage::default()
        }));
        Ok(())
    }
}
