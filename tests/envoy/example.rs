//! The configuration that users begin with.

use std::process::Command;

use crate::support::envoy;

#[test]
fn envoy_takes_the_examples() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/envoy");
    for example in ["full-duplex.yaml", "fallback-list.yaml"] {
        let output = Command::new(envoy::program())
            .args(["--mode", "validate", "--config-path"])
            .arg(format!("{examples}/{example}"))
            .output()
            .unwrap();

        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{example}: {said}");
    }
}
