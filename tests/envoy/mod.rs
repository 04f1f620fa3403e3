//! The real binary behind a real Envoy, before real sockets.

mod abuse;
mod answers;
mod demo;
mod disruption;
mod example;
mod flow_control;
mod gateways;
mod headers;
mod local_replies;
mod modes;
mod observe;
mod operators;
mod outages;
mod refusals;
mod tunnels;
