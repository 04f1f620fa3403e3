//! What the user wrote: the fields of an `EndpointPickerConfig` (spec, config 3), without any judgement.
//!
//! Fields that the reference knows and this version does not act on are here too, so that they are decoded as strictly.

mod read;
mod responses;
#[cfg(feature = "serve")]
mod schema;

use std::fmt;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::duration::{self, DurationError};
use super::quantity::Quantity;

pub(super) use read::read;
pub use responses::{ResponseHeaders, Responses};

/// A whole document.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Document {
    /// `llm-d.ai/v1`, `llm-d.ai/v1alpha1`, or `inference.networking.x-k8s.io/v1alpha1`.
    pub api_version: Option<String>,
    /// `EndpointPickerConfig`.
    pub kind: Option<String>,
    /// Name, labels and annotations. They mean nothing here.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Gates, as `Name` or `Name=<bool>`.
    #[serde(deserialize_with = "nullable")]
    pub feature_gates: Vec<String>,
    /// Plugin instances.
    #[serde(deserialize_with = "nullable")]
    pub plugins: Vec<PluginSpec>,
    /// Profiles. Default: one, of all declared filters, scorers and pickers.
    #[serde(deserialize_with = "nullable")]
    pub scheduling_profiles: Vec<SchedulingProfile>,
    /// Where metrics and endpoints come from.
    #[serde(deserialize_with = "nullable")]
    pub data_layer: DataLayer,
    /// Queueing.
    #[serde(deserialize_with = "nullable")]
    pub flow_control: FlowControl,
    /// Who says what may come in. Not in the reference. Default: `always-admit`.
    #[serde(deserialize_with = "nullable")]
    pub admission: Reference,
    /// When endpoints are ejected that fail requests. Not in the reference, and named as in Envoy.
    #[serde(deserialize_with = "nullable")]
    pub outlier_detection: OutlierDetection,
    /// Parsers.
    #[serde(deserialize_with = "nullable")]
    pub request_handler: RequestHandler,
    /// What clients are told. Not in the reference.
    #[serde(deserialize_with = "nullable")]
    pub responses: Responses,
    /// Deprecated: `flowControl.saturationDetector`.
    pub saturation_detector: Option<OldDetector>,
    /// Deprecated: `dataLayer`.
    pub data: Option<DataLayer>,
    /// Deprecated: `requestHandler.parsers`.
    pub parser: Option<Reference>,
}

/// A plugin instance.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PluginSpec {
    /// Type of the plugin. Required.
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub type_name: String,
    /// Name of the instance. Default: its type.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// What the plugin is made from.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::parameters"))]
    pub parameters: Option<Value>,
}

impl PluginSpec {
    /// The name of the instance: what was given, else the type.
    pub fn instance_name(&self) -> &str {
        match self.name.as_str() {
            "" => &self.type_name,
            name => name,
        }
    }
}

/// A plugin instance, by name.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reference {
    /// Name of the instance.
    #[serde(deserialize_with = "nullable")]
    pub plugin_ref: String,
}

/// The saturation detector at the place that it had once: by name, or by the parameters of the only one there was.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OldDetector {
    /// Name of the instance.
    #[serde(deserialize_with = "nullable")]
    pub plugin_ref: String,
    /// Parameter of `utilization-detector`.
    pub queue_depth_threshold: Option<i64>,
    /// Parameter of `utilization-detector`.
    pub kv_cache_util_threshold: Option<f64>,
    /// Parameter of `utilization-detector`.
    pub metrics_staleness_threshold: Option<String>,
}

impl OldDetector {
    /// The parameters that are given, by name.
    pub fn parameters(&self) -> serde_json::Map<String, Value> {
        let given = [
            ("queueDepthThreshold", self.queue_depth_threshold.map(Value::from)),
            ("kvCacheUtilThreshold", self.kv_cache_util_threshold.map(Value::from)),
            (
                "metricsStalenessThreshold",
                self.metrics_staleness_threshold.clone().map(Value::from),
            ),
        ];
        let given = given
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

/// Plugins that work together on one choice.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SchedulingProfile {
    /// Its name. Required.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Filters, scorers and a picker. Filters and scorers work in this order.
    #[serde(deserialize_with = "nullable")]
    pub plugins: Vec<ProfilePlugin>,
}

/// A plugin's part in a profile.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProfilePlugin {
    /// Name of the instance. Required.
    #[serde(deserialize_with = "nullable")]
    pub plugin_ref: String,
    /// How much the opinion of a scorer counts. Default: 1.
    pub weight: Option<f64>,
}

