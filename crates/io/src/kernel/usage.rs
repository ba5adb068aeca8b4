//! Counters of the process and of devices, for benchmarks and reports.
//!
//! All counters are read from `/proc` and `/sys`. Where these are not mounted, or lack a counter,
//! only the call fails. Counters only grow: take two readings and subtract.

use super::calls;
use super::handle::{dir_or_current, fail};
use base::{Error, ErrorKind, Result};
use rustix::fs::{FileType, major, minor};
use std::path::{Path, PathBuf};

/// Sector length of the kernel's counters, on any device.
const SECTOR: u64 = 512;
const NS_PER_MS: u64 = 1_000_000;
const KIB: u64 = 1024;

/// Resources that this process has used since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// CPU time of all threads, nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory now, bytes.
    pub rss_bytes: u64,
    /// Peak of the resident memory, bytes.
    pub rss_peak_bytes: u64,
    /// Bytes that reads fetched from storage (not from the page cache).
    pub read_bytes: u64,
    /// Bytes that writes sent, or will send, to storage.
    pub write_bytes: u64,
}

/// Operations of a block device since the start of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Cache flushes completed (0 on kernels before 5.5).
    pub flushes: u64,
    /// Time during which at least one request was in flight, nanoseconds.
    pub busy_ns: u64,
}

/// Returns the usage of this process.
pub fn process() -> Result<ProcessUsage> {
    let cpu_ns = calls::process_cpu_ns()
        .map_err(|e| Error::new(ErrorKind::Io, "cannot read the CPU time of the process").caused_by(e))?;
    let status = read_text(Path::new("/proc/self/status"))?;
    let io_path = Path::new("/proc/self/io");
    let io = read_text(io_path)?;
    Ok(ProcessUsage {
        cpu_ns,
        // Both lines exist for every process except kernel threads; a container's emulation may
        // leave them out.
        rss_bytes: field(&status, "VmRSS").unwrap_or(0).saturating_mul(KIB),
        rss_peak_bytes: field(&status, "VmHWM").unwrap_or(0).saturating_mul(KIB),
        read_bytes: counter(&io, "read_bytes", io_path)?,
        write_bytes: counter(&io, "write_bytes", io_path)?,
    })
}

/// Returns the counters of the device (or partition) that `path` is, or else of the one that holds
/// it. `Unsupported` where the file system is not on one device of its own (tmpfs, network, btrfs).
pub fn device(path: &Path) -> Result<DeviceCounters> {
    let stat = calls::stat(dir_or_current(path)).map_err(|e| fail("cannot look up a file", path, e))?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let number = if is_device { stat.st_rdev } else { stat.st_dev };
    let (major, minor) = (major(number), minor(number));
    let source = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    let text = read_text(&source).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            let why = "the file system has no block device of its own, so there are no I/O counters: name a \
                       path on a disk partition";
            Error::new(ErrorKind::Unsupported, why).at_file(path)
        }
        _ => e,
    })?;
    device_counters(&text, &source)
}

fn device_counters(text: &str, source: &Path) -> Result<DeviceCounters> {
    parse_device(text).ok_or_else(|| missing("the counters of a block device", source))
}

fn counter(text: &str, name: &str, path: &Path) -> Result<u64> {
    field(text, name).ok_or_else(|| missing(name, path))
}

fn missing(what: &str, path: &Path) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("this kernel does not report {what} in this file: use a kernel with I/O accounting"),
    )
    .at_file(path)
}

/// Reads a file of `/proc` or `/sys`, whose length is not known in advance.
pub(super) fn read_text(path: &Path) -> Result<String> {
    const TEXT_LEN_MAX: usize = 64 << 10;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let action = "cannot read a counter of the kernel";
    let fd = calls::open(path, flags, rustix::fs::Mode::empty()).map_err(|e| fail(action, path, e))?;
    let mut bytes = vec![0; TEXT_LEN_MAX];
    let mut len = 0;
    while len < bytes.len() {
        match calls::pread(&fd, &mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(fail(action, path, e)),
        }
    }
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// Returns the number after `name` and a colon at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Parses `/sys/block/*/stat`: reads, merged, sectors, ms; the same for writes; in flight, busy ms,
/// queued ms; the first four again for discards; flushes, ms.
fn parse_device(text: &str) -> Option<DeviceCounters> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(DeviceCounters {
        reads: *fields.first()?,
        read_bytes: fields.get(2)?.saturating_mul(SECTOR),
        writes: *fields.get(4)?,
        write_bytes: fields.get(6)?.saturating_mul(SECTOR),
        flushes: fields.get(15).copied().unwrap_or(0),
        busy_ns: fields.get(9)?.saturating_mul(NS_PER_MS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_kernel_counters_are_named() {
        let path = Path::new("/proc/self/io");
        assert_eq!(counter("read_bytes: 17\n", "read_bytes", path).unwrap(), 17);
        let refused = [
            counter("", "read_bytes", path).unwrap_err(),
            counter("read_bytes: 17\n", "write_bytes", path).unwrap_err(),
            device_counters("1 2 3", path).unwrap_err(),
        ];
        let named = ["read_bytes", "write_bytes", "the counters of a block device"];
        for (e, name) in refused.iter().zip(named) {
            assert_eq!((e.kind(), e.file()), (ErrorKind::Unsupported, Some(path)));
            let why =
                format!("this kernel does not report {name} in this file: use a kernel with I/O accounting");
            assert_eq!(e.message(), why);
        }
        // The kernel's virtual files have no device.
        assert_eq!(device(Path::new("/proc/self")).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
