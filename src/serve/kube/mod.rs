//! Kubernetes.

pub mod api;
