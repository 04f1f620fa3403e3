//! `forebay demo`, as a newcomer runs it.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use forebay::serve::demo::children::{Child, Signal};
use tempfile::TempDir;

use crate::support::{envoy, happens};

const PATIENCE: Duration = Duration::from_secs(60);

/// Ports that the demonstration uses.
const PORTS: u16 = 9;

struct Demo {
    child: Child,
    base: u16,
    _directory: TempDir,
}

impl Demo {
    /// Each test has a range of ports of its own, below those that the system gives out.
    fn start(ports: std::ops::Range<u16>, flags: &[&str]) -> Self {
        let base = ports
            .step_by(usize::from(PORTS))
            .find(|&base| (base..base + PORTS).all(is_free))
            .expect("some ports are free");
        Self::start_at(base, flags)
    }

    fn start_at(base: u16, flags: &[&str]) -> Self {
        let directory = TempDir::with_prefix("forebay-test-").unwrap();
        let envoy = envoy::program();
        let mut arguments = vec!["demo".to_owned(), format!("--base-port={base}")];
        arguments.push(format!("--envoy={}", envoy.display()));
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let program = Path::new(env!("CARGO_BIN_EXE_forebay"));
        Self {
            child: Child::start("the demo", program, arguments, directory.path()).unwrap(),
            base,
            _directory: directory,
        }
    }

    async fn prints(&self, text: &str) {
        happens(&format!("the demo prints `{text}`"), PATIENCE, async || {
            let printed = self.child.printed();
            if printed.contains(text) { Ok(()) } else { Err(printed) }
        })
        .await;
    }

    /// Whether it ended well; in any case it has left no process that listens.
    async fn ends_well(&mut self) -> bool {
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("the demo ends")
            .unwrap();
        happens("all ports are free", PATIENCE, async || {
            match (self.base..self.base + PORTS).find(|&port| !is_free(port)) {
                None => Ok(()),
                Some(port) => Err(format!("{port} is not")),
            }
        })
        .await;
        assert!(!self.child.printed().contains("panicked"), "{}", self.child.printed());
        status.success()
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[tokio::test]
async fn once_it_shows_every_request_and_ends() {
    let mut demo = Demo::start(20_000..21_000, &["--once"]);

    assert!(demo.ends_well().await, "{}", demo.child.printed());

    let printed = demo.child.printed();
    assert!(
        (1..=24).all(|number| printed.contains(&format!("demo-{number} "))),
        "{printed}"
    );
    assert!(printed.contains("Requests per endpoint: server-"), "{printed}");
}

#[tokio::test]
async fn ctrl_c_ends_everything_that_runs() {
    let mut demo = Demo::start(21_000..22_000, &[]);
    demo.prints("Ctrl-C stops everything").await;

    demo.child.signal(Signal::INT);

    assert!(demo.ends_well().await, "{}", demo.child.printed());
}

#[tokio::test]
async fn a_closed_terminal_ends_everything_that_runs() {
    let mut demo = Demo::start(23_000..24_000, &[]);
    demo.prints("Ctrl-C stops everything").await;

    demo.child.signal(Signal::HUP);

    assert!(demo.ends_well().await, "{}", demo.child.printed());
}

#[tokio::test]
async fn a_signal_while_things_start_leaves_nothing_behind() {
    let mut demo = Demo::start(22_000..23_000, &[]);
    demo.prints("model servers").await;

    demo.child.signal(Signal::TERM);

    assert!(!demo.ends_well().await);
    assert!(
        demo.child
            .printed()
            .ends_with("error: stopped by a signal before the end of the demonstration\n"),
        "{}",
        demo.child.printed()
    );
}

#[tokio::test]
async fn a_port_in_use_is_named_with_the_flag_that_helps() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut demo = Demo::start_at(port, &["--once"]);

    let status = demo.child.wait().await.unwrap();

    assert!(!status.success());
    let printed = demo.child.printed();
    assert!(
        printed.starts_with(&format!("error: port `{port}` (Envoy) cannot be had")),
        "{printed}"
    );
    assert!(printed.contains("`--base-port`"), "{printed}");
}
