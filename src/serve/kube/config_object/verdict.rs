//! What is said of a configuration: from what became of a text to the conditions of the object.

use crate::engine::config::{Finding, Severity};
use crate::serve::causes::with_causes;
use crate::serve::configuration::{Effect, Refused, Taken};
use crate::serve::kube::api::{Condition, Truth};

/// The condition that says whether the text can run.
const ACCEPTED: &str = "Accepted";
/// The condition that says whether the text runs.
const PROGRAMMED: &str = "Programmed";
/// The longest message of a condition, in bytes, as the definition of the kind has it.
const LONGEST_MESSAGE: usize = 32768;

/// What is said of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether the text can run.
    pub(super) accepted: Claim,
    /// Whether it runs.
    pub(super) programmed: Claim,
}

/// A condition, as far as it is ours to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) truth: Truth,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What runs in the place of a text that is refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Otherwise<'a> {
    /// The configuration that ran before.
    LastGood,
    /// None: this pod has never had one, and is not ready.
    NotReady(&'a str),
}

/// What is to be said of a text, by what became of it.
pub(super) fn verdict(result: &Result<Taken, Refused>, otherwise: Otherwise<'_>) -> Verdict {
    let claim = |truth, reason, message: String| Claim {
        truth,
        reason,
        message: shortened_to(message, LONGEST_MESSAGE),
    };
    match result {
        Ok(Taken { warnings, effect }) => Verdict {
            accepted: claim(
                Truth::True,
                "Valid",
                match warnings.as_slice() {
                    [] => "The configuration can run.".to_owned(),
                    warnings => format!("The configuration can run. {}", in_words(warnings)),
                },
            ),
            programmed: match effect {
                // Of an object, discovery has no effect, which is a warning.
                Effect::Runs | Effect::Unchanged | Effect::RunsWithoutDiscovery => {
                    claim(Truth::True, "Programmed", "The configuration runs.".to_owned())
                }
                Effect::Overruled => claim(Truth::False, "Overruled", "Another configuration runs.".to_owned()),
            },
        },
        Err(error) => {
            let findings = match error {
                Refused::Config(errors) => in_words(errors.findings()),
                Refused::Source(error) => with_causes(error),
                Refused::Empty => error.to_string(),
            };
            Verdict {
                accepted: claim(Truth::False, "Invalid", findings),
                programmed: match otherwise {
                    Otherwise::LastGood => claim(
                        Truth::False,
                        "LastGoodKept",
                        "The configuration that was good last goes on running.".to_owned(),
                    ),
                    Otherwise::NotReady(pod) => claim(
                        Truth::False,
                        "NotReady",
                        format!(
                            "No configuration of this object was ever right since {pod} started, which is not ready \
                             until one is."
                        ),
                    ),
                },
            }
        }
    }
}

/// Findings without their lines, which an object does not have.
fn in_words(findings: &[Finding]) -> String {
    let words = findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        match finding.path.as_str() {
            "" => format!("{severity}: {}", finding.message),
            path => format!("{severity}: {path}: {}", finding.message),
        }
    });
    words.collect::<Vec<_>>().join("; ")
}

/// A text of at most so many bytes, which shows that there was more.
pub(super) fn shortened_to(mut text: String, longest: usize) -> String {
    const MORE: &str = " …";
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest - MORE.len()));
        text.push_str(MORE);
    }
    text
}