/// Parsers of requests.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RequestHandler {
    /// Instances, or types that need no parameters. Default: OpenAI, Anthropic, vLLM's own API, and passthrough.
    #[serde(deserialize_with = "nullable")]
    pub parsers: Vec<Reference>,
    /// Accepted without effect: bodies of requests do not get the priority written into them.
    pub propagate_priority: Option<bool>,
}

/// Where metrics and endpoints come from.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DataLayer {
    /// Adds the usual source and extractor. Default: true.
    pub inject_defaults: Option<bool>,
    /// Sources, and what reads them.
    #[serde(deserialize_with = "nullable")]
    pub sources: Vec<DataSource>,
    /// Where endpoints come from instead of from Kubernetes.
    pub discovery: Option<Discovery>,
    /// Accepted without effect, as in the reference. In `llm-d.ai/v1`: `discovery.peers`.
    pub peer_discovery: Option<Reference>,
    /// Synchronisation between replicas. No plugin can do it.
    pub cross_replica: Option<CrossReplica>,
    /// No plugin can be named here. In `llm-d.ai/v1`: `crossReplica.syncerPluginRef`.
    #[serde(deserialize_with = "nullable")]
    pub cross_replica_syncer_plugin_ref: String,
    /// Accepted without effect. In `llm-d.ai/v1`: `crossReplica.syncInterval`.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub cross_replica_sync_interval: Option<Span>,
    /// Accepted without effect. In `llm-d.ai/v1`: `crossReplica.publishTimeout`.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub cross_replica_publish_timeout: Option<Span>,
}

/// Where endpoints come from instead of from Kubernetes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Discovery {
    /// The plugin that finds endpoints.
    pub endpoints: Option<Reference>,
    /// Accepted without effect: replicas do not look for each other.
    pub peers: Option<Reference>,
    /// Older place of `endpoints.pluginRef`, the only one in `llm-d.ai/v1alpha1` up to llm-d 0.10.
    pub plugin_ref: Option<String>,
}

/// Synchronisation between replicas.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CrossReplica {
    /// No plugin can be named here.
    #[serde(deserialize_with = "nullable")]
    pub syncer_plugin_ref: String,
    /// Accepted without effect.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub sync_interval: Option<Span>,
    /// Accepted without effect.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub publish_timeout: Option<Span>,
}

/// A source, and what reads it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DataSource {
    /// Name of the source's instance.
    #[serde(deserialize_with = "nullable")]
    pub plugin_ref: String,
    /// Instances that read what it gives.
    #[serde(deserialize_with = "nullable")]
    pub extractors: Vec<Reference>,
}

/// Queueing: used with the feature gate `flowControl` only, but for the detector.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FlowControl {
    /// Bytes that may wait at once. Default, and 0: without limit.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::quantity"))]
    pub max_bytes: Option<Quantity>,
    /// Requests that may wait at once. Default, and 0: without limit.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::quantity"))]
    pub max_requests: Option<Quantity>,
    /// Whether requests below priority zero give their place to more urgent ones when these limits are reached. Not in
    /// the reference. Default: false.
    pub shed_when_full: Option<bool>,
    /// Whether a request that finds a limit reached takes the place of the newest one of the tenant that has most waiting,
    /// if its own tenant has less. Only where the fairness policy tells tenants apart. Not in the reference. Default: true.
    pub displace_when_full: Option<bool>,
    /// Longest wait; 0: without end. Default: a minute.
    #[serde(rename = "defaultRequestTTL")]
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub default_request_ttl: Option<Span>,
    /// Longest wait for a pool without endpoints; 0: without end. Default: `defaultRequestTTL`.
    #[serde(rename = "noEndpointRequestTTL")]
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub no_endpoint_request_ttl: Option<Span>,
    /// How long the proxy waits for an answer; 0: without end. Not in the reference. Nothing may wait longer than that.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub route_timeout: Option<Span>,
    /// What unlisted priorities are given.
    pub default_priority_band: Option<PriorityBand>,
    /// What unlisted priorities below zero are given.
    pub default_negative_priority_band: Option<PriorityBand>,
    /// Priorities and what they are given.
    #[serde(deserialize_with = "nullable")]
    pub priority_bands: Vec<PriorityBand>,
    /// Who says how full the pool may be for which priority.
    #[serde(deserialize_with = "nullable")]
    pub usage_limit_policy_plugin_ref: String,
    /// Who says how full the pool is.
    pub saturation_detector: Option<Reference>,
    /// Whether requests in flight may be ended for more urgent ones.
    pub enable_eviction: Option<bool>,
}

