//! The instances of a simulated cluster: how many there are, and the labels that filters go by.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use anyhow::{anyhow, ensure};
use forebay::engine::config::data_layer::FileDiscoveryParams;
use forebay::serve::datalayer::discovery::FileDiscovery;
use forebay::sim::cluster::MAX_INSTANCES;

use super::args::ClusterArgs;
use super::range::Range;

/// Labels by key.
pub(super) type Labels = BTreeMap<String, String>;

/// The value of `--instance-labels`: labels of some instances, or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct InstanceLabels {
    instances: Range,
    labels: Labels,
}

impl FromStr for InstanceLabels {
    type Err = String;

    /// Reads `0..3: key=value,key=value`, `2: key=value` or `all: key=value`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "found `{text}`; write it as `0..3: key=value,other=value`, with instances counted from 0, or as \
                 `all: key=value`"
            )
        };
        let (instances, list) = text.split_once(':').ok_or_else(wrong)?;
        let instances = Range::read(instances).ok_or_else(wrong)?;
        if instances.is_empty() {
            return Err(format!("found `{text}`; the first instance must not be above the last"));
        }
        let mut labels = Labels::new();
        for label in list.split(',') {
            let (key, value) = label.trim().split_once('=').ok_or_else(wrong)?;
            if key.is_empty() {
                return Err(wrong());
            }
            if labels.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(format!("found `{text}`, which has the label `{key}` twice"));
            }
        }
        Ok(Self { instances, labels })
    }
}

/// The instances of a cluster.
#[derive(Debug)]
pub(super) struct Instances {
    pub(super) count: u32,
    /// The labels of each.
    pub(super) labels: Vec<Labels>,
    pub(super) warnings: Vec<String>,
}

/// What flags say of the instances, and the endpoints file that they name.
///
/// # Errors
///
/// If there are none or too many, the file cannot be used, or labels are for instances that are not there.
pub(super) fn instances(args: &ClusterArgs) -> anyhow::Result<Instances> {
    let mut instances = match &args.endpoints_file {
        Some(path) => of_file(path)?,
        None => {
            let count = args.num_instances.map_or(1, u32::from);
            ensure!(
                count <= MAX_INSTANCES,
                "`--num-instances` is {count}; {MAX_INSTANCES} at most can be simulated"
            );
            Instances {
                count,
                labels: Vec::new(),
                warnings: Vec::new(),
            }
        }
    };
    for InstanceLabels {
        instances: range,
        labels,
    } in &args.instance_labels
    {
        let meant = range.of(instances.count, "instance-labels")?;
        instances.labels.resize(instances.count as usize, Labels::new());
        for instance in meant {
            instances.labels[instance as usize].extend(labels.clone());
        }
    }
    Ok(instances)
}

/// As many instances as the file has endpoints, in the order of their names.
fn of_file(path: &Path) -> anyhow::Result<Instances> {
    let params = FileDiscoveryParams {
        path: path.display().to_string(),
        ..FileDiscoveryParams::default()
    };
    let file = FileDiscovery::load(&params).map_err(|error| anyhow!("`--endpoints-file`: {:#}", anyhow!(error)))?;
    let labels: Vec<Labels> = file
        .endpoints()
        .values()
        .map(|endpoint| endpoint.labels.clone())
        .collect();
    ensure!(
        !labels.is_empty(),
        "`--endpoints-file`: {} has no endpoints; a cluster needs one at least",
        path.display()
    );
    let count = u32::try_from(labels.len()).ok().filter(|&count| count <= MAX_INSTANCES);
    let count =
        count.ok_or_else(|| anyhow!("`--endpoints-file`: {MAX_INSTANCES} endpoints at most can be simulated"))?;
    let objectives = (!file.objectives().is_empty()).then(|| {
        format!(
            "the objectives of {} have no effect on a simulation: requests have the priorities of their SLO classes",
            path.display()
        )
    });
    Ok(Instances {
        count,
        labels,
        warnings: objectives.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<InstanceLabels, String> {
        text.parse()
    }

    #[test]
    fn labels_are_for_one_instance_or_several_or_all() {
        let label = |instances| InstanceLabels {
            instances,
            labels: Labels::from([("llm-d.ai/role".to_owned(), "decode".to_owned())]),
        };

        assert_eq!(read("2: llm-d.ai/role=decode"), Ok(label(Range::From(2, 2))));
        assert_eq!(read("0..3: llm-d.ai/role=decode"), Ok(label(Range::From(0, 3))));
        assert_eq!(read("all:llm-d.ai/role=decode"), Ok(label(Range::All)));
        assert_eq!(read("all: a=1, b=").unwrap().labels.len(), 2);
    }

    #[test]
    fn labels_that_are_wrong_say_how_they_are_written() {
        for text in ["role=decode", "0: role", "x: a=b", "0..: a=b", "-1: a=b", "0: =b"] {
            assert!(
                read(text).is_err_and(|error| error.contains("`0..3: key=value")),
                "{text}"
            );
        }
        assert!(read("3..1: a=b").is_err_and(|error| error.contains("must not be above")));
        assert!(read("0: a=b,a=c").is_err_and(|error| error.contains("`a` twice")));
    }
}
