//! Version 1 becomes version 2.

use super::{VERSION, WorkloadSpec};

/// SLO classes that were called otherwise, and what they are called now.
const RENAMED: [(&str, &str); 2] = [("realtime", "critical"), ("interactive", "standard")];

/// Brings the description up to [`VERSION`]. What was done, if the file was an old one.
pub(super) fn upgrade(spec: &mut WorkloadSpec) -> Option<String> {
    if !matches!(spec.version.as_str(), "" | "1") {
        return None;
    }
    let found = match spec.version.as_str() {
        "" => "no version is given, so this is read as version 1".to_owned(),
        version => format!("version {version} is an old one"),
    };
    spec.version = VERSION.to_owned();
    let clients = spec.clients.iter_mut().map(|client| &mut client.slo_class);
    for class in clients.chain(spec.cohorts.iter_mut().map(|cohort| &mut cohort.slo_class)) {
        if let Some((_, new)) = RENAMED.iter().find(|(old, _)| old == class) {
            *class = (*new).to_owned();
        }
    }
    let classes: Vec<String> = RENAMED
        .iter()
        .map(|(old, new)| format!("`{old}` is now `{new}`"))
        .collect();
    Some(format!(
        "{found} and brought up to version {VERSION} (of the SLO classes, {}); write `version: \"{VERSION}\"`",
        classes.join(" and ")
    ))
}
