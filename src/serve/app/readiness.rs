//! Whether requests should come here, and how those who send them are told.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::serve::ext_proc::health::Readiness;
use crate::serve::ext_proc::stay::Stay;
use crate::serve::kube::PoolState;
use crate::serve::kube::lease::Role;

/// Time that gateways, and those who tell them, have to see that another replica is ready, before this one is not. The
/// probes of the chart come every second.
pub(super) const SETTLING: Duration = Duration::from_secs(2);

/// What gateways are told.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// Whether requests should come here.
    pub(super) readiness: watch::Sender<Readiness>,
    /// How long connections may stay.
    pub(super) stay: watch::Sender<Stay>,
}

impl Announced {
    pub(super) fn is_ready(&self) -> bool {
        *self.readiness.borrow() == Readiness::Ready
    }
}

/// Tells whether requests could come here: the pool is known, and so is what to run.
pub(super) async fn tell_fitness(
    mut pool: watch::Receiver<PoolState>,
    mut is_configured: watch::Receiver<bool>,
    tell: watch::Sender<bool>,
) {
    loop {
        let is_fit = *pool.borrow_and_update() == PoolState::Known && *is_configured.borrow_and_update();
        tell.send_if_modified(|before| std::mem::replace(before, is_fit) != is_fit);
        tokio::select! {
            Ok(()) = pool.changed() => {}
            Ok(()) = is_configured.changed() => {}
            // Nothing changes any more: as it is with files.
            else => pending::<()>().await,
        }
    }
}

/// What has to be so before requests should come here.
#[derive(Debug)]
pub(super) struct Conditions {
    /// They could come here.
    pub(super) is_fit: watch::Receiver<bool>,
    pub(super) role: watch::Receiver<Role>,
}

impl Conditions {
    /// Announces whether requests should come here, and whether those who send them may stay, whenever that changes.
    /// `endpoints` counts those of the pool, for the log.
    pub(super) async fn announce(mut self, announced: &Announced, endpoints: impl Fn() -> usize) -> Infallible {
        let Self { is_fit, role } = &mut self;
        loop {
            let leads = *role.borrow_and_update() == Role::Leader;
            if !leads && announced.is_ready() {
                // Another one has begun to lead in this moment.
                tokio::select! {
                    Ok(()) = role.changed() => continue,
                    () = sleep(SETTLING) => {}
                }
            }
            let fit = *is_fit.borrow_and_update();
            let now = if fit && leads {
                Readiness::Ready
            } else {
                Readiness::NotReady
            };
            if announced.readiness.send_replace(now) != now {
                match now {
                    Readiness::Ready => tracing::info!(endpoints = endpoints(), "ready"),
                    Readiness::NotReady => tracing::info!(fit, leads, "not ready"),
                }
            }
            let stays = if leads { Stay::Unbounded } else { Stay::Brief };
            announced
                .stay
                .send_if_modified(|before| std::mem::replace(before, stays) != stays);
            tokio::select! {
                Ok(()) = is_fit.changed() => {}
                Ok(()) = role.changed() => {}
                // Nothing changes any more: as it is with files.
                else => pending::<()>().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    /// A replica that is fit and leads, for a while.
    struct Replica {
        is_fit: watch::Sender<bool>,
        role: watch::Sender<Role>,
        announced: Announced,
    }

    impl Replica {
        fn new() -> Self {
            Self {
                is_fit: watch::Sender::new(true),
                role: watch::Sender::new(Role::Leader),
                announced: Announced::default(),
            }
        }

        /// Has it announce for as long as `life` takes.
        async fn lives(&self, life: impl AsyncFnOnce(&Self)) {
            let conditions = Conditions {
                is_fit: self.is_fit.subscribe(),
                role: self.role.subscribe(),
            };
            tokio::select! {
                never = conditions.announce(&self.announced, || 0) => match never {},
                () = life(self) => {}
            }
        }

        fn says(&self) -> (Readiness, Stay) {
            (*self.announced.readiness.borrow(), *self.announced.stay.borrow())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_should_come_while_the_replica_is_fit_and_leads() {
        let replica = Replica::new();
        replica
            .lives(async |replica| {
                sleep(MOMENT).await;
                assert_eq!(replica.says(), (Readiness::Ready, Stay::Unbounded));

                replica.is_fit.send_replace(false);
                sleep(MOMENT).await;
                assert_eq!(replica.says(), (Readiness::NotReady, Stay::Unbounded));
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_lead_any_more_is_ready_until_that_was_seen_and_then_sends_connections_away() {
        let replica = Replica::new();
        replica
            .lives(async |replica| {
                sleep(MOMENT).await;

                replica.role.send_replace(Role::Standby);
                sleep(SETTLING - MOMENT).await;
                assert_eq!(replica.says(), (Readiness::Ready, Stay::Unbounded));

                sleep(2 * MOMENT).await;
                assert_eq!(replica.says(), (Readiness::NotReady, Stay::Brief));
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_leads_again_before_that_was_seen_was_ready_all_along() {
        let replica = Replica::new();
        replica
            .lives(async |replica| {
                sleep(MOMENT).await;
                replica.role.send_replace(Role::Standby);
                sleep(SETTLING / 2).await;
                replica.role.send_replace(Role::Leader);

                for _ in 0..4 {
                    sleep(SETTLING / 2).await;
                    assert_eq!(replica.says(), (Readiness::Ready, Stay::Unbounded));
                }
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn requests_could_come_once_the_pool_and_the_configuration_are_known() {
        let (pool, is_configured) = (watch::Sender::new(PoolState::Awaited), watch::Sender::new(false));
        let (tell, is_fit) = watch::channel(false);
        let told = tell_fitness(pool.subscribe(), is_configured.subscribe(), tell);
        let life = async {
            let mut found = Vec::new();
            for (state, configured) in [
                (PoolState::Known, false),
                (PoolState::Known, true),
                (PoolState::Gone, true),
            ] {
                pool.send_replace(state);
                is_configured.send_replace(configured);
                sleep(MOMENT).await;
                found.push(*is_fit.borrow());
            }
            found
        };

        let found = tokio::select! {
            () = told => unreachable!("it has no end"),
            found = life => found,
        };

        assert_eq!(found, [false, true, false]);
    }
}
