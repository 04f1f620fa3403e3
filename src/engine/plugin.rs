//! What every kind of plugin has in common: a type name, parameters, and a line in a table.
//!
//! A plugin is one file with a struct that implements [`Plugin`] and the trait of its kind, and one line in the table
//! beside that file. Configuration, documentation and conformance tests work from the tables.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::decode::Strict;

/// What a plugin says of itself, and how it is made from what the user wrote.
pub trait Plugin: Sized {
    /// The `type` in the configuration.
    const TYPE: &'static str;
    /// What it does, in one line, for the reference page.
    const SUMMARY: &'static str;
    /// Its parameters, for the reference page.
    const PARAMETERS: &'static [Parameter] = &[];
    /// How settled it is.
    const STABILITY: Stability = Stability::Beta;
    /// What the user may write under `parameters`.
    type Params: DeserializeOwned + Default;
    /// What may be wrong with parameters of the right type.
    type Error: Display;

    /// Makes an instance. Facts that it reads are asked for in `needs`.
    ///
    /// # Errors
    ///
    /// If a parameter is out of its range; the message names it.
    fn from_params(params: Self::Params, needs: &mut Needs) -> Result<Self, Self::Error>;
}

/// One parameter of a plugin, described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Its default, as one would write it (JSON).
    pub default: &'static str,
    /// What it does, its unit and its range.
    pub summary: &'static str,
}

/// How settled a plugin is. Alpha ones need `--allow-experimental-plugins`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// May change or go.
    Alpha,
    /// Here to stay.
    Beta,
}

/// Parameters of a plugin that has none. Whatever is written there is accepted and ignored, as in the reference.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoParams;

impl<'de> Deserialize<'de> for NoParams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// One line of a table: a plugin type that makes a `T`.
pub struct Entry<T: ?Sized> {
    /// See [`Plugin::TYPE`].
    pub type_name: &'static str,
    /// See [`Plugin::SUMMARY`].
    pub summary: &'static str,
    /// See [`Plugin::PARAMETERS`].
    pub parameters: &'static [Parameter],
    /// See [`Plugin::STABILITY`].
    pub stability: Stability,
    make: Make<T>,
}

type Make<T> = fn(Option<&Value>, &mut Needs) -> Result<Box<T>, ParamsError>;

impl<T: ?Sized> Entry<T> {
    /// The entry of plugin `P`. `boxed` only has to box its argument; it is there because the kind is named by it.
    pub const fn of<P: Plugin>(make: Make<T>) -> Self {
        Self {
            type_name: P::TYPE,
            summary: P::SUMMARY,
            parameters: P::PARAMETERS,
            stability: P::STABILITY,
            make,
        }
    }

    /// Makes an instance from the `parameters` that the user wrote, or from the defaults. Names of parameters may be
    /// written in any case (spec, config 2.4).
    ///
    /// # Errors
    ///
    /// If a parameter is unknown, of the wrong type or out of its range.
    pub fn instance(&self, params: Option<&Value>, needs: &mut Needs) -> Result<Box<T>, ParamsError> {
        let params = params.map(|params| self.respelt(params));
        (self.make)(params.as_deref(), needs)
    }

    /// The same parameters, with names in the case of the table. A name that is there in that case too stays as it is.
    fn respelt<'p>(&self, params: &'p Value) -> Cow<'p, Value> {
        let Some(given) = params.as_object() else {
            return Cow::Borrowed(params);
        };
        let names = self
            .parameters
            .iter()
            .filter_map(|parameter| parameter.name.split(['.', '[']).next());
        let mut respelt = Cow::Borrowed(given);
        for name in names.filter(|name| !given.contains_key(*name)) {
            let other = given.keys().find(|key| key.eq_ignore_ascii_case(name));
            if let Some(value) = other.and_then(|key| respelt.to_mut().remove(key)) {
                respelt.to_mut().insert(name.to_owned(), value);
            }
        }
        match respelt {
            Cow::Borrowed(_) => Cow::Borrowed(params),
            Cow::Owned(respelt) => Cow::Owned(Value::Object(respelt)),
        }
    }
}

impl<T: ?Sized> std::fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entry").field(&self.type_name).finish()
    }
}

/// Decodes parameters and makes a plugin of them: what a table's entries are built on.
///
/// # Errors
///
/// As [`Entry::instance`].
pub fn instance<P: Plugin>(params: Option<&Value>, needs: &mut Needs) -> Result<P, ParamsError> {
    let params = match params {
        None | Some(Value::Null) => P::Params::default(),
        Some(value) => decode(value)?,
    };
    P::from_params(params, needs).map_err(|error| ParamsError {
        path: String::new(),
        message: error.to_string(),
    })
}

/// Decodes a part of the configuration, and says where in it an error is.
///
/// # Errors
///
/// If `value` does not have the shape of a `T`.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, ParamsError> {
    serde_path_to_error::deserialize(Strict(value)).map_err(|error| ParamsError {
        path: match error.path().to_string() {
            root if root == "." => String::new(),
            path => path,
        },
        message: error.into_inner().to_string(),
    })
}

