//! What Prometheus says of a metrics page.

use std::io::Write;
use std::process::{Command, Stdio};

/// Status of a promtool that could read the page, and has remarks.
const LINTED: i32 = 3;

/// Fails if `promtool check metrics` finds anything wrong with the page.
pub(crate) fn check(page: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test needs promtool on the PATH: it is in Debian's package prometheus");
    // One that does not read to the end has something to say.
    let _ = promtool.stdin.take().unwrap().write_all(page.as_bytes());
    let output = promtool.wait_with_output().unwrap();

    // The `d` of `llm_d` is taken for a unit of time; the name is the one that dashboards know.
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let complaints: Vec<_> = said
        .lines()
        .filter(|line| !(line.starts_with("llm_d_") && line.ends_with("should not contain abbreviated units")))
        .collect();
    assert!(complaints.is_empty(), "{complaints:#?} in:\n{page}");
    let parsed = [Some(0), Some(LINTED)].contains(&output.status.code());
    assert!(parsed, "{}", output.status);
}
