//! Settings of what learns about endpoints: the metrics source, its extractor, file discovery.
//!
//! Each `…Params` is what a user writes as `parameters` of a plugin; compiling it checks it and gives what runs.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::duration::{self, DurationError};
use super::engine_metrics::{EngineConfig, EngineMapping, EngineMappingError};

/// Parameters of `metrics-data-source`: where the metrics of an endpoint are.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsSourceParams {
    /// `http` or `https`. Default: `http`.
    pub scheme: String,
    /// Path and query of the page. Default: `/metrics`.
    pub path: String,
    /// Port of the page, 1 to 65535. Default: the port that requests go to.
    pub port: Option<i64>,
    /// With `https`: takes any certificate. Default: true, since model servers rarely have one that is known.
    pub insecure_skip_verify: bool,
    /// With `https` and checks: file of the authorities to trust, in PEM. Default: those of the system.
    pub ca_cert_path: String,
    /// With `https`: file of the certificate to show, in PEM. Default: none is shown.
    pub client_cert_path: String,
    /// With `https`: file of the key to that certificate, in PEM.
    pub client_key_path: String,
    /// Time between two looks at an endpoint, such as `200ms`. Default: `--refresh-metrics-interval`.
    pub interval: String,
}

impl Default for MetricsSourceParams {
    fn default() -> Self {
        Self {
            scheme: "http".to_owned(),
            path: "/metrics".to_owned(),
            port: None,
            insecure_skip_verify: true,
            ca_cert_path: String::new(),
            client_cert_path: String::new(),
            client_key_path: String::new(),
            interval: String::new(),
        }
    }
}

/// Where the metrics of an endpoint are, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSource {
    /// How the endpoint is spoken to.
    pub transport: Transport,
    /// Path and query; begins with a slash.
    pub path: String,
    /// The port, if it is not the one that requests go to.
    pub port: Option<u16>,
    /// Time between two looks, if it differs from that of the process. Not zero.
    pub interval: Option<Duration>,
}

/// How an endpoint is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP without encryption.
    Plain,
    /// HTTP over TLS.
    Tls(TlsSettings),
}

/// Whom to trust and what to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Whose certificates are taken.
    pub trust: Trust,
    /// Files of the certificate to show and of its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Whose certificates are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Anyone's.
    Anyone,
    /// Those that the authorities of the system vouch for.
    System,
    /// Those that the authorities in this file vouch for.
    File(PathBuf),
}

/// What is wrong with the parameters of `metrics-data-source`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricsSourceError {
    /// Neither `http` nor `https`.
    #[error("unsupported scheme: {0}; use `http` or `https`")]
    Scheme(String),
    /// The path is not one.
    #[error("path `{0}` does not begin with `/`")]
    Path(String),
    /// The port cannot be.
    #[error("port {0} is not between 1 and 65535")]
    Port(i64),
    /// Certificate without key, or key without certificate.
    #[error("`{given}` is set and `{missing}` is not; a client certificate needs both")]
    HalfIdentity {
        /// The field that is set.
        given: &'static str,
        /// The field that is not.
        missing: &'static str,
    },
    /// The interval would run backwards.
    #[error("interval must be non-negative, got {0}")]
    NegativeInterval(String),
    /// The interval is not a duration.
    #[error("interval: {0}")]
    Interval(DurationError),
}

impl MetricsSourceParams {
    /// What runs.
    ///
    /// # Errors
    ///
    /// See [`MetricsSourceError`].
    pub fn compile(&self) -> Result<MetricsSource, MetricsSourceError> {
        let transport = match self.scheme.as_str() {
            "http" => Transport::Plain,
            "https" => Transport::Tls(self.tls()?),
            other => return Err(MetricsSourceError::Scheme(other.to_owned())),
        };
        if !self.path.starts_with('/') {
            return Err(MetricsSourceError::Path(self.path.clone()));
        }
        let port = |port: i64| match u16::try_from(port) {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(MetricsSourceError::Port(port)),
        };
        Ok(MetricsSource {
            transport,
            path: self.path.clone(),
            port: self.port.map(port).transpose()?,
            interval: self.interval()?,
        })
    }

    fn tls(&self) -> Result<TlsSettings, MetricsSourceError> {
        let half = |given, missing| MetricsSourceError::HalfIdentity { given, missing };
        let trust = match (self.insecure_skip_verify, self.ca_cert_path.as_str()) {
            (true, _) => Trust::Anyone,
            (false, "") => Trust::System,
            (false, path) => Trust::File(path.into()),
        };
        let identity = match (self.client_cert_path.as_str(), self.client_key_path.as_str()) {
            ("", "") => None,
            (_, "") => return Err(half("clientCertPath", "clientKeyPath")),
            ("", _) => return Err(half("clientKeyPath", "clientCertPath")),
            (cert, key) => Some((cert.into(), key.into())),
        };
        Ok(TlsSettings { trust, identity })
    }

    fn interval(&self) -> Result<Option<Duration>, MetricsSourceError> {
        if self.interval.is_empty() {
            return Ok(None);
        }
        match duration::parse(&self.interval) {
            Ok(interval) => Ok(Some(interval).filter(|interval| !interval.is_zero())),
            Err(DurationError::Negative(text)) => Err(MetricsSourceError::NegativeInterval(text)),
            Err(error) => Err(MetricsSourceError::Interval(error)),
        }
    }
}

