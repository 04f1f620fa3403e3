//! The rules of the election, for one replica: which steps follow from what was read and written, and when.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;
use tracing::{info, warn};

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A lease that nobody renewed for so long can be taken. Whole seconds; at least one.
    pub lease: Duration,
    /// Time between two looks at it, and between two renewals.
    pub retry: Duration,
}

impl Default for Timing {
    /// As in other controllers: 15 s and 2 s.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            retry: Duration::from_secs(2),
        }
    }
}

/// What a replica is to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It knows everything and waits.
    #[default]
    Standby,
    /// Requests are to come here.
    Leader,
}

/// A lease, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Empty if it was given back.
    pub(super) holder: String,
    pub(super) lease: Duration,
    /// Changes with every write.
    pub(super) version: String,
    /// Where its holder's process can be seen to live, if that was told.
    pub(super) address: Option<SocketAddr>,
}

impl Held {
    /// True if a process other than this one holds it.
    pub(super) fn is_of_another(&self, identity: &Identity) -> bool {
        !self.holder.is_empty() && self.holder != identity.holder
    }

    /// True if the process that this one follows in its pod holds it. That one has ended: this one listens where it did. A
    /// lease of the same pod's name without that proof may be one of a replica that was given the name by mistake.
    fn is_of_predecessor(&self, identity: &Identity) -> bool {
        self.pod() == identity.pod && self.address.is_some() && self.address == identity.address
    }

    /// The pod of the holder.
    fn pod(&self) -> &str {
        self.holder.split_once('_').map_or(&self.holder, |(pod, _)| pod)
    }
}

/// Who a process is to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// The name of the pod. No other one ought to have it.
    pod: String,
    /// The pod and the process. No other process has it, whatever it is told about its pod.
    pub(super) holder: String,
    /// Where this process can be seen to live.
    address: Option<SocketAddr>,
}

impl Identity {
    pub(super) fn new(pod: &str, process: &str, address: Option<SocketAddr>) -> Self {
        Self {
            pod: pod.to_owned(),
            // A pod's name has no such character.
            holder: format!("{pod}_{process}"),
            address,
        }
    }
}

/// The rules of the election, for one replica.
#[derive(Debug)]
pub(super) struct Election {
    pub(super) identity: Identity,
    timing: Timing,
    pub(super) role: Role,
    /// It could serve if it led.
    pub(super) is_fit: bool,
    /// The lease as it was seen last, if there was one, and when it was first seen so.
    seen: Option<(Option<Held>, Instant)>,
    /// The lease could not be read, or not be written, since then. Perhaps its holder could not renew it either.
    is_blind: bool,
    /// The process of its holder has ended since then.
    is_abandoned: bool,
    /// Another process with the name of our pod was told of.
    has_told_of_namesake: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nobody ever held the lease: make it.
    Create,
    /// Take it, or renew it, if it still has this version.
    Write(String),
    /// Another one holds it, or may take it first, until this time unless it is written before.
    Wait(Instant),
}

