//! CPU time, as the kernel counts it.

use std::fs;
use std::time::Duration;

/// CPU time of a process so far, user and system, of all threads that it has. Exact to the microsecond, unlike the
/// ticks of `/proc/<pid>/stat`; threads that have ended are not counted.
pub(crate) fn time_of(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("this is Linux, and the process runs");
    let times = tasks.map(|task| {
        let path = task.expect("threads stay").path().join("schedstat");
        let stat = fs::read_to_string(path).expect("the kernel counts the time of threads");
        let nanos = stat
            .split(' ')
            .next()
            .and_then(|nanos| nanos.parse().ok())
            .expect("the first number is the time on the CPU");
        Duration::from_nanos(nanos)
    });
    times.sum()
}
