//! The certificate with which the front is served (spec, ext-proc 10).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use tokio::time::MissedTickBehavior;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

pub use super::tls_protocol::{Protocol, ProtocolError};

use crate::serve::causes::with_causes;
use crate::serve::datalayer::discovery::{DirectoryWatch, Follow, REREAD};

/// The file of the certificate chain, in a directory of certificates.
const CERTIFICATE_FILE: &str = "tls.crt";
/// The file of the key, in a directory of certificates.
const KEY_FILE: &str = "tls.key";

/// How long changes of the files may gather before they are read: both change at once.
const DEBOUNCE: Duration = Duration::from_millis(250);

/// A certificate, its key, and how they are used. All clones show the same one.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(in crate::serve) config: Arc<ServerConfig>,
    shown: Arc<Shown>,
    directory: Option<PathBuf>,
}

/// The certificate that is shown to whoever connects next.
#[derive(Debug)]
struct Shown(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Who is spoken to.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// Gateways, over HTTP/2.
    Gateways,
    /// Readers of the pages, over HTTP/1.1; with certificates of the authorities in this file, if there is one.
    Readers(Option<&'a Path>),
}

/// Why there is no certificate to serve with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("`{}` is not a PEM file with a {wanted}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What it should hold.
        wanted: &'static str,
        /// What went wrong.
        source: pem::Error,
    },
    /// Certificate and key do not go together, or are of a kind that is not supported.
    #[error("the certificate cannot be served with")]
    Unusable(#[from] tokio_rustls::rustls::Error),
    /// Nobody can be known by the authorities in a file.
    #[error("`{}` has no authorities that clients can be known by", file.display())]
    Authorities {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: VerifierBuilderError,
    },
    /// No certificate could be made.
    #[error("no self-signed certificate could be made")]
    SelfSigned(#[from] rcgen::Error),
}

impl Tls {
    /// The certificate chain `tls.crt` and the key `tls.key` in a directory, both in PEM.
    ///
    /// # Errors
    ///
    /// A file is missing or holds something else, or the two do not go together.
    pub fn from_directory(directory: &Path, purpose: Purpose<'_>, protocol: &Protocol) -> Result<Self, TlsError> {
        let tls = Self::new(read_pair(directory)?, purpose, protocol)?;
        Ok(Self {
            directory: Some(directory.to_owned()),
            ..tls
        })
    }

    /// Shows what the directory comes to hold, without end. What cannot be used is left alone, and the log says so.
    pub async fn follow(self, follow: Follow) {
        let Some(directory) = &self.directory else {
            return std::future::pending().await;
        };
        let file = directory.join(CERTIFICATE_FILE);
        let watched = (follow == Follow::Changes).then_some(file.as_path());
        let mut watch = DirectoryWatch::new(watched);
        let mut reread = tokio::time::interval(REREAD);
        reread.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut trouble: Option<String> = None;
        loop {
            tokio::select! {
                () = watch.changed() => tokio::time::sleep(DEBOUNCE).await,
                _ = reread.tick(), if watched.is_some() => watch.renew(),
            }
            watch.forget();
            match read_pair(directory) {
                Ok(pair) if pair.cert == self.shown.0.load().cert => trouble = None,
                Ok(pair) => {
                    self.shown.0.store(Arc::new(pair));
                    trouble = None;
                    tracing::info!(directory = %directory.display(), "certificate reloaded");
                }
                Err(error) => {
                    let words = with_causes(&error);
                    if trouble.as_ref() != Some(&words) {
                        tracing::warn!(error = %words, "certificate not reloaded; the one before is shown");
                    }
                    trouble = Some(words);
                }
            }
        }
    }

    /// A new P-256 certificate that nobody has signed. For gateways that do not verify whom they talk to.
    ///
    /// # Errors
    ///
    /// The machine has no randomness.
    pub fn self_signed(protocol: &Protocol) -> Result<Self, TlsError> {
        let mut params = CertificateParams::new(["localhost".to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Inference Ext");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key that was made is a key");
        Self::new(
            certified(vec![certificate.der().clone()], key)?,
            Purpose::Gateways,
            protocol,
        )
    }

    fn new(pair: CertifiedKey, purpose: Purpose<'_>, protocol: &Protocol) -> Result<Self, TlsError> {
        let shown = Arc::new(Shown(ArcSwap::from_pointee(pair)));
        let provider = Arc::new(protocol.provider());
        let config =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(protocol.versions())?;
        let config = match purpose {
            Purpose::Readers(Some(authorities)) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider);
                config.with_client_cert_verifier(verifier.build().map_err(|source| TlsError::Authorities {
                    file: authorities.to_owned(),
                    source,
                })?)
            }
            Purpose::Gateways | Purpose::Readers(None) => config.with_no_client_auth(),
        };
        let mut config = config.with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = match purpose {
            Purpose::Gateways => vec![b"h2".to_vec()],
            Purpose::Readers(_) => vec![b"http/1.1".to_vec()],
        };
        Ok(Self {
            config: Arc::new(config),
            shown,
            directory: None,
        })
    }
}

