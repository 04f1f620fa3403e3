//! Temporary stand-in until the configuration lands.
#![allow(missing_docs)]
use std::sync::Arc;

use super::scheduling::{Instances, Named, Profile, ProfileHandler};

#[derive(Debug)]
pub struct SchedulingPlan {
    pub handler: Named<dyn ProfileHandler>,
    pub profiles: Vec<Profile>,
    pub instances: Instances,
    pub prefix: Vec<PrefixProducer>,
}
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixProducer {
    pub name: Arc<str>,
    pub params: ApproxPrefixParams,
}
#[derive(Clone, Debug, PartialEq)]
pub struct ApproxPrefixParams {
    pub auto_tune: bool,
    pub block_size_tokens: u32,
    pub max_blocks: Option<u32>,
    pub capacity: usize,
}

#[cfg(test)]
pub(crate) mod testing {
    pub(crate) fn default_plan() -> super::SchedulingPlan {
        crate::engine::tests_plan()
    }
}
