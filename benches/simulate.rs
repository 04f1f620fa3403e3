//! What a simulated run costs, by the number of requests: processor time and memory of the whole program, from its flags to
//! its figures.
#![allow(missing_docs)]
#![expect(clippy::print_stdout, reason = "a measurement is printed")]

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tokio::time::Instant;

/// How often the program is looked at while it runs: what it does after the last look is not seen.
const LOOK: Duration = Duration::from_millis(2);

/// Requests per second that an instance of the default model has to do with: about half of what it can.
const RATE: u32 = 4;

fn main() {
    for (instances, counts) in [(8, [1_000, 10_000, 100_000]), (64, [10_000, 100_000, 1_000_000])] {
        for count in counts {
            measure(instances, count);
        }
    }
}

/// Simulates once, with whatever flags are not needed left alone.
fn measure(instances: u32, count: u32) {
    let began = Instant::now();
    let mut run = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["simulate", "--model", "qwen/qwen3-14b", "--arrival", "poisson"])
        .args(["--num-instances", &instances.to_string()])
        .args(["--rate", &(instances * RATE).to_string()])
        .args(["--num-requests", &count.to_string()])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program can be started");
    let mut seen = Seen::default();
    let status = loop {
        if let Some(status) = run.try_wait().expect("the program can be waited for") {
            break status;
        }
        seen.look(run.id());
        sleep(LOOK);
    };
    assert!(status.success(), "the run ends well");
    println!(
        "simulate/{instances} instances/{count} requests: {:.2} s of CPU, {:.2} us for each request, {:.1} s in all, \
         {} MB",
        seen.cpu.as_secs_f64(),
        seen.cpu.as_secs_f64() * 1e6 / f64::from(count),
        began.elapsed().as_secs_f64(),
        seen.most_bytes / 1_000_000,
    );
}

/// What a process of one thread has used.
#[derive(Debug, Default)]
struct Seen {
    cpu: Duration,
    most_bytes: u64,
}

impl Seen {
    /// A process that has just ended leaves things as they were.
    fn look(&mut self, pid: u32) {
        let cpu = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
        if let Some(nanos) = cpu.split(' ').next().and_then(|nanos| nanos.parse().ok()) {
            self.cpu = self.cpu.max(Duration::from_nanos(nanos));
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kib) = most.and_then(|most| most.trim().strip_suffix(" kB")?.parse::<u64>().ok()) {
            self.most_bytes = self.most_bytes.max(kib * 1024);
        }
    }
}