/// What is wrong with the parameters of a plugin, and where in them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParamsError {
    /// Path below `parameters`. Empty for the parameters as a whole.
    pub path: String,
    /// What was found, and what would have been right.
    pub message: String,
}

/// The instance name of the data producer that approximate prefix matches come from, unless a plugin names another.
pub const DEFAULT_PREFIX_PRODUCER: &str = "approx-prefix-cache-producer";

/// The instance name of the data producer that matches of full blocks from the start of a prompt come from, unless a
/// plugin names another.
pub const PREFIX_AFFINITY_PRODUCER: &str = "prefix-affinity-producer";

/// The instance name of the data producer that knows which blocks are cached, unless one of another name is declared.
pub const PRECISE_PREFIX_PRODUCER: &str = "precise-prefix-cache-producer";

/// The instance name of the data producer that says what counts as load in flight, unless a plugin names another.
pub const DEFAULT_LOAD_PRODUCER: &str = "inflight-load-producer";

/// Facts that plugins of one plan read, collected while they are made.
#[derive(Debug, Default)]
pub struct Needs {
    prefix_producers: Vec<String>,
    load_producers: Vec<String>,
    signals: bool,
    fresh_within: Option<Duration>,
    remarks: Vec<Remark>,
    usual: UsualProducers,
}

/// Something that an operator should know of a parameter, though it is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remark {
    /// The parameter.
    pub(super) parameter: &'static str,
    /// What was found, and what would be right.
    pub(super) message: String,
}

/// Instance names of the prefix producers of a plan, for plugins that name none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsualProducers {
    /// The one that knows which blocks are cached.
    pub precise: String,
    /// The one that knows best of those that the plan has.
    pub any: String,
}

impl Default for UsualProducers {
    fn default() -> Self {
        Self {
            precise: PRECISE_PREFIX_PRODUCER.to_owned(),
            any: DEFAULT_PREFIX_PRODUCER.to_owned(),
        }
    }
}

impl Needs {
    /// Needs of the plugins of a plan with these prefix producers.
    pub fn with(usual: UsualProducers) -> Self {
        Self {
            usual,
            ..Self::default()
        }
    }

    /// The prefix producers for plugins that name none.
    pub fn usual(&self) -> &UsualProducers {
        &self.usual
    }

    /// The prefix matches of the producer of this instance name.
    pub fn prefix_matches(&mut self, producer: &str) -> PrefixRef {
        let known = self.prefix_producers.iter().position(|name| name == producer);
        PrefixRef(known.unwrap_or_else(|| {
            self.prefix_producers.push(producer.to_owned());
            self.prefix_producers.len() - 1
        }))
    }

    /// What endpoints report in their metrics.
    pub fn signals(&mut self) {
        self.signals = true;
    }

    /// What endpoints reported within this time; what is older counts as not known.
    pub fn fresh_signals(&mut self, age: Duration) {
        self.signals();
        self.fresh_within = Some(age);
    }

    /// The load in flight, as the producer of this instance name counts it.
    pub fn load_in_flight(&mut self, producer: &str) {
        let producer = match producer {
            "" => DEFAULT_LOAD_PRODUCER,
            named => named,
        };
        if !self.load_producers.iter().any(|name| name == producer) {
            self.load_producers.push(producer.to_owned());
        }
    }

    /// Says of a parameter that is accepted why it is probably not meant so.
    pub fn remark(&mut self, parameter: &'static str, message: impl Into<String>) {
        let message = message.into();
        self.remarks.push(Remark { parameter, message });
    }

    /// Says, if a parameter is `given`, that it does nothing.
    pub fn without_effect(&mut self, parameter: &'static str, given: Option<&Value>, why: &str) {
        let asks = |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value.as_str() != Some("");
        if given.is_some_and(asks) {
            self.remark(parameter, format!("`{parameter}` has no effect: {why}"));
        }
    }

    /// The `value` of a parameter if it is above zero, and else the `usual` one, which is remarked upon.
    pub fn positive_or(&mut self, parameter: &'static str, value: i64, usual: i64) -> i64 {
        if value > 0 {
            return value;
        }
        self.remark(
            parameter,
            format!("`{parameter}` is `{value}`, which counts as {usual}; it is above 0"),
        );
        usual
    }

    /// What was said of parameters since this was asked last.
    pub(super) fn take_remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    /// True if the signals of endpoints were asked for since this was asked last.
    pub(super) fn take_signals(&mut self) -> bool {
        std::mem::take(&mut self.signals)
    }

    /// The age up to which signals were asked for since this was asked last.
    pub(super) fn take_freshness(&mut self) -> Option<Duration> {
        self.fresh_within.take()
    }

    /// The instance names of the producers of load that were asked for since this was asked last.
    pub(super) fn take_load_producers(&mut self) -> Vec<String> {
        std::mem::take(&mut self.load_producers)
    }

    /// The instance names of the prefix producers that were asked for, in the order of their references.
    pub fn prefix_producers(&self) -> &[String] {
        &self.prefix_producers
    }
}

/// Refers to the prefix matches of one producer, in every [`Cycle`](super::scheduling::Cycle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixRef(pub(super) usize);
