//! How many tokens a request adds to what is in flight to an endpoint.
//!
//! The same number is booked when the request is sent, and shown to plugins while they choose, so that a scorer compares
//! like with like.

use super::plugin::PrefixRef;
use super::pool::Slot;
use super::request::Request;
use super::scheduling::PrefixMatches;

/// What counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenLoad {
    /// What the endpoint has of the prompt does not count, as far as this producer knows. Without one, the whole prompt
    /// counts.
    pub cached: Option<PrefixRef>,
    /// The answer counts too, until it ends. Without it the prompt counts until the answer begins.
    pub answer: Option<AnswerEstimate>,
}

/// How long an answer is taken to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnswerEstimate {
    /// Tokens of the answer for each token of the prompt. Not negative.
    pub ratio: f64,
    /// The most tokens of an answer.
    pub max: Option<u64>,
}

impl TokenLoad {
    /// Tokens that `request` adds to the endpoint in `slot`, of whose prompt the producers found `prefix`.
    pub fn of(&self, request: &Request, prefix: &[PrefixMatches], slot: Slot) -> u64 {
        let prompt = u64::from(request.prompt_tokens);
        let uncached = match self.cached.map(|producer| &prefix[producer.0]) {
            Some(found) if found.known => {
                let cached = u64::from(found.matched(slot)) * u64::from(found.block_tokens);
                // The last block may be shorter than the others.
                prompt.saturating_sub(cached)
            }
            _ => prompt,
        };
        uncached + self.answer.map_or(0, |estimate| estimate.tokens(request))
    }
}

impl AnswerEstimate {
    fn tokens(self, request: &Request) -> u64 {
        // A cast saturates, and makes nothing of a NaN.
        let tokens = (f64::from(request.prompt_tokens) * self.ratio).round() as u64;
        let limits = [request.max_output_tokens.map(u64::from), self.max];
        limits.into_iter().flatten().fold(tokens, u64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Kind;
    use super::*;

    const SLOT: Slot = Slot(0);

    fn request(prompt_tokens: u32, max_output_tokens: Option<u32>) -> Request {
        Request {
            prompt_tokens,
            max_output_tokens,
            ..Request::unknown(Kind::Inference)
        }
    }

    fn found(matched: u32, total: u32, known: bool) -> [PrefixMatches; 1] {
        [PrefixMatches {
            known,
            total,
            block_tokens: 64,
            matched: vec![matched],
        }]
    }

    #[test]
    fn a_prompt_counts_without_the_blocks_that_the_endpoint_has() {
        let load = TokenLoad {
            cached: Some(PrefixRef(0)),
            answer: None,
        };
        let of = |matched, total, known| load.of(&request(200, None), &found(matched, total, known), SLOT);

        assert_eq!(of(0, 3, true), 200);
        assert_eq!(of(2, 3, true), 64 + 8);
        assert_eq!(of(3, 3, true), 8);
        assert_eq!(of(0, 0, true), 200);
        assert_eq!(of(3, 4, true), 8);
        assert_eq!(of(4, 4, true), 0);
        assert_eq!(of(3, 3, false), 200);
        assert_eq!(
            TokenLoad::default().of(&request(200, None), &found(3, 3, true), SLOT),
            200
        );
    }

    #[test]
    fn an_answer_counts_by_the_length_of_its_prompt_up_to_its_limits() {
        let of = |max: Option<u64>, request: &Request| {
            let answer = Some(AnswerEstimate { ratio: 1.5, max });
            TokenLoad { cached: None, answer }.of(request, &[], SLOT)
        };

        assert_eq!(of(None, &request(101, None)), 101 + 152);
        assert_eq!(of(Some(100), &request(101, None)), 101 + 100);
        assert_eq!(of(Some(100), &request(101, Some(10))), 101 + 10);
        assert_eq!(of(None, &request(0, Some(10))), 0);
    }
}
