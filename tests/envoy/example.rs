//! The configuration that users begin with.

use std::process::Command;

use crate::support::envoy;

#[test]
fn envoy_takes_the_example() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/envoy/full-duplex.yaml");

    let output = Command::new(envoy::program())
        .args(["--mode", "validate", "--config-path", example])
        .output()
        .unwrap();

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
