//! One request to a model server, and how it is written.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

/// Tokens of an answer of which nothing is known.
const DEFAULT_MAX_TOKENS: u32 = 2048;

/// A limit that no answer reaches, for the API that takes none for 16.
const NO_LIMIT: i32 = i32::MAX;

/// The two ways to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

impl Api {
    /// Where to ask.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
        }
    }
}

/// How long answers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// As the workload says.
    Exact,
    /// As the model pleases.
    Free,
}

/// A request to a model server.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Its `x-request-id`.
    pub id: String,
    /// The model, or the adapter.
    pub model: Arc<str>,
    /// Whose share of the pool it counts against. Empty for nobody's.
    pub tenant: Arc<str>,
    /// The SLO class. Empty for none.
    pub class: Arc<str>,
    /// The priority as model servers count it.
    pub priority: Option<i32>,
    /// Latency that the client hopes for, in microseconds.
    pub slo_target_us: Option<u64>,
    /// What was said so far. Ends with what is asked.
    pub messages: Vec<Message>,
    /// Tokens of the answer. Zero if that is not known.
    pub output_tokens: u32,
}

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub text: Arc<str>,
}

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client.
    User,
    /// The model.
    Assistant,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

impl Ask {
    /// A question that belongs to no workload.
    pub(super) fn plain(model: &Arc<str>, text: &str, output_tokens: u32) -> Self {
        Self {
            id: Self::new_id(),
            model: Arc::clone(model),
            tenant: Arc::default(),
            class: Arc::default(),
            priority: None,
            slo_target_us: None,
            messages: vec![Message {
                role: Role::User,
                text: text.into(),
            }],
            output_tokens,
        }
    }

    /// A name that no other request has.
    pub(super) fn new_id() -> String {
        Uuid::new_v4().to_string()
    }

    /// The headers that gateways and pickers read, beside the usual ones.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let said = |text: &Arc<str>| (!text.is_empty()).then(|| text.to_string());
        let slo_ms = self.slo_target_us.map(|us| us.div_ceil(1000).to_string());
        let headers = [
            ("x-request-id", Some(self.id.clone())),
            ("x-gateway-inference-fairness-id", said(&self.tenant)),
            ("x-gateway-inference-objective", said(&self.class)),
            ("x-slo-ttft-ms", slo_ms),
        ];
        headers.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// The body.
    pub(super) fn document(&self, api: Api, streaming: bool, lengths: Lengths) -> Value {
        let mut document = json!({ "model": &*self.model, "stream": streaming });
        match api {
            Api::Completions => {
                let prompt: String = self.messages.iter().map(|message| &*message.text).collect();
                document["prompt"] = prompt.into();
            }
            Api::Chat => {
                let messages = self.messages.iter();
                document["messages"] = messages
                    .map(|message| json!({ "role": message.role.name(), "content": &*message.text }))
                    .collect();
            }
        }
        let tokens = match self.output_tokens {
            0 => DEFAULT_MAX_TOKENS,
            tokens => tokens,
        };
        match (lengths, api) {
            (Lengths::Exact, _) => {
                document["max_tokens"] = tokens.into();
                document["min_tokens"] = tokens.into();
            }
            (Lengths::Free, Api::Completions) => document["max_tokens"] = NO_LIMIT.into(),
            (Lengths::Free, Api::Chat) => {}
        }
        if streaming {
            document["stream_options"] = json!({ "include_usage": true });
        }
        if let Some(priority) = self.priority {
            document["priority"] = priority.into();
        }
        document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        Ask {
            tenant: "a".into(),
            class: "batch".into(),
            priority: Some(5),
            slo_target_us: Some(1_001),
            ..Ask::plain(&"m".into(), " the sea", 7)
        }
    }

    #[test]
    fn a_completion_says_all_that_the_workload_says() {
        let document = ask().document(Api::Completions, true, Lengths::Exact);

        assert_eq!(
            document,
            json!({
                "model": "m", "prompt": " the sea", "stream": true, "stream_options": {"include_usage": true},
                "max_tokens": 7, "min_tokens": 7, "priority": 5,
            })
        );
    }

    #[test]
    fn a_chat_keeps_apart_who_said_what() {
        let mut ask = Ask::plain(&"m".into(), " the", 0);
        for (role, text) in [(Role::Assistant, " sea"), (Role::User, " is")] {
            let text = text.into();
            ask.messages.push(Message { role, text });
        }

        assert_eq!(
            ask.document(Api::Chat, false, Lengths::Exact),
            json!({
                "model": "m", "stream": false, "max_tokens": 2048, "min_tokens": 2048,
                "messages": [
                    {"role": "user", "content": " the"},
                    {"role": "assistant", "content": " sea"},
                    {"role": "user", "content": " is"},
                ],
            })
        );
        assert_eq!(
            ask.document(Api::Completions, false, Lengths::Exact)["prompt"],
            " the sea is"
        );
    }

    #[test]
    fn a_model_that_may_go_on_is_given_no_limit() {
        let chat = ask().document(Api::Chat, false, Lengths::Free);
        let completion = ask().document(Api::Completions, false, Lengths::Free);

        assert_eq!((chat.get("max_tokens"), chat.get("min_tokens")), (None, None));
        assert_eq!(completion["max_tokens"], 2_147_483_647);
        assert_eq!(completion.get("min_tokens"), None);
    }

    #[test]
    fn pickers_are_told_tenant_class_and_target_in_whole_milliseconds() {
        let ask = ask();
        let headers: Vec<_> = ask.headers().collect();

        assert_eq!(
            headers[1..],
            [
                ("x-gateway-inference-fairness-id", "a".to_owned()),
                ("x-gateway-inference-objective", "batch".to_owned()),
                ("x-slo-ttft-ms", "2".to_owned()),
            ]
        );
        assert_eq!(Ask::plain(&"m".into(), "", 1).headers().count(), 1);
    }
}
