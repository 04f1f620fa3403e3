//! Makes Rust of the wire types in `proto/`, and finds out the commit. The engine alone needs no wire types, and then
//! nothing is made.

use std::path::Path;
use std::process::Command;

#[cfg(feature = "serve")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    tell_commit();
    let files = protox::compile(
        [
            "envoy/service/ext_proc/v3/external_processor.proto",
            "grpc/health/v1/health.proto",
        ],
        ["proto"],
    )?;
    // Bodies and headers are slices of the message they came in. Maps are ordered, so that equal messages are equal
    // bytes.
    tonic_prost_build::configure()
        .bytes(".envoy")
        .btree_map(".")
        .build_transport(false)
        .compile_fds(files)?;
    Ok(())
}

#[cfg(not(feature = "serve"))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    tell_commit();
}

/// Lets the program know its commit, if that can be found out. `FOREBAY_COMMIT` in the environment goes before: an image is
/// built without a repository.
///
/// Only in release builds: the script runs again with each commit, and whatever depends on its answer is built again.
fn tell_commit() {
    println!("cargo:rerun-if-env-changed=FOREBAY_COMMIT");
    if std::env::var_os("FOREBAY_COMMIT").is_some() || std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    if let Some(commit) = commit_of_package().or_else(commit_of_repository) {
        println!("cargo:rustc-env=FOREBAY_COMMIT={commit}");
    }
}

/// The commit that a published package was made of: cargo puts it there.
fn commit_of_package() -> Option<String> {
    let about = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = about.split_once("\"sha1\":")?;
    let commit = rest.split('"').nth(1)?;
    is_commit(commit).then(|| commit.to_owned())
}

/// The commit that is checked out, if this is the top of a repository and not a folder somewhere in another one.
fn commit_of_repository() -> Option<String> {
    let [top, commit, head] = [
        git(&["rev-parse", "--show-toplevel"])?,
        git(&["rev-parse", "HEAD"])?,
        git(&["rev-parse", "--git-path", "HEAD"])?,
    ];
    let here = Path::new(".").canonicalize().ok()?;
    if Path::new(&top).canonicalize().ok()? != here || !is_commit(&commit) {
        return None;
    }
    println!("cargo:rerun-if-changed={head}");
    // What HEAD refers to is a file of its own until it is packed.
    let branch = git(&["symbolic-ref", "-q", "HEAD"]).and_then(|name| git(&["rev-parse", "--git-path", &name]));
    for file in [branch, git(&["rev-parse", "--git-path", "packed-refs"])]
        .into_iter()
        .flatten()
    {
        if Path::new(&file).exists() {
            println!("cargo:rerun-if-changed={file}");
        }
    }
    Some(commit)
}

/// What git answers, if there is a git and it knows.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| answer.trim().to_owned())
}

fn is_commit(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
