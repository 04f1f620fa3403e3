//! Forebay in a cluster. All tests run against the small API server of `support`, or against a real one if
//! `KUBEBUILDER_ASSETS` names the folder of its binaries.

mod discovery;
mod view;
