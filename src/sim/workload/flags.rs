//! Workloads that need no file: a few flags say what one client sends (spec, simulator 18.1).

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::spec::{ArrivalSpec, ClientSpec, DistributionKind, DistributionSpec, ProcessName, VERSION, WorkloadSpec};

/// What the only client is called.
const CLIENT: &str = "distribution";

/// What the only prefix group is called.
const PREFIX_GROUP: &str = "shared-prefix";

/// The seconds after which a request of such a workload is given up.
pub const DEFAULT_TIMEOUT_S: i64 = 300;

/// How long prompts or answers are: a normal distribution whose tails are moved to its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenRange {
    /// The mean, in tokens.
    pub mean: f64,
    /// The standard deviation.
    pub std_dev: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl TokenRange {
    const fn new(mean: u32, std_dev: u32, min: u32, max: u32) -> Self {
        Self {
            mean: mean as f64,
            std_dev: std_dev as f64,
            min: min as f64,
            max: max as f64,
        }
    }

    fn spec(self) -> DistributionSpec {
        let params = [
            ("mean", self.mean),
            ("std_dev", self.std_dev),
            ("min", self.min),
            ("max", self.max),
        ];
        DistributionSpec {
            kind: DistributionKind::Gaussian,
            params: params.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }
}

impl Default for TokenRange {
    /// That of the flags: 512 ± 256, from 2 to 7000.
    fn default() -> Self {
        Self::new(512, 256, 2, 7000)
    }
}

/// A workload with a name, whose lengths are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Short questions and answers.
    Chatbot,
    /// Texts that are written from a brief.
    ContentGeneration,
    /// Long texts and short summaries.
    Summarization,
    /// Questions about many documents.
    MultiDocument,
}

impl Preset {
    /// Every one.
    pub const ALL: [Self; 4] = [
        Self::Chatbot,
        Self::ContentGeneration,
        Self::Summarization,
        Self::MultiDocument,
    ];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chatbot => "chatbot",
            Self::ContentGeneration => "contentgen",
            Self::Summarization => "summarization",
            Self::MultiDocument => "multidoc",
        }
    }

    /// The lengths of prompts.
    pub const fn prompt(self) -> TokenRange {
        match self {
            Self::Chatbot => TokenRange::new(256, 100, 2, 800),
            Self::ContentGeneration => TokenRange::new(1024, 150, 10, 2048),
            Self::Summarization => TokenRange::new(4096, 500, 100, 8192),
            Self::MultiDocument => TokenRange::new(10_240, 1200, 500, 20_480),
        }
    }

    /// The lengths of answers.
    pub const fn output(self) -> TokenRange {
        match self {
            Self::Chatbot => TokenRange::new(256, 100, 1, 1024),
            Self::ContentGeneration => TokenRange::new(1024, 200, 10, 2048),
            Self::Summarization => TokenRange::new(512, 150, 10, 2048),
            Self::MultiDocument => TokenRange::new(1536, 300, 50, 4096),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no preset has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no preset; there are `chatbot`, `contentgen`, `summarization` and `multidoc`")]
pub struct UnknownPreset(String);

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        let known = Self::ALL.into_iter().find(|preset| preset.name() == name);
        known.ok_or_else(|| UnknownPreset(name.to_owned()))
    }
}

/// How much of it is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many requests per second.
    Rate {
        /// Requests per second.
        per_second: f64,
        /// How they follow each other. The reference knows equal gaps only.
        arrival: ProcessName,
    },
    /// So many users, each of whom sends a request when the one before is answered.
    Users {
        /// How many.
        users: NonZeroU32,
        /// How long each waits in between.
        think_time_us: u64,
    },
}

/// What the flags say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlagWorkload {
    /// The lengths of prompts, without the shared prefix.
    pub prompt: TokenRange,
    /// The lengths of answers.
    pub output: TokenRange,
    /// How much of it is sent.
    pub load: Load,
    /// Tokens with which all prompts begin alike.
    pub prefix_tokens: u32,
    /// When requests are given up; negative: never.
    pub timeout_us: i64,
    /// How many requests there are.
    pub num_requests: Option<u64>,
}

impl Default for FlagWorkload {
    /// A hundred requests, one each second.
    fn default() -> Self {
        Self {
            prompt: TokenRange::default(),
            output: TokenRange::default(),
            load: Load::Rate {
                per_second: 1.0,
                arrival: ProcessName::Constant,
            },
            prefix_tokens: 0,
            timeout_us: DEFAULT_TIMEOUT_S * 1_000_000,
            num_requests: Some(100),
        }
    }
}

impl FlagWorkload {
    /// The lengths of a preset, and else the defaults.
    pub fn of(preset: Preset) -> Self {
        Self {
            prompt: preset.prompt(),
            output: preset.output(),
            ..Self::default()
        }
    }

    /// The description that says the same.
    pub fn spec(&self) -> WorkloadSpec {
        let has_prefix = self.prefix_tokens > 0;
        let mut client = ClientSpec {
            id: CLIENT.to_owned(),
            input_distribution: Some(self.prompt.spec()),
            output_distribution: Some(self.output.spec()),
            prefix_group: if has_prefix {
                PREFIX_GROUP.to_owned()
            } else {
                String::new()
            },
            prefix_length: has_prefix.then_some(self.prefix_tokens),
            timeout: Some(self.timeout_us),
            ..ClientSpec::default()
        };
        let mut aggregate_rate = 0.0;
        match self.load {
            Load::Rate { per_second, arrival } => {
                aggregate_rate = per_second;
                client.rate_fraction = Some(1.0);
                client.arrival = Some(ArrivalSpec::of(arrival));
            }
            Load::Users { users, think_time_us } => {
                client.concurrency = Some(users.get());
                client.think_time_us = Some(think_time_us);
            }
        }
        WorkloadSpec {
            version: VERSION.to_owned(),
            aggregate_rate,
            num_requests: self.num_requests,
            clients: vec![client],
            ..WorkloadSpec::default()
        }
    }
}
