//! What a client asks for: the body of a completion or chat request, as far as the stand-in reads it.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::ModelServerConfig;
use super::error::ApiError;
use super::lax::Lax;
use crate::sim::instance::BlockChain;

/// Tokens of an answer whose client gives no limit.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// Answers that one request may ask for: prompts times `n`.
const MAX_CHOICES: usize = 128;

/// The two ways to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

/// A request that was understood.
#[derive(Debug)]
pub(super) struct Ask {
    /// The model as the client named it.
    pub(super) model: Arc<str>,
    /// Set if the model is an adapter.
    pub(super) adapter: Option<Arc<str>>,
    /// The prompts; a chat has one.
    pub(super) prompts: Vec<BlockChain>,
    /// Answers to each prompt.
    pub(super) answers: u32,
    /// Tokens of each answer.
    pub(super) max_tokens: u32,
    /// The smaller, the more urgent.
    pub(super) priority: i32,
    pub(super) delivery: Delivery,
}

/// How the answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// As one document.
    Whole,
    /// As a stream of events.
    Stream {
        /// The last event has the usage.
        with_usage: bool,
    },
}

impl Ask {
    /// Reads `body`.
    ///
    /// # Errors
    ///
    /// 400 for what cannot be understood, 404 for a model that is not served.
    pub(super) fn read(api: Api, body: &[u8], config: &ModelServerConfig) -> Result<Self, ApiError> {
        let document: Document<'_> = parse(None, body)?;
        let Some(model) = &document.model else {
            return Err(missing("model", "the name of a model"));
        };
        let served = std::iter::once(&config.model).chain(&config.adapters);
        let Some(model) = served.clone().find(|served| served.as_ref() == model.as_ref()).cloned() else {
            let known: Vec<&str> = served.map(AsRef::as_ref).collect();
            return Err(ApiError::unknown_model(model, &known.join(", ")));
        };
        let adapter = (model != config.model).then(|| model.clone());
        let chain = BlockChain::new(adapter.as_deref().unwrap_or_default(), config.instance.block_tokens);
        let prompts = match api {
            Api::Completions => document.prompts(&chain)?,
            Api::Chat => vec![document.conversation(chain)?],
        };
        let answers = document.n.map_or(1, |Lax(n)| n.get());
        let choices = prompts.len().saturating_mul(answers as usize);
        if choices > MAX_CHOICES {
            let message = format!("the request asks for `{choices}` answers; at most {MAX_CHOICES} are given at once");
            return Err(ApiError::bad_request(Some("n"), message));
        }
        let limit = match api {
            Api::Completions => document.max_tokens,
            Api::Chat => document.max_completion_tokens.or(document.max_tokens),
        };
        Ok(Self {
            model,
            adapter,
            prompts,
            answers,
            max_tokens: limit.map_or(DEFAULT_MAX_TOKENS, |Lax(limit)| limit.get()),
            priority: document.priority.map_or(0, |Lax(priority)| priority),
            delivery: document.delivery(),
        })
    }
}

#[derive(Deserialize)]
struct Document<'a> {
    model: Option<Box<str>>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<Vec<Message<'a>>>,
    max_tokens: Option<Lax<NonZeroU32>>,
    max_completion_tokens: Option<Lax<NonZeroU32>>,
    n: Option<Lax<NonZeroU32>>,
    priority: Option<Lax<i32>>,
    stream: Option<Lax<bool>>,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<Lax<bool>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    role: Box<str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// A part of a message. Parts that are no text, such as images, are not looked into.
#[derive(Deserialize)]
struct Part {
    text: Option<Box<str>>,
}

