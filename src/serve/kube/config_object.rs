//! The configuration as an object of the cluster: taken over when it changes, and told what became of it.
//!
//! The status has two conditions: `Accepted` says whether the text can run, `Programmed` whether it does. A text that
//! is refused leaves the last good one running, and the status says so; a replica that has not had one since it started
//! is not ready. Events tell of each change. With several replicas those that lead write; without an election all do.
//! Each says its verdict on a generation once, so replicas that disagree do not write against each other without end.

use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{self, SignedDuration};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::api::{Condition, EndpointPickerConfig, Truth};
use super::change::Change;
use super::lease::Role;
use super::watch::{Pace, changes};
use crate::engine::config::{Finding, Severity, SourceName};
use crate::serve::causes::with_causes;
use crate::serve::configuration::{Effect, LiveConfiguration, Refused, Taken, Text};

/// The condition that says whether the text can run.
const ACCEPTED: &str = "Accepted";
/// The condition that says whether the text runs.
const PROGRAMMED: &str = "Programmed";
/// Who writes the status and the events.
const MANAGER: &str = "forebay";
/// The longest message of a condition, in bytes, as the definition of the kind has it.
const LONGEST_MESSAGE: usize = 32768;
/// The longest note of an event that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;
/// Time from one write of the status, with its event, to the next.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// The longest name of a reporter of events, in bytes.
const LONGEST_INSTANCE: usize = 128;

/// Follows one object.
pub struct ConfigObject {
    /// The API server.
    pub client: Client,
    /// Where the object is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// What this replica is called.
    pub identity: String,
    /// How soon what fails is tried again.
    pub pace: Pace,
}

impl std::fmt::Debug for ConfigObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigObject")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What is said of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    accepted: Claim,
    programmed: Claim,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    truth: Truth,
    reason: &'static str,
    message: String,
}

/// What this replica has made of the object so far.
#[derive(Debug, Default)]
struct Standing {
    /// The text that was judged last.
    judged: Option<(String, Verdict)>,
    /// What is to run is known: a text of the object was right, or there was no object. Once so, it stays so.
    is_configured: bool,
}

/// What was said of which version of the object.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    uid: Option<String>,
    generation: Option<i64>,
    verdict: Verdict,
}

impl ConfigObject {
    /// Lets every text that the object comes to hold take over, and tells the object so, without end. Tells
    /// `is_configured` once a text of the object was right, or there was no object.
    pub async fn follow(
        self,
        live: LiveConfiguration,
        mut role: watch::Receiver<Role>,
        is_configured: watch::Sender<bool>,
    ) {
        let named = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let client = self.client.clone();
        let what = "the configuration object";
        let mut objects = changes::<EndpointPickerConfig>(what, client, &self.namespace, named, self.pace);
        let mut standing = Standing::default();
        // The object as it was seen last, and what is to be said of it.
        let mut latest: Option<(EndpointPickerConfig, Verdict)> = None;
        let mut said: Option<Said> = None;
        let mut next_write = Instant::now();
        let mut is_unsaid = false;
        loop {
            tokio::select! {
                Some(change) = objects.next() => {
                    match change {
                        // It is there, and nobody can tell what it says.
                        Change::All { objects, unread } if objects.is_empty() && !unread.is_empty() => {}
                        Change::All { objects, .. } => {
                            latest = self.object_is(&live, &mut standing, objects.into_iter().next());
                        }
                        Change::Is(object) => latest = self.object_is(&live, &mut standing, Some(object)),
                        Change::Gone(_) => latest = self.object_is(&live, &mut standing, None),
                        // What was good last holds. If nothing was, nothing is waited for any more.
                        Change::Absent if standing.is_configured => {}
                        Change::Absent => latest = self.object_is(&live, &mut standing, None),
                    }
                    is_configured.send_replace(standing.is_configured);
                }
                Ok(()) = role.changed() => {}
                () = sleep_until(next_write), if is_unsaid => {}
            }
            let wanted = latest.as_ref().map(|(object, verdict)| Said {
                uid: object.metadata.uid.clone(),
                generation: object.metadata.generation,
                verdict: verdict.clone(),
            });
            if *role.borrow_and_update() == Role::Standby {
                // Another one speaks, and may say something else.
                said = None;
                is_unsaid = false;
                continue;
            }
            // What others write is no reason to write again: two replicas that disagree would never end.
            is_unsaid = wanted.is_some() && wanted != said;
            let (true, Some((object, verdict))) = (is_unsaid && Instant::now() >= next_write, &latest) else {
                continue;
            };
            match self.say(object, verdict).await {
                Ok(()) => {
                    said = wanted;
                    is_unsaid = false;
                    next_write = Instant::now() + BETWEEN_WRITES;
                }
                Err(error) => {
                    warn!(%error, "the status of the configuration object could not be written");
                    next_write = Instant::now() + self.pace.most;
                }
            }
        }
    }

    /// Lets the text of the object take over, or what counts without one. Gives what is to be said of the object.
    fn object_is(
        &self,
        live: &LiveConfiguration,
        standing: &mut Standing,
        object: Option<EndpointPickerConfig>,
    ) -> Option<(EndpointPickerConfig, Verdict)> {
        let Some(object) = object else {
            self.gone(live, standing);
            return None;
        };
        let verdict = self.judge(live, standing, object.text());
        Some((object, verdict))
    }

