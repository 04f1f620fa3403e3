//! The plugins of the data layer, as lines of the tables.

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::data_layer::{
    CoreMetricsExtractorParams, FileDiscoveryError, FileDiscoveryParams, MetricsSource, MetricsSourceError,
    MetricsSourceParams,
};
use super::super::engine_metrics::{EngineMapping, EngineMappingError};

impl Plugin for MetricsSource {
    const TYPE: &'static str = "metrics-data-source";
    const SUMMARY: &'static str = "reads the metrics page of each endpoint";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "scheme",
            default: "\"http\"",
            summary: "`http` or `https`",
        },
        Parameter {
            name: "path",
            default: "\"/metrics\"",
            summary: "path and query of the page",
        },
        Parameter {
            name: "port",
            default: "null",
            summary: "port of the page, 1 to 65535; without it, the port that requests go to",
        },
        Parameter {
            name: "insecureSkipVerify",
            default: "true",
            summary: "with `https`: takes any certificate",
        },
        Parameter {
            name: "caCertPath",
            default: "\"\"",
            summary: "with `https` and checks: PEM file of the authorities to trust; without it, those of the system",
        },
        Parameter {
            name: "clientCertPath",
            default: "\"\"",
            summary: "with `https`: PEM file of the certificate to show",
        },
        Parameter {
            name: "clientKeyPath",
            default: "\"\"",
            summary: "with `https`: PEM file of the key to that certificate",
        },
        Parameter {
            name: "interval",
            default: "\"\"",
            summary: "time between two looks at an endpoint, such as `200ms`; without it, `--refresh-metrics-interval`",
        },
    ];
    type Params = MetricsSourceParams;
    type Error = MetricsSourceError;

    fn from_params(params: MetricsSourceParams, needs: &mut Needs) -> Result<Self, MetricsSourceError> {
        let is_plain = params.scheme == "http";
        let files = [
            ("caCertPath", &params.ca_cert_path),
            ("clientCertPath", &params.client_cert_path),
            ("clientKeyPath", &params.client_key_path),
        ];
        for (name, _) in files.into_iter().filter(|(_, path)| is_plain && !path.is_empty()) {
            needs.remark(name, format!("`{name}` has no effect without `scheme: https`"));
        }
        if !is_plain && params.insecure_skip_verify && !params.ca_cert_path.is_empty() {
            let message = "`caCertPath` has no effect without `insecureSkipVerify: false`: any certificate is taken";
            needs.remark("caCertPath", message);
        }
        params.compile()
    }
}

impl Plugin for EngineMapping {
    const TYPE: &'static str = "core-metrics-extractor";
    const SUMMARY: &'static str = "finds queue, batch, cache and LoRA state in the metrics of each engine";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "engineLabelKey",
            default: "\"llm-d.ai/engine-type\"",
            summary: "label of an endpoint that names its engine",
        },
        Parameter {
            name: "defaultEngine",
            default: "\"vllm\"",
            summary: "engine of endpoints that name none, or one that is not known",
        },
        Parameter {
            name: "engineConfigs",
            default: "[]",
            summary: "engines besides the built-in ones (`vllm`, `sglang`, `trtllm-serve`, `triton-tensorrt-llm`, \
                      `triton`), or in the place of one with the same name: `{name, queuedRequestsSpec, \
                      runningRequestsSpec, kvUsageSpec, loraSpec, cacheInfoSpec, cacheBlockSizeLabelName, \
                      cacheNumBlocksLabelName, cacheBlockSizeSpec, cacheNumBlocksSpec, customMetrics}`",
        },
    ];
    type Params = CoreMetricsExtractorParams;
    type Error = EngineMappingError;

    fn from_params(params: CoreMetricsExtractorParams, _: &mut Needs) -> Result<Self, EngineMappingError> {
        params.compile()
    }
}

impl Plugin for FileDiscoveryParams {
    const TYPE: &'static str = "file-discovery";
    const SUMMARY: &'static str = "reads endpoints and objectives from files instead of from Kubernetes";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "path",
            default: "\"\"",
            summary: "path of the file of endpoints, which may hold `InferenceObjective` documents too; required",
        },
        Parameter {
            name: "objectivesPath",
            default: "\"\"",
            summary: "path of a file that holds `InferenceObjective` documents alone",
        },
        Parameter {
            name: "watchFile",
            default: "false",
            summary: "reads the files again whenever they change",
        },
    ];
    type Params = Self;
    type Error = FileDiscoveryError;

    fn from_params(params: Self, _: &mut Needs) -> Result<Self, FileDiscoveryError> {
        params.validate().map(|()| params)
    }
}