/// The conditions as they are to be. One that does not change keeps its time; those of others stay.
pub(super) fn conditions(old: &[Condition], verdict: &Verdict, generation: Option<i64>, now: &str) -> Vec<Condition> {
    let of = |type_name: &str, claim: &Claim| {
        let before = old.iter().find(|condition| condition.type_name == type_name);
        let since = before.filter(|before| before.status == claim.truth);
        Condition {
            type_name: type_name.to_owned(),
            status: claim.truth,
            reason: claim.reason.to_owned(),
            message: claim.message.clone(),
            last_transition_time: since.map_or(now, |before| &before.last_transition_time).to_owned(),
            observed_generation: generation,
        }
    };
    let foreign = old
        .iter()
        .filter(|condition| ![ACCEPTED, PROGRAMMED].contains(&condition.type_name.as_str()));
    let ours = [of(ACCEPTED, &verdict.accepted), of(PROGRAMMED, &verdict.programmed)];
    ours.into_iter().chain(foreign.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::config::{LoadOptions, SourceName, load};
    use crate::serve::kube::config_object::LONGEST_NOTE;

    fn refused(text: &str) -> Verdict {
        let error = load(text, &SourceName::Flag, &LoadOptions::default()).unwrap_err();
        verdict(&Err(error.into()), Otherwise::LastGood)
    }

    fn taken(effect: Effect) -> Verdict {
        let taken = Taken {
            warnings: Vec::new(),
            effect,
        };
        verdict(&Ok(taken), Otherwise::LastGood)
    }

    #[test]
    fn what_is_wrong_is_in_the_message_by_its_path() {
        let verdict = refused("{plugins: [{type: queue-scorrer}], bogus: 1}");

        assert_eq!(
            (verdict.accepted.truth, verdict.accepted.reason),
            (Truth::False, "Invalid")
        );
        let message = &verdict.accepted.message;
        assert!(message.contains("error: plugins[0].type: "), "{message}");
        assert!(message.contains("bogus"), "{message}");
        assert!(!message.contains("--config-text"), "{message}");
        assert_eq!(verdict.programmed.reason, "LastGoodKept");
    }

    /// The verdict on so many plugins of unknown types.
    fn wrong(plugins: usize) -> Verdict {
        let many: Vec<_> = (0..plugins).map(|number| format!("{{type: wrong-{number}}}")).collect();
        refused(&format!("{{plugins: [{}]}}", many.join(", ")))
    }

    #[test]
    fn a_condition_has_all_findings_as_far_as_its_definition_allows() {
        let message = wrong(6).accepted.message;

        assert!(message.len() > LONGEST_NOTE, "{message}");
        assert!(message.contains("plugins[5].type"), "{message}");
        assert!(!message.ends_with('…'), "{message}");

        let cut = wrong(1000).accepted.message;
        assert!(cut.len() <= LONGEST_MESSAGE);
        assert!(cut.ends_with('…'));
    }

    #[test]
    fn a_pod_that_never_had_a_configuration_says_that_it_is_not_ready() {
        let error = load("{bogus: 1}", &SourceName::Flag, &LoadOptions::default()).unwrap_err();

        let Verdict { accepted, programmed } = verdict(&Err(error.into()), Otherwise::NotReady("forebay-1"));

        assert_eq!((accepted.truth, accepted.reason), (Truth::False, "Invalid"));
        assert_eq!((programmed.truth, programmed.reason), (Truth::False, "NotReady"));
        assert!(programmed.message.contains("forebay-1"), "{programmed:?}");
    }

    #[test]
    fn a_condition_that_stays_as_it_is_keeps_its_time() {
        let first = conditions(&[], &taken(Effect::Runs), Some(1), "t1");
        let second = conditions(&first, &taken(Effect::Unchanged), Some(1), "t2");
        assert_eq!(first, second);

        let third = conditions(&second, &refused("{plugins: [{}]}"), Some(2), "t3");
        assert!(third.iter().all(|condition| condition.last_transition_time == "t3"));
        assert!(third.iter().all(|condition| condition.observed_generation == Some(2)));
    }

    #[test]
    fn conditions_of_others_stay() {
        let foreign = Condition {
            type_name: "Linted".to_owned(),
            status: Truth::True,
            reason: "Fine".to_owned(),
            message: String::new(),
            last_transition_time: "t0".to_owned(),
            observed_generation: None,
        };

        let all = conditions(std::slice::from_ref(&foreign), &taken(Effect::Runs), Some(1), "t1");

        let names: Vec<_> = all.iter().map(|condition| condition.type_name.as_str()).collect();
        assert_eq!(names, [ACCEPTED, PROGRAMMED, "Linted"]);
        assert_eq!(all[2], foreign);
    }
}
