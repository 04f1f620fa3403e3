//! Who an endpoint is.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Identifies an endpoint: `<namespace>/<name>`, where a pod with several ports has one name for each rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EndpointId(Arc<str>);

impl EndpointId {
    /// The id of `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the slash.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The part after the slash.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl Borrow<str> for EndpointId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A server of the pool: one address and one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its identity.
    pub id: EndpointId,
    /// The name that people know it by: that of the pod, or of the entry in the discovery file.
    pub name: Arc<str>,
    /// Where requests go.
    pub address: IpAddr,
    /// The port that requests go to.
    pub port: u16,
    /// Labels of the pod, or of the entry in the discovery file.
    pub labels: BTreeMap<String, String>,
    /// Data-parallel rank: the position of the port among the ports of the pool. Zero with one port.
    pub rank: u32,
}

/// What an endpoint of a disaggregated pool does, by its label `llm-d.ai/role`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// It prefills.
    pub prefill: bool,
    /// It decodes. So does an endpoint without a role.
    pub decode: bool,
}

impl Endpoint {
    /// The label that tells what an endpoint of a disaggregated pool does.
    pub const ROLE_LABEL: &str = "llm-d.ai/role";

    /// The stages that saturation is measured for.
    pub fn stages(&self) -> Stages {
        let role = self.labels.get(Self::ROLE_LABEL).map_or("", String::as_str);
        let (prefill, decode) = match role {
            "prefill" | "encode-prefill" => (true, false),
            "decode" | "" => (false, true),
            "prefill-decode" | "both" | "encode-prefill-decode" => (true, true),
            _ => (false, false),
        };
        Stages { prefill, decode }
    }

    /// Address and port; its text form is the `host:port` of the destination header, with IPv6 in brackets.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}
