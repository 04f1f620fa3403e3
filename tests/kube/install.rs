//! An installation in a cluster: model servers as pods, replicas of the real binary, and an Envoy that sends requests
//! to those that are ready.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use forebay::serve::demo::envoy::{Bootstrap, Destination, FailureMode};
use forebay::serve::ext_proc::health::EXT_PROC_SERVICE;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chart::envoy::picker_of_mode_service;
use crate::support::cluster::{ModelServer, Picker, Until};
use crate::support::envoy::Envoy;
use crate::support::happens;
use crate::support::http::{Ask, Client};
use crate::support::kube::objects::{POOL, pool};
use crate::support::kube::{Kube, Line};
use crate::support::load::Load;
use crate::support::service::{Replica as Place, Service, is_ready};

use super::view::PATIENCE;

/// Time between two looks of Envoy at the health of a replica.
const HEALTH_CHECKS: Duration = Duration::from_millis(100);

/// The replica that Envoy sees under load ends with its name.
const NAMES: [&str; 2] = ["a", "b"];

pub(super) struct Installation {
    pub(super) kube: Kube,
    pub(super) client: Client,
    pub(super) replicas: Vec<Replica>,
    pub(super) envoy: Envoy,
    servers: Vec<ModelServer>,
    _service: Option<Service>,
    directory: TempDir,
}

pub(super) struct Replica {
    pub(super) picker: Picker,
    /// Its line to the API server.
    pub(super) line: Line,
}

/// What a test wants of it.
pub(super) struct Wanted {
    pub(super) replicas: usize,
    pub(super) flags: Vec<String>,
    /// The token that replicas show to the API server.
    pub(super) token: Option<String>,
    pub(super) way: Way,
    /// What all replicas are told that their pod is called; each something else unless it is said.
    pub(super) pod_name: Option<String>,
}

/// How Envoy reaches the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It knows all of them, and checks their health.
    Each,
    /// As the chart's Envoy of mode `service`: by one address, and without a picker it fails open.
    Service,
}

impl Wanted {
    pub(super) fn replicas(replicas: usize, flags: &[&str]) -> Self {
        Self {
            replicas,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            token: None,
            way: Way::Each,
            pod_name: None,
        }
    }
}

impl Replica {
    /// Starts the replica of this number, whose log goes below `directory`.
    async fn start(kube: &Kube, directory: &Path, number: usize, wanted: &Wanted, until: Until) -> Self {
        let logs = directory.join(number.to_string());
        std::fs::create_dir(&logs).unwrap();
        let line = kube.another_line().await;
        let token = wanted.token.as_deref().unwrap_or(kube.administrator());
        let own = || format!("forebay-7d9f8c-{number:0>5}");
        let pod = wanted.pod_name.clone().unwrap_or_else(own);
        let environment = [
            format!("KUBECONFIG={}", kube.kubeconfig(&line, token).display()),
            format!("NAMESPACE={}", kube.namespace),
            format!("POD_NAME={pod}"),
        ];
        let mut flags = vec![
            format!("--pool-name={POOL}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-serving=false".to_owned(),
            "--metrics-endpoint-auth=false".to_owned(),
            "--drain-quiet=1s".to_owned(),
        ];
        flags.extend(wanted.flags.iter().cloned());
        let picker = Picker::start_in(&environment, flags, [0, 0, 0], &logs, until).await;
        Self { picker, line }
    }
}

impl Installation {
    /// A pool of two model servers, and its picker.
    pub(super) async fn start(kube: Kube, wanted: Wanted) -> Self {
        // Every test has addresses of its own.
        static NETWORK: AtomicU8 = AtomicU8::new(1);
        let network = NETWORK.fetch_add(1, Ordering::Relaxed);
        let ip = |host| IpAddr::from([127, 1, network, host]);
        let directory = TempDir::with_prefix("forebay-test-").unwrap();
        let client = Client::new();

        let first = ModelServer::start_at(NAMES[0], 20.0, SocketAddr::new(ip(1), 0)).await;
        let port = first.address.port();
        let second = ModelServer::start_at(NAMES[1], 20.0, SocketAddr::new(ip(2), port)).await;
        kube.create(&pool("vllm", &[port])).await;
        for server in [&first, &second] {
            kube.start_pod(server.name, "vllm", &server.address.ip().to_string())
                .await;
        }

        let mut replicas = Vec::new();
        for number in 0..wanted.replicas {
            // The first one is to lead where there are several.
            let until = if number == 0 { Until::Ready } else { Until::Listening };
            replicas.push(Replica::start(&kube, directory.path(), number, &wanted, until).await);
        }
        let servers = vec![first, second];
        let (document, service) = match wanted.way {
            Way::Each => (document(&replicas), None),
            Way::Service => {
                let service = Service::start(replicas.iter().map(Replica::place).collect()).await;
                (document_by(&service, &servers), Some(service))
            }
        };
        let envoy = Envoy::start_document(&document, directory.path(), &client).await;
        Self {
            kube,
            client,
            replicas,
            envoy,
            servers,
            _service: service,
            directory,
        }
    }

