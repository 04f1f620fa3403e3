//! Flow control: what may wait, how long, and who goes first (spec, flow-control 1.2).

mod bands;
mod limits;
#[cfg(test)]
mod tests;
mod ttl;

use std::time::Duration;

use super::super::super::flow::plan::{BandPlan, FlowPlan, GlobalLimits};
use super::super::super::scheduling::InstanceRef;
use super::super::catalog::PluginKind;
use super::super::document::FlowControl;
use super::super::report::Report;
use super::reference;
use super::registry::{Plugins, Registry};
use bands::Bands;
use ttl::Ttls;

/// The policies of a configuration that names none. Every configuration has them (spec, config 4, D2).
pub(super) const DEFAULTS: &[&str] = &[ORDERING, FAIRNESS, USAGE];

const ORDERING: &str = "fcfs-ordering-policy";
const FAIRNESS: &str = "global-strict-fairness-policy";
const USAGE: &str = "static-usage-limit-policy";

/// Flow control whose policies are still in the registry.
#[derive(Debug)]
pub(super) struct Draft {
    limits: GlobalLimits,
    sheds: bool,
    displaces: bool,
    without_endpoints: Option<Duration>,
    bands: Vec<BandPlan>,
    template: BandPlan,
    negative_template: BandPlan,
    usage: InstanceRef,
    evicts: bool,
}

/// Flow control as the section says. None if something in it is wrong, which is reported.
pub(super) fn planned(section: &FlowControl, registry: &mut Registry, report: &mut Report) -> Option<Draft> {
    let ttls = Ttls::read(section, report);
    let limits = limits::global(section, report);
    let sheds = section.shed_when_full == Some(true);
    if sheds && limits == GlobalLimits::default() {
        report.warning(
            "flowControl.shedWhenFull",
            "it has no effect without `maxRequests` or `maxBytes` of `flowControl`: nobody gives way in a band that is full",
        );
    }
    let bands = bands::planned(section, &ttls, registry, report);
    let usage = match section.usage_limit_policy_plugin_ref.as_str() {
        "" => USAGE,
        name => name,
    };
    let path = "flowControl.usageLimitPolicyPluginRef";
    let usage = reference::resolved(PluginKind::UsageLimitPolicy, path, usage, registry, report);
    let Bands {
        bands,
        template,
        negative_template,
    } = bands?;
    Some(Draft {
        limits,
        sheds,
        displaces: section.displace_when_full != Some(false),
        without_endpoints: ttls.without_endpoints,
        bands,
        template,
        negative_template,
        usage: usage?,
        evicts: section.enable_eviction == Some(true),
    })
}

impl Draft {
    /// The plan, with what it needs of the plugins.
    pub(super) fn with(self, plugins: &mut Plugins) -> FlowPlan {
        FlowPlan {
            limits: self.limits,
            shed_when_full: self.sheds,
            displace_when_full: self.displaces,
            without_endpoints: self.without_endpoints,
            bands: self.bands,
            template: self.template,
            negative_template: self.negative_template,
            fairness: std::mem::take(&mut plugins.fairness),
            ordering: std::mem::take(&mut plugins.ordering),
            usage: plugins.usage.swap_remove(self.usage.0),
            evicts: self.evicts,
        }
    }
}
