//! The configuration of a service that runs.
//!
//! [`LiveConfiguration`] takes over another text without a restart: no stream is dropped, and no request that waits is
//! lost. A text that is wrong changes nothing. Texts come from a file ([`mod@file`]) and from an object of the cluster
//! (`kube::config_object`); while there is an object, it counts.

pub mod file;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::engine::config::data_layer::FileDiscoveryParams;
use crate::engine::config::{ConfigErrors, Finding, LoadOptions, Loaded, Severity, SourceName, load};
use crate::serve::datalayer::scrape::{Scrapers, SourceError};
use crate::serve::driver::Driver;
use crate::serve::ext_proc::Settings;
use crate::serve::parse::Parsers;

/// A configuration as it was written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The document; empty for the default.
    pub text: String,
    /// Where it is from.
    pub source: SourceName,
}

/// Why a text was not taken over. What ran before goes on.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// It is right, and what it names cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is nothing in it, which at start means the built-in default. A file that is being written looks the same.
    #[error("there is nothing in it, as in a file that is being written; for the built-in default, write `{{}}`")]
    Empty,
}

/// What became of a text that is right.
#[derive(Debug)]
pub struct Taken {
    /// What is probably not meant so.
    pub warnings: Vec<Finding>,
    /// Whether it runs.
    pub effect: Effect,
}

/// Whether a text that is right runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does, and did not before.
    Runs,
    /// It did before.
    Unchanged,
    /// It does not while there is an object.
    Overruled,
    /// It does but for `dataLayer.discovery`, which needs another start. Only a file says where endpoints come from: an
    /// object is found where they come from the cluster.
    RunsWithoutDiscovery,
}

/// What holds a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Base,
    Object,
}

/// Lets another configuration take over. All clones act on the same service.
#[derive(Clone, Debug)]
pub struct LiveConfiguration {
    parts: Arc<Parts>,
    texts: Arc<Mutex<Texts>>,
}

/// What a configuration is for.
#[derive(Debug)]
pub struct Parts {
    /// What every text is read with.
    pub options: LoadOptions,
    /// The engine.
    pub driver: Driver,
    /// What new streams are served with.
    pub front: Arc<ArcSwap<Settings>>,
    /// Who fetches metrics.
    pub scrapers: Scrapers<Driver>,
    /// Where the endpoints come from, as it was configured at the start.
    pub discovery: Option<FileDiscoveryParams>,
}

#[derive(Debug)]
struct Texts {
    /// Of the file or the flag, as it was good last.
    base: Text,
    /// Of the object, as it was good last, while there is one.
    object: Option<Text>,
    running: Text,
}

impl LiveConfiguration {
    /// For a service that was started with `running`.
    pub fn new(parts: Parts, running: Text) -> Self {
        let texts = Texts {
            base: running.clone(),
            object: None,
            running,
        };
        Self {
            parts: Arc::new(parts),
            texts: Arc::new(Mutex::new(texts)),
        }
    }

    /// The text of the file has become this.
    ///
    /// # Errors
    ///
    /// It is wrong or empty, or what it names cannot be used.
    pub fn base_is(&self, text: Text) -> Result<Taken, Refused> {
        let mut texts = self.texts.lock();
        if text.text.trim().is_empty() && !texts.base.text.trim().is_empty() {
            return Err(Refused::Empty);
        }
        let taken = if texts.object.is_some() {
            let Loaded { warnings, .. } = load(&text.text, &text.source, &self.parts.options)?;
            Taken {
                warnings,
                effect: Effect::Overruled,
            }
        } else {
            self.run(&mut texts, &text, Holder::Base)?
        };
        texts.base = text;
        Ok(taken)
    }

    /// The object has become this.
    ///
    /// # Errors
    ///
    /// It is wrong, or what it names cannot be used.
    pub fn object_is(&self, text: Text) -> Result<Taken, Refused> {
        let mut texts = self.texts.lock();
        let taken = self.run(&mut texts, &text, Holder::Object)?;
        texts.object = Some(text);
        Ok(taken)
    }

    /// There is no object any more: the file counts again.
    ///
    /// # Errors
    ///
    /// What the file names cannot be used any more.
    pub fn object_is_gone(&self) -> Result<Taken, Refused> {
        let mut texts = self.texts.lock();
        texts.object = None;
        let base = texts.base.clone();
        self.run(&mut texts, &base, Holder::Base)
    }

    fn run(&self, texts: &mut Texts, text: &Text, holder: Holder) -> Result<Taken, Refused> {
        let Loaded { plan, mut warnings } = load(&text.text, &text.source, &self.parts.options)?;
        let needs_restart = match holder {
            Holder::Base => plan.data_layer.discovery != self.parts.discovery,
            Holder::Object => {
                warnings.extend(plan.data_layer.discovery.as_ref().map(|_| without_effect(&text.source)));
                false
            }
        };
        let is_new = texts.running.text != text.text;
        let effect = match (needs_restart, is_new) {
            (true, _) => Effect::RunsWithoutDiscovery,
            (false, true) => Effect::Runs,
            (false, false) => Effect::Unchanged,
        };
        if !is_new {
            return Ok(Taken { warnings, effect });
        }
        // All that can fail comes before anything changes.
        let scrapers = self.parts.scrapers.prepare(plan.data_layer.sources)?;
        self.parts.driver.replan(plan.engine);
        let parsers = Parsers::new(plan.parsers);
        self.parts.front.rcu(|settings| Settings {
            parsers: parsers.clone(),
            responses: plan.responses.clone(),
            ..Settings::clone(settings)
        });
        self.parts.scrapers.replace(scrapers);
        texts.running = text.clone();
        Ok(Taken { warnings, effect })
    }
}

/// What is to be said of `dataLayer.discovery` in an object.
fn without_effect(source: &SourceName) -> Finding {
    Finding {
        source: source.clone(),
        line: 1,
        severity: Severity::Warning,
        path: "dataLayer.discovery".to_owned(),
        message: "no effect in an object of the cluster: its endpoints are the pods of the pool; leave it out"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests;
