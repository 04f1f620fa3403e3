//! `forebay crds`: the definitions of the resources that are read from Kubernetes.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use forebay::serve::kube::api::MANIFESTS;

use super::print::print;

/// Prints the definitions of the Kubernetes resources that Forebay reads, for `kubectl apply -f -`
#[derive(Debug, Args)]
pub(crate) struct CrdsArgs {
    /// Writes each definition to a file of its own in this directory instead
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: &CrdsArgs) -> anyhow::Result<()> {
    let Some(directory) = &args.directory else {
        let documents = MANIFESTS.iter().map(|manifest| format!("---\n{}", manifest.yaml()));
        return print(&documents.collect::<String>());
    };
    fs::create_dir_all(directory).with_context(|| format!("cannot make the directory `{}`", directory.display()))?;
    for manifest in MANIFESTS {
        let file = directory.join(manifest.file_name());
        fs::write(&file, manifest.yaml()).with_context(|| format!("cannot write `{}`", file.display()))?;
    }
    Ok(())
}
