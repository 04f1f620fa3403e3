//! The versions of the configuration, and where their fields went.

use super::super::document::Document;
use super::super::report::Report;

/// The version that a document says it has. The fields of all versions are read in each, since they do not contradict
/// each other; what another version would call them is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// `llm-d.ai/v1`.
    V1,
    /// `llm-d.ai/v1alpha1`, an older name of it, or our own object.
    V1Alpha1,
}

const KIND: &str = "EndpointPickerConfig";
const V1: &str = "llm-d.ai/v1";
const V1_ALPHA1: &str = "llm-d.ai/v1alpha1";
const LEGACY: &str = "inference.networking.x-k8s.io/v1alpha1";
/// That of the object in a cluster, which has the same fields.
const OBJECT: &str = "forebay.dev/v1alpha1";

impl Version {
    /// Checks `apiVersion` and `kind`. A document that names neither is read as the older version.
    pub(super) fn of(document: &Document, report: &mut Report) -> Self {
        let version = document.api_version.as_deref().unwrap_or(V1_ALPHA1);
        let kind = document.kind.as_deref().unwrap_or(KIND);
        let unregistered =
            |instead: String| format!("no kind \"{kind}\" is registered for version \"{version}\"; write {instead}");
        match version {
            V1 | V1_ALPHA1 | OBJECT => {}
            LEGACY => report.warning("apiVersion", format!("`{version}` is deprecated; write `{V1_ALPHA1}`")),
            _ => {
                let known = format!("`apiVersion: {V1}` or `apiVersion: {V1_ALPHA1}`");
                report.error("apiVersion", unregistered(known));
            }
        }
        if kind != KIND {
            report.error("kind", unregistered(format!("`kind: {KIND}`")));
        }
        match version {
            V1 => Self::V1,
            _ => Self::V1Alpha1,
        }
    }

    /// Warns of a field that this version has at another place. It counts all the same.
    pub(super) fn warn_of_the_moved(self, section: &str, old: &str, new: &str, report: &mut Report) {
        if self == Self::V1 {
            let message = format!("`{V1}` has this at `{section}.{new}`; it is read here too, but not by llm-d");
            report.warning(&format!("{section}.{old}"), message);
        }
    }
}
