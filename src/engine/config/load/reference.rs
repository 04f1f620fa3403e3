//! References to the plugins of flow control and admission.

use super::super::super::scheduling::InstanceRef;
use super::super::catalog::{PluginKind, catalog};
use super::super::report::Report;
use super::super::suggest;
use super::registry::{Registry, Resolved};

/// The instance of this kind that stands under `name`, which is written at `path`; none if there is no such one.
pub(super) fn resolved(
    kind: PluginKind,
    path: &str,
    name: &str,
    registry: &mut Registry,
    report: &mut Report,
) -> Option<InstanceRef> {
    match registry.resolve(name, report) {
        Resolved::Plugin(plugin) if plugin.kind() == Some(kind) => return plugin.policy(),
        Resolved::Plugin(plugin) => {
            let message = format!(
                "plugin \"{name}\" does not implement {} (actual type: {}); it is {}; {}",
                interface(kind),
                plugin.type_name,
                plugin.a_kind(),
                known(kind)
            );
            report.error(path, message);
        }
        Resolved::Undefined => {
            let meant = registry.meant(name);
            report.error(path, format!("plugin \"{name}\" not found; {meant}; {}", known(kind)));
        }
        Resolved::Reported => {}
    }
    None
}

/// What the reference calls it.
fn interface(kind: PluginKind) -> &'static str {
    match kind {
        PluginKind::FairnessPolicy => "FairnessPolicy",
        PluginKind::OrderingPolicy => "OrderingPolicy",
        PluginKind::UsageLimitPolicy => "UsageLimitPolicy",
        PluginKind::AdmissionPolicy => "AdmissionPolicy",
        other => other.name(),
    }
}

fn known(kind: PluginKind) -> String {
    let catalog = catalog();
    let alike = catalog.iter().filter(|entry| entry.kind == kind);
    format!("{kind} types: {}", suggest::listed(alike.map(|entry| entry.type_name)))
}
