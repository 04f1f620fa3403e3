//! A small mixed load: conversations that begin with the same instructions, as applications send them.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cluster::{Layout, MODEL};
use crate::serve::client::{Client, ClientError, Events, Piece};

/// The LoRA adapters of all model servers.
const ADAPTERS: [&str; 2] = ["lora-law", "lora-sql"];

/// Requests that are under way at once.
const CONCURRENCY: usize = 4;
/// Requests with the instructions of each application.
const TURNS: usize = 6;
/// Length of the instructions; four bytes are a token.
const INSTRUCTION_BYTES: usize = 6000;

/// The applications: what they are about, and the model that they ask for.
const APPLICATIONS: [(&str, &str); 4] = [
    ("shop", MODEL),
    ("books", MODEL),
    ("law", ADAPTERS[0]),
    ("data", ADAPTERS[1]),
];

/// A request of the load.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Its `x-request-id`.
    pub(super) id: String,
    /// Whose instructions it begins with.
    application: &'static str,
    model: &'static str,
    api: Api,
    delivery: Delivery,
    question: usize,
}

/// The two APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Api {
    Chat,
    Completion,
}

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Whole,
    Stream,
}

/// What came of a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) ask: Ask,
    pub(super) result: Result<Answered, Failed>,
}

/// What was measured of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// The model server that answered.
    pub(super) served_by: String,
    /// Time from the request to the first word.
    pub(super) first_word: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("status {status}: {body}")]
    Status { status: StatusCode, body: String },
    #[error("an answer without words")]
    Empty,
}

/// Four model servers that know the adapters.
pub(super) fn layout() -> Layout {
    Layout {
        model_servers: 4,
        model_server_flags: ADAPTERS.map(|adapter| format!("--lora={adapter}")).to_vec(),
        objectives: "",
        config: Some(include_str!("../../../examples/configs/fallback-list.yaml")),
    }
}

/// The requests, the first ones of all applications before the second ones.
pub(super) fn asks() -> Vec<Ask> {
    let turns = (0..TURNS).flat_map(|turn| APPLICATIONS.into_iter().enumerate().map(move |of| (turn, of)));
    turns
        .enumerate()
        .map(|(number, (turn, (place, (application, model))))| Ask {
            id: format!("demo-{}", number + 1),
            application,
            model,
            // One API for an application: what comes before its instructions is different in the two.
            api: if place == 1 { Api::Completion } else { Api::Chat },
            delivery: if (turn + place) % 2 == 0 {
                Delivery::Stream
            } else {
                Delivery::Whole
            },
            question: turn,
        })
        .collect()
}

/// Sends all, a few at once.
pub(super) async fn send(asks: Vec<Ask>, client: &Client, ingress: SocketAddr) -> Vec<Answer> {
    stream::iter(asks)
        .map(async |ask| Answer {
            result: ask.send(client, ingress).await,
            ask,
        })
        .buffered(CONCURRENCY)
        .collect()
        .await
}

/// As in the table: whose instructions, where to, for which adapter, and how the answer comes.
impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            application,
            api,
            model,
            delivery,
            ..
        } = self;
        let adapter = if *model == MODEL {
            String::new()
        } else {
            format!("{model} ")
        };
        write!(f, "{application}: {} {adapter}{}", api.name(), delivery.name())
    }
}

