//! Admission: who says what may come in.

use super::super::super::scheduling::InstanceRef;
use super::super::catalog::PluginKind;
use super::super::document::Document;
use super::super::report::Report;
use super::reference;
use super::registry::Registry;

/// The policy of a configuration that names none.
const DEFAULT: &str = "always-admit";

/// The admission policy. None if what is named is not one.
pub(super) fn planned(document: &Document, registry: &mut Registry, report: &mut Report) -> Option<InstanceRef> {
    let name = match document.admission.plugin_ref.as_str() {
        "" => DEFAULT,
        name => name,
    };
    if name == DEFAULT {
        registry.ensure(DEFAULT, report);
    }
    reference::resolved(
        PluginKind::AdmissionPolicy,
        "admission.pluginRef",
        name,
        registry,
        report,
    )
}
