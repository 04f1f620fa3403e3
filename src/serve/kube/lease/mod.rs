//! Who leads: one replica, by a `Lease`.
//!
//! `election` decides and knows no clock and no network; [`Candidate`] carries it out. Whether a lease has run out is
//! judged by the time that passed here since it was last seen to change, never by the time that somebody else wrote.
//!
//! A leader that cannot renew its lease goes on leading until it sees that another one does: while the API server is
//! away nobody can take over, and somebody has to serve. The price is that two lead for a moment if the leader alone
//! is cut off. Both know the pool; limits count twice for that long.
//!
//! A lease says, too, where the process of its holder can be seen to live. A standby that sees it end does not wait for the
//! lease to run out. It may be mistaken: then two lead until the first one looks at its lease again, as above.
//!
//! A lease names the process that holds it, by its pod and a number of its own: two replicas that were given one
//! `$POD_NAME` would otherwise each take the other's lease for their own, and both lead. A process that follows another in
//! its pod, as after a crash, knows the lease of that one by the address and takes it at once.
//!
//! A replica that could not serve (it knows no pool yet, or never had a right configuration) leaves a lease that is free
//! to the others for as long as a lease lasts. If none of them takes it, it leads all the same, and tells what is wrong.

mod election;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::election::{Election, Held, Identity, Step};
pub use self::election::{Role, Timing};
use super::change::Change;
use super::failure::in_one_line;
use super::list_watch::Selection;
use super::liveness;
use super::watch::{Pace, changes};

/// The annotation of a lease that says where its holder's health service listens.
const ADDRESS: &str = "forebay.dev/health-address";
/// Time between two looks for a successor.
const SUCCESSION_LOOKS: Duration = Duration::from_millis(100);

/// A replica that wants to lead.
#[derive(Clone)]
pub struct Candidate {
    /// The API server.
    pub client: Client,
    /// Where the lease is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// The name of this replica's pod. The lease names the process too, so that two of one name do not both lead.
    pub pod: String,
    /// This process among all that ever had the name.
    pub process: String,
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
            .field("pod", &self.pod)
            .field("process", &self.process)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

impl Candidate {
    /// Tells the role, whenever it changes, until `stop`; then gives the lease back, so that another one leads at once.
    /// `is_fit` says whether this replica could serve if it led.
    pub async fn run(self, tell: watch::Sender<Role>, mut is_fit: watch::Receiver<bool>, stop: CancellationToken) {
        let mut election = Election::new(self.identity(), self.timing);
        // The watch is but a bell: a lease that was given back is seen at once. What counts is read.
        let named = Selection::named(&self.name);
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
                    if election.role == Role::Leader && !is_foreign(&change, &election.identity.holder) {
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
            warn!(
                error = in_one_line(&error),
                "the lease could not be given back; it runs out"
            );
        }
    }

    fn identity(&self) -> Identity {
        Identity::new(&self.pod, &self.process, self.address)
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
        let lease = api.get_opt(&self.name).await.map_err(|error| in_one_line(&error))?;
        let now = Instant::now();
        election.read(now, lease.as_ref().map(held));
        let version = match election.step(now) {
            Step::Wait(_) => return Ok(()),
            Step::Create => None,
            Step::Write(version) => Some(version),
        };
        let is_new = version.is_none();
        let old = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let wanted = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                annotations: self
                    .address
                    .map(|address| BTreeMap::from([(ADDRESS.to_owned(), address.to_string())])),
                resource_version: version,
                ..ObjectMeta::default()
            },
            spec: Some(election.spec(&election.identity.holder, old, now_on_the_wall())),
        };
        let params = PostParams::default();
        let written = match is_new {
            true => api.create(&params, &wanted).await,
            false => api.replace(&self.name, &params, &wanted).await,
        };
        match written {
            Ok(lease) => election.written(Instant::now(), held(&lease)),
            // Another one was quicker. The bell rings.
            Err(kube::Error::Api(status)) if status.code == 409 => debug!("another replica wrote the lease first"),
            Err(error) => return Err(in_one_line(&error)),
        }
        Ok(())
    }

    /// Waits until another replica leads. Perhaps there is no other one.
    pub async fn succeeded(&self) {
        let (api, identity) = (self.api(), self.identity());
        loop {
            if let Ok(Some(lease)) = api.get_opt(&self.name).await {
                let held = held(&lease);
                if held.is_of_another(&identity) {
                    info!(holder = %held.holder, "another replica leads");
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
        if held(&lease).holder != election.identity.holder {
            return Ok(());
        }
        lease.spec = Some(election.spec("", lease.spec.as_ref(), now_on_the_wall()));
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
fn is_foreign(change: &Change<Lease>, holder: &str) -> bool {
    match change {
        Change::All { objects, unread } => {
            !unread.is_empty() || objects.iter().any(|lease| held(lease).holder != holder)
        }
        Change::Is(lease) => held(lease).holder != holder,
        Change::Gone(_) | Change::Absent => true,
    }
}

/// The time as others read it. Nothing is judged by it here.
fn now_on_the_wall() -> MicroTime {
    MicroTime(jiff::Timestamp::now())
}
