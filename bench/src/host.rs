//! Measurements of the machine: time, counters of this process and of the device.
//!
//! A benchmark measures a real machine and never runs in simulation. So this module may ask the
//! system directly for data that the engine's interface does not provide (`/proc`, `/sys`,
//! directories not opened by an engine).
//!
//! * `/proc/self/io`: `write_bytes` counts pages when they become dirty in the page cache, and
//!   direct writes when they are submitted. So it includes files removed before their pages reached
//!   the device; `cancelled_write_bytes` counts those. Reads count when they go to the device.
//! * `/sys/dev/block/MAJOR:MINOR/stat`: sectors of 512 bytes, including the file system's journal
//!   and all other writes of the machine.

use crate::Result;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns monotonic nanoseconds since the first call.
#[allow(clippy::disallowed_methods, reason = "a benchmark times a real machine")]
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Waits until `due_ns`: sleeps first, then yields, because a sleep may overrun by some 60 us.
#[allow(clippy::disallowed_methods, reason = "a benchmark times a real machine")]
pub fn wait_until(due_ns: u64) {
    const SLEEP_ERROR_NS: u64 = 80_000;
    loop {
        let now = now_ns();
        if now >= due_ns {
            return;
        }
        if due_ns - now > SLEEP_ERROR_NS {
            std::thread::sleep(Duration::from_nanos(due_ns - now - SLEEP_ERROR_NS));
        } else {
            std::thread::yield_now();
        }
    }
}

/// Sets the stop flag of a scope's threads on drop, also in a panic, which would otherwise leave
/// the scope waiting.
#[derive(Debug)]
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counters of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessCounters {
    /// Bytes read from devices.
    pub read_bytes: u64,
    /// Bytes written to devices or dirtied in the page cache.
    pub write_bytes: u64,
    /// Dirty bytes dropped before they were written (truncated or removed files).
    pub cancelled_write_bytes: u64,
    /// Read system calls.
    pub read_calls: u64,
    /// CPU time of all threads, user and system.
    pub cpu_ns: u64,
    /// Peak resident memory.
    pub rss_peak_bytes: u64,
}

/// Returns the counters of this process; zeros if unavailable.
pub fn process_counters() -> ProcessCounters {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let field = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ProcessCounters {
        read_bytes: field(&io, "read_bytes:"),
        write_bytes: field(&io, "write_bytes:"),
        cancelled_write_bytes: field(&io, "cancelled_write_bytes:"),
        read_calls: field(&io, "syscr:"),
        cpu_ns: cpu_ns(),
        rss_peak_bytes: field(&status, "VmHWM:") * 1024,
    }
}

/// Returns CPU time from `/proc/self/stat`, in ticks of 10 ms on every relevant Linux.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the program's name, is in parentheses and may contain spaces.
    let rest = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10_000_000
}

/// Returns the number of threads of this process; 0 if unavailable.
pub fn threads() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Counters of a block device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceCounters {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// Returns the sysfs path of the device below `dir`, or of the device `dir`.
fn sys_device(dir: &Path) -> Option<String> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let found = std::fs::metadata(dir).ok()?;
    let dev = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    let major = ((dev >> 8) & 0xfff) | ((dev >> 32) & !0xfff);
    let minor = (dev & 0xff) | ((dev >> 12) & !0xff);
    Some(format!("/sys/dev/block/{major}:{minor}"))
}

/// Returns the counters of the device below `dir`; `None` without a device (tmpfs, overlays).
pub fn device_counters(dir: &Path) -> Option<DeviceCounters> {
    let text = std::fs::read_to_string(format!("{}/stat", sys_device(dir)?)).ok()?;
    let fields: Vec<u64> = text.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    Some(DeviceCounters {
        reads: *fields.first()?,
        read_bytes: fields.get(2)? * 512,
        write_bytes: fields.get(6)? * 512,
    })
}

/// Returns the logical block size of the device below `dir` in bytes; `None` without a device.
pub fn block_size(dir: &Path) -> Option<u64> {
    // A partition has no queue; its device has.
    let device = sys_device(dir)?;
    let of = |at: &str| std::fs::read_to_string(format!("{device}/{at}/queue/logical_block_size")).ok();
    of(".").or_else(|| of("..")).and_then(|text| text.trim().parse().ok())
}

