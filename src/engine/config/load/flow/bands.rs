//! Bands: what the requests of each priority are given.

use std::collections::BTreeMap;

use super::super::super::super::flow::plan::BandPlan;
use super::super::super::catalog::PluginKind;
use super::super::super::document::{FlowControl, PriorityBand};
use super::super::super::report::Report;
use super::super::reference;
use super::super::registry::Registry;
use super::limits::{self, BandLimits};
use super::ttl::Ttls;
use super::{FAIRNESS, ORDERING};

/// The bands, and what further ones are made like.
#[derive(Debug)]
pub(super) struct Bands {
    /// The highest priority first; 0 is among them.
    pub(super) bands: Vec<BandPlan>,
    pub(super) template: BandPlan,
    pub(super) negative_template: BandPlan,
}

/// The bands of the section. None if one of them is wrong.
pub(super) fn planned(
    section: &FlowControl,
    ttls: &Ttls,
    registry: &mut Registry,
    report: &mut Report,
) -> Option<Bands> {
    let mut reader = Reader {
        section,
        ttls,
        registry,
        report,
    };
    let template = reader.template(
        section.default_priority_band.as_ref(),
        "flowControl.defaultPriorityBand",
        "default priority band",
    );
    let negative_template = match &section.default_negative_priority_band {
        None => template,
        negative => reader.template(
            negative.as_ref(),
            "flowControl.defaultNegativePriorityBand",
            "default negative priority band",
        ),
    };
    let mut bands = BTreeMap::new();
    for (at, band) in section.priority_bands.iter().enumerate() {
        let path = format!("flowControl.priorityBands[{at}]");
        let priority = band.priority;
        let plan = reader.band(band, &path, &format!("priority band {priority}"));
        if let Some((first, _)) = bands.get(&priority) {
            reader.report.error(
                &format!("{path}.priority"),
                format!("duplicate priority level {priority}; {first} has it already: put what both say into one band"),
            );
        } else {
            bands.insert(priority, (path, plan));
        }
    }
    let zero = template.map(|template| BandPlan {
        priority: 0,
        ..template
    });
    bands.entry(0).or_insert((String::new(), zero));
    Some(Bands {
        bands: bands.into_values().rev().map(|(_, plan)| plan).collect::<Option<_>>()?,
        template: template?,
        negative_template: negative_template?,
    })
}

struct Reader<'a> {
    section: &'a FlowControl,
    ttls: &'a Ttls,
    registry: &'a mut Registry,
    report: &'a mut Report,
}

impl Reader<'_> {
    fn template(&mut self, given: Option<&PriorityBand>, path: &str, label: &str) -> Option<BandPlan> {
        if given.is_some_and(|template| template.priority != 0) {
            let message = "this has no effect: a template is for every priority that has no band of its own";
            self.report.warning(&format!("{path}.priority"), message);
        }
        let usual = PriorityBand::default();
        self.band(given.unwrap_or(&usual), path, label)
    }

    fn band(&mut self, band: &PriorityBand, path: &str, label: &str) -> Option<BandPlan> {
        let Self {
            section,
            ttls,
            registry,
            report,
        } = self;
        let BandLimits {
            max_bytes,
            max_requests,
        } = BandLimits::read(band, path, label, report);
        limits::warn_of_the_pointless(section, band, path, report);
        let mut policy = |kind, field, name: &str, usual| {
            let name = if name.is_empty() { usual } else { name };
            reference::resolved(kind, &format!("{path}.{field}"), name, registry, report)
        };
        let fairness = policy(
            PluginKind::FairnessPolicy,
            "fairnessPolicyRef",
            &band.fairness_policy_ref,
            FAIRNESS,
        );
        let ordering = policy(
            PluginKind::OrderingPolicy,
            "orderingPolicyRef",
            &band.ordering_policy_ref,
            ORDERING,
        );
        Some(BandPlan {
            priority: band.priority,
            max_bytes,
            max_requests,
            ttl: ttls.of_band(band, path, label, report),
            fairness: fairness?,
            ordering: ordering?,
        })
    }
}
