//! Profiles: who takes part in a choice.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::super::scheduling::{InstanceRef, Profile, WeightedScorer, handlers};
use super::super::catalog::PluginKind;
use super::super::document::{ProfilePlugin, SchedulingProfile};
use super::super::report::Report;
use super::registry::{Declared, Part, Registry, Resolved};

/// The picker of a configuration that declares none.
const DEFAULT_PICKER: &str = "max-score-picker";

/// The profile of a configuration that describes none.
const DEFAULT_PROFILE: &str = "default";

/// The pickers that go by scores.
const BY_SCORE: [&str; 2] = [DEFAULT_PICKER, "weighted-random-picker"];

/// Adds the handler and the picker that are needed and not declared (spec, config 4, D1).
pub(super) fn add_defaults(profiles: &[SchedulingProfile], registry: &mut Registry, report: &mut Report) {
    if !registry.may_have(PluginKind::ProfileHandler) {
        if profiles.len() <= 1 {
            add(handlers::DEFAULT, PluginKind::ProfileHandler, registry, report);
        } else {
            report.error(
                "schedulingProfiles",
                format!(
                    "no profile handler configured; {} profiles need a plugin that chooses between them",
                    profiles.len()
                ),
            );
        }
    }
    if !registry.may_have(PluginKind::Picker) {
        add(DEFAULT_PICKER, PluginKind::Picker, registry, report);
    }
}

fn add(type_name: &str, kind: PluginKind, registry: &mut Registry, report: &mut Report) {
    registry.ensure(type_name, report);
    if !registry.may_have(kind)
        && let Resolved::Plugin(taken) = registry.resolve(type_name, report)
    {
        let message = format!(
            "the name `{type_name}` is needed for the {kind} that is added when none is declared, and this is {}; \
             give it another name, or declare a {kind}",
            taken.a_kind()
        );
        report.error(taken.path(), message);
    }
}

/// The profiles. None if one of them cannot be made.
pub(super) fn planned(
    profiles: &[SchedulingProfile],
    registry: &mut Registry,
    report: &mut Report,
) -> Option<Vec<Profile>> {
    check_handler(profiles.len().max(1), registry, report);
    let drafts = if profiles.is_empty() {
        vec![everything_declared(registry, report)]
    } else {
        described(profiles, registry, report)
    };
    for draft in &drafts {
        draft.warn_of_the_pointless(registry, report);
    }
    let default_picker = registry.iter().find_map(|declared| match declared.part {
        Part::Picker(picker) => Some((picker, declared.name.clone())),
        _ => None,
    });
    if let Some((_, name)) = &default_picker
        && drafts.iter().any(|draft| draft.picker.is_none())
    {
        registry.resolve(name, report);
    }
    let profile = |draft: Draft| {
        let picker = draft.picker.map(|(picker, _)| picker);
        let picker = picker.or(default_picker.as_ref().map(|(picker, _)| *picker))?;
        let instances = registry.instances();
        Some(Profile::new(
            draft.name,
            draft.filters,
            draft.scorers,
            picker,
            instances,
        ))
    };
    drafts.into_iter().map(profile).collect()
}

/// A profile that may still lack its picker.
struct Draft {
    name: Arc<str>,
    /// Where it is written; the document if it is not.
    path: String,
    filters: Vec<InstanceRef>,
    scorers: Vec<WeightedScorer>,
    /// The picker, and its full name.
    picker: Option<(InstanceRef, String)>,
    /// Whether that goes by scores.
    goes_by_scores: Option<bool>,
}

impl Draft {
    fn new(name: &str, path: &str) -> Self {
        Self {
            name: name.into(),
            path: path.to_owned(),
            filters: Vec::new(),
            scorers: Vec::new(),
            picker: None,
            goes_by_scores: None,
        }
    }

    /// Takes in a plugin that stands at `path`. True if it has a part to play in a profile.
    fn add(&mut self, plugin: &Declared, weight: Option<f64>, path: &str, report: &mut Report) -> bool {
        match plugin.part {
            Part::Filter(filter) | Part::Detector(_, Some(filter)) => self.filters.push(filter),
            Part::Scorer(scorer) => self.scorers.push(WeightedScorer {
                scorer,
                weight: weight.unwrap_or(1.0),
            }),
            Part::Picker(picker) => match &self.picker {
                None => {
                    self.picker = Some((picker, plugin.full_name()));
                    self.goes_by_scores = Some(goes_by_scores(plugin));
                }
                Some((_, first)) => report.error(
                    path,
                    format!(
                        "failed to add plugin '{}' to profile '{}': failed to set '{}' as picker, already have a \
                         registered picker plugin '{first}'; a profile has one picker",
                        plugin.name,
                        self.name,
                        plugin.full_name()
                    ),
                ),
            },
            _ => return false,
        }
        true
    }

    /// Warns of a plugin that has its part in the profile already.
    fn warn_of_a_second(&self, plugin: &Declared, path: &str, report: &mut Report) {
        let name = &plugin.name;
        let message = match plugin.part {
            Part::Scorer(scorer) if self.scorers.iter().any(|weighted| weighted.scorer == scorer) => {
                format!("`{name}` is in this profile already; its weights add up")
            }
            Part::Filter(filter) | Part::Detector(_, Some(filter)) if self.filters.contains(&filter) => {
                format!("`{name}` is in this profile already; filtering twice has no effect")
            }
            _ => return,
        };
        report.warning(path, message);
    }

