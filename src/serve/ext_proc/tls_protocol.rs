//! Which versions of TLS are spoken, and with which ciphers.

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};

/// The versions of TLS that are spoken, and the cipher suites of TLS 1.2. Default: 1.2 and 1.3, with every suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    only_13: bool,
    /// Suites of TLS 1.2; all if none is named.
    suites: Vec<CipherSuite>,
}

/// Why a version or a suite cannot be spoken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// It is no version.
    #[error("`{0}` is not a TLS version; write `VersionTLS12` or `VersionTLS13`")]
    Version(String),
    /// It is no suite.
    #[error("`{name}` is not a cipher suite that is known; known: {known}")]
    Suite {
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// It is a suite, and too weak.
    #[error(
        "cipher suite `{0}` is not supported: it has no forward secrecy, or no authenticated encryption; leave it out"
    )]
    Weak(String),
}

/// The suites of TLS 1.2 by the names that they have in Go, where some have two.
const SUITES: [(&str, CipherSuite); 8] = [
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

static ONLY_13: [&SupportedProtocolVersion; 1] = [&TLS13];
static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// The suites of TLS 1.3, which is always spoken with all of them.
const OF_13: [&str; 3] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

/// Suites that Go has and we do not, by how their names begin and end.
const WEAK: [&str; 4] = ["TLS_RSA_WITH_", "_CBC_SHA", "_CBC_SHA256", "_RC4_128_SHA"];

impl Protocol {
    /// A protocol by the names of Go: the least version, and the suites of TLS 1.2. What is empty is the default.
    ///
    /// # Errors
    ///
    /// A name is not known, or stands for something too weak.
    pub fn parse(min_version: &str, suites: &[String]) -> Result<Self, ProtocolError> {
        let only_13 = match min_version {
            // What is older is not spoken, so that 1.2 is the least.
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            other => return Err(ProtocolError::Version(other.to_owned())),
        };
        let named = suites.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
        let suites: Vec<Option<CipherSuite>> = named.map(suite).collect::<Result<_, _>>()?;
        Ok(Self {
            // Where only suites of 1.3 are named, there is nothing to speak 1.2 with.
            only_13: only_13 || (!suites.is_empty() && suites.iter().all(Option::is_none)),
            suites: suites.into_iter().flatten().collect(),
        })
    }

    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        match self.only_13 {
            true => &ONLY_13,
            false => &BOTH,
        }
    }

    pub(super) fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.suites.is_empty() {
            let is_wanted =
                |suite: &SupportedCipherSuite| suite.tls13().is_some() || self.suites.contains(&suite.suite());
            provider.cipher_suites.retain(is_wanted);
        }
        provider
    }
}

/// The suite of this name; none if it is of TLS 1.3.
fn suite(name: &str) -> Result<Option<CipherSuite>, ProtocolError> {
    if OF_13.contains(&name) {
        return Ok(None);
    }
    if let Some((_, suite)) = SUITES.iter().find(|(known, _)| *known == name) {
        return Ok(Some(*suite));
    }
    if WEAK
        .iter()
        .any(|part| name.starts_with(part) || (name.starts_with("TLS_") && name.ends_with(part)))
    {
        return Err(ProtocolError::Weak(name.to_owned()));
    }
    let known: Vec<_> = SUITES.iter().map(|(name, _)| format!("`{name}`")).collect();
    Err(ProtocolError::Suite {
        name: name.to_owned(),
        known: known.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, ServerConnection};

    use super::super::tls::{Purpose, Tls};
    use super::*;

    fn protocol(min_version: &str, suites: &[&str]) -> Result<Protocol, ProtocolError> {
        let suites: Vec<String> = suites.iter().map(ToString::to_string).collect();
        Protocol::parse(min_version, &suites)
    }

    /// What a client that speaks only `version` comes to an understanding on, with a server of that protocol.
    fn agreed(
        protocol: &Protocol,
        purpose: Purpose<'_>,
        version: &'static SupportedProtocolVersion,
    ) -> Result<(ProtocolVersion, CipherSuite), String> {
        let made = rcgen::generate_simple_self_signed(["picker".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("tls.crt"), made.cert.pem()).unwrap();
        std::fs::write(directory.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        let tls = Tls::from_directory(directory.path(), purpose, protocol).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("picker").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(tls.config).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut io::Cursor::new(bytes)).unwrap();
            server.process_new_packets().map_err(|error| error.to_string())?;
            let mut bytes = Vec::new();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut io::Cursor::new(bytes)).unwrap();
            client.process_new_packets().map_err(|error| error.to_string())?;
        }
        let suite = server.negotiated_cipher_suite().unwrap().suite();
        Ok((server.protocol_version().unwrap(), suite))
    }

    #[test]
    fn a_client_of_12_is_turned_away_where_13_is_the_least() {
        let least = protocol("VersionTLS13", &[]).unwrap();

        for purpose in [Purpose::Gateways, Purpose::Readers(None)] {
            assert!(agreed(&least, purpose, &TLS12).is_err());
            assert!(agreed(&least, purpose, &TLS13).is_ok_and(|(version, _)| version == ProtocolVersion::TLSv1_3));
            assert!(agreed(&Protocol::default(), purpose, &TLS12).is_ok());
        }
    }

    #[test]
    fn a_client_of_12_gets_a_suite_that_is_named() {
        let one = protocol("VersionTLS12", &["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]).unwrap();
        let foreign = protocol("", &["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"]).unwrap();

        let (_, suite) = agreed(&one, Purpose::Gateways, &TLS12).unwrap();
        assert_eq!(suite, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384);
        // The certificate is of the other kind. TLS 1.3 does not mind.
        assert!(agreed(&foreign, Purpose::Gateways, &TLS12).is_err());
        assert!(agreed(&foreign, Purpose::Gateways, &TLS13).is_ok());
    }

    #[test]
    fn where_only_suites_of_13_are_named_nothing_else_is_spoken() {
        let of_13 = protocol("", &["TLS_AES_128_GCM_SHA256"]).unwrap();

        assert!(agreed(&of_13, Purpose::Gateways, &TLS12).is_err());
        assert!(agreed(&of_13, Purpose::Gateways, &TLS13).is_ok());
    }

    #[test]
    fn a_name_that_is_not_known_is_refused_with_those_that_are() {
        let refusal = |min_version, suites: &[&str]| protocol(min_version, suites).unwrap_err().to_string();

        assert!(refusal("TLS1.3", &[]).contains("write `VersionTLS12` or `VersionTLS13`"));
        assert!(refusal("", &["AES"]).contains("known: `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`"));
        for weak in [
            "TLS_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
            "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        ] {
            assert!(refusal("", &[weak]).contains("is not supported"), "{weak}");
        }
        assert_eq!(protocol("VersionTLS10", &["", " "]), Ok(Protocol::default()));
    }
}
