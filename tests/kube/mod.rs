//! Forebay in a cluster. All tests run against the small API server of `support`, or against a real one if
//! `KUBEBUILDER_ASSETS` names the folder of its binaries.

mod access;
mod configuration;
mod discovery;
mod install;
mod leadership;
mod outages;
mod view;