    /// Lets a text of the object take over, unless it was judged already.
    fn judge(&self, live: &LiveConfiguration, standing: &mut Standing, text: String) -> Verdict {
        if let Some((before, verdict)) = &standing.judged
            && *before == text
        {
            return verdict.clone();
        }
        let source = SourceName::Object(format!("{}/{}", self.namespace, self.name).into());
        let result = live.object_is(Text {
            text: text.clone(),
            source,
        });
        standing.is_configured |= result.is_ok();
        match &result {
            Ok(_) => info!(object = %self.name, "configuration object taken over"),
            Err(error) if standing.is_configured => {
                warn!(object = %self.name, error = %with_causes(error), "configuration object refused; what ran goes on");
            }
            Err(error) => {
                warn!(object = %self.name, error = %with_causes(error), "configuration object refused; not ready until it is mended");
            }
        }
        let otherwise = match standing.is_configured {
            true => Otherwise::LastGood,
            false => Otherwise::NotReady(&self.identity),
        };
        let verdict = verdict(&result, otherwise);
        standing.judged = Some((text, verdict.clone()));
        verdict
    }

    fn gone(&self, live: &LiveConfiguration, standing: &mut Standing) {
        standing.is_configured = true;
        if standing.judged.take().is_none() {
            info!(object = %self.name, "there is no configuration object; the file or the default counts");
            return;
        }
        match live.object_is_gone() {
            Ok(_) => info!(object = %self.name, "configuration object is gone; the file or the default counts again"),
            Err(error) => warn!(
                error = %with_causes(&error),
                "configuration object is gone, and the file cannot be used; what ran goes on"
            ),
        }
    }

    /// Writes the status and an event, unless the status says it already.
    async fn say(&self, object: &EndpointPickerConfig, verdict: &Verdict) -> kube::Result<()> {
        let old = object
            .status
            .as_ref()
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default();
        let new = conditions(old, verdict, object.metadata.generation, &now());
        if new == old {
            return Ok(());
        }
        let api: Api<EndpointPickerConfig> = Api::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({ "status": { "conditions": new } }));
        match api.patch_status(&self.name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            // It went meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error),
        }
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        if let Err(error) = events
            .create(&PostParams::default(), &self.event(object, verdict))
            .await
        {
            // Nobody waits for an event.
            warn!(%error, object = %object.name_any(), "an event could not be written");
        }
        Ok(())
    }

    /// An event that tells what became of the object. Each has a note of its own, so none stands for several.
    fn event(&self, object: &EndpointPickerConfig, verdict: &Verdict) -> Event {
        let (kind, claim) = match verdict.accepted.truth {
            Truth::True => ("Normal", &verdict.programmed),
            Truth::False | Truth::Unknown => ("Warning", &verdict.accepted),
        };
        let now = jiff::Timestamp::now();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", self.name, now.as_nanosecond())),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some("Configure".to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(shortened_to(claim.message.clone(), LONGEST_NOTE)),
            reason: Some(claim.reason.to_owned()),
            regarding: Some(object.object_ref(&())),
            reporting_controller: Some(format!("{MANAGER}.dev/{MANAGER}")),
            reporting_instance: Some(shortened_to(self.identity.clone(), LONGEST_INSTANCE)),
            type_: Some(kind.to_owned()),
            ..Event::default()
        }
    }
}

/// What runs in the place of a text that is refused.
#[derive(Clone, Copy, Debug)]
enum Otherwise<'a> {
    /// The configuration that ran before.
    LastGood,
    /// None: this pod has never had one, and is not ready.
    NotReady(&'a str),
}

fn verdict(result: &Result<Taken, Refused>, otherwise: Otherwise<'_>) -> Verdict {
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
                Effect::Runs | Effect::Unchanged => {
                    claim(Truth::True, "Programmed", "The configuration runs.".to_owned())
                }
                Effect::Overruled => claim(Truth::False, "Overruled", "Another configuration runs.".to_owned()),
                Effect::RunsWithoutDiscovery => claim(
                    Truth::False,
                    "RestartNeeded",
                    "The configuration runs but for dataLayer.discovery, which needs another start.".to_owned(),
                ),
            },
        },
        Err(error) => {
            let findings = match error {
                Refused::Config(errors) => in_words(errors.findings()),
                Refused::Source(error) => with_causes(error),
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

fn shortened_to(mut text: String, longest: usize) -> String {
    const MORE: &str = " …";
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest - MORE.len()));
        text.push_str(MORE);
    }
    text
}

/// The conditions as they are to be. One that does not change keeps its time; those of others stay.
fn conditions(old: &[Condition], verdict: &Verdict, generation: Option<i64>, now: &str) -> Vec<Condition> {
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

/// The time in whole seconds, as objects have it.
fn now() -> String {
    let now = jiff::Timestamp::now();
    let whole = now - SignedDuration::from_nanos(i64::from(now.subsec_nanosecond()));
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::config::{LoadOptions, load};

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

    #[test]
    fn a_time_has_whole_seconds() {
        let now = now();

        assert_eq!(now.len(), "2026-01-01T00:00:00Z".len(), "{now}");
    }
}