    /// Starts one more replica, which Envoy does not know, and waits until it can be spoken to.
    pub(super) async fn join(&mut self, wanted: &Wanted) {
        let (directory, number) = (self.directory.path(), self.replicas.len());
        let replica = Replica::start(&self.kube, directory, number, wanted, Until::Listening).await;
        self.replicas.push(replica);
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1/completions", self.envoy.ingress)
    }

    /// Where the pod of this number would serve.
    pub(super) fn address(&self, host: u8) -> SocketAddr {
        let IpAddr::V4(first) = self.servers[0].address.ip() else {
            unreachable!("its address was made above")
        };
        let [a, b, network, _] = first.octets();
        SocketAddr::new(IpAddr::from([a, b, network, host]), self.servers[0].address.port())
    }

    /// One more model server, as a pod.
    pub(super) async fn grow(&mut self, name: &'static str) {
        let address = self.address(u8::try_from(self.servers.len() + 1).unwrap());
        self.servers.push(ModelServer::start_at(name, 20.0, address).await);
        self.kube.start_pod(name, "vllm", &address.ip().to_string()).await;
    }

    /// Clients that ask and ask, once it works.
    pub(super) async fn load(&self, clients: usize, headers: &[(&'static str, &'static str)]) -> Load {
        happens("requests are served", PATIENCE, async || {
            let body = crate::support::cluster::document("Hello", 2).to_string();
            let reply = self.client.try_send(Ask::post(&self.url(), body)).await?;
            if reply.status == 200 { Ok(()) } else { Err(reply.text()) }
        })
        .await;
        Load::at(&self.client, &self.url(), clients, headers)
    }

    /// A page of a replica.
    pub(super) async fn metrics(&self, replica: usize) -> Result<String, String> {
        let address = self.replicas[replica].picker.metrics;
        Ok(self.client.fetch(&format!("http://{address}/metrics")).await?.text())
    }

    /// Waits until a replica's metrics have a line with all of `parts`.
    pub(super) async fn shows(&self, replica: usize, parts: &[&str]) {
        happens(
            &format!("the metrics of replica {replica} have {parts:?}"),
            PATIENCE,
            async || {
                let page = self.metrics(replica).await?;
                let has = |line: &str| parts.iter().all(|part| line.contains(part));
                page.lines().any(has).then_some(()).ok_or(page)
            },
        )
        .await;
    }

    /// Whether Envoy would send requests to a replica.
    pub(super) async fn is_ready(&self, replica: usize) -> bool {
        is_ready(self.replicas[replica].picker.health).await
    }

    pub(super) async fn readiness(&self, wanted: &[bool]) {
        happens(&format!("readiness is {wanted:?}"), PATIENCE, async || {
            let mut found = Vec::new();
            for replica in 0..self.replicas.len() {
                found.push(self.is_ready(replica).await);
            }
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }
}

impl Replica {
    fn place(&self) -> Place {
        Place {
            target: self.picker.grpc,
            health: self.picker.health,
        }
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for child in self
                .replicas
                .iter()
                .map(|replica| &replica.picker.child)
                .chain([&self.envoy.child])
            {
                eprintln!("--- {} said:\n{}", child.name(), child.tail());
            }
        }
    }
}

/// An Envoy that asks any replica that says it is ready.
fn document(replicas: &[Replica]) -> Value {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut document = Bootstrap::new(any, any, replicas[0].picker.grpc).document();
    let hosts = replicas.iter().map(|Replica { picker, .. }| {
        let address = json!({ "address": "127.0.0.1", "port_value": picker.grpc.port() });
        json!({ "endpoint": {
            "address": { "socket_address": address },
            "health_check_config": { "port_value": picker.health.port() },
        } })
    });
    let hosts: Vec<_> = hosts.collect();
    let picker = &mut document["static_resources"]["clusters"][0];
    picker["load_assignment"]["endpoints"][0]["lb_endpoints"] = hosts.into();
    let interval = format!("{}s", HEALTH_CHECKS.as_secs_f64());
    picker["health_checks"] = json!([{
        "timeout": "1s",
        "interval": interval,
        "no_traffic_interval": interval,
        "unhealthy_interval": interval,
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "grpc_health_check": { "service_name": EXT_PROC_SERVICE },
    }]);
    picker["common_lb_config"] = json!({ "healthy_panic_threshold": { "value": 0 }, "update_merge_window": "0s" });
    document
}

/// An Envoy that asks whoever is behind an address, by the chart's settings, in plain text.
fn document_by(service: &Service, servers: &[ModelServer]) -> Value {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let bootstrap = Bootstrap {
        failure: FailureMode::Open,
        destination: Destination::Known(servers.iter().map(|server| server.address).collect()),
        ..Bootstrap::new(any, any, service.address)
    };
    let mut document = bootstrap.document();
    let ours = &mut document["static_resources"]["clusters"][0];
    let mut charts = picker_of_mode_service();
    charts["load_assignment"] = ours["load_assignment"].take();
    charts["type"] = "STATIC".into();
    charts.as_object_mut().unwrap().remove("transport_socket");
    *ours = charts;
    document
}
