//! A whole installation: model servers, the real binary and a real Envoy, each test its own.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use forebay::serve::demo::children::{Child, Signal};
use forebay::serve::demo::envoy::Bootstrap;
use forebay::serve::model_server::{ModelServerConfig, serve};
use forebay::sim::instance::LinearStepTime;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::envoy::Envoy;
use super::happens;
use super::http::{Ask, Client, Reply};

/// Time that a process has to start.
const START: Duration = Duration::from_secs(30);

/// The model of all model servers.
pub(crate) const MODEL: &str = "stand-in";
/// The LoRA adapter of all model servers.
pub(crate) const ADAPTER: &str = "lora-a";

/// Everything that a request goes through. Dropped, all of it ends; dropped by a test that fails, it says what the
/// processes said.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) picker: Picker,
    pub(crate) servers: Vec<ModelServer>,
    pub(crate) envoy: Envoy,
    directory: TempDir,
}

/// Changes the bootstrap, given the endpoints.
type Adjust = Box<dyn FnOnce(&mut Bootstrap, Vec<SocketAddr>)>;

/// Changes the document that is made of the bootstrap.
type Rewrite = Box<dyn FnOnce(&mut Value)>;

/// What a test wants of it.
pub(crate) struct Plan {
    servers: Vec<&'static str>,
    speed: f64,
    /// Endpoints that the test runs itself.
    outside: Vec<(&'static str, SocketAddr)>,
    objectives: Vec<(&'static str, i32)>,
    flags: Vec<String>,
    tls: bool,
    adjust: Adjust,
    rewrite: Rewrite,
}

/// The process of the real binary, and its ports.
pub(crate) struct Picker {
    pub(crate) child: Child,
    pub(crate) grpc: SocketAddr,
    pub(crate) health: SocketAddr,
    pub(crate) metrics: SocketAddr,
    flags: Vec<String>,
}

/// How far a picker has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// It can be spoken to.
    Listening,
    /// Requests should come.
    Ready,
}

/// A stand-in, within the test's process.
pub(crate) struct ModelServer {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Plan {
    /// Two quick model servers, `a` and `b`, in full duplex and plain text.
    pub(crate) fn new() -> Self {
        Self {
            servers: vec!["a", "b"],
            speed: 20.0,
            outside: Vec::new(),
            objectives: Vec::new(),
            flags: Vec::new(),
            tls: false,
            adjust: Box::new(|_, _| {}),
            rewrite: Box::new(|_| {}),
        }
    }

