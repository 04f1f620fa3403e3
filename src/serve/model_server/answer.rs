//! What a client is sent: one document, or a stream of events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};

use super::document::{Api, Ask, Delivery};
use super::error::ApiError;
use super::owner::{Generation, Handle, Progress, Refused};
use super::text::Text;
use super::{ModelServerConfig, unix_time};
use crate::engine::time::Timestamp;
use crate::sim::instance::{BlockChain, SequenceRequest};

/// The answers to one request, on their way.
#[derive(Debug)]
pub(super) struct Answer {
    head: Head,
    choices: Vec<Choice>,
    usage: Usage,
    delivery: Delivery,
}

/// What is the same in every document of an answer.
#[derive(Debug)]
struct Head {
    api: Api,
    id: String,
    created: u64,
    model: Arc<str>,
}

/// One of the answers.
#[derive(Debug)]
struct Choice {
    index: usize,
    generation: Generation,
    text: Text,
    /// Prompts are counted once, however many answers they get.
    counts_prompt: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
}

impl Answer {
    /// Starts the sequences of `ask`, all of them or none.
    ///
    /// # Errors
    ///
    /// 400 for a prompt that cannot run, 503 if there is no room to wait.
    pub(super) async fn begin(
        api: Api,
        ask: Ask,
        config: &ModelServerConfig,
        owner: &Handle,
    ) -> Result<Self, ApiError> {
        let mut usage = Usage::default();
        let mut choices = Vec::new();
        let digest = ask.prompts.first().map_or(0, BlockChain::digest);
        for prompt in ask.prompts {
            // Refused before the text is made, which may be long.
            config
                .instance
                .check(prompt.tokens(), Some(ask.max_tokens))
                .map_err(Refused::Rejected)?;
            usage.prompt_tokens += u64::from(prompt.tokens());
            for answer in 0..ask.answers {
                let text = Text::new(config.seed, prompt.digest(), answer);
                let mut chain = prompt.clone();
                text.tokens(ask.max_tokens)
                    .for_each(|token| chain.text(token.as_bytes()));
                let generation = owner
                    .submit(|id| SequenceRequest {
                        id,
                        arrival: Timestamp::ZERO,
                        priority: ask.priority,
                        adapter: ask.adapter.clone(),
                        prompt_tokens: prompt.tokens(),
                        output_tokens: ask.max_tokens,
                        max_output_tokens: Some(ask.max_tokens),
                        chain: chain.into_hashes().into(),
                    })
                    .await?;
                choices.push(Choice {
                    index: choices.len(),
                    generation,
                    text,
                    counts_prompt: answer == 0,
                });
            }
        }
        let head = Head {
            api,
            id: api.answer_id(digest),
            created: unix_time().as_secs(),
            model: ask.model,
        };
        Ok(Self {
            head,
            choices,
            usage,
            delivery: ask.delivery,
        })
    }

    /// Sends the answer as the client wants it.
    pub(super) async fn deliver(self) -> Response {
        match self.delivery {
            Delivery::Whole => match self.whole().await {
                Ok(document) => Json(document).into_response(),
                Err(refused) => ApiError::from(refused).into_response(),
            },
            Delivery::Stream { with_usage } => Sse::new(self.events(with_usage)).into_response(),
        }
    }

    async fn whole(mut self) -> Result<Value, Refused> {
        let mut choices = Vec::with_capacity(self.choices.len());
        for choice in &mut self.choices {
            let tokens = choice.generation.output_tokens();
            let progress = choice.generation.reach(tokens).await?;
            self.usage.count(choice.counts_prompt, progress, tokens);
            let text: String = choice.text.tokens(tokens).collect();
            choices.push(self.head.api.choice(choice.index, &text));
        }
        let mut document = self.head.document(self.head.api.object(), &choices);
        document["usage"] = self.usage.json();
        Ok(document)
    }

    fn events(self, with_usage: bool) -> impl Stream<Item = Result<Event, Infallible>> {
        let Self {
            head, choices, usage, ..
        } = self;
        let openings: Vec<_> = (choices.iter())
            .filter_map(|choice| head.api.opening(choice.index))
            .map(|opening| head.chunk(opening))
            .collect();
        let tokens = stream::select_all(choices.into_iter().map(|choice| Box::pin(choice.into_tokens())));
        let body = Body {
            head,
            usage,
            with_usage,
            tokens,
            stage: Stage::Tokens,
        };
        let rest = stream::unfold(body, async |mut body| Some((body.next().await?, body)));
        stream::iter(openings)
            .map(|chunk| chunk.to_string())
            .chain(rest)
            .map(|data| Ok(Event::default().data(data)))
    }
}

// === impl Body ===

