//! Which API a request speaks, by its path.

use super::ParseError;

/// The path of a request that does not tell one.
const DEFAULT_PATH: &str = "/v1/completions";

/// The headers that may hold the path, best first.
const PATH_HEADERS: [&str; 3] = [":path", "x-original-path", "x-forwarded-path"];

/// A parser that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParserKind {
    /// OpenAI's APIs, as vLLM and others serve them.
    OpenAi,
    /// Anthropic's messages API.
    Anthropic,
    /// vLLM's API of token ids.
    VllmHttp,
    /// Takes any path, and does not look into the body.
    Passthrough,
}

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
    ignored: Vec<ParserKind>,
}

/// The path of a request without its query: `:path`, else `x-original-path`, else `x-forwarded-path`, else
/// `/v1/completions`. `header` looks up a header by its lower-case name; an empty value counts as none.
pub fn path_of<'h>(header: impl Fn(&str) -> Option<&'h str>) -> &'h str {
    let path = PATH_HEADERS
        .into_iter()
        .filter_map(header)
        .find(|path| !path.is_empty());
    let path = path.unwrap_or(DEFAULT_PATH);
    path.split_once('?').map_or(path, |(path, _)| path)
}

// === impl ParserKind ===

impl ParserKind {
    /// All parsers, in the order in which they serve when a configuration names none.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::VllmHttp, Self::Passthrough];

    /// The plugin type by which a configuration names it.
    pub fn plugin_type(self) -> &'static str {
        match self {
            Self::OpenAi => "openai-parser",
            Self::Anthropic => "anthropic-parser",
            Self::VllmHttp => "vllmhttp-parser",
            Self::Passthrough => "passthrough-parser",
        }
    }

    /// The parser with this plugin type.
    pub fn from_plugin_type(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plugin_type() == name)
    }

    /// The ends of paths that it takes. Empty for a parser that takes whatever nobody else does.
    fn claims(self) -> &'static [(&'static str, Api)] {
        match self {
            Self::OpenAi => &[
                ("conversations", Api::Conversations),
                ("responses", Api::Responses),
                ("chat/completions", Api::ChatCompletions),
                ("chat/completions/render", Api::ChatCompletions),
                ("completions", Api::Completions),
                ("completions/render", Api::Completions),
                ("embeddings", Api::Embeddings),
                ("images/generations", Api::Images),
            ],
            Self::Anthropic => &[("messages", Api::Messages), ("messages/count_tokens", Api::CountTokens)],
            Self::VllmHttp => &[("inference/v1/generate", Api::Generate)],
            Self::Passthrough => &[],
        }
    }
}

// === impl Parsers ===

impl Parsers {
    /// Takes parsers in the order of a configuration. A second one of a kind is ignored, and so is everything after a
    /// parser that takes any path; see [`Parsers::ignored`].
    pub fn new(listed: impl IntoIterator<Item = ParserKind>) -> Self {
        let mut parsers = Self {
            kinds: Vec::new(),
            ignored: Vec::new(),
        };
        for kind in listed {
            if parsers.has_fallback() || parsers.kinds.contains(&kind) {
                parsers.ignored.push(kind);
            } else {
                parsers.kinds.push(kind);
            }
        }
        parsers
    }

    /// The listed parsers that will never be asked. Worth a warning.
    pub fn ignored(&self) -> &[ParserKind] {
        &self.ignored
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
        for &(suffix, api) in self.kinds.iter().flat_map(|kind| kind.claims()) {
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
        self.kinds.last().is_some_and(|kind| kind.claims().is_empty())
    }
}

impl Default for Parsers {
    fn default() -> Self {
        Self::new(ParserKind::ALL)
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
        let parsers = Parsers::new([ParserKind::OpenAi]);

        let error = parsers.resolve("/v1/messages").unwrap_err();

        assert_eq!(
            error.to_string(),
            "no parser registered matching path suffix for: /v1/messages"
        );
    }

    #[test]
    fn what_is_listed_twice_or_after_the_fallback_is_ignored() {
        use ParserKind::{Anthropic, OpenAi, Passthrough};

        let parsers = Parsers::new([OpenAi, OpenAi, Passthrough, Anthropic]);

        assert_eq!(parsers.ignored(), [OpenAi, Anthropic]);
        assert_eq!(parsers.resolve("/v1/messages"), Ok(Api::Opaque));
    }

    #[test]
    fn every_parser_is_found_by_its_plugin_type() {
        for kind in ParserKind::ALL {
            assert_eq!(ParserKind::from_plugin_type(kind.plugin_type()), Some(kind));
        }
        assert_eq!(ParserKind::from_plugin_type("openai"), None);
    }

    #[test]
    fn the_path_is_taken_from_the_first_header_that_has_one_and_loses_its_query() {
        let of = |headers: &'static [(&str, &str)]| {
            path_of(|name| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value))
        };

        assert_eq!(of(&[(":path", "/a?x=/b"), ("x-original-path", "/b")]), "/a");
        assert_eq!(of(&[("x-forwarded-path", "/c"), ("x-original-path", "/b")]), "/b");
        assert_eq!(of(&[("x-forwarded-path", "/c?"), (":path", "")]), "/c");
        assert_eq!(of(&[]), "/v1/completions");
    }
}
