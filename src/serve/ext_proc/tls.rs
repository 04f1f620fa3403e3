//! The certificate with which the front is served (spec, ext-proc 10).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The file of the certificate chain, in a directory of certificates.
const CERTIFICATE_FILE: &str = "tls.crt";
/// The file of the key, in a directory of certificates.
const KEY_FILE: &str = "tls.key";

/// A certificate, its key, and how they are used.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(super) config: Arc<ServerConfig>,
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
    pub fn from_directory(directory: &Path) -> Result<Self, TlsError> {
        let file = directory.join(CERTIFICATE_FILE);
        let chain = CertificateDer::pem_file_iter(&file)
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
            })?;
        let file = directory.join(KEY_FILE);
        let key = PrivateKeyDer::from_pem_file(&file).map_err(|source| TlsError::File {
            file,
            wanted: "private key",
            source,
        })?;
        Self::new(chain, key)
    }

    /// A new P-256 certificate that nobody has signed. For gateways that do not verify whom they talk to.
    ///
    /// # Errors
    ///
    /// The machine has no randomness.
    pub fn self_signed() -> Result<Self, TlsError> {
        let mut params = CertificateParams::new(["localhost".to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Inference Ext");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key that was made is a key");
        Self::new(vec![certificate.der().clone()], key)
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self {
            config: Arc::new(config),
        })
    }
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

        let tls = Tls::from_directory(directory.path()).unwrap();

        assert_eq!(tls.config.alpn_protocols, [b"h2"]);
    }

    #[test]
    fn a_file_that_holds_something_else_is_named() {
        let directory = directory("hello", "");

        let error = Tls::from_directory(directory.path()).unwrap_err();

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

        let error = Tls::from_directory(directory.path()).unwrap_err();

        assert!(matches!(error, TlsError::Unusable(_)), "{error:?}");
    }

    #[test]
    fn a_certificate_can_be_made() {
        assert!(Tls::self_signed().is_ok());
    }
}
