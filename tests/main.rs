//! The whole service, seen from outside.

#![expect(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

mod chart;
mod envoy;
mod kube;
mod protocol;
mod report;
mod simulator;
mod support;
