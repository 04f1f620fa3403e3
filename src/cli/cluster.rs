//! The flags that say what is wanted of a cluster.

use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use forebay::serve::app::{Cluster, Election};
use forebay::serve::kube::lease::Timing;
use forebay::serve::kube::{Pace, PoolGroup, Target, parse_selector};

use super::switch::Switch as _;
use super::units;

/// Ports that a pod can have.
const MOST_PORTS: usize = 8;
/// The name of a pool for metrics where nothing gives one.
const UNNAMED: &str = "epp";

/// Flags about Kubernetes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kubernetes")]
pub(crate) struct ClusterArgs {
    /// Name of the InferencePool to serve; with endpoints from a file, its name in metrics
    #[arg(long, value_name = "NAME")]
    pool_name: Option<String>,
    /// Namespace of the pool and of all that belongs to it; `$NAMESPACE` unless set, or else `default`
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace_name)]
    pool_namespace: Option<String>,
    /// API group of the InferencePool: `inference.networking.k8s.io` or `inference.networking.x-k8s.io`
    #[arg(long, value_name = "GROUP", value_parser = pool_group, default_value = PoolGroup::Current.name())]
    pool_group: PoolGroup,
    /// Labels of the pods to serve, such as `app=vllm`, in place of an InferencePool
    #[arg(long, value_name = "SELECTOR")]
    endpoint_selector: Option<String>,
    /// Ports on which each pod of `--endpoint-selector` serves, at most eight
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    endpoint_target_ports: Vec<String>,
    /// Name of the EndpointPickerConfig object that goes before the configuration file while it exists
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    config_object: Option<String>,
    /// Lets only those read the pages whom the API server knows and lets read them
    #[arg(long, switch = true)]
    pub(crate) metrics_endpoint_auth: bool,
    /// Lets one replica at a time be ready, by a Lease. If `$POD_IP` is set, or `--bind-address` is that of the pod, others
    /// see at once that the leader's process has ended, and do not wait for the Lease to run out
    #[arg(long, switch = false)]
    ha_enable_leader_election: bool,
    /// Time after which a leader that is not heard of is replaced; whole seconds
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "15s")]
    ha_lease_duration: Duration,
    /// Time between two renewals of the lease
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2s")]
    ha_retry_period: Duration,
}

/// The shortest time between two renewals of a lease.
const SHORTEST_RETRY: Duration = Duration::from_millis(50);

/// What the flags about leases are if they are not given.
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// What the process is told about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// `$NAMESPACE`.
    pub(crate) namespace: Option<String>,
    /// `$POD_NAME`.
    pub(crate) pod_name: Option<String>,
    /// `$POD_IP`.
    pub(crate) pod_ip: Option<String>,
}

impl Surroundings {
    pub(crate) fn of_this_process() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        Self {
            namespace: variable("NAMESPACE"),
            pod_name: variable("POD_NAME"),
            pod_ip: variable("POD_IP"),
        }
    }
}

impl ClusterArgs {
    /// The name of the pool in metrics.
    pub(crate) fn pool_label(&self, surroundings: &Surroundings) -> String {
        let named = given(self.pool_name.as_ref()).cloned();
        let deployed = || {
            surroundings
                .pod_name
                .as_deref()
                .filter(|_| self.selector().is_some())
                .map(workload_of)
        };
        named
            .or_else(|| deployed().map(str::to_owned))
            .unwrap_or_else(|| UNNAMED.to_owned())
    }

    /// Fails if a flag has no meaning with endpoints from a file.
    pub(crate) fn refuse_with_files(&self) -> anyhow::Result<()> {
        let flag = match self {
            _ if self.selector().is_some() => "endpoint-selector",
            _ if self.config_object.is_some() => "config-object",
            _ if self.ha_enable_leader_election => "ha-enable-leader-election",
            _ => return Ok(()),
        };
        bail!("flag `--{flag}` needs Kubernetes, and the endpoints come from a file; use one of them")
    }

