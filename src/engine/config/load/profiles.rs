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
    filters: Vec<InstanceRef>,
    scorers: Vec<WeightedScorer>,
    /// The picker, and its full name.
    picker: Option<(InstanceRef, String)>,
}

impl Draft {
    fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            filters: Vec::new(),
            scorers: Vec::new(),
            picker: None,
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
                None => self.picker = Some((picker, plugin.full_name())),
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
/// detector is a filter too, if it was declared.
fn everything_declared(registry: &mut Registry, report: &mut Report) -> Draft {
    let mut draft = Draft::named(DEFAULT_PROFILE);
    for plugin in registry.iter() {
        let is_added_detector = plugin.path.is_none() && plugin.kind() == Some(PluginKind::SaturationDetector);
        if !is_added_detector {
            draft.add(plugin, None, plugin.path(), report);
        }
    }
    registry.use_all(&[
        PluginKind::Filter,
        PluginKind::SaturationDetector,
        PluginKind::Scorer,
        PluginKind::Picker,
    ]);
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
        let mut draft = Draft::named(name);
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