/// Returns the read system calls of the calling thread; 0 if unavailable.
pub fn thread_read_calls() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap_or_default();
    io.lines().find_map(|l| l.strip_prefix("syscr:")).and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// The directory of a run, removed on drop unless it is kept.
#[derive(Debug)]
pub struct WorkDir {
    path: std::path::PathBuf,
    keep: bool,
}

impl WorkDir {
    /// Returns the directory named by the user: created if missing, refused if not empty (unless
    /// `reuse`), kept.
    #[allow(clippy::disallowed_methods, reason = "looks into a directory before any engine does")]
    pub fn named(path: &Path, reuse: bool) -> Result<Self> {
        // Creates the directory but no parents: a mistyped path is an error.
        if !path.is_dir() {
            std::fs::create_dir(path)
                .map_err(|e| std::io::Error::new(e.kind(), format!("cannot make {}: {e}", path.display())))?;
        }
        let mut entries =
            std::fs::read_dir(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        if !reuse && entries.next().is_some() {
            let name = path.display();
            let what = format!(
                "{name} is not empty, and nothing was run: name a new directory, or pass --reuse for a store of an earlier run"
            );
            return Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, what).into());
        }
        Ok(WorkDir { path: path.to_owned(), keep: true })
    }

    /// Returns a new directory below `parent`, removed at the end. A new `parent` gets a
    /// `.gitignore`.
    #[allow(clippy::disallowed_methods, reason = "makes a directory before any engine does")]
    pub fn fresh(parent: &Path) -> Result<Self> {
        if !parent.exists() {
            std::fs::create_dir_all(parent)
                .map_err(|e| format!("cannot create {}: {e}", parent.display()))?;
            let _ = std::fs::write(parent.join(".gitignore"), "*\n");
        }
        remove_orphans(parent);
        for attempt in 0..1000u32 {
            let path = parent.join(format!("run-{}-{attempt}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(WorkDir { path, keep: false }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(format!("cannot create {}: {e}", path.display()).into()),
            }
        }
        Err(format!(
            "every numbered name in {} is taken: remove old benchmark directories there",
            parent.display()
        )
        .into())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
            if let Some(parent) = self.path.parent() {
                remove_if_empty(parent);
            }
        }
    }
}

/// Removes the directories of killed processes.
#[allow(clippy::disallowed_methods, reason = "cleans up what this module made")]
fn remove_orphans(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let words: Option<Vec<&str>> = name.to_str().map(|name| name.split('-').collect());
        if let Some(["run", pid, _]) = words.as_deref()
            && pid.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes a run in `dir` and removes its store; a failed run is left for inspection.
#[allow(clippy::disallowed_methods, reason = "removes the directory of a store that was closed")]
pub fn alone<T>(dir: &Path, run: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let outcome = run(dir)?;
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(|e| format!("cannot remove {}: {e}", dir.display()))?;
    }
    Ok(outcome)
}

/// Removes the parent made by [`WorkDir::fresh`] after its last run.
#[allow(clippy::disallowed_methods, reason = "cleans up what this module made")]
fn remove_if_empty(parent: &Path) {
    let names: Vec<_> =
        std::fs::read_dir(parent).into_iter().flatten().flatten().map(|e| e.file_name()).collect();
    if names.len() == 1 && names[0] == ".gitignore" {
        let _ = std::fs::remove_dir_all(parent);
    }
}

/// Describes cores, memory and kernel in a line for the report.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, {} GiB, Linux {}", kib.div_ceil(1 << 20), kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_directory_is_removed_with_its_parent() {
        let parent = std::env::temp_dir().join(format!("bench-host-test-{}", std::process::id()));
        let dir = WorkDir::fresh(&parent).unwrap();
        let path = dir.path().to_owned();
        std::fs::create_dir(path.join("sub")).unwrap();
        assert!(path.exists());
        drop(dir);
        assert!(!parent.exists());
    }

    #[test]
    fn a_named_directory_with_files_is_refused() {
        let parent = std::env::temp_dir().join(format!("bench-named-test-{}", std::process::id()));
        std::fs::create_dir_all(parent.join("x")).unwrap();
        assert!(WorkDir::named(&parent, false).is_err());
        assert!(WorkDir::named(&parent, true).is_ok());
        std::fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn clock_advances_and_process_counters_are_readable() {
        let start = now_ns();
        wait_until(start + 2_000_000);
        assert!(now_ns() >= start + 2_000_000);
        assert!(process_counters().rss_peak_bytes > 0);
        assert!(threads() > 0);
    }
}