fn read_pair(directory: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(directory.join(CERTIFICATE_FILE))?;
    let file = directory.join(KEY_FILE);
    let key = PrivateKeyDer::from_pem_file(&file).map_err(|source| TlsError::File {
        file,
        wanted: "private key",
        source,
    })?;
    certified(chain, key)
}

fn read_certificates(file: PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(&file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .and_then(|chain| {
            if chain.is_empty() {
                Err(pem::Error::NoItemsFound)
            } else {
                Ok(chain)
            }
        })
        .map_err(|source| TlsError::File {
            file,
            wanted: "certificate",
            source,
        })
}

fn certified(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<CertifiedKey, TlsError> {
    Ok(CertifiedKey::from_der(chain, key, &ring::default_provider())?)
}

fn roots(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in read_certificates(file.to_owned())? {
        roots.add(authority)?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::fs;

    use super::*;

    fn directory(certificate: &str, key: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(CERTIFICATE_FILE), certificate).unwrap();
        fs::write(directory.path().join(KEY_FILE), key).unwrap();
        directory
    }

    #[test]
    fn a_pair_is_read_from_its_directory() {
        let made = rcgen::generate_simple_self_signed(["picker".to_owned()]).unwrap();
        let directory = directory(&made.cert.pem(), &made.signing_key.serialize_pem());

        let tls = Tls::from_directory(directory.path(), Purpose::Gateways, &Protocol::default()).unwrap();

        assert_eq!(tls.config.alpn_protocols, [b"h2"]);
    }

    #[test]
    fn a_file_that_holds_something_else_is_named() {
        let directory = directory("hello", "");

        let error = Tls::from_directory(directory.path(), Purpose::Gateways, &Protocol::default()).unwrap_err();

        assert!(
            error
                .to_string()
                .ends_with("tls.crt` is not a PEM file with a certificate"),
            "{error}"
        );
        assert!(error.source().is_some());
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let one = rcgen::generate_simple_self_signed(["one".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
        let directory = directory(&one.cert.pem(), &other.signing_key.serialize_pem());

        let error = Tls::from_directory(directory.path(), Purpose::Gateways, &Protocol::default()).unwrap_err();

        assert!(matches!(error, TlsError::Unusable(_)), "{error:?}");
    }

    #[tokio::test]
    async fn a_pair_that_changes_is_shown_and_a_wrong_one_is_not() {
        let pair = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let [first, second] = ["first", "second"].map(pair);
        let directory = directory(&first.cert.pem(), &first.signing_key.serialize_pem());
        let tls = Tls::from_directory(directory.path(), Purpose::Gateways, &Protocol::default()).unwrap();
        let following = tokio::spawn(tls.clone().follow(Follow::Changes));
        let shows = async |wanted: &rcgen::Certificate| {
            tokio::time::timeout(Duration::from_secs(30), async {
                while tls.shown.0.load().cert[0] != *wanted.der() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await
            .expect("it is shown in time");
        };
        shows(&first.cert).await;

        // Half a change: the certificate of another key.
        fs::write(directory.path().join(CERTIFICATE_FILE), second.cert.pem()).unwrap();
        assert!(read_pair(directory.path()).is_err());
        shows(&first.cert).await;
        fs::write(directory.path().join(KEY_FILE), second.signing_key.serialize_pem()).unwrap();
        shows(&second.cert).await;
        following.abort();
    }

    #[test]
    fn readers_may_have_to_show_a_certificate() {
        let made = rcgen::generate_simple_self_signed(["pages".to_owned()]).unwrap();
        let directory = directory(&made.cert.pem(), &made.signing_key.serialize_pem());
        let authorities = directory.path().join(CERTIFICATE_FILE);

        let tls = Tls::from_directory(
            directory.path(),
            Purpose::Readers(Some(&authorities)),
            &Protocol::default(),
        )
        .unwrap();

        assert_eq!(tls.config.alpn_protocols, [b"http/1.1"]);
        assert!(
            Tls::from_directory(
                directory.path(),
                Purpose::Readers(Some(Path::new("/nowhere"))),
                &Protocol::default()
            )
            .is_err()
        );
    }

    #[test]
    fn a_certificate_can_be_made() {
        assert!(Tls::self_signed(&Protocol::default()).is_ok());
    }
}
