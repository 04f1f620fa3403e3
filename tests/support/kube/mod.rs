//! A Kubernetes cluster of a test's own: a namespace of a real API server if one is named, or else a small one.

mod line;
pub(crate) mod objects;
mod real;
mod small;
mod store;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Config, Resource};
use serde_json::json;
use tempfile::TempDir;

pub(crate) use line::Line;
use real::Real;
pub(crate) use small::Small;

/// A namespace, and the way to it.
pub(crate) struct Kube {
    backend: Backend,
    pub(crate) namespace: String,
    /// For the test itself; always whole.
    pub(crate) client: Client,
    /// Between the API server and what is tested.
    pub(crate) line: Line,
    directory: TempDir,
}

enum Backend {
    Small(Small),
    Shared(&'static Real),
    Own(Box<Real>),
}

impl Kube {
    /// With every kind installed.
    pub(crate) async fn start() -> Self {
        let backend = match real::assets() {
            None => Backend::Small(Small::start().await),
            Some(assets) => {
                // The first one takes its time, in which others are not to stand still.
                let started = tokio::task::spawn_blocking(move || real::shared(&assets));
                let shared = started.await.unwrap();
                shared.ready(real::kinds(&[])).await;
                Backend::Shared(shared)
            }
        };
        Self::with(backend).await
    }

    /// Without the kinds whose definitions are in these files below `crds/`.
    pub(crate) async fn without(files: &[&str]) -> Self {
        let backend = match real::assets() {
            None => {
                let small = Small::start().await;
                for file in files {
                    let (group, rest) = file.split_once('_').unwrap();
                    small.install(group, rest.strip_suffix(".yaml").unwrap(), false);
                }
                Backend::Small(small)
            }
            Some(assets) => Self::own(assets, real::kinds(files)).await,
        };
        Self::with(backend).await
    }

    /// With every kind, of which objects may have any shape: definitions of other projects leave more room than ours.
    pub(crate) async fn with_loose_kinds() -> Self {
        let backend = match real::assets() {
            None => Backend::Small(Small::start().await),
            Some(assets) => {
                let kinds = real::kinds(&[]).into_iter().map(real::loosened).collect();
                Self::own(assets, kinds).await
            }
        };
        Self::with(backend).await
    }

    /// A real API server for one test.
    async fn own(assets: PathBuf, kinds: Vec<CustomResourceDefinition>) -> Backend {
        let started = tokio::task::spawn_blocking(move || Real::spawn(&assets));
        let own = started.await.unwrap();
        own.ready(kinds).await;
        Backend::Own(Box::new(own))
    }

    async fn with(backend: Backend) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (address, client) = match &backend {
            Backend::Small(small) => {
                let config = Config::new(format!("http://{}", small.address).parse().unwrap());
                (small.address, Client::try_from(config).unwrap())
            }
            Backend::Shared(real) => (real.address, real::client(real.address, real::ADMINISTRATOR)),
            Backend::Own(real) => (real.address, real::client(real.address, real::ADMINISTRATOR)),
        };
        let namespace = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &object).await.unwrap();
        Self {
            line: Line::to(address).await,
            backend,
            namespace,
            client,
            directory: TempDir::with_prefix("forebay-test-").unwrap(),
        }
    }

    /// Removes kinds, by group and resource, from an API server of the test's own.
    pub(crate) async fn uninstall(&self, kinds: &[(&str, &str)]) {
        for (group, resource) in kinds {
            match &self.backend {
                Backend::Small(small) => small.install(group, resource, false),
                Backend::Shared(_) => panic!("other tests need `{resource}`"),
                Backend::Own(_) => {
                    let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
                    let name = format!("{resource}.{group}");
                    let deleted = definitions.delete(&name, &DeleteParams::default()).await;
                    deleted.map(drop).unwrap();
                }
            }
        }
    }

    /// The objects of a kind.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A client at the other end of the line, who may do everything.
    pub(crate) fn tested_client(&self) -> Client {
        self.tested_client_of(real::ADMINISTRATOR)
    }

    /// A client at the other end of the line, who is somebody if the API server is a real one.
    pub(crate) fn tested_client_of(&self, token: &str) -> Client {
        match &self.backend {
            Backend::Small(_) => {
                let config = Config::new(format!("http://{}", self.line.address).parse().unwrap());
                Client::try_from(config).unwrap()
            }
            Backend::Shared(_) | Backend::Own(_) => real::client(self.line.address, token),
        }
    }

    /// A file that leads a process over a line, as the user with this token.
    pub(crate) fn kubeconfig(&self, line: &Line, token: &str) -> PathBuf {
        let scheme = if self.is_real() { "https" } else { "http" };
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "clusters": [{
                "name": "test",
                "cluster": { "server": format!("{scheme}://{}", line.address), "insecure-skip-tls-verify": true },
            }],
            "users": [{ "name": "test", "user": { "token": token } }],
        });
        let path = self
            .directory
            .path()
            .join(format!("kubeconfig-{}", line.address.port()));
        std::fs::write(&path, document.to_string()).unwrap();
        path
    }

    /// The token of one who may do everything.
    pub(crate) fn administrator(&self) -> &'static str {
        real::ADMINISTRATOR
    }

    /// One more line to the same API server.
    pub(crate) async fn another_line(&self) -> Line {
        let address = match &self.backend {
            Backend::Small(small) => small.address,
            Backend::Shared(real) => real.address,
            Backend::Own(real) => real.address,
        };
        Line::to(address).await
    }

    /// True if the API server is a real one.
    pub(crate) fn is_real(&self) -> bool {
        !matches!(self.backend, Backend::Small(_))
    }

    /// The small API server, if it is one.
    pub(crate) fn small(&self) -> Option<&Small> {
        match &self.backend {
            Backend::Small(small) => Some(small),
            Backend::Shared(_) | Backend::Own(_) => None,
        }
    }

    /// What was asked by whom, line by line, as a real API server wrote it down.
    pub(crate) fn audit(&self) -> String {
        match &self.backend {
            Backend::Small(_) => String::new(),
            Backend::Shared(real) => real.audit(),
            Backend::Own(real) => real.audit(),
        }
    }
}
