//! Who leads: one replica, by a `Lease`.
//!
//! `Election` decides and knows no clock and no network; [`Candidate`] carries it out. Whether a lease has run out is
//! judged by the time that passed here since it was last seen to change, never by the time that somebody else wrote.
//!
//! A leader that cannot renew its lease goes on leading until it sees that another one does: while the API server is
//! away nobody can take over, and somebody has to serve. The price is that two lead for a moment if the leader alone
//! is cut off. Both know the pool; limits count twice for that long.
//!
//! A lease says, too, where the process of its holder can be seen to live. A standby that sees it end does not wait for the
//! lease to run out. It may be mistaken: then two lead until the first one looks at its lease again, as above.
//!
//! A replica that could not serve (it knows no pool yet, or never had a right configuration) leaves a lease that is free
//! to the others for as long as a lease lasts. If none of them takes it, it leads all the same, and tells what is wrong.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::change::Change;
use super::liveness;
use super::watch::{Pace, changes};

/// The annotation of a lease that says where its holder's health service listens.
const ADDRESS: &str = "forebay.dev/health-address";
/// Time between two looks for a successor.
const SUCCESSION_LOOKS: Duration = Duration::from_millis(100);

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
struct Held {
    /// Empty if it was given back.
    holder: String,
    lease: Duration,
    /// Changes with every write.
    version: String,
    /// Where its holder's process can be seen to live, if that was told.
    address: Option<SocketAddr>,
}

/// The rules of the election, for one replica.
#[derive(Debug)]
struct Election {
    identity: String,
    timing: Timing,
    role: Role,
    /// It could serve if it led.
    is_fit: bool,
    /// The lease as it was seen last, if there was one, and when it was first seen so.
    seen: Option<(Option<Held>, Instant)>,
    /// The lease could not be read, or not be written, since then. Perhaps its holder could not renew it either.
    is_blind: bool,
    /// The process of its holder has ended since then.
    is_abandoned: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Nobody ever held the lease: make it.
    Create,
    /// Take it, or renew it, if it still has this version.
    Write(String),
    /// Another one holds it, or may take it first, until this time unless it is written before.
    Wait(Instant),
}

