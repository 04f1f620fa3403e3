//! Whom a scrape trusts, and what it shows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::engine::config::data_layer::{TlsSettings, Transport, Trust};

/// Why TLS cannot be used as it is set.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The authorities of the system are not to be found.
    #[error("cannot load the system's certificate authorities; name a file in `caCertPath`")]
    System(#[source] std::io::Error),
    /// A file is not what it should be.
    #[error("{field} `{}`: cannot be read as PEM", path.display())]
    File {
        /// The parameter that names the file.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// A file has no certificate in it.
    #[error("{field} `{}`: no certificate in it", path.display())]
    NoCertificate {
        /// The parameter that names the file.
        field: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A certificate or key cannot be used.
    #[error("{field} cannot be used")]
    Unusable {
        /// The parameter that names the file.
        field: &'static str,
        /// Why not.
        source: rustls::Error,
    },
}

/// The settings for `transport`; without encryption, settings that are not used.
pub(in crate::serve) fn client_config(transport: &Transport) -> Result<ClientConfig, TlsError> {
    let nobody = TlsSettings {
        trust: Trust::Anyone,
        identity: None,
    };
    let settings = match transport {
        Transport::Plain => &nobody,
        Transport::Tls(settings) => settings,
    };
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default protocol versions");
    let builder = match &settings.trust {
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TakeAnyone(provider))),
        Trust::System => builder.with_native_roots().map_err(TlsError::System)?,
        Trust::File(path) => builder.with_root_certificates(authorities(path)?),
    };
    let Some((cert, key)) = &settings.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates("clientCertPath", cert)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::File {
        field: "clientKeyPath",
        path: key.clone(),
        source,
    })?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|source| TlsError::Unusable {
            field: "clientCertPath",
            source,
        })
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let field = "caCertPath";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(field, path)? {
        roots
            .add(certificate)
            .map_err(|source| TlsError::Unusable { field, source })?;
    }
    Ok(roots)
}

fn certificates(field: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::File {
        field,
        path: path.to_owned(),
        source,
    };
    let found = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(unreadable)?;
    if found.is_empty() {
        return Err(TlsError::NoCertificate {
            field,
            path: path.to_owned(),
        });
    }
    Ok(found)
}

/// Takes any certificate, as long as the server has its key.
#[derive(Debug)]
struct TakeAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TakeAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