/// Parameters of `core-metrics-extractor`: which metrics of which engine say what.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CoreMetricsExtractorParams {
    /// Label of an endpoint that names its engine. Default: `llm-d.ai/engine-type`.
    pub engine_label_key: String,
    /// Engine of endpoints that name none, or one that is not known. Default: `vllm`.
    pub default_engine: String,
    /// Engines besides the built-in ones, or in the place of one with the same name.
    pub engine_configs: Vec<EngineConfig>,
}

impl Default for CoreMetricsExtractorParams {
    fn default() -> Self {
        Self {
            engine_label_key: "llm-d.ai/engine-type".to_owned(),
            default_engine: "vllm".to_owned(),
            engine_configs: Vec::new(),
        }
    }
}

impl CoreMetricsExtractorParams {
    /// What runs.
    ///
    /// # Errors
    ///
    /// See [`EngineMappingError`].
    pub fn compile(&self) -> Result<EngineMapping, EngineMappingError> {
        EngineMapping::new(&self.engine_label_key, &self.default_engine, &self.engine_configs)
    }
}

/// Parameters of `file-discovery`: the files that list the endpoints and the objectives.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FileDiscoveryParams {
    /// Path of the file of endpoints, which may hold objectives too. Required.
    pub path: String,
    /// Path of a file that holds objectives alone. Default: empty, there is none.
    pub objectives_path: String,
    /// Reads the files again whenever they change. Default: false.
    pub watch_file: bool,
}

/// What is wrong with the parameters of `file-discovery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileDiscoveryError {
    /// No file is named.
    #[error("`path` is required: the file that lists the endpoints")]
    NoPath,
}

impl FileDiscoveryParams {
    /// Checks them.
    ///
    /// # Errors
    ///
    /// See [`FileDiscoveryError`].
    pub fn validate(&self) -> Result<(), FileDiscoveryError> {
        if self.path.is_empty() {
            Err(FileDiscoveryError::NoPath)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;

    fn source(text: &str) -> Result<MetricsSource, MetricsSourceError> {
        yaml::decode::<MetricsSourceParams>(text)
            .expect("the parameters are known")
            .compile()
    }

    fn refusal(text: &str) -> String {
        source(text).expect_err("the parameters are refused").to_string()
    }

    #[test]
    fn without_parameters_metrics_are_at_the_usual_place() {
        let expected = MetricsSource {
            transport: Transport::Plain,
            path: "/metrics".to_owned(),
            port: None,
            interval: None,
        };

        assert_eq!(source("{}"), Ok(expected.clone()));
        assert_eq!(MetricsSourceParams::default().compile(), Ok(expected));
    }

    #[test]
    fn every_parameter_of_the_source_has_its_effect() {
        let text = "{scheme: https, path: '/m?x=1', port: 9400, insecureSkipVerify: false, caCertPath: ca.pem, \
                    clientCertPath: c.pem, clientKeyPath: k.pem, interval: 200ms}";

        let expected = MetricsSource {
            transport: Transport::Tls(TlsSettings {
                trust: Trust::File("ca.pem".into()),
                identity: Some(("c.pem".into(), "k.pem".into())),
            }),
            path: "/m?x=1".to_owned(),
            port: Some(9400),
            interval: Some(Duration::from_millis(200)),
        };
        assert_eq!(source(text), Ok(expected));
    }

    #[test]
    fn certificates_are_checked_only_when_asked_for() {
        let trust = |text| match source(text).unwrap().transport {
            Transport::Tls(tls) => tls.trust,
            Transport::Plain => panic!("https is encrypted"),
        };

        assert_eq!(trust("scheme: https"), Trust::Anyone);
        assert_eq!(trust("{scheme: https, caCertPath: ca.pem}"), Trust::Anyone);
        assert_eq!(trust("{scheme: https, insecureSkipVerify: false}"), Trust::System);
    }

    #[test]
    fn a_source_that_cannot_work_is_refused_by_the_field_that_is_wrong() {
        assert_eq!(refusal("scheme: ftp"), "unsupported scheme: ftp; use `http` or `https`");
        assert_eq!(refusal("path: metrics"), "path `metrics` does not begin with `/`");
        assert_eq!(refusal("port: 0"), "port 0 is not between 1 and 65535");
        assert_eq!(refusal("port: 65536"), "port 65536 is not between 1 and 65535");
        assert_eq!(refusal("interval: -1s"), "interval must be non-negative, got -1s");
        assert!(refusal("interval: '5'").starts_with("interval: `5` is not a duration"));
        assert_eq!(
            refusal("{scheme: https, clientKeyPath: k.pem}"),
            "`clientKeyPath` is set and `clientCertPath` is not; a client certificate needs both"
        );
    }

    #[test]
    fn an_interval_of_zero_is_that_of_the_process() {
        assert_eq!(source("interval: 0s").unwrap().interval, None);
    }

    #[test]
    fn file_discovery_needs_a_path() {
        let params: FileDiscoveryParams = yaml::decode("{path: e.yaml, watchFile: true}").unwrap();

        assert!(params.watch_file && params.validate().is_ok());
        assert_eq!(
            FileDiscoveryParams::default().validate(),
            Err(FileDiscoveryError::NoPath)
        );
    }
}
