//! `forebay docs`: pages of the documentation that are made from the program itself.

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
}

impl Page {
    fn text(self) -> String {
        match self {
            Self::Plugins => plugins::page(),
            Self::Metrics => metrics::page(),
            Self::Flags => flags::page(),
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
            let name = page
                .to_possible_value()
                .expect("no page is hidden")
                .get_name()
                .to_owned();
            let path = format!("{}/docs/{name}.md", env!("CARGO_MANIFEST_DIR"));

            let kept = std::fs::read_to_string(&path).expect("the page is there");

            assert!(kept == page.text(), "docs/{name}.md is out of date: run `make docs`");
        }
    }
}
