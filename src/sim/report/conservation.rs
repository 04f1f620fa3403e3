//! That no request was lost or counted twice (spec, simulator 28.4, INV-1).

use super::tally::Tally;
use crate::sim::record::{End, RequestRecord, RunRecord};

/// The books of a run, balanced.
#[derive(Clone, Debug, PartialEq)]
pub struct Conservation {
    /// Requests that the workload gave.
    pub num_requests: u64,
    /// Requests that passed admission: all but the rejected ones.
    pub injected: u64,
    /// Requests by the bucket in which they ended.
    pub tally: Tally,
}

/// Two sides of the books that should be equal, and are not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("requests are not conserved: {left} are `{left_count}`, and {right} are `{right_count}`")]
pub struct Violation {
    /// What one side counts.
    pub left: &'static str,
    /// How many that are.
    pub left_count: u128,
    /// What the other side counts.
    pub right: &'static str,
    /// How many that are.
    pub right_count: u128,
}

/// Balances the books: what the workload gave against what the record holds, each bucket against the facts that
/// requests in it must have, and the gaps between tokens as they were counted in three ways.
///
/// # Errors
///
/// The first two sides that differ.
pub fn check(record: &RunRecord, num_requests: u64) -> Result<Conservation, Violation> {
    let tally = Tally::of(&record.requests);
    let injected = tally.total() - tally[End::Rejected];
    equal(
        ("requests that the workload gave", num_requests),
        (
            "injected requests and those rejected at admission",
            injected + tally[End::Rejected],
        ),
    )?;
    equal(
        ("requests of the record", tally.total()),
        ("different names of requests", distinct_names(record)),
    )?;
    equal(
        ("completed requests", tally[End::Completed]),
        (
            "requests with a time of completion",
            count(record, |r| r.e2e_us.is_some()),
        ),
    )?;
    equal(
        ("completed requests", tally[End::Completed]),
        (
            "requests with a time of completion that have a first token and an instance",
            count(record, |r| {
                r.e2e_us.is_some() && r.ttft_us.is_some() && r.instance.is_some()
            }),
        ),
    )?;
    let on_instances = |end| {
        matches!(
            end,
            End::Completed | End::StillQueued | End::StillRunning | End::Dropped | End::Failed
        )
    };
    equal(
        (
            "requests that are completed, queued, running, dropped or failed",
            count(record, |r| on_instances(r.end)),
        ),
        (
            "those of them that were sent to an instance of the cluster",
            count(record, |r| on_instances(r.end) && is_placed(record, r)),
        ),
    )?;
    equal(
        (
            "requests that were sent to an instance",
            count(record, |r| r.instance.is_some()),
        ),
        (
            "those of them that were sent to an instance of the cluster, and were not turned away before",
            count(record, |r| is_placed(record, r) && !is_turned_away(r.end)),
        ),
    )?;
    let gaps = |counts: &mut dyn Iterator<Item = (u64, u128)>| {
        counts.fold((0, 0), |(total, sum), (more, us)| (total + u128::from(more), sum + us))
    };
    let by_class = gaps(&mut record.itl.iter().map(|(_, counts)| (counts.total(), counts.sum())));
    let by_instance = gaps(&mut record.instance_itl.iter().map(|counts| (counts.total(), counts.sum())));
    equal(
        ("gaps between tokens by SLO class", by_class.0),
        ("gaps between tokens by instance", by_instance.0),
    )?;
    equal(
        ("microseconds between tokens by SLO class", by_class.1),
        ("microseconds between tokens by instance", by_instance.1),
    )?;
    let completed = record.requests.iter().filter(|r| r.end == End::Completed);
    equal(
        (
            "microseconds between tokens of completed requests",
            completed.map(|r| u128::from(r.itl_sum_us)).sum::<u128>(),
        ),
        ("microseconds between tokens by SLO class", by_class.1),
    )?;
    Ok(Conservation {
        num_requests,
        injected,
        tally,
    })
}

fn equal(
    (left, left_count): (&'static str, impl Into<u128>),
    (right, right_count): (&'static str, impl Into<u128>),
) -> Result<(), Violation> {
    let (left_count, right_count) = (left_count.into(), right_count.into());
    if left_count == right_count {
        return Ok(());
    }
    Err(Violation {
        left,
        left_count,
        right,
        right_count,
    })
}

fn count(record: &RunRecord, matches: impl Fn(&RequestRecord) -> bool) -> u64 {
    record.requests.iter().filter(|request| matches(request)).count() as u64
}

fn is_placed(record: &RunRecord, request: &RequestRecord) -> bool {
    request
        .instance
        .is_some_and(|instance| (instance as usize) < record.instances.len())
}

/// It ended before an instance was chosen.
fn is_turned_away(end: End) -> bool {
    matches!(
        end,
        End::Rejected
            | End::RoutingRejected
            | End::InGateway
            | End::GatewayShed
            | End::GatewayRejected
            | End::GatewayExpired
    )
}

fn distinct_names(record: &RunRecord) -> u64 {
    let mut names: Vec<_> = record.requests.iter().map(|request| &request.name).collect();
    names.sort_unstable();
    names.dedup();
    names.len() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sim::report::testing::{mixed_run, request};

    #[test]
    fn a_run_whose_books_balance_says_where_its_requests_are() {
        let record = mixed_run();
        let books = check(&record, record.requests.len() as u64).expect("the books balance");

        assert_eq!(books.injected, books.num_requests - books.tally[End::Rejected]);
        assert_eq!(books.tally.total(), books.num_requests);
    }

    #[test]
    fn a_lost_request_is_named_with_both_sides() {
        let mut record = mixed_run();
        let num_requests = record.requests.len() as u64;
        record.requests.pop();

        let violation = check(&record, num_requests).unwrap_err();

        assert_eq!(
            violation.to_string(),
            "requests are not conserved: requests that the workload gave are `13`, and injected requests and those \
             rejected at admission are `12`"
        );
    }

    proptest! {
        #[test]
        fn any_miscount_is_caught(which in 0..11_usize, at in any::<prop::sample::Index>()) {
            let mut record = mixed_run();
            let num_requests = record.requests.len() as u64;
            let at = at.index(record.requests.len());
            match which {
                0 => drop(record.requests.remove(at)),
                1 => record.requests.push(request(99)),
                2 => record.requests[at].name = record.requests[(at + 1) % 13].name.clone(),
                3 => record.requests[0].end = End::StillRunning,
                4 => record.requests[0].e2e_us = None,
                5 => record.requests[0].ttft_us = None,
                6 => record.requests[0].instance = None,
                7 => record.requests[0].instance = Some(7),
                8 => record.itl[0].1.add(1_000),
                9 => record.instance_itl[0].add(0),
                10 => record.requests[0].itl_sum_us += 1,
                _ => unreachable!(),
            }

            prop_assert!(check(&record, num_requests).is_err());
        }

        #[test]
        fn a_request_in_the_wrong_bucket_is_caught(at in 0..13_usize, end in prop::sample::select(&End::ALL[..])) {
            let mut record = mixed_run();
            let was = record.requests[at].end;
            // Between these pairs, the facts of a request do not tell.
            let alike = |end| match end {
                End::Completed => 0,
                End::StillQueued | End::StillRunning | End::Dropped | End::Failed => 1,
                End::TimedOut | End::GatewayEvicted => 2,
                _ => 3,
            };
            prop_assume!(alike(was) != alike(end) && alike(was) != 2 && alike(end) != 2);
            record.requests[at].end = end;

            prop_assert!(check(&record, 13).is_err());
        }
    }
}