    /// Warns of a choice that nothing decides, or that cannot be added up.
    fn warn_of_the_pointless(&self, registry: &Registry, report: &mut Report) {
        if report.misses_part_of(&self.path) {
            return;
        }
        let sum: f64 = self.scorers.iter().map(|scorer| scorer.weight).sum();
        if !sum.is_finite() {
            let message = "the weights add up to more than a number can be; only their ratios count";
            report.error(&format!("{}.plugins", self.path), message);
        }
        let default_picker = || {
            registry
                .iter()
                .find(|declared| matches!(declared.part, Part::Picker(_)))
        };
        let goes_by_scores = self.goes_by_scores.or_else(|| default_picker().map(goes_by_scores));
        if self.scorers.is_empty() && goes_by_scores == Some(true) && !registry.may_have_unusable() {
            let message = format!("no scorer in profile `{}`: endpoints are picked at random", self.name);
            report.warning(&self.path, message);
        }
    }
}

fn goes_by_scores(picker: &Declared) -> bool {
    BY_SCORE.contains(&&*picker.type_name)
}

fn check_handler(profiles: usize, registry: &Registry, report: &mut Report) {
    let handlers = registry.iter().filter_map(|declared| match &declared.part {
        Part::ProfileHandler(handler) => Some((declared, handler)),
        _ => None,
    });
    let handlers: Vec<_> = handlers.collect();
    for (second, _) in handlers.iter().skip(1) {
        let message = format!(
            "multiple profile handlers found ('{}', '{}'); only one is allowed",
            handlers[0].0.name, second.name
        );
        report.error(second.path(), message);
    }
    if let Some((declared, handler)) = handlers.first() {
        let allowed = handler.plugin.profiles_allowed();
        if !allowed.contains(&profiles) {
            let (name, handler) = (in_one_word(&declared.type_name), &declared.name);
            let message = if profiles > *allowed.end() {
                format!(
                    "{name} cannot support multiple scheduling profiles; `{handler}` works with at most {}, found {profiles}",
                    allowed.end()
                )
            } else {
                format!("{name} needs {} scheduling profiles, found {profiles}", allowed.start())
            };
            report.error("schedulingProfiles", message);
        }
    }
}

/// `single-profile-handler` as the reference names it in one message: `SingleProfileHandler`.
fn in_one_word(type_name: &str) -> String {
    let capitalised = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    type_name.split('-').map(capitalised).collect()
}

/// The profile of a configuration that describes none: every filter, scorer and picker, in the order of declaration. A
/// detector could be a filter too, and is one only where a profile names it: as such it takes away endpoints that are
/// full, which nobody asked for who declared it as the gate of flow control.
fn everything_declared(registry: &mut Registry, report: &mut Report) -> Draft {
    let mut draft = Draft::new(DEFAULT_PROFILE, "");
    for plugin in registry.iter() {
        if plugin.kind() != Some(PluginKind::SaturationDetector) {
            draft.add(plugin, None, plugin.path(), report);
        }
    }
    registry.use_all(&[PluginKind::Filter, PluginKind::Scorer, PluginKind::Picker]);
    draft
}

fn described(profiles: &[SchedulingProfile], registry: &mut Registry, report: &mut Report) -> Vec<Draft> {
    let mut names = BTreeSet::new();
    let mut drafts = Vec::new();
    for (at, profile) in profiles.iter().enumerate() {
        let path = format!("schedulingProfiles[{at}]");
        let name = profile.name.as_str();
        if name.is_empty() {
            report.error(&format!("{path}.name"), format!("{path} is missing a name"));
        } else if !names.insert(name) {
            report.error(&format!("{path}.name"), format!("{path} has duplicate name '{name}'"));
        }
        let mut draft = Draft::new(name, &path);
        for (at, member) in profile.plugins.iter().enumerate() {
            take_in(
                member,
                &format!("{path}.plugins[{at}]"),
                at,
                &mut draft,
                registry,
                report,
            );
        }
        drafts.push(draft);
    }
    drafts
}

fn take_in(
    member: &ProfilePlugin,
    path: &str,
    at: usize,
    draft: &mut Draft,
    registry: &mut Registry,
    report: &mut Report,
) {
    let (name, profile) = (member.plugin_ref.as_str(), draft.name.clone());
    let reference = format!("{path}.pluginRef");
    if name.is_empty() {
        let message = format!(
            "schedulingProfiles[{profile}].plugins[{at}] is missing a 'pluginRef'; {}",
            registry.meant("")
        );
        return report.error(&reference, message);
    }
    match registry.resolve(name, report) {
        Resolved::Reported => {}
        Resolved::Undefined => {
            let meant = registry.meant(name);
            report.error(
                &reference,
                format!("schedulingProfiles[{profile}] references undefined plugin '{name}'; {meant}"),
            );
        }
        Resolved::Plugin(plugin) => {
            draft.warn_of_a_second(plugin, &reference, report);
            if let (Part::Scorer(_), Some(weight)) = (&plugin.part, member.weight) {
                warn_of_an_odd(weight, name, &format!("{path}.weight"), report);
            }
            if !draft.add(plugin, member.weight, &reference, report) {
                let kind = plugin.a_kind();
                report.warning(
                    &reference,
                    format!("`{name}` is {kind}, which has no part in a profile; it is ignored here"),
                );
            } else if member.weight.is_some() && !matches!(plugin.part, Part::Scorer(_)) {
                let kind = plugin.a_kind();
                report.warning(
                    &format!("{path}.weight"),
                    format!("the weight of `{name}` has no effect: it is {kind}, and only scorers have weights"),
                );
            }
        }
    }
}

/// Warns of a weight that is probably not meant so.
fn warn_of_an_odd(weight: f64, name: &str, path: &str, report: &mut Report) {
    if weight < 0.0 {
        let message = format!("a negative weight turns `{name}` round: what it scores lowest is preferred");
        report.warning(path, message);
    } else if weight == 0.0 {
        report.warning(path, format!("`{name}` has no effect: its weight is 0"));
    }
}