impl FlowControl {
    /// The first setting that has no effect while the feature gate is off. Of `enableEviction` the reference says nothing.
    pub fn first_gated(&self) -> Option<&'static str> {
        let given = [
            ("maxBytes", self.max_bytes.is_some()),
            ("maxRequests", self.max_requests.is_some()),
            ("shedWhenFull", self.shed_when_full.is_some()),
            ("displaceWhenFull", self.displace_when_full.is_some()),
            ("defaultRequestTTL", self.default_request_ttl.is_some()),
            ("noEndpointRequestTTL", self.no_endpoint_request_ttl.is_some()),
            ("routeTimeout", self.route_timeout.is_some()),
            ("defaultPriorityBand", self.default_priority_band.is_some()),
            (
                "defaultNegativePriorityBand",
                self.default_negative_priority_band.is_some(),
            ),
            ("priorityBands", !self.priority_bands.is_empty()),
            (
                "usageLimitPolicyPluginRef",
                !self.usage_limit_policy_plugin_ref.is_empty(),
            ),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// What the requests of one priority are given.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PriorityBand {
    /// The priority.
    #[serde(deserialize_with = "nullable")]
    pub priority: i32,
    /// Bytes that may wait at once. Default, and 0: a gigabyte.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::quantity"))]
    pub max_bytes: Option<Quantity>,
    /// Requests that may wait at once. Default, and 0: 5000.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::quantity"))]
    pub max_requests: Option<Quantity>,
    /// Longest wait; 0: without end. Default: that of `flowControl`.
    #[serde(rename = "defaultRequestTTL")]
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub default_request_ttl: Option<Span>,
    /// What Forebay 0.1 called `defaultRequestTTL`.
    #[serde(rename = "requestTTL")]
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub request_ttl: Option<Span>,
    /// Who chooses between flows.
    #[serde(deserialize_with = "nullable")]
    pub fairness_policy_ref: String,
    /// Who chooses within a flow.
    #[serde(deserialize_with = "nullable")]
    pub ordering_policy_ref: String,
}

/// When endpoints are ejected that fail requests.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OutlierDetection {
    /// Requests that have to fail in a row; 0: no endpoint is ejected. Default: 5.
    pub consecutive_failures: Option<i64>,
    /// How long the first ejection takes. Default: 30 s.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub base_ejection_time: Option<Span>,
    /// The longest that an ejection takes. Default: 5 minutes, or `baseEjectionTime` if that is longer.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::span"))]
    pub max_ejection_time: Option<Span>,
    /// The largest share of the pool that is ejected at a time, in percent; 0: no endpoint is ejected. Default: 50.
    pub max_ejection_percent: Option<i64>,
}

/// A duration as it was written. Whether one may be negative is decided where it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    /// Zero or more.
    Of(Duration),
    /// Less than nothing.
    Negative(String),
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration in quotes or with a unit, such as `300ms` or `1m30s`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                match duration::parse(text) {
                    Ok(span) => Ok(Span::Of(span)),
                    Err(DurationError::Negative(text)) => Ok(Span::Negative(text)),
                    Err(error) => Err(E::custom(error)),
                }
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// What is written as nothing (`plugins:`) is as if it were not there.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
