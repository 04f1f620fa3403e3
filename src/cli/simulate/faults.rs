//! Faults of instances, as a flag says them.

use std::str::FromStr;

use anyhow::bail;
use forebay::sim::cluster::{Fault, FaultKind};

use super::range::Range;
use super::values;

/// The value of `--fault`: what is wrong with some instances, or all, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct FaultFlag {
    instances: Range,
    kind: FaultKind,
    from_us: u64,
    until_us: Option<u64>,
}

impl FromStr for FaultFlag {
    type Err = String;

    /// Reads `1: dead 10s..30s`, `0..3: hung 10s..` or `all: failing 10s..1m`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "found `{text}`; write it as `1: dead 10s..30s` or `all: hung 10s..`, with instances counted from 0; an \
                 instance can be `dead`, `hung` or `failing`"
            )
        };
        let (instances, rest) = text.split_once(':').ok_or_else(wrong)?;
        let instances = Range::read(instances).ok_or_else(wrong)?;
        if instances.is_empty() {
            return Err(format!("found `{text}`; the first instance must not be above the last"));
        }
        let (kind, times) = rest.trim().split_once(' ').ok_or_else(wrong)?;
        let kind = FaultKind::ALL.into_iter().find(|known| known.name() == kind);
        let (from, until) = times.trim().split_once("..").ok_or_else(wrong)?;
        let from_us = values::micros(from)?;
        let until_us = match until {
            "" => None,
            until => Some(values::micros(until)?),
        };
        if until_us.is_some_and(|until| until <= from_us) {
            return Err(format!("found `{text}`; the fault must end after it begins"));
        }
        Ok(Self {
            instances,
            kind: kind.ok_or_else(wrong)?,
            from_us,
            until_us,
        })
    }
}

/// The faults of a cluster of `count` instances.
///
/// # Errors
///
/// If an instance is not there, or has two faults at the same time.
pub(super) fn of_cluster(flags: &[FaultFlag], count: u32) -> anyhow::Result<Vec<Fault>> {
    let mut faults: Vec<Fault> = Vec::new();
    for &FaultFlag {
        instances,
        kind,
        from_us,
        until_us,
    } in flags
    {
        for instance in instances.of(count, "fault")? {
            faults.push(Fault {
                instance,
                kind,
                from_us,
                until_us,
            });
        }
    }
    faults.sort_by_key(|fault| (fault.instance, fault.from_us));
    for pair in faults.windows(2) {
        let overlap = pair[0].until_us.is_none_or(|until| until > pair[1].from_us);
        if pair[0].instance == pair[1].instance && overlap {
            bail!(
                "`--fault`: instance {} is {} from {} µs on, and {} before that is over",
                pair[0].instance,
                pair[0].kind.name(),
                pair[0].from_us,
                pair[1].kind.name(),
            );
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FaultFlag, String> {
        text.parse()
    }

    fn faults(flags: &[&str]) -> anyhow::Result<Vec<Fault>> {
        let flags: Vec<_> = flags.iter().map(|flag| read(flag).unwrap()).collect();
        of_cluster(&flags, 3)
    }

    #[test]
    fn a_fault_is_of_one_instance_or_several_and_ends_or_does_not() {
        assert_eq!(
            read("1: dead 10s..30s"),
            Ok(FaultFlag {
                instances: Range::From(1, 1),
                kind: FaultKind::Dead,
                from_us: 10_000_000,
                until_us: Some(30_000_000),
            })
        );
        let found = faults(&["all: failing 500ms..", "0..1: hung 100..200"]).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|fault| (fault.instance, fault.kind.name(), fault.from_us, fault.until_us))
            .collect();
        assert_eq!(
            found,
            [
                (0, "hung", 100, Some(200)),
                (0, "failing", 500_000, None),
                (1, "hung", 100, Some(200)),
                (1, "failing", 500_000, None),
                (2, "failing", 500_000, None),
            ]
        );
    }

    #[test]
    fn a_fault_that_is_wrong_says_how_it_is_written() {
        for text in [
            "dead 1s..2s",
            "0: ill 1s..2s",
            "0: dead",
            "0: dead 1s",
            "x: dead 1s..",
            "0:dead",
        ] {
            assert!(
                read(text).is_err_and(|error| error.contains("`1: dead 10s..30s`")),
                "{text}"
            );
        }
        assert!(read("0: dead 2s..2s").is_err_and(|error| error.contains("end after it begins")));
        assert!(read("2..1: dead 1s..").is_err_and(|error| error.contains("must not be above")));
        assert!(read("0: dead 1x..").is_err_and(|error| error.contains("`1x`")));
    }

    #[test]
    fn an_instance_has_one_fault_at_a_time_and_is_there() {
        let refused = |flags: &[&str]| faults(flags).unwrap_err().to_string();

        assert!(refused(&["3: dead 1s.."]).contains("the last one is 2"));
        assert!(refused(&["0: dead 1s..", "0: hung 5s.."]).contains("instance 0 is dead from 1000000 µs on"));
        assert!(faults(&["0: dead 1s..2s", "0: hung 2s..", "1: dead 1s.."]).is_ok());
    }
}