    /// Flags that change nothing where the endpoints come from a file, or from pods of a cluster.
    pub(crate) fn doubts(&self, with_files: bool) -> Vec<String> {
        let has_ports = !self.endpoint_target_ports.is_empty();
        let has_group = self.pool_group != PoolGroup::default();
        let has_namespace = given(self.pool_namespace.as_ref()).is_some();
        let of_files = ": the endpoints come from a file";
        let without_election = " without `--ha-enable-leader-election`";
        let has_election = self.ha_enable_leader_election;
        let flags = [
            ("endpoint-target-ports", has_ports && with_files, of_files),
            (
                "endpoint-target-ports",
                has_ports && !with_files && self.selector().is_none(),
                " without `--endpoint-selector`",
            ),
            ("pool-namespace", has_namespace && with_files, of_files),
            ("pool-group", has_group && with_files, of_files),
            (
                "pool-group",
                has_group && !with_files && self.selector().is_some(),
                " with `--endpoint-selector`",
            ),
            (
                "ha-lease-duration",
                self.ha_lease_duration != LEASE_DURATION && !has_election,
                without_election,
            ),
            (
                "ha-retry-period",
                self.ha_retry_period != RETRY_PERIOD && !has_election,
                without_election,
            ),
        ];
        let idle = flags.into_iter().filter(|(_, is_idle, _)| *is_idle);
        idle.map(|(flag, _, why)| format!("`--{flag}` has no effect{why}"))
            .collect()
    }

    /// What is wanted of the cluster.
    ///
    /// # Errors
    ///
    /// Flags are missing, go against each other, or have a value that cannot be.
    pub(crate) fn cluster(&self, surroundings: &Surroundings) -> anyhow::Result<Cluster> {
        let namespace = given(self.pool_namespace.as_ref()).or(surroundings.namespace.as_ref());
        let namespace = namespace.map_or("default", String::as_str).to_owned();
        let target = match (given(self.pool_name.as_ref()), self.selector()) {
            (Some(_), Some(_)) => bail!("both `--pool-name` and `--endpoint-selector` are set; set one of them"),
            (None, None) => bail!(
                "either pool-name or endpoint-selector must be set: give `--pool-name NAME` for an InferencePool, \
                 `--endpoint-selector LABELS` for pods without one, or `--endpoints-file FILE` to do without Kubernetes"
            ),
            (Some(name), None) => Target::Pool {
                namespace: namespace.clone(),
                name: object_name(name).map_err(|error| anyhow!("flag `--pool-name`: `{name}`: {error}"))?,
                group: self.pool_group,
            },
            (None, Some(selector)) => Target::Selector {
                namespace: namespace.clone(),
                selector: parse_selector(selector).map_err(|error| anyhow!("flag `--endpoint-selector`: {error}"))?,
                ports: self.ports()?,
            },
        };
        if self.ha_lease_duration < Duration::from_secs(1) || self.ha_retry_period * 2 > self.ha_lease_duration {
            bail!("`--ha-lease-duration` has to be at least 1s, and twice `--ha-retry-period`");
        }
        if self.ha_lease_duration.subsec_nanos() != 0 {
            bail!(
                "`--ha-lease-duration` is {:?}; a Lease has whole seconds",
                self.ha_lease_duration
            );
        }
        if self.ha_retry_period < SHORTEST_RETRY {
            bail!(
                "`--ha-retry-period` has to be at least {SHORTEST_RETRY:?}: each period is a request to the API server"
            );
        }
        let election = if self.ha_enable_leader_election {
            if self.selector().is_some() && surroundings.pod_name.is_none() {
                bail!("with `--endpoint-selector` and leader election, `$POD_NAME` has to name the pod");
            }
            Some(Election {
                lease: format!("epp-{namespace}-{}.llm-d.ai", self.pool_label(surroundings)),
                timing: Timing {
                    lease: self.ha_lease_duration,
                    retry: self.ha_retry_period,
                },
                pod_ip: match &surroundings.pod_ip {
                    None => None,
                    Some(text) => Some(
                        text.parse()
                            .map_err(|_| anyhow!("`$POD_IP` is `{text}`, which is no IP address"))?,
                    ),
                },
            })
        } else {
            None
        };
        let identity = surroundings.pod_name.clone();
        Ok(Cluster {
            target,
            config_object: given(self.config_object.as_ref()).cloned(),
            election,
            identity: identity.unwrap_or_else(|| format!("forebay-{}", uuid::Uuid::new_v4())),
            authenticated_pages: self.metrics_endpoint_auth,
            pace: Pace::default(),
        })
    }

    fn selector(&self) -> Option<&String> {
        given(self.endpoint_selector.as_ref())
    }

    fn ports(&self) -> anyhow::Result<Vec<u16>> {
        let mut ports = Vec::new();
        for text in self.endpoint_target_ports.iter().filter(|text| !text.trim().is_empty()) {
            let port: u16 = text.trim().parse().ok().filter(|port| *port > 0).ok_or_else(|| {
                anyhow!("flag `--endpoint-target-ports`: `{text}` is not a port; write a number from 1 to 65535")
            })?;
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        if !(1..=MOST_PORTS).contains(&ports.len()) {
            bail!(
                "`--endpoint-selector` needs one to {MOST_PORTS} ports in `--endpoint-target-ports`; {} are given",
                ports.len()
            );
        }
        Ok(ports)
    }
}

/// A text that is not empty.
fn given(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !text.is_empty())
}