    pub(crate) fn servers(mut self, names: &[&'static str]) -> Self {
        self.servers = names.to_vec();
        self
    }

    /// How many times as fast as a GPU the model servers are.
    pub(crate) fn speed(mut self, speed: f64) -> Self {
        self.speed = speed;
        self
    }

    /// One endpoint, which is no stand-in.
    pub(crate) fn upstream(self, address: SocketAddr) -> Self {
        self.outside(&[("upstream", address)])
    }

    /// These endpoints, which the test runs itself.
    pub(crate) fn outside(mut self, endpoints: &[(&'static str, SocketAddr)]) -> Self {
        self.servers.clear();
        self.outside = endpoints.to_vec();
        self
    }

    /// One more flag of the picker.
    pub(crate) fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// What the picker is configured to do.
    pub(crate) fn config(self, text: &str) -> Self {
        self.flag(format!("--config-text={text}"))
    }

    /// Names that requests can give, and the priorities that they have then.
    pub(crate) fn objectives(mut self, objectives: &[(&'static str, i32)]) -> Self {
        self.objectives = objectives.to_vec();
        self
    }

    /// The picker serves as it does by default, over TLS.
    pub(crate) fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Changes Envoy's bootstrap, knowing the endpoints.
    pub(crate) fn envoy(mut self, adjust: impl FnOnce(&mut Bootstrap, Vec<SocketAddr>) + 'static) -> Self {
        self.adjust = Box::new(adjust);
        self
    }

    /// Changes what the bootstrap has no choice for.
    pub(crate) fn document(mut self, rewrite: impl FnOnce(&mut Value) + 'static) -> Self {
        self.rewrite = Box::new(rewrite);
        self
    }

    pub(crate) async fn start(self) -> Cluster {
        let directory = TempDir::with_prefix("forebay-test-").unwrap();
        let client = Client::new();
        let mut servers = Vec::new();
        for name in self.servers {
            servers.push(ModelServer::start(name, self.speed).await);
        }
        let mut endpoints: Vec<_> = servers.iter().map(|server| (server.name, server.address)).collect();
        endpoints.extend(self.outside);
        let file = directory.path().join("endpoints.yaml");
        std::fs::write(&file, endpoints_file(&endpoints)).unwrap();
        let mut flags = vec![
            format!("--endpoints-file={}", file.display()),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        if !self.tls {
            flags.push("--secure-serving=false".to_owned());
        }
        if !self.objectives.is_empty() {
            let file = directory.path().join("objectives.yaml");
            std::fs::write(&file, objectives_file(&self.objectives)).unwrap();
            flags.push(format!("--objectives-file={}", file.display()));
        }
        flags.extend(self.flags);
        let picker = Picker::start(flags, [0, 0, 0], directory.path()).await;

        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut bootstrap = Bootstrap::new(any, any, picker.grpc);
        (self.adjust)(&mut bootstrap, endpoints.iter().map(|(_, address)| *address).collect());
        let mut document = bootstrap.document();
        (self.rewrite)(&mut document);
        let envoy = Envoy::start_document(&document, directory.path(), &client).await;
        Cluster {
            client,
            picker,
            servers,
            envoy,
            directory,
        }
    }
}

impl Cluster {
    /// Where `path` is, for clients.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.envoy.ingress)
    }

    /// A completion to ask for.
    pub(crate) fn completion(&self, body: impl Into<Bytes>) -> Ask {
        Ask::post(&self.url("/v1/completions"), body)
    }

    /// Asks for a short completion.
    pub(crate) async fn complete(&self, prompt: &str) -> Reply {
        self.client.send(self.completion(document(prompt, 4).to_string())).await
    }

    /// Tells the picker of other endpoints.
    pub(crate) fn tell_endpoints(&self, endpoints: &[(&str, SocketAddr)]) {
        let new = self.directory.path().join("endpoints.yaml.new");
        std::fs::write(&new, endpoints_file(endpoints)).unwrap();
        std::fs::rename(new, self.directory.path().join("endpoints.yaml")).unwrap();
    }

    /// A page of the picker.
    pub(crate) async fn page(&self, path: &str) -> Reply {
        self.client
            .send(Ask::get(&format!("http://{}{path}", self.picker.metrics)))
            .await
    }

    /// Why a request went where it went.
    pub(crate) async fn explanation(&self, request_id: &str) -> Value {
        let page = self.page(&format!("/debug/decisions?request_id={request_id}")).await;
        let Value::Array(explanations) = page.json() else {
            panic!("no list: {}", page.text());
        };
        assert_eq!(explanations.len(), 1, "{explanations:?}");
        explanations.into_iter().next().unwrap()
    }

    /// The requests that the picker counts as running.
    pub(crate) async fn running(&self) -> Result<f64, String> {
        let page = self
            .client
            .fetch(&format!("http://{}/metrics", self.picker.metrics))
            .await?;
        Ok(sum(&page.text(), "llm_d_epp_request_running"))
    }

    /// Ends the picker as a crash does.
    pub(crate) async fn kill_picker(&mut self) {
        self.picker.child.signal(Signal::KILL);
        self.picker.child.wait().await.unwrap();
    }

    /// Starts the picker again, on the same ports.
    pub(crate) async fn restart_picker(&mut self) {
        let Picker {
            grpc, health, metrics, ..
        } = &self.picker;
        let ports = [grpc.port(), health.port(), metrics.port()];
        let logs = self.directory.path().join("again");
        std::fs::create_dir(&logs).unwrap();
        self.picker = Picker::start(self.picker.flags.clone(), ports, &logs).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for child in [&self.picker.child, &self.envoy.child] {
                eprintln!("--- {} said:\n{}", child.name(), child.tail());
            }
        }
    }
}

impl Picker {
    /// Runs the binary until it is ready. Port 0 takes any that is free.
    async fn start(flags: Vec<String>, ports: [u16; 3], logs: &Path) -> Self {
        Self::start_in(&[], flags, ports, logs, Until::Ready).await
    }

    /// The same in an environment of its own.
    pub(crate) async fn start_in(
        environment: &[String],
        flags: Vec<String>,
        [grpc, health, metrics]: [u16; 3],
        logs: &Path,
        until: Until,
    ) -> Self {
        // What its log must have is not up to the environment of the tests.
        let mut arguments = ["-u", "RUST_LOG"].map(str::to_owned).to_vec();
        arguments.extend(environment.iter().cloned());
        arguments.push(env!("CARGO_BIN_EXE_forebay").to_owned());
        arguments.extend(flags.iter().cloned());
        arguments.push(format!("--grpc-port={grpc}"));
        arguments.push(format!("--grpc-health-port={health}"));
        arguments.push(format!("--metrics-port={metrics}"));
        arguments.push("--zap-encoder=json".to_owned());
        let mut child = Child::start("Forebay", Path::new("/usr/bin/env"), arguments, logs).unwrap();
        let mut listening = Value::Null;
        happens("Forebay is ready", START, async || {
            child.check().map_err(|error| error.to_string())?;
            let lines = logged(&child);
            let line = |message: &str| lines.iter().find(|line| line["message"] == message);
            if until == Until::Ready {
                line("ready").ok_or("it has not said so")?;
            }
            listening = line("listening").ok_or("it has not said where")?.clone();
            Ok(())
        })
        .await;
        let address = |of: &str| listening[of].as_str().unwrap().parse().unwrap();
        Self {
            grpc: address("grpc"),
            health: address("health"),
            metrics: address("metrics"),
            child,
            flags,
        }
    }

    /// Waits until the picker has logged `message`.
    pub(crate) async fn says(&self, message: &str) {
        happens(&format!("Forebay says `{message}`"), START, async || {
            let lines = logged(&self.child);
            let said = |line: &Value| line["message"].as_str().is_some_and(|text| text.starts_with(message));
            lines.iter().any(said).then_some(()).ok_or_else(|| self.child.tail())
        })
        .await;
    }
}

impl ModelServer {
    pub(crate) async fn start(name: &'static str, speed: f64) -> Self {
        Self::start_at(name, speed, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub(crate) async fn start_at(name: &'static str, speed: f64, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = ModelServerConfig {
            name: name.to_owned(),
            model: MODEL.into(),
            adapters: vec![ADAPTER.into()],
            step_time: LinearStepTime::default().faster(speed),
            ..ModelServerConfig::default()
        };
        let task = tokio::spawn(async move {
            serve(config, listener, std::future::pending()).await.unwrap();
        });
        Self {
            name,
            address,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// The requests that the server works on.
    pub(crate) async fn running(&self, client: &Client) -> Result<f64, String> {
        let page = client.fetch(&format!("http://{}/metrics", self.address)).await?.text();
        Ok(sum(&page, "vllm:num_requests_running") + sum(&page, "vllm:num_requests_waiting"))
    }
}

/// A completion's document.
pub(crate) fn document(prompt: &str, max_tokens: u32) -> Value {
    json!({ "model": MODEL, "prompt": prompt, "max_tokens": max_tokens })
}

/// The sum over all series of a family, 0 without any.
pub(crate) fn sum(page: &str, family: &str) -> f64 {
    page.lines()
        .filter_map(|line| line.strip_prefix(family))
        .filter(|rest| rest.starts_with(['{', ' ']))
        .map(|rest| rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

fn endpoints_file(endpoints: &[(&str, SocketAddr)]) -> String {
    if endpoints.is_empty() {
        return "endpoints: []\n".to_owned();
    }
    let mut text = "endpoints:\n".to_owned();
    for (name, address) in endpoints {
        let (ip, port) = (address.ip(), address.port());
        writeln!(text, "- {{name: {name}, address: {ip}, port: \"{port}\"}}").unwrap();
    }
    text
}

fn objectives_file(objectives: &[(&str, i32)]) -> String {
    let mut text = String::new();
    for (name, priority) in objectives {
        write!(
            text,
            "---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {{name: {name}}}\nspec: {{priority: {priority}}}\n"
        )
        .unwrap();
    }
    text
}

/// What was logged so far, by lines.
pub(crate) fn logged(child: &Child) -> Vec<Value> {
    let lines = child.printed();
    lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
