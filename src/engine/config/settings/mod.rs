//! Plugins that are settings: what they configure is part of the program, and they say how.
//!
//! Where scheduling plugins are code behind a trait, a metrics source, a parser or a data producer is here only what
//! the user may say of it. The tables are of the same make, so that configuration and reference page treat all alike.

/// A plugin without parameters that stands for the variant `$of::$name`.
macro_rules! choice {
    ($of:ident, $name:ident, $type_name:literal, $summary:literal) => {
        #[derive(Debug)]
        pub(super) struct $name;

        impl super::super::super::plugin::Plugin for $name {
            const TYPE: &'static str = $type_name;
            const SUMMARY: &'static str = $summary;
            type Params = super::super::super::plugin::NoParams;
            type Error = std::convert::Infallible;

            fn from_params(
                _: super::super::super::plugin::NoParams,
                _: &mut super::super::super::plugin::Needs,
            ) -> Result<Self, std::convert::Infallible> {
                Ok(Self)
            }
        }

        impl From<$name> for $of {
            fn from($name: $name) -> Self {
                Self::$name
            }
        }
    };
}

mod approx_prefix;
mod data_layer;
mod inflight_load;
pub(super) mod parsers;
mod precise_prefix;
mod prefix_affinity;
mod token;

use super::super::plugin::{Entry, Plugin, instance};
use super::data_layer::{FileDiscoveryParams, MetricsSource};
use super::engine_metrics::EngineMapping;

pub use approx_prefix::{ApproxPrefixParams, MatchLimit};
pub use inflight_load::InflightLoadParams;
pub use parsers::ParserKind;
pub use precise_prefix::PrecisePrefixParams;
pub use prefix_affinity::PrefixAffinityParams;
pub use token::{
    FrameMode, FrameTokens, Frames, ImageEstimate, PixelsPerToken, Resolution, SampledFrames, SizeMode, StaticFrame,
    StaticImage, StridedFrames, TokenEstimate, TokenProducer, VideoEstimate,
};

/// What a data producer of one of the types in [`PRODUCERS`] is set to.
#[derive(Clone, Debug, PartialEq)]
pub enum Producer {
    /// Guesses who has cached which prefix.
    ApproxPrefix(ApproxPrefixParams),
    /// The same, in full blocks from the start of a prompt.
    PrefixAffinity(PrefixAffinityParams),
    /// Knows who has cached which prefix.
    PrecisePrefix(PrecisePrefixParams),
    /// Makes tokens of prompts.
    Token(TokenProducer),
    /// Counts what is in flight.
    InflightLoad(InflightLoadParams),
}

/// Every data producer. To add one: a file beside this one, a variant of [`Producer`], and a line here.
pub const PRODUCERS: &[Entry<Producer>] = &[
    entry::<ApproxPrefixParams, _>(),
    entry::<PrefixAffinityParams, _>(),
    entry::<PrecisePrefixParams, _>(),
    entry::<TokenProducer, _>(),
    entry::<InflightLoadParams, _>(),
];

/// Every parser.
pub const PARSERS: &[Entry<ParserKind>] = &[
    entry::<parsers::OpenAi, _>(),
    entry::<parsers::Anthropic, _>(),
    entry::<parsers::VllmHttp, _>(),
    entry::<parsers::Passthrough, _>(),
];

/// Every source of metrics.
pub const SOURCES: &[Entry<MetricsSource>] = &[entry::<MetricsSource, _>()];

/// Every reader of what a source gives.
pub const EXTRACTORS: &[Entry<EngineMapping>] = &[entry::<EngineMapping, _>()];

/// Every way to find endpoints without Kubernetes.
pub const DISCOVERIES: &[Entry<FileDiscoveryParams>] = &[entry::<FileDiscoveryParams, _>()];

const fn entry<P: Plugin + Into<T>, T>() -> Entry<T> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?.into())))
}

#[cfg(test)]
mod tests {
    use super::super::super::scheduling::testing::params_conform;
    use super::*;

    #[test]
    fn described_parameters_are_the_ones_that_are_accepted() {
        PRODUCERS.iter().for_each(params_conform);
        PARSERS.iter().for_each(params_conform);
        SOURCES.iter().for_each(params_conform);
        EXTRACTORS.iter().for_each(params_conform);
    }
}
