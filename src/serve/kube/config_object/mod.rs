//! The configuration as an object of the cluster: taken over when it changes, and told what became of it.
//!
//! The status has two conditions: `Accepted` says whether the text can run, `Programmed` whether it does. A text that
//! is refused leaves the last good one running, and the status says so; a replica that has not had one since it started
//! is not ready. Events tell of each change. With several replicas those that lead write; without an election all do.
//! Each says its verdict on a generation once, so replicas that disagree do not write against each other without end.

mod verdict;

use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{self, SignedDuration};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use self::verdict::{Otherwise, Verdict, conditions, shortened_to, verdict};
use super::api::{EndpointPickerConfig, Truth};
use super::change::Change;
use super::failure::in_one_line;
use super::lease::Role;
use super::list_watch::Selection;
use super::watch::{Pace, changes};
use crate::engine::config::SourceName;
use crate::serve::causes::with_causes;
use crate::serve::configuration::{LiveConfiguration, Text};

/// Who writes the status and the events.
const MANAGER: &str = "forebay";
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

/// What this replica has made of the object so far.
#[derive(Debug, Default)]
struct Standing {
    /// The object as it was seen last, and what is to be said of it.
    latest: Option<(EndpointPickerConfig, Verdict)>,
    /// What is to run is known: a text of the object was right, or there was no object. Once so, it stays so.
    is_configured: bool,
}

/// What was said to the object, and when more can be.
#[derive(Debug)]
struct Speech {
    /// The last that was said since this replica leads.
    said: Option<Said>,
    /// Something is to be said.
    is_unsaid: bool,
    /// Not before this time.
    next: Instant,
}

impl Default for Speech {
    /// Nothing was said, and something can be at once.
    fn default() -> Self {
        Self {
            said: None,
            is_unsaid: false,
            next: Instant::now(),
        }
    }
}

impl Speech {
    /// Nothing was said, and nothing is to be.
    fn forget(&mut self) {
        self.said = None;
        self.is_unsaid = false;
    }
}

/// What was said of which version of the object.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    uid: Option<String>,
    generation: Option<i64>,
    verdict: Verdict,
}

impl Said {
    fn of(object: &EndpointPickerConfig, verdict: &Verdict) -> Self {
        Self {
            uid: object.metadata.uid.clone(),
            generation: object.metadata.generation,
            verdict: verdict.clone(),
        }
    }
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
        let named = Selection::named(&self.name);
        let client = self.client.clone();
        let what = "the configuration object";
        let mut objects = changes::<EndpointPickerConfig>(what, client, &self.namespace, named, self.pace);
        let mut standing = Standing::default();
        let mut speech = Speech::default();
        loop {
            tokio::select! {
                Some(change) = objects.next() => {
                    self.heard(change, &live, &mut standing);
                    is_configured.send_replace(standing.is_configured);
                }
                Ok(()) = role.changed() => {}
                () = sleep_until(speech.next), if speech.is_unsaid => {}
            }
            let role = *role.borrow_and_update();
            match role {
                Role::Leader => self.speak(&mut speech, standing.latest.as_ref()).await,
                // Another one speaks, and may say something else.
                Role::Standby => speech.forget(),
            }
        }
    }

    /// Lets the text of the object take over, or what counts without one.
    fn heard(&self, change: Change<EndpointPickerConfig>, live: &LiveConfiguration, standing: &mut Standing) {
        let object = match change {
            // It is there, and nobody can tell what it says.
            Change::All { objects, unread } if objects.is_empty() && !unread.is_empty() => return,
            Change::All { objects, .. } => objects.into_iter().next(),
            Change::Is(object) => Some(object),
            // What was good last holds. If nothing was, nothing is waited for any more.
            Change::Absent if standing.is_configured => return,
            Change::Gone(_) | Change::Absent => None,
        };
        match object {
            Some(object) => {
                let verdict = self.judge(live, standing, object.text());
                standing.latest = Some((object, verdict));
            }
            None => self.gone(live, standing),
        }
    }

    /// Lets a text of the object take over, unless it was judged already.
    fn judge(&self, live: &LiveConfiguration, standing: &mut Standing, text: String) -> Verdict {
        if let Some((before, verdict)) = &standing.latest
            && before.text() == text
        {
            return verdict.clone();
        }
        let source = SourceName::Object(format!("{}/{}", self.namespace, self.name).into());
        let result = live.object_is(Text { text, source });
        standing.is_configured |= result.is_ok();
        match &result {
            Ok(taken) => {
                info!(object = %self.name, "configuration object taken over");
                for warning in &taken.warnings {
                    warn!(object = %self.name, %warning, "configuration");
                }
            }
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
        verdict(&result, otherwise)
    }

    fn gone(&self, live: &LiveConfiguration, standing: &mut Standing) {
        standing.is_configured = true;
        if standing.latest.take().is_none() {
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

    /// Tells the object what became of it, unless that was said already, or something else a moment ago.
    async fn speak(&self, speech: &mut Speech, latest: Option<&(EndpointPickerConfig, Verdict)>) {
        let wanted = latest.map(|(object, verdict)| Said::of(object, verdict));
        // What others write is no reason to write again: two replicas that disagree would never end.
        speech.is_unsaid = wanted.is_some() && wanted != speech.said;
        let Some((object, verdict)) = latest.filter(|_| speech.is_unsaid && Instant::now() >= speech.next) else {
            return;
        };
        match self.say(object, verdict).await {
            Ok(()) => {
                speech.said = wanted;
                speech.is_unsaid = false;
                speech.next = Instant::now() + BETWEEN_WRITES;
            }
            Err(error) => {
                warn!(
                    error = in_one_line(&error),
                    "the status of the configuration object could not be written"
                );
                speech.next = Instant::now() + self.pace.most;
            }
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
            warn!(error = in_one_line(&error), object = %object.name_any(), "an event could not be written");
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

/// The time in whole seconds, as objects have it.
fn now() -> String {
    let now = jiff::Timestamp::now();
    let whole = now - SignedDuration::from_nanos(i64::from(now.subsec_nanosecond()));
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_whole_seconds() {
        let now = now();

        assert_eq!(now.len(), "2026-01-01T00:00:00Z".len(), "{now}");
    }
}
