//! The scorers of the routing policy `weighted` (spec, simulator 10.3 and 10.4).

use std::fmt;
use std::str::FromStr;

/// Scorers and what they count.
#[derive(Clone, Debug, PartialEq)]
pub struct Scorers(pub(super) Vec<(ScorerName, f64)>);

impl Default for Scorers {
    /// Prefix affinity 3, queue depth 2, KV utilization 2.
    fn default() -> Self {
        Self(vec![
            (ScorerName::PrefixAffinity, 3.0),
            (ScorerName::QueueDepth, 2.0),
            (ScorerName::KvUtilization, 2.0),
        ])
    }
}

impl Scorers {
    /// Adds a scorer.
    ///
    /// # Errors
    ///
    /// If there is none of this name, it is there already, or the weight is no number above zero.
    pub fn add(&mut self, name: &str, weight: f64) -> Result<(), ScorersError> {
        let Some(scorer) = ScorerName::ALL.iter().find(|scorer| scorer.name() == name) else {
            return Err(ScorersError::Unknown(name.to_owned()));
        };
        if self.0.iter().any(|(known, _)| known == scorer) {
            return Err(ScorersError::Twice(name.to_owned()));
        }
        if !weight.is_finite() || weight <= 0.0 {
            return Err(ScorersError::Weight {
                name: name.to_owned(),
                weight: weight.to_string(),
            });
        }
        self.0.push((*scorer, weight));
        Ok(())
    }

    /// No scorer at all, to add some to.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Scorers {
    type Err = ScorersError;

    /// Reads `name:weight,name:weight`.
    fn from_str(text: &str) -> Result<Self, ScorersError> {
        let mut scorers = Self::none();
        for entry in text.split(',').map(str::trim) {
            let Some((name, weight)) = entry.split_once(':') else {
                return Err(ScorersError::NoWeight(entry.to_owned()));
            };
            let (name, weight) = (name.trim(), weight.trim());
            let number = weight.parse().map_err(|_| ScorersError::Weight {
                name: name.to_owned(),
                weight: weight.to_owned(),
            })?;
            scorers.add(name, number)?;
        }
        Ok(scorers)
    }
}

impl fmt::Display for Scorers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (scorer, weight)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{}:{weight}", scorer.name())?;
        }
        Ok(())
    }
}

macro_rules! scorer_names {
    ($($variant:ident $name:literal $plugin:literal $doc:literal;)*) => {
        /// A scorer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ScorerName {
            $(#[doc = $doc] $variant,)*
        }

        impl ScorerName {
            /// Every scorer.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name in a list of scorers.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Its plugin type.
            pub const fn plugin(self) -> &'static str {
                match self { $(Self::$variant => $plugin),* }
            }
        }
    };
}

scorer_names! {
    PrefixAffinity "prefix-affinity" "prefix-affinity-scorer" "How much of the prompt an instance was sent before.";
    PrecisePrefixCache "precise-prefix-cache" "precise-prefix-cache-scorer" "How much of the prompt is in its KV cache.";
    NoHitLru "no-hit-lru" "no-hit-lru-scorer" "How long ago it was sent a prompt that nobody had in its cache.";
    QueueDepth "queue-depth" "queue-depth-scorer" "How small its effective load is among all.";
    KvUtilization "kv-utilization" "kv-cache-utilization-scorer" "How empty its KV cache is.";
    LoadBalance "load-balance" "load-balance-scorer" "The inverse of its effective load.";
    ActiveRequests "active-requests" "active-request-scorer" "How few requests are in flight to it.";
    RunningRequests "running-requests" "running-requests-size-scorer" "How small its batch is among all.";
    LoadAware "load-aware" "load-aware-scorer" "How short its queue is.";
    VllmDp "vllm-dp" "vllm-dp-scorer" "How few requests it has, those that wait counted four times.";
    LoraAffinity "lora-affinity" "lora-affinity-scorer" "Whether it has the adapter of the request.";
}

/// What is wrong with a list of scorers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScorersError {
    /// An entry has no weight.
    #[error("`{0}` has no weight; write it as `name:weight`, such as `queue-depth:2`")]
    NoWeight(String),
    /// A weight is no number above zero.
    #[error("the weight of `{name}` must be a number above 0, found `{weight}`")]
    Weight {
        /// The scorer.
        name: String,
        /// What was found.
        weight: String,
    },
    /// There is no such scorer.
    #[error("`{0}` is no scorer; the scorers are {known}", known = known())]
    Unknown(String),
    /// A scorer is there twice.
    #[error("`{0}` is listed twice; give it the sum of the weights instead")]
    Twice(String),
}

fn known() -> String {
    let names: Vec<_> = ScorerName::ALL.iter().map(|scorer| scorer.name()).collect();
    names.join(", ")
}
