//! `forebay docs`: files of the repository that are made from the program itself.

mod flags;
mod metrics;
mod plugins;

use clap::{Args, ValueEnum};

use super::print::print;

/// Writes a page of the documentation that is made from the program
#[derive(Debug, Args)]
pub(crate) struct DocsArgs {
    /// The page
    page: Page,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Page {
    /// docs/plugins.md
    Plugins,
    /// docs/metrics.md
    Metrics,
    /// docs/flags.md
    Flags,
    /// charts/forebay/files/flags.yaml
    ChartFlags,
}

impl Page {
    fn text(self) -> String {
        match self {
            Self::Plugins => plugins::page(),
            Self::Metrics => metrics::page(),
            Self::Flags => flags::page(),
            Self::ChartFlags => flags::of_chart(),
        }
    }

    /// Where it is kept.
    #[cfg(test)]
    fn path(self) -> &'static str {
        match self {
            Self::Plugins => "docs/plugins.md",
            Self::Metrics => "docs/metrics.md",
            Self::Flags => "docs/flags.md",
            Self::ChartFlags => "charts/forebay/files/flags.yaml",
        }
    }
}

pub(crate) fn run(args: &DocsArgs) -> anyhow::Result<()> {
    print(&args.page.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_in_the_repository_are_the_ones_that_are_made() {
        for page in Page::value_variants() {
            let path = page.path();

            let kept = std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR")));

            let kept = kept.expect("the page is there");
            assert!(kept == page.text(), "{path} is out of date: run `make docs`");
        }
    }
}
