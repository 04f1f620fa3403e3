//! Which API a request speaks, by its path.

use super::ParseError;
use crate::engine::config::settings::ParserKind;

/// The paths that a body is tried with whose request does not tell one, in this order: gateways that ask for an endpoint
/// by a call of their own do not pass it on.
pub const LIKELY_PATHS: [&str; 4] = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/embeddings",
];

/// The headers that may hold the path, best first.
const PATH_HEADERS: [&str; 3] = [":path", "x-original-path", "x-forwarded-path"];

/// What a request asks for, which decides how its body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI chat completions, and their rendering.
    ChatCompletions,
    /// OpenAI completions, and their rendering.
    Completions,
    /// OpenAI embeddings.
    Embeddings,
    /// OpenAI responses.
    Responses,
    /// OpenAI conversations.
    Conversations,
    /// OpenAI image generations.
    Images,
    /// Anthropic messages.
    Messages,
    /// Anthropic's counting of tokens, which is routed and then left alone.
    CountTokens,
    /// vLLM's generation from token ids.
    Generate,
    /// Anything; the body is not looked into.
    Opaque,
}

/// The parsers of a configuration, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsers {
    kinds: Vec<ParserKind>,
}

/// The path of a request without its query: `:path`, else `x-original-path`, else `x-forwarded-path`. `header` looks up
/// a header by its lower-case name; an empty value counts as none.
pub fn path_of<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Option<&'h str> {
    let path = PATH_HEADERS
        .into_iter()
        .filter_map(header)
        .find(|path| !path.is_empty())?;
    Some(path.split_once('?').map_or(path, |(path, _)| path))
}

/// The ends of paths that a parser takes, and what they mean. Empty for one that takes whatever nobody else does.
fn claims(parser: ParserKind) -> &'static [(&'static str, Api)] {
    match parser {
        ParserKind::OpenAi => &[
            ("conversations", Api::Conversations),
            ("responses", Api::Responses),
            ("chat/completions", Api::ChatCompletions),
            ("chat/completions/render", Api::ChatCompletions),
            ("completions", Api::Completions),
            ("completions/render", Api::Completions),
            ("embeddings", Api::Embeddings),
            ("images/generations", Api::Images),
        ],
        ParserKind::Anthropic => &[("messages", Api::Messages), ("messages/count_tokens", Api::CountTokens)],
        ParserKind::VllmHttp => &[("inference/v1/generate", Api::Generate)],
        ParserKind::Passthrough => &[],
    }
}

// === impl Parsers ===

impl Parsers {
    /// The parsers of a plan, in its order.
    pub fn new(kinds: Vec<ParserKind>) -> Self {
        Self { kinds }
    }

    /// The API that `path` (without query) means: that of the longest claimed suffix, whether or not it begins at a
    /// segment; among equals that of the parser listed first; else the fallback's.
    ///
    /// # Errors
    ///
    /// Nobody claims the path, and there is no fallback.
    pub fn resolve(&self, path: &str) -> Result<Api, ParseError> {
        let trimmed = path.strip_suffix('/').unwrap_or(path);
        let mut best: Option<(&str, Api)> = None;
        for &(suffix, api) in self.kinds.iter().copied().flat_map(claims) {
            let is_longer = best.is_none_or(|(best, _)| suffix.len() > best.len());
            if is_longer && trimmed.ends_with(suffix) {
                best = Some((suffix, api));
            }
        }
        match best {
            Some((_, api)) => Ok(api),
            None if self.has_fallback() => Ok(Api::Opaque),
            None => Err(ParseError::NoParser(path.to_owned())),
        }
    }

    fn has_fallback(&self) -> bool {
        self.kinds.iter().any(|kind| kind.is_fallback())
    }
}

impl Default for Parsers {
    fn default() -> Self {
        Self::new(ParserKind::ALL.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_claimed_suffix_decides() {
        let parsers = Parsers::default();

        for (path, api) in [
            ("/v1/chat/completions", Api::ChatCompletions),
            ("/v1/chat/completions/", Api::ChatCompletions),
            ("/v1/chat/completions/render", Api::ChatCompletions),
            ("/v1/completions", Api::Completions),
            ("/v1/completions/render", Api::Completions),
            ("/foochat/completions", Api::ChatCompletions),
            ("/foo-completions", Api::Completions),
            ("/v1/embeddings", Api::Embeddings),
            ("/v1/responses", Api::Responses),
            ("/v1/conversations", Api::Conversations),
            ("/v1/images/generations", Api::Images),
            ("/v1/messages", Api::Messages),
            ("/v1/messages/count_tokens", Api::CountTokens),
            ("/inference/v1/generate", Api::Generate),
            ("/v1/models", Api::Opaque),
            ("", Api::Opaque),
        ] {
            assert_eq!(parsers.resolve(path), Ok(api), "{path}");
        }
    }

    #[test]
    fn a_path_that_nobody_claims_is_refused_without_a_fallback() {
        let parsers = Parsers::new(vec![ParserKind::OpenAi]);

        let error = parsers.resolve("/v1/messages").unwrap_err();

        assert_eq!(
            error.to_string(),
            "no parser registered matching path suffix for: /v1/messages"
        );
    }

    #[test]
    fn the_path_is_taken_from_the_first_header_that_has_one_and_loses_its_query() {
        let of = |headers: &'static [(&str, &str)]| {
            path_of(|name| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value))
        };

        assert_eq!(of(&[(":path", "/a?x=/b"), ("x-original-path", "/b")]), Some("/a"));
        assert_eq!(of(&[("x-forwarded-path", "/c"), ("x-original-path", "/b")]), Some("/b"));
        assert_eq!(of(&[("x-forwarded-path", "/c?"), (":path", "")]), Some("/c"));
        assert_eq!(of(&[]), None);
    }
}
