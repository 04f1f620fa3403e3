//! What a browser makes of a page.

use std::path::Path;
use std::process::Command;

/// Names under which a browser is looked for on the PATH.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What was left of a page after its scripts ran.
pub(crate) struct Seen {
    /// The document, as HTML.
    pub(crate) dom: String,
    /// What was written to the console, errors of the page included.
    pub(crate) console: Vec<String>,
}

/// Loads a page from a file into a window of so many pixels in a headless Chromium: the one that `FOREBAY_CHROMIUM` names, or one on the PATH.
pub(crate) fn load(page: &Path, width: u32) -> Seen {
    let profile = tempfile::tempdir().unwrap();
    let output = browser()
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let console = said.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned);
    Seen {
        dom: String::from_utf8(output.stdout).expect("a dumped document is UTF-8"),
        console: console.collect(),
    }
}

fn browser() -> Command {
    if let Some(path) = std::env::var_os("FOREBAY_CHROMIUM") {
        return Command::new(path);
    }
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let name = NAMES.into_iter().find(runs);
    Command::new(name.expect(
        "this test needs Chromium: install Debian's package chromium, or set FOREBAY_CHROMIUM to the path of one",
    ))
}