fn pool_group(text: &str) -> Result<PoolGroup, String> {
    let group = PoolGroup::ALL.into_iter().find(|group| group.name() == text);
    group.ok_or_else(|| {
        let names = PoolGroup::ALL.map(|group| format!("`{}`", group.name()));
        format!("no pool is known of that group; write {}", names.join(" or "))
    })
}

/// The longest name of an object, and of a part of it between dots.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A name that an object can have: a DNS subdomain. Nothing counts as not given.
fn object_name(text: &str) -> Result<String, String> {
    if text.is_empty() || (text.len() <= LONGEST_NAME && text.split('.').all(is_dns_label)) {
        return Ok(text.to_owned());
    }
    Err("no object can have this name; write lowercase letters, digits, `-` and `.`, with a letter or digit at each end \
         and beside each dot, at most 253"
        .to_owned())
}

/// A name that a namespace can have: a DNS label. Nothing counts as not given.
fn namespace_name(text: &str) -> Result<String, String> {
    if text.is_empty() || (text.len() <= LONGEST_LABEL && is_dns_label(text)) {
        return Ok(text.to_owned());
    }
    Err("no namespace can have this name; write lowercase letters, digits and `-`, with a letter or digit at each end, at \
         most 63"
        .to_owned())
}

fn is_dns_label(text: &str) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(is_word)) && bytes.iter().all(|byte| is_word(byte) || *byte == b'-')
}

/// The length of the end that a Deployment's pods are named with.
const POD_SUFFIX: usize = 5;

