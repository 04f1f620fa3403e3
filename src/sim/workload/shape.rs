//! What the requests of one client look like.

use std::sync::Arc;

use super::super::instance::BlockChain;
use super::super::request::{Client, Media, RequestName, SessionRound, SimRequest};
use super::chance::Stream;
use super::lengths::Lengths;
use super::tokens::{self, Spoken};

/// What the requests of one client look like.
#[derive(Debug)]
pub(in crate::sim) struct Shape {
    pub(super) client: Arc<Client>,
    /// The shared beginning of its prompts.
    pub(super) prefix: BlockChain,
    pub(super) input: Input,
    pub(super) output: Option<Lengths>,
    /// By window: what is drawn from instead.
    pub(super) windows: Vec<(Option<Lengths>, Option<Lengths>)>,
    /// The part of an answer that is reasoning, in percent.
    pub(super) reason: Option<Lengths>,
    pub(super) timeout_us: Option<u64>,
    pub(super) slo_target_us: Option<u64>,
}

/// What a prompt is made of.
#[derive(Debug)]
pub(in crate::sim) enum Input {
    /// Text.
    Text(Option<Lengths>),
    /// Several media: text, images, audio, video.
    Media {
        text: Option<Lengths>,
        items: Box<[Items; 3]>,
    },
}

/// Some items of one medium. None if there is no length.
#[derive(Debug, Default)]
pub(in crate::sim) struct Items {
    pub(super) length: Option<Lengths>,
    pub(super) count: Option<Lengths>,
}

/// How long one request is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::sim) struct Sizes {
    /// Tokens of the prompt that are new.
    pub(in crate::sim) fresh: u32,
    /// Tokens of the answer.
    pub(in crate::sim) output: u32,
    /// What the new tokens are.
    pub(in crate::sim) media: Media,
    /// The share of the answer that is reasoning.
    pub(in crate::sim) reason_ratio: f64,
}

impl Shape {
    /// Draws how long a request is: the prompt, the answer, the share of reasoning.
    pub(super) fn sizes(&self, window: Option<usize>, chance: &mut Stream) -> Sizes {
        let own = window.and_then(|window| self.windows.get(window));
        let media = match own.and_then(|(input, _)| input.as_ref()) {
            Some(input) => text(input.sample(chance)),
            None => self.input.sample(chance),
        };
        let output = own.and_then(|(_, output)| output.as_ref()).or(self.output.as_ref());
        let output = output.map_or(1, |output| output.sample(chance));
        let reason_ratio = match &self.reason {
            Some(percent) => f64::from(percent.count(chance).min(100)) / 100.0,
            None => 0.0,
        };
        let Media {
            text,
            image,
            audio,
            video,
        } = media;
        Sizes {
            fresh: text
                .saturating_add(image)
                .saturating_add(audio)
                .saturating_add(video)
                .max(1),
            output,
            media,
            reason_ratio,
        }
    }

    /// Draws the tokens of a request. `context` is what its prompt goes on from instead of the shared prefix.
    pub(super) fn request(&self, turn: Turn<'_>, sizes: Sizes, chance: &mut Stream) -> (SimRequest, Option<Spoken>) {
        let start = turn.context.unwrap_or(&self.prefix);
        let written = tokens::write(start, sizes.fresh, sizes.output, chance, turn.goes_on);
        let context_tokens = turn.context.map_or(0, BlockChain::tokens);
        let request = SimRequest {
            name: turn.name,
            client: Arc::clone(&self.client),
            arrival_us: turn.at_us,
            prompt_tokens: written.prompt_tokens,
            output_tokens: sizes.output,
            max_output_tokens: Some(sizes.output),
            deadline_us: self.timeout_us.map(|timeout| turn.at_us.saturating_add(timeout)),
            slo_target_us: self.slo_target_us,
            session: turn.session.map(|(session, round)| SessionRound {
                session,
                round,
                context_tokens,
                think_us: turn.think_us,
            }),
            media: sizes.media,
            reason_ratio: sizes.reason_ratio,
            chain: written.chain,
        };
        (request, written.spoken)
    }
}

/// Which request it is.
#[derive(Debug)]
pub(super) struct Turn<'c> {
    pub(super) name: RequestName,
    pub(super) at_us: u64,
    pub(super) session: Option<(Arc<str>, u32)>,
    /// How long the user thought before it.
    pub(super) think_us: u64,
    /// The conversation so far.
    pub(super) context: Option<&'c BlockChain>,
    /// A later prompt may begin with this one and its answer.
    pub(super) goes_on: bool,
}

impl Input {
    fn sample(&self, chance: &mut Stream) -> Media {
        match self {
            Self::Text(lengths) => text(lengths.as_ref().map_or(1, |lengths| lengths.sample(chance))),
            Self::Media { text, items } => {
                let text = text.as_ref().map_or(0, |lengths| lengths.count(chance));
                let [image, audio, video] = items.each_ref().map(|items| items.sample(chance));
                Media {
                    text,
                    image,
                    audio,
                    video,
                }
            }
        }
    }
}

impl Items {
    fn sample(&self, chance: &mut Stream) -> u32 {
        let Some(length) = &self.length else { return 0 };
        let count = self.count.as_ref().map_or(1, |count| count.count(chance));
        (0..count).fold(0, |sum: u32, _| sum.saturating_add(length.sample(chance)))
    }
}

fn text(tokens: u32) -> Media {
    Media {
        text: tokens,
        ..Media::default()
    }
}
