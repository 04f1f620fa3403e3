//! `--sweep`: a variant for each value of a flag, and for each combination if there are several flags.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};

use super::SimulateArgs;
use super::trials::{Variant, parse};

/// What stands for the only variant, if nothing is swept.
const AS_GIVEN: &str = "as given";

/// Flags that say what is printed, where, and how often: they make no difference to a run.
const NO_DIFFERENCE: &[&str] = &[
    "output",
    "report",
    "metrics-path",
    "results-path",
    "trace-output",
    "decision-trace",
    "journal",
    "trace-level",
    "counterfactual-k",
    "summarize-trace",
    "detectors",
    "saturation-report",
    "saturation-final-window",
    "show-config",
    "force",
    "lazy-generation",
    "dispatch-tick-interval",
    "seeds",
    "sweep",
    "jobs",
];

/// A flag and the values that it is to have.
#[derive(Debug, PartialEq, Eq)]
struct Sweep<'s> {
    flag: &'s str,
    values: Vec<&'s str>,
}

impl<'s> Sweep<'s> {
    /// Reads `flag=value,value`, or `flag=value;value` of values that have commas themselves.
    fn read(text: &'s str) -> anyhow::Result<Self> {
        let Some((flag, list)) = text.split_once('=') else {
            bail!("`--sweep {text}` has no values; write it as `flag=value,value`, such as `rate=10,20`");
        };
        let flag = flag.trim().trim_start_matches('-');
        ensure!(
            flag != "seed",
            "`--sweep {text}`: runs with different seeds have different requests and are not compared; `--seeds` runs \
             with each of them"
        );
        ensure!(
            !NO_DIFFERENCE.contains(&flag),
            "`--sweep {text}`: `--{flag}` makes no difference to a run; sweep a flag of the cluster, the policies or the \
             workload"
        );
        let divider = if list.contains(';') { ';' } else { ',' };
        let values: Vec<&str> = list.split(divider).map(str::trim).collect();
        let mut seen = BTreeSet::new();
        for value in &values {
            ensure!(!value.is_empty(), "`--sweep {text}` has an empty value");
            ensure!(seen.insert(value), "`--sweep {text}` has `{value}` more than once");
        }
        Ok(Self { flag, values })
    }
}

/// A variant for each combination of values. `flags` is the command line on which they were given.
///
/// # Errors
///
/// If a sweep cannot be understood, or a value is none of its flag.
pub(super) fn swept(args: &SimulateArgs, flags: &[String]) -> anyhow::Result<Vec<Variant>> {
    let mut combinations: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
    let mut swept = BTreeSet::new();
    for text in &args.trials.sweep {
        let Sweep { flag, values } = Sweep::read(text)?;
        ensure!(
            swept.insert(flag),
            "`--sweep` of `{flag}` is given more than once; write all its values into one"
        );
        combinations = combinations
            .iter()
            .flat_map(|before| {
                values
                    .iter()
                    .map(|value| [before.as_slice(), &[(flag, *value)]].concat())
            })
            .collect();
    }
    combinations
        .into_iter()
        .map(|values| {
            let more = values.iter().map(|(flag, value)| format!("--{flag}={value}"));
            let line: Vec<String> = flags.iter().cloned().chain(more).collect();
            let name: Vec<String> = values.iter().map(|(flag, value)| format!("{flag}={value}")).collect();
            Ok(Variant {
                args: parse(&line).with_context(|| format!("`--sweep` with {}", name.join(" ")))?,
                name: if name.is_empty() {
                    AS_GIVEN.to_owned()
                } else {
                    name.join(" ")
                },
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_divided_by_commas_or_by_semicolons_if_there_are_any() {
        let read = |text| Sweep::read(text).unwrap();

        assert_eq!(read("--rate=10, 20").values, ["10", "20"]);
        assert_eq!(
            read("routing-scorers=queue-depth:1;prefix-affinity:3,queue-depth:2"),
            Sweep {
                flag: "routing-scorers",
                values: vec!["queue-depth:1", "prefix-affinity:3,queue-depth:2"],
            }
        );
    }

    #[test]
    fn what_cannot_be_swept_is_refused() {
        let refused = |text| Sweep::read(text).unwrap_err().to_string();

        insta::assert_snapshot!(
            ["rate", "rate=10,,20", "rate=10,20,10", "seed=1,2", "output=json,text"].map(refused).join("\n"),
            @"
        `--sweep rate` has no values; write it as `flag=value,value`, such as `rate=10,20`
        `--sweep rate=10,,20` has an empty value
        `--sweep rate=10,20,10` has `10` more than once
        `--sweep seed=1,2`: runs with different seeds have different requests and are not compared; `--seeds` runs with each of them
        `--sweep output=json,text`: `--output` makes no difference to a run; sweep a flag of the cluster, the policies or the workload
        "
        );
    }
}