/// The Deployment or StatefulSet of a pod, by the pod's name: `name-<hash>-<suffix>` or `name-<number>`.
fn workload_of(pod: &str) -> &str {
    let Some((rest, suffix)) = pod.rsplit_once('-') else {
        return pod;
    };
    if suffix.len() != POD_SUFFIX && suffix.bytes().all(|byte| byte.is_ascii_digit()) {
        return rest;
    }
    rest.rsplit_once('-').map_or(rest, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        cluster: ClusterArgs,
    }

    fn args(flags: &[&str]) -> ClusterArgs {
        let words = std::iter::once("forebay").chain(flags.iter().copied());
        Only::try_parse_from(words).unwrap().cluster
    }

    fn in_pod(name: &str) -> Surroundings {
        Surroundings {
            namespace: Some("of-the-pod".to_owned()),
            pod_name: Some(name.to_owned()),
            pod_ip: None,
        }
    }

    fn refusal(flags: &[&str]) -> String {
        args(flags).cluster(&Surroundings::default()).unwrap_err().to_string()
    }

    #[test]
    fn a_pool_is_named_by_its_flags() {
        let args = args(&[
            "--pool-name=pool",
            "--pool-namespace",
            "models",
            "--pool-group",
            "inference.networking.x-k8s.io",
        ]);

        let cluster = args.cluster(&in_pod("epp-7d9f-x2x4z")).unwrap();

        let wanted = Target::Pool {
            namespace: "models".to_owned(),
            name: "pool".to_owned(),
            group: PoolGroup::Old,
        };
        assert_eq!(cluster.target, wanted);
        assert_eq!(cluster.identity, "epp-7d9f-x2x4z");
        assert_eq!(cluster.election, None);
        assert_eq!(args.pool_label(&Surroundings::default()), "pool");
    }

    #[test]
    fn the_namespace_is_that_of_the_flag_or_of_the_pod_or_default() {
        let namespace = |flags: &[&str], surroundings: &Surroundings| {
            let cluster = args(&[&["--pool-name=p"], flags].concat())
                .cluster(surroundings)
                .unwrap();
            cluster.target.namespace().to_owned()
        };

        assert_eq!(namespace(&["--pool-namespace=n"], &in_pod("x")), "n");
        assert_eq!(namespace(&["--pool-namespace="], &in_pod("x")), "of-the-pod");
        assert_eq!(namespace(&[], &Surroundings::default()), "default");
    }

    #[test]
    fn times_of_leases_are_what_they_are_said_to_be_if_they_are_not_given() {
        let args = args(&[]);

        assert_eq!(
            (args.ha_lease_duration, args.ha_retry_period),
            (LEASE_DURATION, RETRY_PERIOD)
        );
    }

    #[test]
    fn a_selector_has_ports_each_once() {
        let args = args(&[
            "--endpoint-selector=app in (a, b)",
            "--endpoint-target-ports=8000,8001",
            "--endpoint-target-ports=8000",
            "--ha-enable-leader-election",
        ]);

        let cluster = args.cluster(&in_pod("epp-7d9f-x2x4z")).unwrap();

        let Target::Selector { ports, selector, .. } = &cluster.target else {
            panic!("{cluster:?}");
        };
        assert_eq!(
            (ports.as_slice(), selector.to_string().as_str()),
            (&[8000, 8001][..], "app in (a,b)")
        );
        assert_eq!(cluster.election.unwrap().lease, "epp-of-the-pod-epp.llm-d.ai");
    }

    #[test]
    fn flags_that_cannot_be_are_refused_with_what_would_be_right() {
        for (flags, part) in [
            (&[][..], "either pool-name or endpoint-selector must be set"),
            (&["--pool-name=p", "--endpoint-selector=a=b"], "set one of them"),
            (&["--endpoint-selector=a=b"], "one to 8 ports"),
            (
                &["--endpoint-selector=a=b", "--endpoint-target-ports=1,2,3,4,5,6,7,8,9"],
                "9 are given",
            ),
            (
                &["--endpoint-selector=a=b", "--endpoint-target-ports=0"],
                "`0` is not a port",
            ),
            (
                &["--endpoint-selector=a b", "--endpoint-target-ports=1"],
                "`a b` is not a requirement",
            ),
            (
                &[
                    "--endpoint-selector=a=b",
                    "--endpoint-target-ports=1",
                    "--ha-enable-leader-election",
                ],
                "$POD_NAME",
            ),
            (
                &["--pool-name=p", "--ha-lease-duration=3s"],
                "twice `--ha-retry-period`",
            ),
            (
                &["--pool-name=p", "--ha-lease-duration=15.5s"],
                "a Lease has whole seconds",
            ),
            (
                &["--pool-name=p", "--ha-retry-period=0"],
                "`--ha-retry-period` has to be at least 50ms",
            ),
        ] {
            let refusal = refusal(flags);

            assert!(refusal.contains(part), "{flags:?}: {refusal}");
        }
    }

    #[test]
    fn names_that_nothing_in_a_cluster_can_have_are_refused() {
        for flag in [
            "--config-object=Bad_Name!",
            "--config-object=-x",
            "--config-object=a..b",
            "--pool-namespace=a.b",
            "--pool-namespace=A",
        ] {
            let refusal = Only::try_parse_from(["forebay", flag]).unwrap_err().to_string();
            let (_, value) = flag.split_once('=').unwrap();
            assert!(
                refusal.contains(value) && refusal.contains("can have this name"),
                "{flag}: {refusal}"
            );
        }
        for flag in [
            "--config-object=",
            "--config-object=a.b-1",
            "--pool-name=qwen3.8b",
            "--pool-namespace=a-1",
        ] {
            args(&[flag]);
        }
        for name in ["My Pool", "ä", &"a".repeat(254)] {
            let refusal = refusal(&[&format!("--pool-name={name}")]);
            assert!(
                refusal.contains(name) && refusal.contains("can have this name"),
                "{refusal}"
            );
        }
        assert!(Only::try_parse_from(["forebay", &format!("--pool-namespace={}", "a".repeat(64))]).is_err());
    }

    #[test]
    fn who_may_lead_is_known_by_the_address_of_its_pod() {
        let args = args(&["--pool-name=p", "--ha-enable-leader-election"]);
        let at = |pod_ip: &str| Surroundings {
            pod_ip: Some(pod_ip.to_owned()),
            ..in_pod("epp-7d9f-x2x4z")
        };

        let election = args.cluster(&at("fd00::7")).unwrap().election.unwrap();
        let refusal = args.cluster(&at("epp.example")).unwrap_err().to_string();

        assert_eq!(election.pod_ip, "fd00::7".parse().ok());
        assert_eq!(refusal, "`$POD_IP` is `epp.example`, which is no IP address");
    }

    #[test]
    fn a_workload_is_known_by_the_name_of_its_pod() {
        for (pod, workload) in [
            ("my-epp-7d9f8c-x2x4z", "my-epp"),
            ("my-epp-7d9f8c-24567", "my-epp"),
            ("my-epp-0", "my-epp"),
            ("my-epp-12", "my-epp"),
            ("epp", "epp"),
            ("epp-x", "epp"),
        ] {
            assert_eq!(workload_of(pod), workload, "{pod}");
        }
    }
}