impl Document<'_> {
    /// The prompts of a completion: a text, the ids of its tokens, or a list of either.
    fn prompts(&self, chain: &BlockChain) -> Result<Vec<BlockChain>, ApiError> {
        const WANTED: &str = "a string, a list of token ids, or a list of either";
        let Some(prompt) = self.prompt else {
            return Err(missing("prompt", WANTED));
        };
        let raw = prompt.get();
        let text = |text: Box<str>| {
            let mut chain = chain.clone();
            chain.text(text.as_bytes());
            chain
        };
        let ids = |ids: Vec<u32>| {
            let mut chain = chain.clone();
            ids.into_iter().for_each(|id| chain.token(id));
            chain
        };
        let mut starts = raw.bytes().filter(|byte| !byte.is_ascii_whitespace());
        match (starts.next(), starts.next()) {
            (Some(b'"'), _) => Ok(vec![text(parse_field("prompt", raw)?)]),
            (Some(b'['), Some(b'"')) => Ok(parse_field::<Vec<_>>("prompt", raw)?.into_iter().map(text).collect()),
            (Some(b'['), Some(b'[')) => Ok(parse_field::<Vec<_>>("prompt", raw)?.into_iter().map(ids).collect()),
            (Some(b'['), _) => Ok(vec![ids(parse_field("prompt", raw)?)]),
            (first, _) => {
                let found = match first {
                    Some(b'{') => "an object",
                    Some(b't' | b'f') => "a boolean",
                    _ => "a number",
                };
                let message = format!("`prompt` is {found}; {WANTED} is needed");
                Err(ApiError::bad_request(Some("prompt"), message))
            }
        }
    }

    /// The conversation as one prompt. Each piece is a whole number of tokens, so that the prompt of the next turn, which
    /// repeats this one and its answer, begins with the same tokens.
    fn conversation(&self, mut chain: BlockChain) -> Result<BlockChain, ApiError> {
        let messages = match &self.messages {
            Some(messages) if !messages.is_empty() => messages,
            Some(_) => {
                return Err(ApiError::bad_request(
                    Some("messages"),
                    "`messages` is empty; one is needed at least",
                ));
            }
            None => return Err(missing("messages", "a list of messages")),
        };
        for message in messages {
            begin_message(&mut chain, &message.role);
            match message.content.map(RawValue::get) {
                Some(raw) if raw.starts_with('"') => chain.text(parse_field::<Box<str>>("messages", raw)?.as_bytes()),
                Some(raw) => {
                    let parts = parse_field::<Vec<Part>>("messages", raw)?.into_iter();
                    parts
                        .filter_map(|part| part.text)
                        .for_each(|text| chain.text(text.as_bytes()));
                }
                None => {}
            }
            chain.text(b"<|end|>\n");
        }
        begin_message(&mut chain, "assistant");
        Ok(chain)
    }

    fn delivery(&self) -> Delivery {
        if self.stream != Some(Lax(true)) {
            return Delivery::Whole;
        }
        let include_usage = self.stream_options.as_ref().and_then(|options| options.include_usage);
        Delivery::Stream {
            with_usage: include_usage == Some(Lax(true)),
        }
    }
}

fn begin_message(chain: &mut BlockChain, role: &str) {
    chain.text(b"<|begin|>");
    chain.text(role.as_bytes());
}

fn missing(field: &'static str, wanted: &str) -> ApiError {
    ApiError::bad_request(Some(field), format!("`{field}` is missing; {wanted} is needed"))
}

fn parse_field<T: DeserializeOwned>(field: &'static str, raw: &str) -> Result<T, ApiError> {
    parse(Some(field), raw.as_bytes())
}

/// Reads `json`, the whole body or the value of `field`.
fn parse<'a, T: Deserialize<'a>>(field: Option<&'static str>, json: &'a [u8]) -> Result<T, ApiError> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let place = match (field, path.as_str()) {
            (None, "." | "?") => "the body".to_owned(),
            (None, path) => format!("`{path}`"),
            (Some(field), "." | "?") => format!("`{field}`"),
            (Some(field), path) => format!("in `{field}`, `{path}`"),
        };
        ApiError::bad_request(field, format!("{place}: {}", error.inner()))
    })?;
    deserializer
        .end()
        .map_err(|error| ApiError::bad_request(field, format!("the body: {error}")))?;
    Ok(value)
}
