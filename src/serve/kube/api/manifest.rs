//! The definitions of the kinds, for `crds/`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::core::crd::merge_crds;

use super::{
    EndpointPickerConfig, InferenceModelRewrite, InferenceObjective, InferenceObjectiveV1, InferencePool,
    OldInferenceModelRewrite, OldInferenceObjective, OldInferencePool,
};

/// The definition of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Manifest {
    definition: fn() -> CustomResourceDefinition,
}

/// Every kind that is read: our own first, then those that current gateways bring along, then the older ones.
pub const MANIFESTS: [Manifest; 7] = [
    Manifest::new(EndpointPickerConfig::crd),
    Manifest::new(InferencePool::crd),
    Manifest::new(objectives),
    Manifest::new(InferenceModelRewrite::crd),
    Manifest::new(OldInferencePool::crd),
    Manifest::new(OldInferenceObjective::crd),
    Manifest::new(OldInferenceModelRewrite::crd),
];

/// Objectives in both versions of their group. Objects stay stored in the older one, which has the fields of both: then no
/// object has to be written anew, and an installation that knows `v1alpha2` alone goes on to read them.
fn objectives() -> CustomResourceDefinition {
    let versions = vec![InferenceObjective::crd(), InferenceObjectiveV1::crd()];
    merge_crds(versions, "v1alpha2").expect("they are of one kind")
}

/// Kinds in a group of the Kubernetes project have to say who has agreed to it.
const APPROVAL: (&str, &str) = ("api-approved.kubernetes.io", "unapproved, kept beside Forebay");

impl Manifest {
    const fn new(definition: fn() -> CustomResourceDefinition) -> Self {
        Self { definition }
    }

    /// The definition, as it is installed.
    pub fn definition(self) -> CustomResourceDefinition {
        let mut definition = (self.definition)();
        if definition.spec.group.ends_with(".k8s.io") {
            let (key, value) = APPROVAL;
            let annotations = definition.metadata.annotations.get_or_insert_default();
            annotations.insert(key.to_owned(), value.to_owned());
        }
        definition
    }

    /// The name of its file below `crds/`.
    pub fn file_name(self) -> String {
        let definition = self.definition();
        format!("{}_{}.yaml", definition.spec.group, definition.spec.names.plural)
    }

    /// The definition in YAML.
    pub fn yaml(self) -> String {
        serde_saphyr::to_string(&self.definition()).expect("a definition can be written")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_files_in_the_repository_are_the_ones_that_are_made() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/crds");
        let mut kept: Vec<_> = fs::read_dir(directory)
            .expect("the directory is there")
            .map(|entry| {
                entry
                    .expect("it can be read")
                    .file_name()
                    .into_string()
                    .expect("names are text")
            })
            .collect();
        kept.sort();
        let mut made: Vec<_> = MANIFESTS.map(Manifest::file_name).into();
        made.sort();
        assert_eq!(kept, made);

        for manifest in MANIFESTS {
            let name = manifest.file_name();
            let kept = fs::read_to_string(format!("{directory}/{name}")).expect("the file is there");

            assert!(kept == manifest.yaml(), "crds/{name} is out of date: run `make docs`");
        }
    }

    #[test]
    fn every_field_is_described() {
        fn undescribed(path: &str, schema: &serde_json::Value, found: &mut Vec<String>) {
            if let Some(properties) = schema["properties"].as_object() {
                for (name, property) in properties {
                    let path = format!("{path}.{name}");
                    if property["description"].as_str().is_none_or(str::is_empty) {
                        found.push(path.clone());
                    }
                    undescribed(&path, property, found);
                }
            }
            if schema["items"].is_object() {
                undescribed(&format!("{path}[]"), &schema["items"], found);
            }
        }

        let mut found = Vec::new();
        for manifest in MANIFESTS {
            let definition = serde_json::to_value(manifest.definition()).expect("a definition is a value");
            for version in definition["spec"]["versions"].as_array().expect("versions are a list") {
                let schema = &version["schema"]["openAPIV3Schema"];
                for part in ["spec", "status"] {
                    undescribed(
                        &format!("{}.{part}", manifest.file_name()),
                        &schema["properties"][part],
                        &mut found,
                    );
                }
                if schema["properties"]["spec"].is_null() {
                    undescribed(&manifest.file_name(), schema, &mut found);
                }
            }
        }
        found.retain(|path| !path.ends_with(".status"));
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn the_stored_version_of_an_objective_has_every_field_of_the_others() {
        let definition = serde_json::to_value(objectives()).expect("a definition is a value");
        let versions = definition["spec"]["versions"].as_array().expect("versions are a list");
        let fields = |version: &serde_json::Value| {
            let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
            spec.as_object().expect("there are fields").clone()
        };
        let told: Vec<_> = versions
            .iter()
            .map(|version| {
                (
                    version["name"].as_str(),
                    version["served"].as_bool(),
                    version["storage"].as_bool(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (Some("v1alpha2"), Some(true), Some(true)),
                (Some("v1"), Some(true), Some(false))
            ]
        );

        let stored = fields(&versions[0]);
        for (name, schema) in fields(&versions[1]) {
            let same = |mut schema: serde_json::Value| {
                schema["description"].take();
                schema
            };
            assert_eq!(stored.get(&name).cloned().map(same), Some(same(schema)), "{name}");
        }
    }

    #[test]
    fn the_object_has_every_field_of_the_file() {
        let definition = serde_json::to_value(EndpointPickerConfig::crd()).expect("a definition is a value");
        let properties = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];

        for field in [
            "featureGates",
            "plugins",
            "schedulingProfiles",
            "flowControl",
            "dataLayer",
            "requestHandler",
        ] {
            assert!(properties[field].is_object(), "{field}: {properties}");
        }
        assert_eq!(
            properties["plugins"]["items"]["properties"]["parameters"]["x-kubernetes-preserve-unknown-fields"],
            true
        );
    }
}
