//! Parsers: which requests are understood.

use super::super::super::plugin::Plugin;

/// A parser of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParserKind {
    /// The OpenAI API.
    OpenAi,
    /// The Anthropic messages API.
    Anthropic,
    /// vLLM's own generate API.
    VllmHttp,
    /// Everything that no other parser claims, without looking into it.
    Passthrough,
}

impl ParserKind {
    /// All parsers, in the order in which they serve when a configuration names none.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::VllmHttp, Self::Passthrough];

    /// Its type in the configuration.
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::OpenAi => OpenAi::TYPE,
            Self::Anthropic => Anthropic::TYPE,
            Self::VllmHttp => VllmHttp::TYPE,
            Self::Passthrough => Passthrough::TYPE,
        }
    }

    /// True if it takes what no other parser claims; parsers after it have nothing to do.
    pub fn is_fallback(self) -> bool {
        self == Self::Passthrough
    }
}

/// The parsers of a configuration that names none, in order.
pub(in super::super) const DEFAULTS: &[&str] = &[OpenAi::TYPE, Anthropic::TYPE, VllmHttp::TYPE, Passthrough::TYPE];

choice!(ParserKind, OpenAi, "openai-parser", "understands the OpenAI API");
choice!(
    ParserKind,
    Anthropic,
    "anthropic-parser",
    "understands the Anthropic messages API"
);
choice!(
    ParserKind,
    VllmHttp,
    "vllmhttp-parser",
    "understands vLLM's own generate API"
);
choice!(
    ParserKind,
    Passthrough,
    "passthrough-parser",
    "takes every request that no other parser claims, without looking into it; ends the list of parsers"
);
