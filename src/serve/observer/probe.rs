//! What is asked of the server before the workload.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::ask::Ask;
use super::run::{Heard, Server, Trouble};
use super::words::{Topic, WORDS, Words};
use crate::serve::clock::Clock;

/// How long the server may take to count the words, at most.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests that warm the server up at once, and what they are like.
const PREWARM_WORKERS: u64 = 4;
const PREWARM_PROMPT_TOKENS: u32 = 256;
const PREWARM_OUTPUT_TOKENS: u32 = 64;
/// The time until the next one, should one fail.
const PREWARM_PAUSE: Duration = Duration::from_millis(100);

/// What a probe found out.
#[derive(Clone, Debug, PartialEq)]
pub struct Probed {
    /// The words, as the server counts them.
    pub words: Words,
    /// Why the words count as one token each, should nothing better be known.
    pub warning: Option<String>,
}

/// There is no server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server cannot be reached: {0}")]
pub struct ProbeError(String);

/// Asks the server how many tokens the words are, and waits as long as any client would: no longer than `patience`, and
/// than a minute.
///
/// # Errors
///
/// If there is no connection to it. Whatever it answers is no error.
pub async fn probe(
    server: &impl Server,
    model: &Arc<str>,
    words: Words,
    patience: Option<Duration>,
) -> Result<Probed, ProbeError> {
    let ask = Ask::plain(model, &WORDS.concat(), 1);
    let mut heard = Heard::begin(Clock::new(), false);
    let patience = patience.map_or(PROBE_TIMEOUT, |patience| patience.min(PROBE_TIMEOUT));
    let answered = timeout(patience, server.answer(&ask, &mut heard)).await;
    let found = match answered {
        Ok(Err(Trouble::Unreachable(reason))) => return Err(ProbeError(reason)),
        Err(_) => Err(format!("there is no answer after {} s", patience.as_secs())),
        Ok(Err(trouble)) => Err(trouble.to_string()),
        Ok(Ok(())) => match heard.usage {
            None => Err("the answer tells no usage".to_owned()),
            Some(usage) => words.counted(usage.prompt).ok_or_else(|| {
                let (count, tokens) = (WORDS.len(), usage.prompt);
                format!(
                    "{count} words are `{tokens}` tokens, it says; from {count} to {} can be right",
                    3 * count
                )
            }),
        },
    };
    Ok(match found {
        Ok(words) => Probed { words, warning: None },
        Err(reason) => Probed {
            words,
            warning: Some(format!(
                "the server does not say how many tokens a word is ({reason}); every word is taken for one"
            )),
        },
    })
}

/// Keeps the server busy for a while with small requests, four at a time. Returns how many were answered.
pub async fn prewarm(server: &impl Server, model: &Arc<str>, words: &Words, duration: Duration) -> u64 {
    let deadline = Instant::now() + duration;
    let workers = (0..PREWARM_WORKERS).map(async |worker| {
        let mut answered = 0;
        let requests = async {
            for number in (worker..).step_by(PREWARM_WORKERS as usize) {
                let text = words.of_tokens(Topic::Prewarm(number), PREWARM_PROMPT_TOKENS);
                let ask = Ask::plain(model, &text, PREWARM_OUTPUT_TOKENS);
                let mut heard = Heard::begin(Clock::new(), false);
                match server.answer(&ask, &mut heard).await {
                    Ok(()) => answered += 1,
                    Err(_) => sleep(PREWARM_PAUSE).await,
                }
            }
        };
        // Those that are under way are cut off, so that they are not in the way of the workload.
        let _ = timeout_at(deadline, requests).await;
        answered
    });
    join_all(workers).await.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Script;
    use super::*;

    fn model() -> Arc<str> {
        "m".into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_says_how_many_tokens_a_word_is() {
        let server = Script::answering(Duration::from_millis(5)).counting(150);

        let probed = probe(&server, &model(), Words::new(1), None).await.unwrap();

        assert_eq!(probed.words.tokens_per_word(), 1.5);
        assert_eq!(probed.warning, None);
        let asked = &server.asked()[0];
        assert_eq!((&*asked.messages[0].text, asked.output_tokens), (&*WORDS.concat(), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_right_is_not_believed() {
        let server = Script::answering(Duration::from_millis(5)).counting(9);

        let probed = probe(&server, &model(), Words::new(1), None).await.unwrap();

        assert_eq!(probed.words.tokens_per_word(), 1.0);
        assert!(probed.warning.unwrap().contains("`9` tokens"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_fails_is_asked_nevertheless_and_one_that_is_not_there_is_not() {
        let failing = Script::failing(Trouble::Failed("404 Not Found: no model `m`".to_owned()));
        let absent = Script::failing(Trouble::Unreachable("connection refused".to_owned()));
        let silent = Script::answering(Duration::MAX);

        let warning = |probed: Result<Probed, ProbeError>| probed.unwrap().warning.unwrap();
        assert!(warning(probe(&failing, &model(), Words::new(1), None).await).contains("no model `m`"));
        assert!(warning(probe(&silent, &model(), Words::new(1), None).await).contains("no answer after 60 s"));
        let impatient = probe(&silent, &model(), Words::new(1), Some(Duration::from_secs(2))).await;
        assert!(warning(impatient).contains("no answer after 2 s"));
        let error = probe(&absent, &model(), Words::new(1), None).await.unwrap_err();
        assert_eq!(error.to_string(), "the server cannot be reached: connection refused");
    }

    #[tokio::test(start_paused = true)]
    async fn four_at_a_time_warm_the_server_up_with_different_prompts() {
        let server = Script::answering(Duration::from_millis(5));

        let answered = prewarm(&server, &model(), &Words::new(1), Duration::from_secs(1)).await;

        assert_eq!(answered, 12);
        assert_eq!(server.most_at_once(), 4);
        let mut prompts: Vec<_> = server.asked().iter().map(|ask| ask.messages[0].text.clone()).collect();
        let asked = prompts.len();
        prompts.sort();
        prompts.dedup();
        assert_eq!((prompts.len(), asked), (16, 16));
        assert!(server.asked().iter().all(|ask| ask.output_tokens == 64));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_fails_is_not_asked_all_the_time() {
        let server = Script::failing(Trouble::Failed("503".to_owned()));

        assert_eq!(
            prewarm(&server, &model(), &Words::new(1), Duration::from_secs(1)).await,
            0
        );
        assert!(server.asked().len() <= 4 * 11, "{}", server.asked().len());
    }
}
