//! The simulator, as its users call it: by its commands.

mod commands;
mod documentation;
mod flags;
mod replay;
mod scenarios;

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The root of the repository.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The program.
const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// A folder of its own, in which `forebay` is a command and `examples` is there.
#[derive(Debug)]
struct Workplace {
    folder: TempDir,
}

impl Workplace {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        symlink(FOREBAY, programs.join("forebay")).unwrap();
        symlink(Path::new(ROOT).join("examples"), folder.path().join("examples")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.path("programs").display()))
            .env_remove("FOREBAY");
        command
    }

    /// What comes of `forebay` with these words, which are divided by blanks.
    fn try_forebay(&self, words: &str) -> Output {
        self.command(FOREBAY).args(words.split_whitespace()).output().unwrap()
    }

    /// What `forebay` with these words says.
    fn forebay(&self, words: &str) -> String {
        said(words, self.try_forebay(words))
    }

    /// The document that a run prints.
    fn document(&self, words: &str) -> Value {
        serde_json::from_str(&self.forebay(&format!("{words} --output json"))).unwrap()
    }

    /// What `forebay` complains of, and it ends with 2.
    fn refused(&self, words: &str) -> String {
        complaint(words, self.try_forebay(words))
    }

    /// What `forebay compare` complains of, and it ends with 2. Each of `variants` may have blanks.
    fn refused_comparison(&self, variants: &[&str], words: &str) -> String {
        let variants_given = variants.iter().flat_map(|variant| ["--variant", variant]);
        let mut command = self.command(FOREBAY);
        command
            .arg("compare")
            .args(variants_given)
            .args(words.split_whitespace());
        complaint(&format!("{variants:?} {words}"), command.output().unwrap())
    }

    /// What a shell says that does this.
    fn shell(&self, script: &str) -> String {
        said(script, self.command("sh").args(["-eu", "-c", script]).output().unwrap())
    }
}

fn complaint(what: &str, output: Output) -> String {
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{what}: {complaint}");
    assert_eq!(output.stdout, b"", "{what} prints something");
    complaint
}

fn said(what: &str, output: Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}\n{complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// A metric of a configuration in the document of a comparison: its mean over the seeds.
fn figure(comparison: &Value, configuration: &str, metric: &str) -> f64 {
    let is_this = |row: &&Value| row["metric"] == metric;
    let rows = if comparison["baseline"] == configuration {
        &comparison["baseline_figures"]
    } else {
        let others = comparison["others"].as_array().unwrap();
        let other = others.iter().find(|other| other["name"] == configuration);
        &other.unwrap_or_else(|| panic!("no `{configuration}` is compared"))["differences"]
    };
    let row = rows.as_array().unwrap().iter().find(is_this);
    row.unwrap_or_else(|| panic!("`{configuration}` has no `{metric}`"))["mean"]
        .as_f64()
        .unwrap()
}