impl Election {
    fn new(identity: String, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            role: Role::Standby,
            is_fit: false,
            seen: None,
            is_blind: false,
            is_abandoned: false,
        }
    }

    /// The lease was read: it is this, or there is none.
    fn read(&mut self, now: Instant, held: Option<Held>) {
        let was_blind = std::mem::take(&mut self.is_blind);
        let holder = held.as_ref().map(|held| held.holder.as_str()).unwrap_or_default();
        if !holder.is_empty() && holder != self.identity && self.role == Role::Leader {
            warn!(%holder, "another replica leads");
            self.role = Role::Standby;
        }
        if was_blind || self.seen.as_ref().is_none_or(|(seen, _)| *seen != held) {
            self.seen = Some((held, now));
            self.is_abandoned = false;
        }
    }

    /// The process of the lease's holder has ended.
    fn abandoned(&mut self) {
        self.is_abandoned = true;
    }

    /// Where the process of another one that leads can be seen to live.
    fn leader(&self) -> Option<SocketAddr> {
        let (held, _) = self.seen.as_ref()?;
        let held = held.as_ref().filter(|held| !self.is_free(held))?;
        held.address
    }

    /// Nobody else holds it.
    fn is_free(&self, held: &Held) -> bool {
        self.is_abandoned || held.holder.is_empty() || held.holder == self.identity
    }

    /// The lease could not be read, or not be written.
    fn failed(&mut self) {
        self.is_blind = true;
    }

    /// The lease was written, and is ours.
    fn written(&mut self, now: Instant, held: Held) {
        if self.role != Role::Leader {
            info!(identity = %self.identity, "leading");
        }
        self.role = Role::Leader;
        self.seen = Some((Some(held), now));
        self.is_abandoned = false;
    }

    fn step(&self, now: Instant) -> Step {
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
    fn next_look(&self, now: Instant) -> Instant {
        let retry = now + self.timing.retry;
        match self.step(now) {
            Step::Wait(runs_out) => runs_out.min(retry),
            Step::Create | Step::Write(_) => retry,
        }
    }

    /// The lease as we hold it from this moment on; with `holder` empty, as we give it back.
    fn spec(&self, holder: &str, old: Option<&LeaseSpec>) -> LeaseSpec {
        let wall = MicroTime(jiff::Timestamp::now());
        let held_before = old.and_then(|old| old.holder_identity.as_deref()).unwrap_or_default();
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        let is_new_holder = held_before != self.identity;
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

/// A replica that wants to lead.
#[derive(Clone)]
pub struct Candidate {
    /// The API server.
    pub client: Client,
    /// Where the lease is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// What this replica is called. No other one is called the same.
    pub identity: String,
    /// Where others can see that this process lives: an address that listens until it ends.
    pub address: Option<SocketAddr>,
    /// How long things take.
    pub timing: Timing,
    /// How soon a watch that broke is tried again.
    pub pace: Pace,
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate")
            .field("name", &self.name)
            .field("identity", &self.identity)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

impl Candidate {
    /// Tells the role, whenever it changes, until `stop`; then gives the lease back, so that another one leads at once.
    /// `is_fit` says whether this replica could serve if it led.
    pub async fn run(self, tell: watch::Sender<Role>, mut is_fit: watch::Receiver<bool>, stop: CancellationToken) {
        let mut election = Election::new(self.identity.clone(), self.timing);
        // The watch is but a bell: a lease that was given back is seen at once. What counts is read.
        let named = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut bell = changes::<Lease>("the lease", self.client.clone(), &self.namespace, named, self.pace);
        let mut next_look = Instant::now();
        let mut trouble = None;
        let mut leader = Watched::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep_until(next_look) => {}
                Ok(()) = is_fit.changed() => {}
                () = leader.ended() => {
                    info!("the process of the leader has ended");
                    election.abandoned();
                }
                Some(change) = bell.next() => {
                    debug!(?change, "the lease changed");
                    if election.role == Role::Leader && !is_foreign(&change, &self.identity) {
                        // Our own write.
                        continue;
                    }
                }
            }
            election.is_fit = *is_fit.borrow_and_update();
            // A call that hangs must not make the next one late.
            let looked = timeout(self.timing.lease / 3, self.look(&mut election)).await;
            let result = looked.unwrap_or_else(|_| Err("the API server does not answer".to_owned()));
            self.tell_trouble(&mut trouble, result.err(), &mut election);
            leader.is_at(election.leader());
            next_look = election.next_look(Instant::now());
            tell.send_if_modified(|role| std::mem::replace(role, election.role) != election.role);
        }
        tell.send_replace(Role::Standby);
        if election.role == Role::Leader
            && let Err(error) = timeout(self.timing.retry, self.give_back(&election))
                .await
                .unwrap_or(Ok(()))
        {
            warn!(%error, "the lease could not be given back; it runs out");
        }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Logs what goes wrong, once for each kind of trouble.
    fn tell_trouble(&self, before: &mut Option<String>, now: Option<String>, election: &mut Election) {
        match &now {
            Some(error) => {
                election.failed();
                if before.as_ref() != Some(error) {
                    match election.role {
                        Role::Leader => {
                            warn!(%error, "the lease cannot be renewed; this replica leads until another one does");
                        }
                        Role::Standby => warn!(%error, "the lease cannot be had"),
                    }
                }
            }
            None if before.is_some() => info!(lease = %self.name, "the lease can be read and written again"),
            None => {}
        }
        *before = now;
    }

    /// Reads the lease, and does what the election says.
    async fn look(&self, election: &mut Election) -> Result<(), String> {
        let api = self.api();
        let lease = api.get_opt(&self.name).await.map_err(|error| error.to_string())?;
        let now = Instant::now();
        election.read(now, lease.as_ref().map(held));
        let old = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let mut wanted = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                annotations: self
                    .address
                    .map(|address| BTreeMap::from([(ADDRESS.to_owned(), address.to_string())])),
                ..ObjectMeta::default()
            },
            spec: Some(election.spec(&self.identity, old)),
        };
        let params = PostParams::default();
        let written = match election.step(now) {
            Step::Wait(_) => return Ok(()),
            Step::Create => api.create(&params, &wanted).await,
            Step::Write(version) => {
                wanted.metadata.resource_version = Some(version);
                api.replace(&self.name, &params, &wanted).await
            }
        };
        match written {
            Ok(lease) => election.written(Instant::now(), held(&lease)),
            // Another one was quicker. The bell rings.
            Err(kube::Error::Api(status)) if status.code == 409 => debug!("another replica wrote the lease first"),
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// Waits until another replica leads. Perhaps there is no other one.
    pub async fn succeeded(&self) {
        let api = self.api();
        loop {
            if let Ok(Some(lease)) = api.get_opt(&self.name).await {
                let holder = held(&lease).holder;
                if !holder.is_empty() && holder != self.identity {
                    info!(%holder, "another replica leads");
                    return;
                }
            }
            sleep(SUCCESSION_LOOKS).await;
        }
    }

    async fn give_back(&self, election: &Election) -> kube::Result<()> {
        let api = self.api();
        let Some(mut lease) = api.get_opt(&self.name).await? else {
            return Ok(());
        };
        if held(&lease).holder != self.identity {
            return Ok(());
        }
        lease.spec = Some(election.spec("", lease.spec.as_ref()));
        api.replace(&self.name, &PostParams::default(), &lease).await?;
        info!("lease given back");
        Ok(())
    }
}

fn held(lease: &Lease) -> Held {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    Held {
        holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
        lease: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        address: lease
            .annotations()
            .get(ADDRESS)
            .and_then(|address| address.parse().ok()),
    }
}

/// The process of the one that leads.
#[derive(Default)]
struct Watched(Option<(SocketAddr, BoxFuture<'static, ()>)>);

impl Watched {
    /// Looks there from now on, if it does not do so already.
    fn is_at(&mut self, address: Option<SocketAddr>) {
        if self.0.as_ref().map(|(address, _)| *address) != address {
            self.0 = address.map(|address| (address, Box::pin(liveness::ended(address)) as _));
        }
    }

    /// Waits until it has ended: without end if there is none.
    async fn ended(&mut self) {
        match &mut self.0 {
            Some((_, ended)) => ended.await,
            None => std::future::pending().await,
        }
        self.0 = None;
    }
}

/// True unless all that was heard is a lease that we hold.
fn is_foreign(change: &Change<Lease>, identity: &str) -> bool {
    match change {
        Change::All { objects, unread } => {
            !unread.is_empty() || objects.iter().any(|lease| held(lease).holder != identity)
        }
        Change::Is(lease) => held(lease).holder != identity,
        Change::Gone(_) | Change::Absent => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        lease: Duration::from_secs(15),
        retry: Duration::from_secs(2),
    };

    fn election(identity: &str) -> Election {
        Election {
            is_fit: true,
            ..Election::new(identity.to_owned(), TIMING)
        }
    }

    fn held_by(holder: &str, version: &str) -> Held {
        Held {
            holder: holder.to_owned(),
            lease: TIMING.lease,
            version: version.to_owned(),
            address: Some(SocketAddr::from(([10, 0, 0, 1], 9003))),
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
            let mut election = Election::new("b".to_owned(), TIMING);
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
    fn a_replica_that_comes_back_under_its_name_takes_its_own_lease_at_once() {
        let now = Instant::now();
        let mut election = election("a");

        election.read(now, Some(held_by("a", "5")));

        assert_eq!(election.step(now), Step::Write("5".to_owned()));
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
        let (a, b) = (election("a"), election("b"));

        let first = a.spec("a", None);
        let renewed = a.spec("a", Some(&first));
        let taken = b.spec("b", Some(&renewed));
        let given_back = b.spec("", Some(&taken));

        assert_eq!(first.lease_transitions, Some(0));
        assert_eq!(renewed.acquire_time, first.acquire_time);
        assert_eq!(renewed.lease_transitions, Some(0));
        assert_eq!(taken.lease_transitions, Some(1));
        assert_eq!(given_back.holder_identity.as_deref(), Some(""));
        assert_eq!(given_back.lease_transitions, Some(1));
    }
}
