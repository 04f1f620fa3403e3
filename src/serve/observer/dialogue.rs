//! What was said in conversations that go on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ask::{Message, Role};
use super::words::Words;
use crate::sim::request::{SessionRound, SimRequest};

/// What was said in the conversations whose next turn waits for an answer, and whose prompts begin with what was said
/// before. Such a prompt repeats the answers that the server really gave, so that it finds its own tokens in its cache.
///
/// Conversations that do not wait for answers are not kept: their prompts repeat earlier prompts, and other words in the
/// place of the answers.
#[derive(Debug, Default)]
pub(super) struct Dialogues(BTreeMap<Arc<str>, Vec<Message>>);

impl Dialogues {
    /// A conversation begins.
    pub(super) fn begin(&mut self, place: &SessionRound) {
        self.0.insert(Arc::clone(&place.session), Vec::new());
    }

    /// True if what is said is kept.
    pub(super) fn is_kept(&self, place: &SessionRound) -> bool {
        self.0.contains_key(&place.session)
    }

    /// All that the prompt of a request consists of.
    pub(super) fn messages(&mut self, request: &SimRequest, words: &Words) -> Vec<Message> {
        let kept = request
            .session
            .as_ref()
            .and_then(|place| Some((place, self.0.get_mut(&place.session)?)));
        let Some((place, said)) = kept else {
            return vec![user(&words.prompt(request))];
        };
        if place.context_tokens == 0 {
            // What was said before is forgotten.
            said.clear();
            said.push(user(&words.prompt(request)));
        } else {
            let fresh = request.prompt_tokens.saturating_sub(place.context_tokens);
            said.push(user(&words.follow_up(&place.session, place.round, fresh)));
        }
        said.clone()
    }

    /// The last turn was answered.
    pub(super) fn answered(&mut self, place: &SessionRound, answer: &str) {
        if let Some(said) = self.0.get_mut(&place.session) {
            said.push(Message {
                role: Role::Assistant,
                text: answer.into(),
            });
        }
    }

    /// A conversation is over.
    pub(super) fn end(&mut self, place: &SessionRound) {
        self.0.remove(&place.session);
    }
}

fn user(text: &str) -> Message {
    Message {
        role: Role::User,
        text: text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::request;
    use super::*;

    fn turn(round: u32, prompt_tokens: u32, context_tokens: u32) -> SimRequest {
        SimRequest {
            session: Some(SessionRound {
                session: "s".into(),
                round,
                context_tokens,
                think_us: 0,
            }),
            ..request(0, prompt_tokens)
        }
    }

    fn texts(messages: &[Message]) -> Vec<&str> {
        messages.iter().map(|message| &*message.text).collect()
    }

    #[test]
    fn the_next_turn_repeats_what_was_asked_and_what_was_answered() {
        let (mut dialogues, words) = (Dialogues::default(), Words::new(1));
        let (first, second) = (turn(0, 10, 0), turn(1, 18, 12));
        let place = first.session.clone().unwrap();
        dialogues.begin(&place);

        let asked = dialogues.messages(&first, &words);
        dialogues.answered(&place, " sea oak");
        let then = dialogues.messages(&second, &words);

        assert_eq!(texts(&asked), [words.prompt(&first)]);
        assert_eq!(texts(&then)[..2], [&*asked[0].text, " sea oak"]);
        assert_eq!(then[2].text.len(), 6 * 4);
        dialogues.end(&place);
        assert!(!dialogues.is_kept(&place));
    }

    #[test]
    fn a_turn_without_context_forgets() {
        let (mut dialogues, words) = (Dialogues::default(), Words::new(1));
        let place = turn(0, 10, 0).session.unwrap();
        dialogues.begin(&place);
        dialogues.messages(&turn(0, 10, 0), &words);
        dialogues.answered(&place, " sea");

        assert_eq!(dialogues.messages(&turn(1, 10, 0), &words).len(), 1);
    }

    #[test]
    fn a_turn_that_did_not_wait_repeats_the_prompts_before_it() {
        let (mut dialogues, words) = (Dialogues::default(), Words::new(1));
        let first = dialogues.messages(&turn(0, 10, 0), &words);
        let second = dialogues.messages(&turn(1, 18, 12), &words);

        assert!(second[0].text.starts_with(&*first[0].text));
        assert_eq!(second.len(), 1);
    }
}
