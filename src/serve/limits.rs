//! What the process may use: memory, connections and file descriptors.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where the hierarchy of control groups is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Parts of the memory that requests may use: half of it. The other half is for what is kept about them, and for what is
/// allocated and not counted.
const REQUESTS_SHARE: u64 = 2;

/// Less than this is a mistake, or an experiment.
const LITTLE_MEMORY: u64 = 256 << 20;

/// What the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// The memory of the process, if anything says how much that is.
    pub memory: Option<MemoryLimit>,
    /// Bytes of it that requests may use.
    pub requests: usize,
    /// Connections of each port.
    pub connections: usize,
    /// File descriptors. `None`: there is no limit, or it is not known.
    pub descriptors: Option<u64>,
}

impl ProcessLimits {
    /// The limits that follow from these.
    pub fn new(memory: Option<MemoryLimit>, connections: usize, descriptors: Option<u64>) -> Self {
        let bytes = memory.map_or(u64::MAX, |memory| memory.bytes / REQUESTS_SHARE);
        Self {
            memory,
            requests: usize::try_from(bytes).unwrap_or(usize::MAX),
            connections,
            descriptors,
        }
    }

    /// What is likely to be too little.
    pub fn doubts(&self) -> impl Iterator<Item = String> {
        self.doubts_of_memory().into_iter().chain(self.doubts_of_descriptors())
    }

    fn doubts_of_memory(&self) -> Option<String> {
        let MemoryLimit { bytes, source } = self.memory.filter(|memory| memory.bytes < LITTLE_MEMORY)?;
        Some(format!(
            "the memory limit of {} MiB (by {source}) is little: Forebay takes some tens of MiB for itself; give at least {} MiB",
            bytes >> 20,
            LITTLE_MEMORY >> 20
        ))
    }

    /// There are three ports, and files and endpoints besides.
    fn doubts_of_descriptors(&self) -> Option<String> {
        let ports = 3 * self.connections as u64;
        let descriptors = self.descriptors.filter(|descriptors| *descriptors <= ports)?;
        Some(format!(
            "the system allows {descriptors} file descriptors, and the connections of three ports alone may be {ports}: \
             raise the hard limit (`ulimit -Hn`) or lower `--max-connections`"
        ))
    }
}

impl fmt::Display for ProcessLimits {
    /// For the log, in MiB.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: u64| bytes >> 20;
        match self.memory {
            Some(MemoryLimit { bytes, source }) => write!(
                f,
                "memory {} MiB (by {source}), of which requests may use {} MiB",
                mebibytes(bytes),
                mebibytes(self.requests as u64)
            )?,
            None => f.write_str("memory unknown, so requests may use any amount")?,
        }
        write!(f, "; {} connections on each port; file descriptors ", self.connections)?;
        match self.descriptors {
            Some(descriptors) => write!(f, "{descriptors}"),
            None => f.write_str("without a limit"),
        }
    }
}

/// Memory that may be used, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// Where it comes from, for the log.
    pub source: &'static str,
}

impl MemoryLimit {
    /// The limit of the control group, or else the memory of the machine.
    pub fn of_this_process() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let machine = fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| machine_memory(&text));
        let cgroup = cgroup_limit(Path::new(CGROUPS), &own);
        match (cgroup, machine) {
            // Where there is no limit, old kernels tell one beyond all memory.
            (Some(bytes), machine) if machine.is_none_or(|machine| bytes < machine) => Some(Self {
                bytes,
                source: "the control group",
            }),
            (_, machine) => machine.map(|bytes| Self {
                bytes,
                source: "the machine",
            }),
        }
    }
}

/// Allows as many file descriptors as the system permits, and tells how many those are. `None`: there is no limit, or it
/// is not known.
pub fn raise_descriptors() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// The least limit of a control group and those above it. `own` is `/proc/self/cgroup`.
fn cgroup_limit(root: &Path, own: &str) -> Option<u64> {
    let groups = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (mount, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            names if names.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        Some((mount, path.trim_start_matches('/').to_owned(), file))
    });
    let limits = groups.flat_map(|(mount, path, file)| {
        let own: PathBuf = mount.join(path);
        let lines: Vec<_> = own
            .ancestors()
            .take_while(|group| group.starts_with(&mount))
            .filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok())
            .collect();
        lines
    });
    limits.min()
}

/// Bytes of all memory, by `/proc/meminfo`.
fn machine_memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_little_get_a_word() {
        let memory = |bytes| {
            Some(MemoryLimit {
                bytes,
                source: "--memory-limit",
            })
        };
        let doubts = |limits: ProcessLimits| limits.doubts().collect::<Vec<_>>().join("; ");

        assert_eq!(doubts(ProcessLimits::new(memory(2 << 30), 1024, Some(20_000))), "");
        let little = doubts(ProcessLimits::new(memory(64 << 20), 1024, Some(1024)));
        assert!(little.contains("64 MiB (by --memory-limit) is little"), "{little}");
        assert!(little.contains("allows 1024 file descriptors"), "{little}");
    }

    fn groups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_holds() {
        let root = groups(&[
            ("pod/container/memory.max", "max\n"),
            ("pod/memory.max", "2147483648\n"),
            ("memory.max", "max\n"),
        ]);

        assert_eq!(cgroup_limit(root.path(), "0::/pod/container\n"), Some(2 << 30));
        assert_eq!(cgroup_limit(root.path(), "0::/\n"), None);
    }

    #[test]
    fn a_container_that_sees_its_own_group_as_the_root_finds_its_limit() {
        let root = groups(&[("memory.max", "536870912\n")]);

        assert_eq!(cgroup_limit(root.path(), "0::/\n"), Some(512 << 20));
    }

    #[test]
    fn the_first_version_of_control_groups_is_understood() {
        let root = groups(&[("memory/docker/x/memory.limit_in_bytes", "1073741824\n")]);

        let own = "12:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n";

        assert_eq!(cgroup_limit(root.path(), own), Some(1 << 30));
    }

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(
            machine_memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"),
            Some(16 << 20)
        );
        assert_eq!(machine_memory(""), None);
        assert!(MemoryLimit::of_this_process().is_some());
    }
}