impl Ask {
    async fn send(&self, client: &Client, ingress: SocketAddr) -> Result<Answered, Failed> {
        let url = format!("http://{ingress}{}", self.api.path());
        let request = Request::post(&url)
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-request-id", &self.id)
            .body(Full::new(Bytes::from(self.document().to_string())))
            .map_err(|source| ClientError::Request { url, source })?;

        let began = Instant::now();
        let response = client.send(request).await?;
        let status = response.status();
        let served_by = response.headers().get("x-served-by");
        let served_by = served_by.map_or_else(String::new, |name| {
            String::from_utf8_lossy(name.as_bytes()).into_owned()
        });
        let mut body = response.into_body();
        let (mut received, mut first_word) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(ClientError::Body)?.into_data() {
                received.extend_from_slice(&data);
            }
            if first_word.is_none() && self.delivery.has_words(&received) {
                first_word = Some(began.elapsed());
            }
        }
        if !status.is_success() {
            let body = String::from_utf8_lossy(&received).into_owned();
            return Err(Failed::Status { status, body });
        }
        Ok(Answered {
            served_by,
            first_word: first_word.ok_or(Failed::Empty)?,
        })
    }

    fn document(&self) -> Value {
        let instructions = instructions(self.application);
        let question = format!("Question {} about {}: what now?", self.question + 1, self.application);
        let mut document = json!({
            "model": self.model,
            "max_tokens": 24,
            "stream": self.delivery == Delivery::Stream,
        });
        match self.api {
            Api::Chat => {
                document["messages"] = json!([
                    { "role": "system", "content": instructions },
                    { "role": "user", "content": question },
                ]);
            }
            Api::Completion => document["prompt"] = json!(format!("{instructions}\n{question}")),
        }
        document
    }
}

impl Api {
    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completion => "/v1/completions",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completion => "completion",
        }
    }
}

impl Delivery {
    fn name(self) -> &'static str {
        match self {
            Self::Whole => "JSON",
            Self::Stream => "SSE",
        }
    }

    /// Whether what was received has a word of the answer.
    fn has_words(self, received: &[u8]) -> bool {
        match self {
            Self::Whole => has_words(received),
            Self::Stream => {
                let mut found = false;
                let fed = Events::default().feed(received, |data| found |= has_words(data));
                fed.is_ok() && found
            }
        }
    }
}

fn has_words(json: &[u8]) -> bool {
    // What is no document is not all there yet, or the end of a stream.
    Piece::read(json).is_some_and(|piece| !piece.text.is_empty())
}

/// Long, and different for each application from the first words on.
fn instructions(application: &str) -> String {
    let mut text = format!("You answer questions about {application}.");
    let mut rule = 0;
    while text.len() < INSTRUCTION_BYTES {
        rule += 1;
        write!(
            text,
            " Rule {rule} for {application}: be brief, be kind, and say so if you do not know."
        )
        .expect("a string takes all text");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_load_has_four_prompts_two_adapters_both_apis_and_both_deliveries() {
        let asks = asks();

        assert_eq!(asks.len(), 24);
        assert_eq!(asks.iter().map(|ask| &ask.id).collect::<BTreeSet<_>>().len(), 24);
        let applications: BTreeSet<_> = asks.iter().map(|ask| instructions(ask.application)).collect();
        assert_eq!(applications.len(), 4);
        let models: BTreeSet<_> = asks.iter().map(|ask| ask.model).collect();
        assert_eq!(models, BTreeSet::from([MODEL, ADAPTERS[0], ADAPTERS[1]]));
        for api in [Api::Chat, Api::Completion] {
            for delivery in [Delivery::Whole, Delivery::Stream] {
                assert!(asks.iter().any(|ask| ask.api == api && ask.delivery == delivery));
            }
        }
    }

    #[test]
    fn the_first_word_is_told_from_what_comes_before_it() {
        let role = br#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
        let word = br#"data: {"choices":[{"delta":{"content":" the"}}]}"#;
        let half = &word[..word.len() - 5];
        let lines = |lines: &[&[u8]]| [&lines.join(&b"\n\n"[..]), &b"\n\n"[..]].concat();

        assert!(!Delivery::Stream.has_words(role));
        assert!(!Delivery::Stream.has_words(&lines(&[role, half])));
        assert!(Delivery::Stream.has_words(&lines(&[role, word])));
        assert!(Delivery::Whole.has_words(br#"{"choices":[{"text":" sea"}]}"#));
        assert!(!Delivery::Whole.has_words(br#"{"choices":[{"text":""}]}"#));
    }
}
