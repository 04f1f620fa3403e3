//! A real Envoy on ports of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay::serve::demo::children::Child;
use forebay::serve::demo::envoy::arguments;
use serde_json::Value;

use super::happens;
use super::http::Client;

/// Names the Envoy of the tests.
const VARIABLE: &str = "FOREBAY_ENVOY";

/// The listener for clients.
const INGRESS: &str = "ingress";

/// An Envoy that is ready.
pub(crate) struct Envoy {
    pub(crate) child: Child,
    /// Where clients connect to.
    pub(crate) ingress: SocketAddr,
    listeners: BTreeMap<String, SocketAddr>,
    admin: String,
    client: Client,
}

/// The Envoy to test with. A test without one fails; it does not pass as if it had seen something.
pub(crate) fn program() -> PathBuf {
    if let Some(named) = std::env::var_os(VARIABLE) {
        let named = PathBuf::from(named);
        assert!(
            named.is_file(),
            "{VARIABLE} names `{}`, where no Envoy is",
            named.display()
        );
        return named;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let local = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/envoy");
    std::iter::once(local)
        .chain(std::env::split_paths(&path).map(|directory| directory.join("envoy")))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| {
            panic!(
                "these tests need a real Envoy: `make integration` installs one and runs them, or name one in {VARIABLE}"
            )
        })
}

impl Envoy {
    /// Runs a bootstrap, whose own addresses should have port 0.
    pub(crate) async fn start_document(document: &Value, directory: &Path, client: &Client) -> Self {
        let config = directory.join("envoy.json");
        std::fs::write(&config, document.to_string()).unwrap();
        let admin_file = directory.join("envoy-admin");
        let mut arguments = arguments(&config, NonZeroUsize::new(2).unwrap());
        arguments.push("--admin-address-path".to_owned());
        arguments.push(admin_file.to_string_lossy().into_owned());
        let mut child = Child::start("Envoy", &program(), arguments, directory).unwrap();

        let (mut listeners, mut admin) = (BTreeMap::new(), String::new());
        happens("Envoy is ready", Duration::from_secs(30), async || {
            child.check().map_err(|error| error.to_string())?;
            admin = std::fs::read_to_string(&admin_file).map_err(|error| error.to_string())?;
            if admin.is_empty() {
                return Err("it has not said where".to_owned());
            }
            let ready = client.fetch(&format!("http://{admin}/ready")).await?;
            if ready.status != 200 {
                return Err(ready.text());
            }
            let page = client.fetch(&format!("http://{admin}/listeners?format=json")).await?;
            listeners = addresses(&page.json());
            listeners.get(INGRESS).map(|_| ()).ok_or_else(|| page.text())
        })
        .await;
        Self {
            child,
            ingress: listeners[INGRESS],
            listeners,
            admin,
            client: client.clone(),
        }
    }

    /// Where the listener of this name is.
    pub(crate) fn listener(&self, name: &str) -> SocketAddr {
        self.listeners[name]
    }

    /// One of Envoy's own counters or gauges.
    pub(crate) async fn stat(&self, name: &str) -> Result<u64, String> {
        let url = format!("http://{}/stats?filter=^{name}$", self.admin);
        let page = self.client.fetch(&url).await?.text();
        let value = page.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        value.and_then(|value| value.parse().ok()).ok_or(page)
    }
}

fn addresses(listeners: &Value) -> BTreeMap<String, SocketAddr> {
    let address = |listener: &Value| {
        let address = &listener["local_address"]["socket_address"];
        let port = u16::try_from(address["port_value"].as_u64()?).ok()?;
        let address = SocketAddr::new(address["address"].as_str()?.parse().ok()?, port);
        Some((listener["name"].as_str()?.to_owned(), address))
    };
    let listeners = listeners["listener_statuses"].as_array();
    listeners.into_iter().flatten().filter_map(address).collect()
}
