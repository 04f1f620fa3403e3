//! The processes of the demonstration, and the order in which they start and stop.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use super::DemoError;
use super::children::{Child, ChildError, Signal};
use super::envoy::{self, Bootstrap, Destination};
use super::ports::Ports;
use super::progress::Progress;
use super::wait::until;
use crate::serve::client::Client;

/// The base model.
pub(super) const MODEL: &str = "stand-in";

/// Time that a process has to become ready.
const START: Duration = Duration::from_secs(30);
/// Time that a process has to end.
const GRACE: Duration = Duration::from_secs(3);
/// Threads of Envoy.
const ENVOY_THREADS: NonZeroUsize = NonZeroUsize::new(2).expect("two is not zero");

/// What a scene needs.
#[derive(Debug)]
pub(super) struct Layout {
    /// How many model servers there are.
    pub(super) model_servers: u16,
    /// What they are told beside their names, addresses and the model.
    pub(super) model_server_flags: Vec<String>,
    /// What the file of endpoints has beside them: further documents, or nothing.
    pub(super) objectives: &'static str,
    /// The configuration of Forebay, if it is not the built-in one.
    pub(super) config: Option<&'static str>,
}

/// Programs to run, and what the user wants of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programs<'a> {
    pub(super) forebay: &'a Path,
    pub(super) envoy: &'a Path,
    /// Where the picker keeps its journal.
    pub(super) journal: Option<&'a Path>,
}

/// The processes that run, in the order in which they were started: the model servers first.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    model_servers: usize,
    children: Vec<Child>,
}

impl Cluster {
    /// Starts all, and returns when requests can be sent.
    pub(super) async fn start(
        &mut self,
        Programs {
            forebay,
            envoy,
            journal,
        }: Programs<'_>,
        layout: &Layout,
        ports: &Ports,
        directory: &Path,
        client: &Client,
        progress: &Progress,
    ) -> Result<(), DemoError> {
        let model_servers = layout.model_servers;
        let step = progress.begin(format!("{model_servers} model servers"));
        for (name, address) in named(ports) {
            let mut arguments = model_server_arguments(&name, address);
            arguments.extend(layout.model_server_flags.iter().cloned());
            let child = Child::start(&name, forebay, arguments, directory)?;
            self.children.push(child);
            self.model_servers += 1;
            self.ready(client, &format!("http://{address}/health"), "").await?;
        }
        step.done();

        let step = progress.begin("Forebay".to_owned());
        let endpoints = directory.join("endpoints.yaml");
        let documents = format!("{}{}", endpoints_file(ports), layout.objectives);
        write(&endpoints, "the list of endpoints", &documents)?;
        let mut arguments = forebay_arguments(ports, &endpoints);
        if let Some(config) = layout.config {
            let file = directory.join("config.yaml");
            write(&file, "the configuration", config)?;
            arguments.push(format!("--config-file={}", file.display()));
        }
        arguments.extend(journal.map(|file| format!("--journal={}", file.display())));
        let child = Child::start("Forebay", forebay, arguments, directory)?;
        self.children.push(child);
        // Ready, and it has seen the metrics of every model server.
        let seen = format!("llm_d_epp_ready_endpoints{{name=\"epp\"}} {model_servers}\n");
        self.ready(client, &format!("http://{}/metrics", ports.metrics()), &seen)
            .await?;
        step.done();

        let step = progress.begin("Envoy".to_owned());
        let config = directory.join("envoy.json");
        let bootstrap = Bootstrap {
            destination: Destination::Known(ports.model_servers().collect()),
            ..Bootstrap::new(ports.ingress(), ports.admin(), ports.grpc())
        };
        write(&config, "Envoy's bootstrap", &format!("{:#}", bootstrap.document()))?;
        let child = Child::start("Envoy", envoy, envoy::arguments(&config, ENVOY_THREADS), directory)?;
        self.children.push(child);
        // The whole way: through Envoy and Forebay to a model server.
        self.ready(client, &format!("http://{}/v1/models", ports.ingress()), MODEL)
            .await?;
        step.done();
        Ok(())
    }

    /// Waits until one of them ends, which nobody asked it to.
    pub(super) async fn unexpected_end(&mut self) -> ChildError {
        let ends = self.children.iter_mut().map(|child| Box::pin(child.unexpected_end()));
        select_all(ends).await.0
    }

    /// Ends all: first what sends requests, last what answers them.
    pub(super) async fn stop(&mut self) {
        let mut servers = std::mem::take(&mut self.children);
        let others = servers.split_off(self.model_servers);
        for child in others.into_iter().rev() {
            // As at a terminal: nobody will come any more, so Forebay need not wait for them.
            child.stop(Signal::INT, GRACE).await;
        }
        join_all(servers.into_iter().map(|child| child.stop(Signal::INT, GRACE))).await;
    }

    /// Waits until the page at `url` has `text`, which the last child that was started serves.
    async fn ready(&mut self, client: &Client, url: &str, text: &str) -> Result<(), DemoError> {
        let child = self.children.last_mut().expect("a child was started");
        let what = format!("{} answers at {url}", child.name());
        let answers = until(START, &what, async || {
            let (status, page) = client.fetch(url).await.map_err(|error| error.to_string())?;
            match page.contains(text) {
                true if status.is_success() => Ok(()),
                _ => Err(format!("status {status}, and `{}` is looked for", text.trim_end())),
            }
        });
        let result = tokio::select! {
            result = answers => result,
            error = child.unexpected_end() => return Err(error.into()),
        };
        result.map_err(|error| DemoError::NotReady {
            name: child.name().to_owned(),
            error,
            tail: child.tail(),
        })
    }
}

fn named(ports: &Ports) -> impl Iterator<Item = (String, SocketAddr)> {
    let servers = ports.model_servers().enumerate();
    servers.map(|(index, address)| (format!("server-{}", index + 1), address))
}

fn model_server_arguments(name: &str, address: SocketAddr) -> Vec<String> {
    let mut arguments = vec!["model-server".to_owned()];
    let mut flag = |name: &str, value: &str| arguments.push(format!("--{name}={value}"));
    flag("name", name);
    flag("host", &address.ip().to_string());
    flag("port", &address.port().to_string());
    flag("model", MODEL);
    arguments
}

fn forebay_arguments(ports: &Ports, endpoints: &Path) -> Vec<String> {
    vec![
        format!("--endpoints-file={}", endpoints.display()),
        format!("--bind-address={}", ports.grpc().ip()),
        format!("--grpc-port={}", ports.grpc().port()),
        format!("--grpc-health-port={}", ports.health().port()),
        format!("--metrics-port={}", ports.metrics().port()),
        "--secure-serving=false".to_owned(),
    ]
}

fn endpoints_file(ports: &Ports) -> String {
    let mut text = "endpoints:\n".to_owned();
    for (name, address) in named(ports) {
        let (ip, port) = (address.ip(), address.port());
        writeln!(text, "- {{name: {name}, address: {ip}, port: \"{port}\"}}").expect("a string takes all text");
    }
    text
}

fn write(path: &Path, what: &'static str, text: &str) -> Result<(), DemoError> {
    std::fs::write(path, text).map_err(|source| DemoError::Write { what, source })
}
