//! A real `kube-apiserver` and `etcd`, whose binaries are in the folder that `KUBEBUILDER_ASSETS` names.
//!
//! One is started for all tests of the process, and ends with it: its keeper waits for the end of the pipe that the
//! tests hold.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use forebay::serve::kube::api::MANIFESTS;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use tempfile::TempDir;

use crate::support::happens;

/// The token of the administrator.
pub(super) const ADMINISTRATOR: &str = "administrator";
/// The folder of the binaries.
const VARIABLE: &str = "KUBEBUILDER_ASSETS";
/// Time that it has to start.
const START: Duration = Duration::from_secs(120);

/// Both processes.
pub(crate) struct Real {
    pub(super) address: SocketAddr,
    directory: TempDir,
    /// Dropped, both end.
    _keeper: Child,
}

/// The folder of the binaries, if one is named.
pub(super) fn assets() -> Option<PathBuf> {
    let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    folder.map(PathBuf::from)
}

/// The one that tests share.
pub(super) fn shared(assets: &Path) -> &'static Real {
    static SHARED: OnceLock<Real> = OnceLock::new();
    SHARED.get_or_init(|| Real::spawn(assets))
}

/// Starts both processes, and ends them when its standard input does. The arguments are the programs, the directory, the
/// ports of etcd and of its peers, and that of the API server.
const KEEPER: &str = r#"
set -u
etcd=$1 apiserver=$2 dir=$3 client=$4 peer=$5 port=$6
url=http://127.0.0.1:$client
"$etcd" --data-dir "$dir/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" \
    --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
    --initial-cluster "default=http://127.0.0.1:$peer" --unsafe-no-fsync > "$dir/etcd.log" 2>&1 &
store=$!
"$apiserver" --etcd-servers "$url" --bind-address 127.0.0.1 --secure-port "$port" --cert-dir "$dir/certificates" \
    --service-account-issuer https://kubernetes.test --service-account-key-file "$dir/key.pub" \
    --service-account-signing-key-file "$dir/key.pem" --authorization-mode RBAC --token-auth-file "$dir/tokens.csv" \
    --service-cluster-ip-range 10.0.0.0/24 --disable-admission-plugins ServiceAccount \
    --audit-policy-file "$dir/audit.yaml" --audit-log-path "$dir/audit.log" \
    --feature-gates WatchList=false > "$dir/apiserver.log" 2>&1 &
server=$!
echo started
cat > /dev/null
# In good order, the API server would wait for its store. Nobody needs what they know.
kill -KILL $server $store
rm -rf "$dir"
"#;

impl Real {
    pub(super) fn spawn(assets: &Path) -> Self {
        let directory = TempDir::with_prefix("forebay-kubernetes-").unwrap();
        let at = |name: &str| directory.path().join(name);
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(at("key.pem"), key.serialize_pem()).unwrap();
        std::fs::write(at("key.pub"), key.public_key_pem()).unwrap();
        std::fs::write(
            at("tokens.csv"),
            format!("{ADMINISTRATOR},admin,1,\"system:masters\"\n"),
        )
        .unwrap();
        let policy =
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";
        std::fs::write(at("audit.yaml"), policy).unwrap();
        let [client, peer, port] = free_ports();
        let program = |name: &str| {
            let path = assets.join(name);
            assert!(
                path.is_file(),
                "{VARIABLE} names `{}`, where no `{name}` is",
                assets.display()
            );
            path
        };
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .args([program("etcd"), program("kube-apiserver"), directory.path().to_owned()])
            .args([client, peer, port].map(|port| port.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line.trim(), "started");
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            directory,
            _keeper: keeper,
        }
    }

    /// Waits until it serves, with these kinds installed.
    pub(super) async fn ready(&self, kinds: Vec<CustomResourceDefinition>) {
        let client = client(self.address, ADMINISTRATOR);
        happens("the API server is ready", START, async || {
            let version = client.apiserver_version().await.map_err(|error| self.words(&error))?;
            let ready = client
                .request_text(http::Request::get("/readyz").body(Vec::new()).unwrap())
                .await;
            ready.map_err(|error| self.words(&error)).map(|_| drop(version))
        })
        .await;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in kinds {
            let name = definition.metadata.name.clone().unwrap();
            match definitions.create(&PostParams::default(), &definition).await {
                Ok(_) => {}
                // Another test was quicker.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{name}: {error}"),
            }
            happens(&format!("{name} is established"), START, async || {
                let found = definitions.get(&name).await.map_err(|error| error.to_string())?;
                let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
                let is = conditions
                    .iter()
                    .any(|c| c.type_ == "Established" && c.status == "True");
                is.then_some(()).ok_or_else(|| format!("{conditions:?}"))
            })
            .await;
        }
    }

    /// What was asked by whom, as the server wrote it down.
    pub(super) fn audit(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("audit.log")).unwrap_or_default()
    }

    fn words(&self, error: &kube::Error) -> String {
        let log = std::fs::read_to_string(self.directory.path().join("apiserver.log")).unwrap_or_default();
        assert!(!log.contains("command failed"), "the API server has ended: {log}");
        let tail = log.lines().rev().take(5).collect::<Vec<_>>().join("\n");
        format!("{error}\n{tail}")
    }
}

/// Our kinds, but those whose files are in `without`.
pub(super) fn kinds(without: &[&str]) -> Vec<CustomResourceDefinition> {
    let wanted = MANIFESTS
        .iter()
        .filter(|manifest| !without.contains(&manifest.file_name().as_str()));
    wanted.map(|manifest| manifest.definition()).collect()
}

/// The same kind, of which objects may have any shape.
pub(super) fn loosened(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        version.schema = Some(CustomResourceValidation {
            open_api_v3_schema: Some(JSONSchemaProps {
                type_: Some("object".to_owned()),
                x_kubernetes_preserve_unknown_fields: Some(true),
                ..JSONSchemaProps::default()
            }),
        });
    }
    definition
}

/// A client that says who it is by a token.
pub(super) fn client(address: SocketAddr, token: &str) -> Client {
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(token.to_owned().into());
    Client::try_from(config).unwrap()
}

fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