/// The events of a stream after its opening.
struct Body<S> {
    head: Head,
    usage: Usage,
    with_usage: bool,
    tokens: S,
    stage: Stage,
}

enum Stage {
    Tokens,
    Usage,
    Done,
    Over,
}

impl<S: Stream<Item = Result<Token, Refused>> + Unpin> Body<S> {
    /// The data of the next event.
    async fn next(&mut self) -> Option<String> {
        loop {
            match self.stage {
                Stage::Tokens => match self.tokens.next().await {
                    Some(Ok(token)) => {
                        if token.is_last {
                            self.usage
                                .count(token.counts_prompt, token.progress, token.position + 1);
                        }
                        return Some(self.head.chunk(self.head.api.delta(&token)).to_string());
                    }
                    // Tokens => Over: the status is sent already, so the error comes as an event.
                    Some(Err(refused)) => {
                        self.stage = Stage::Over;
                        return Some(ApiError::from(refused).body().to_string());
                    }
                    None => self.stage = Stage::Usage,
                },
                Stage::Usage => {
                    self.stage = Stage::Done;
                    if self.with_usage {
                        let mut chunk = self.head.document(self.head.api.chunk_object(), &[]);
                        chunk["usage"] = self.usage.json();
                        return Some(chunk.to_string());
                    }
                }
                Stage::Done => {
                    self.stage = Stage::Over;
                    return Some("[DONE]".to_owned());
                }
                Stage::Over => return None,
            }
        }
    }
}

// === impl Choice ===

/// A token of one of the answers.
struct Token {
    choice: usize,
    position: u32,
    text: &'static str,
    is_last: bool,
    counts_prompt: bool,
    progress: Progress,
}

impl Choice {
    /// Its tokens as they come out. Several that came out while nobody looked are still one item each.
    fn into_tokens(self) -> impl Stream<Item = Result<Token, Refused>> {
        stream::unfold((Some(self), 0), async |(choice, position)| {
            let mut choice = choice?;
            let progress = match choice.generation.reach(position + 1).await {
                Ok(progress) => progress,
                Err(refused) => return Some((Err(refused), (None, position))),
            };
            let is_last = position + 1 == choice.generation.output_tokens();
            let token = Token {
                choice: choice.index,
                position,
                text: choice.text.token(position),
                is_last,
                counts_prompt: choice.counts_prompt,
                progress,
            };
            let choice = (!is_last).then_some(choice);
            Some((Ok(token), (choice, position + 1)))
        })
    }
}

// === impl Usage ===

impl Usage {
    /// Adds an answer of `tokens` tokens that is complete.
    fn count(&mut self, counts_prompt: bool, progress: Progress, tokens: u32) {
        self.completion_tokens += u64::from(tokens);
        if counts_prompt {
            self.cached_tokens += u64::from(progress.cached_tokens);
        }
    }

    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": { "cached_tokens": self.cached_tokens },
        })
    }
}

// === impl Head ===

impl Head {
    fn document(&self, object: &str, choices: &[Value]) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn chunk(&self, choice: Value) -> Value {
        self.document(self.api.chunk_object(), &[choice])
    }
}

// === impl Api ===

const FINISH_REASON: &str = "length";

impl Api {
    fn answer_id(self, digest: u64) -> String {
        match self {
            Self::Completions => format!("cmpl-{digest:016x}"),
            Self::Chat => format!("chatcmpl-{digest:016x}"),
        }
    }

    fn object(self) -> &'static str {
        match self {
            Self::Completions => "text_completion",
            Self::Chat => "chat.completion",
        }
    }

    fn chunk_object(self) -> &'static str {
        match self {
            Self::Completions => "text_completion",
            Self::Chat => "chat.completion.chunk",
        }
    }

    /// A whole answer.
    fn choice(self, index: usize, text: &str) -> Value {
        let mut choice = match self {
            Self::Completions => json!({ "text": text }),
            Self::Chat => json!({ "message": { "role": "assistant", "content": text } }),
        };
        choice["index"] = index.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = FINISH_REASON.into();
        choice
    }

    /// What comes in a stream before the first token of an answer.
    fn opening(self, index: usize) -> Option<Value> {
        match self {
            Self::Completions => None,
            Self::Chat => Some(json!({
                "index": index,
                "delta": { "role": "assistant", "content": "" },
                "logprobs": null,
                "finish_reason": null,
            })),
        }
    }

    /// One token of a stream.
    fn delta(self, token: &Token) -> Value {
        let mut choice = match self {
            Self::Completions => json!({ "text": token.text }),
            Self::Chat => json!({ "delta": { "content": token.text } }),
        };
        choice["index"] = token.choice.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = if token.is_last {
            FINISH_REASON.into()
        } else {
            Value::Null
        };
        choice
    }
}
