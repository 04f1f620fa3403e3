//! The saturation detector: who says that the pool is full.

use serde_json::Value;

use super::super::super::scheduling::InstanceRef;
use super::super::catalog::{PluginKind, catalog};
use super::super::document::Document;
use super::super::report::Report;
use super::super::suggest;
use super::registry::{Part, Registry, Resolved};

/// The detector of a configuration that names none.
const DEFAULT: &str = "utilization-detector";

/// The detector (spec, config 4, D4). None if what is named is not one.
pub(super) fn planned(document: &Document, registry: &mut Registry, report: &mut Report) -> Option<InstanceRef> {
    take_old_parameters(document, registry, report);
    let (path, name) = reference(document, report);
    let name = if name.is_empty() { DEFAULT } else { name };
    if name == DEFAULT {
        registry.ensure(DEFAULT, report);
    }
    let path = path.unwrap_or("flowControl");
    match registry.resolve(name, report) {
        Resolved::Plugin(plugin) => match plugin.part {
            Part::Detector(detector, _) => return Some(detector),
            _ => {
                let kind = plugin.a_kind();
                report.error(
                    path,
                    format!(
                        "plugin '{name}' is not a fwkfc.SaturationDetector but {kind}; {}",
                        known()
                    ),
                );
            }
        },
        Resolved::Undefined => {
            let meant = registry.meant(name);
            report.error(
                path,
                format!(
                    "saturation detector references undefined plugin '{name}'; {meant}; {}",
                    known()
                ),
            );
        }
        Resolved::Reported => {}
    }
    None
}

/// Makes the detector of the parameters that stood at the top of a document, when there was but one type.
fn take_old_parameters(document: &Document, registry: &mut Registry, report: &mut Report) {
    let Some(old) = &document.saturation_detector else {
        return;
    };
    let parameters = old.parameters();
    if parameters.is_empty() {
        return;
    }
    let names: Vec<String> = parameters.keys().cloned().collect();
    let is_named = !old.plugin_ref.is_empty() || document.flow_control.saturation_detector.is_some();
    let is_used = !is_named && registry.add(DEFAULT, &Value::Object(parameters), "saturationDetector", report);
    for name in names {
        let message = match is_used {
            true => format!(
                "`{name}` is a parameter of `{DEFAULT}` now, and is used for the one that is added; declare it under `plugins`"
            ),
            false => format!(
                "`{name}` has no effect here: the detector that is named has its own parameters under `plugins`"
            ),
        };
        report.warning(&format!("saturationDetector.{name}"), message);
    }
}

fn known() -> String {
    let catalog = catalog();
    let detectors = catalog
        .iter()
        .filter(|entry| entry.kind == PluginKind::SaturationDetector);
    format!("detectors: {}", suggest::listed(detectors.map(|entry| entry.type_name)))
}

/// Where a detector is named, and its name.
fn reference<'d>(document: &'d Document, report: &mut Report) -> (Option<&'static str>, &'d str) {
    let deprecated = "saturationDetector.pluginRef";
    match (
        &document.flow_control.saturation_detector,
        &document.saturation_detector,
    ) {
        (Some(detector), old) => {
            if old.as_ref().is_some_and(|old| !old.plugin_ref.is_empty()) {
                report.warning(
                    deprecated,
                    "`saturationDetector` is deprecated, and has no effect beside `flowControl.saturationDetector`",
                );
            }
            (Some("flowControl.saturationDetector.pluginRef"), &detector.plugin_ref)
        }
        (None, Some(detector)) if !detector.plugin_ref.is_empty() => {
            report.warning(
                deprecated,
                "`saturationDetector` is deprecated; write it under `flowControl`",
            );
            (Some(deprecated), &detector.plugin_ref)
        }
        (None, _) => (None, ""),
    }
}