impl Election {
    pub(super) fn new(identity: Identity, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            role: Role::Standby,
            is_fit: false,
            seen: None,
            is_blind: false,
            is_abandoned: false,
            has_told_of_namesake: false,
        }
    }

    /// The lease was read: it is this, or there is none.
    pub(super) fn read(&mut self, now: Instant, held: Option<Held>) {
        let was_blind = std::mem::take(&mut self.is_blind);
        if let Some(held) = held.as_ref().filter(|held| held.is_of_another(&self.identity))
            && self.role == Role::Leader
        {
            warn!(holder = %held.holder, "another replica leads");
            self.role = Role::Standby;
        }
        if let Some(held) = held.as_ref().filter(|held| self.is_renewed_by_namesake(held))
            && !std::mem::replace(&mut self.has_told_of_namesake, true)
        {
            warn!(
                holder = %held.holder, pod = %self.identity.pod,
                "the lease is held by another process with the pod name of this one; one of them leads. Give each replica \
                 its own `$POD_NAME`"
            );
        }
        if was_blind || self.seen.as_ref().is_none_or(|(seen, _)| *seen != held) {
            self.seen = Some((held, now));
            self.is_abandoned = false;
        }
    }

    /// The process of the lease's holder has ended.
    pub(super) fn abandoned(&mut self) {
        self.is_abandoned = true;
    }

    /// Where the process of another one that leads can be seen to live.
    pub(super) fn leader(&self) -> Option<SocketAddr> {
        let (held, _) = self.seen.as_ref()?;
        let held = held.as_ref().filter(|held| !self.is_free(held))?;
        held.address
    }

    /// Nobody else holds it.
    fn is_free(&self, held: &Held) -> bool {
        self.is_abandoned || !held.is_of_another(&self.identity) || held.is_of_predecessor(&self.identity)
    }

    /// Another process that has the name of our pod holds it and has renewed it since it was seen last: it lives.
    fn is_renewed_by_namesake(&self, held: &Held) -> bool {
        let before = self.seen.as_ref().and_then(|(seen, _)| seen.as_ref());
        let is_renewed = before.is_some_and(|before| before.holder == held.holder && before.version != held.version);
        is_renewed && held.is_of_another(&self.identity) && held.pod() == self.identity.pod
    }

    /// The lease could not be read, or not be written.
    pub(super) fn failed(&mut self) {
        self.is_blind = true;
    }

    /// The lease was written, and is ours.
    pub(super) fn written(&mut self, now: Instant, held: Held) {
        if self.role != Role::Leader {
            info!(identity = %self.identity.holder, "leading");
        }
        self.role = Role::Leader;
        self.seen = Some((Some(held), now));
        self.is_abandoned = false;
    }

    pub(super) fn step(&self, now: Instant) -> Step {
        let Some((held, since)) = &self.seen else {
            return Step::Wait(now + self.timing.retry);
        };
        let is_left_to_others = !self.is_fit && self.role == Role::Standby;
        let patience = if is_left_to_others {
            self.timing.lease
        } else {
            Duration::ZERO
        };
        let lasts = held
            .as_ref()
            .filter(|held| !self.is_free(held))
            .map_or(Duration::ZERO, |held| held.lease);
        let free = *since + lasts + patience;
        match held {
            _ if now < free => Step::Wait(free),
            None => Step::Create,
            Some(held) => Step::Write(held.version.clone()),
        }
    }

    /// When to look again.
    pub(super) fn next_look(&self, now: Instant) -> Instant {
        let retry = now + self.timing.retry;
        match self.step(now) {
            Step::Wait(runs_out) => runs_out.min(retry),
            Step::Create | Step::Write(_) => retry,
        }
    }

    /// The lease as we hold it from `wall` on; with `holder` empty, as we give it back.
    pub(super) fn spec(&self, holder: &str, old: Option<&LeaseSpec>, wall: MicroTime) -> LeaseSpec {
        let held_before = old.and_then(|old| old.holder_identity.as_deref()).unwrap_or_default();
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        let is_new_holder = held_before != self.identity.holder;
        let acquired = old.and_then(|old| old.acquire_time.clone()).filter(|_| !is_new_holder);
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(i32::try_from(self.timing.lease.as_secs().max(1)).unwrap_or(i32::MAX)),
            acquire_time: Some(acquired.unwrap_or_else(|| wall.clone())),
            renew_time: Some(wall),
            lease_transitions: Some(transitions + i32::from(is_new_holder && old.is_some())),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff;

    use super::*;

    const TIMING: Timing = Timing {
        lease: Duration::from_secs(15),
        retry: Duration::from_secs(2),
    };

    /// Where a pod's health service listens.
    fn address_of(pod: &str) -> Option<SocketAddr> {
        let host = pod.bytes().fold(0, u8::wrapping_add);
        Some(SocketAddr::from(([10, 0, 0, host], 9003)))
    }

    fn identity(pod: &str) -> Identity {
        Identity::new(pod, "1", address_of(pod))
    }

    fn election(pod: &str) -> Election {
        Election {
            is_fit: true,
            ..Election::new(identity(pod), TIMING)
        }
    }

    /// A lease of the pod's first process; of nobody, if the name is empty.
    fn held_by(pod: &str, version: &str) -> Held {
        Held {
            holder: if pod.is_empty() {
                String::new()
            } else {
                identity(pod).holder
            },
            lease: TIMING.lease,
            version: version.to_owned(),
            address: address_of(pod),
        }
    }

    #[test]
    fn a_lease_that_nobody_ever_held_is_made() {
        let now = Instant::now();
        let mut election = election("a");
        election.read(now, None);
        assert_eq!(election.step(now), Step::Create);

        election.written(now, held_by("a", "1"));

        assert_eq!(election.role, Role::Leader);
        assert_eq!(election.step(now), Step::Write("1".to_owned()), "it is renewed");
        assert_eq!(election.next_look(now), now + TIMING.retry);
    }

    #[test]
    fn a_lease_that_is_renewed_is_never_taken() {
        let start = Instant::now();
        let mut election = election("b");

        for turn in 0..20 {
            let now = start + TIMING.lease * turn;
            election.read(now, Some(held_by("a", &turn.to_string())));
            assert_eq!(election.step(now), Step::Wait(now + TIMING.lease));
        }
    }

    #[test]
    fn a_lease_that_is_not_renewed_is_taken_when_it_has_run_out_since_it_was_first_seen() {
        let start = Instant::now();
        let mut election = election("b");
        election.read(start, Some(held_by("a", "7")));

        let just_before = start + TIMING.lease - Duration::from_millis(1);
        election.read(just_before, Some(held_by("a", "7")));
        assert_eq!(election.step(just_before), Step::Wait(start + TIMING.lease));
        assert_eq!(election.next_look(just_before), start + TIMING.lease);

        assert_eq!(election.step(start + TIMING.lease), Step::Write("7".to_owned()));
    }

    #[test]
    fn who_could_not_read_the_lease_waits_as_if_it_was_seen_for_the_first_time() {
        let start = Instant::now();
        let mut election = election("b");
        election.read(start, Some(held_by("a", "7")));
        election.failed();

        let back = start + TIMING.lease * 4;
        election.read(back, Some(held_by("a", "7")));

        assert_eq!(
            election.step(back),
            Step::Wait(back + TIMING.lease),
            "its holder could not renew it either"
        );
        let later = back + TIMING.lease;
        election.read(later, Some(held_by("a", "7")));
        assert_eq!(election.step(later), Step::Write("7".to_owned()));
    }

    #[test]
    fn a_lease_is_taken_at_once_when_the_process_of_its_holder_has_ended_unless_it_was_renewed_since() {
        let now = Instant::now();
        let mut election = election("b");
        election.read(now, Some(held_by("a", "7")));
        assert!(election.leader().is_some());

        election.abandoned();
        assert_eq!(election.leader(), None);
        assert_eq!(election.step(now), Step::Write("7".to_owned()));

        election.read(now, Some(held_by("a", "8")));
        assert_eq!(election.step(now), Step::Wait(now + TIMING.lease));
    }

    #[test]
    fn who_leads_does_not_watch_itself() {
        let now = Instant::now();
        let mut election = election("a");

        election.written(now, held_by("a", "1"));

        assert_eq!(election.leader(), None);
    }

    #[test]
    fn a_lease_that_was_given_back_is_taken_at_once() {
        let now = Instant::now();
        let mut election = election("b");
        election.read(now, Some(held_by("a", "1")));

        election.read(now, Some(held_by("", "2")));

        assert_eq!(election.step(now), Step::Write("2".to_owned()));
    }

    #[test]
    fn who_could_not_serve_leaves_the_lease_to_others_for_as_long_as_one_lasts() {
        let start = Instant::now();
        let free_ones = [
            (None, Duration::ZERO, Step::Create),
            (Some(held_by("", "2")), Duration::ZERO, Step::Write("2".to_owned())),
            (Some(held_by("a", "3")), TIMING.lease, Step::Write("3".to_owned())),
            (Some(held_by("b", "4")), Duration::ZERO, Step::Write("4".to_owned())),
        ];

        for (held, lasts, taken) in free_ones {
            let mut election = Election::new(identity("b"), TIMING);
            election.read(start, held);
            let free = start + lasts;

            assert_eq!(election.step(free), Step::Wait(free + TIMING.lease));
            assert_eq!(election.step(free + TIMING.lease), taken, "nobody else wants it");
            election.is_fit = true;
            assert_eq!(election.step(free), taken);
        }
    }

    #[test]
    fn a_leader_that_could_not_serve_any_more_renews_its_lease() {
        let now = Instant::now();
        let mut election = election("a");
        election.written(now, held_by("a", "1"));

        election.is_fit = false;

        assert_eq!(election.step(now), Step::Write("1".to_owned()));
    }

    #[test]
    fn a_process_takes_the_lease_of_the_one_before_it_in_its_pod_at_once() {
        let now = Instant::now();
        let mut second = election("a");
        second.identity = Identity::new("a", "2", address_of("a"));

        second.read(now, Some(held_by("a", "5")));

        assert_eq!(second.step(now), Step::Write("5".to_owned()));
        assert_eq!(second.leader(), None);
        assert!(!second.has_told_of_namesake);
    }

    #[test]
    fn another_process_with_the_name_of_our_pod_keeps_its_lease_and_is_told_of() {
        let now = Instant::now();
        for address in [address_of("elsewhere"), None] {
            let mut namesake = election("a");
            namesake.identity = Identity::new("a", "2", address);

            namesake.read(now, Some(held_by("a", "5")));

            assert_eq!(namesake.step(now), Step::Wait(now + TIMING.lease), "{address:?}");
            assert_eq!(namesake.leader(), address_of("a"));
            assert!(!namesake.has_told_of_namesake, "it may have ended");

            namesake.read(now, Some(held_by("a", "6")));
            assert!(namesake.has_told_of_namesake, "it has renewed the lease");
        }
    }

    #[test]
    fn a_leader_steps_back_before_another_process_with_the_name_of_its_pod() {
        let now = Instant::now();
        let mut first = election("a");
        first.written(now, held_by("a", "5"));

        let mut taken = held_by("a", "6");
        taken.holder = Identity::new("a", "2", None).holder;
        first.read(now, Some(taken));

        assert_eq!(first.role, Role::Standby);
    }

    #[test]
    fn a_leader_leads_until_it_sees_another_one() {
        let now = Instant::now();
        let mut election = election("a");
        election.written(now, held_by("a", "1"));

        let late = now + TIMING.lease * 10;
        assert_eq!(election.role, Role::Leader, "nobody else was seen");
        assert_eq!(election.step(late), Step::Write("1".to_owned()));

        election.read(late, Some(held_by("b", "2")));
        assert_eq!(election.role, Role::Standby);
    }

    #[test]
    fn a_change_of_the_holder_is_counted_and_a_renewal_keeps_the_time_of_the_start() {
        let at = |second| MicroTime(jiff::Timestamp::from_second(second).unwrap());
        let (a, b) = (election("a"), election("b"));

        let first = a.spec(&a.identity.holder, None, at(1));
        let renewed = a.spec(&a.identity.holder, Some(&first), at(2));
        let taken = b.spec(&b.identity.holder, Some(&renewed), at(3));
        let given_back = b.spec("", Some(&taken), at(4));

        assert_eq!(first.lease_transitions, Some(0));
        assert_eq!(renewed.renew_time, Some(at(2)));
        assert_eq!(taken.acquire_time, Some(at(3)));
        assert_eq!(renewed.acquire_time, first.acquire_time);
        assert_eq!(renewed.lease_transitions, Some(0));
        assert_eq!(taken.lease_transitions, Some(1));
        assert_eq!(given_back.holder_identity.as_deref(), Some(""));
        assert_eq!(given_back.lease_transitions, Some(1));
    }
}
