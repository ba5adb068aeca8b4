//! Resource samples of a soaked store and its process at rest; the second half is judged by the
//! first.

use crate::case::Outcome;
use crate::check::{Check, Doing, ensure};
use lavastore::Db;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Allowed growth of the second half, in addition to a constant.
const GROWTH_PERCENT: u64 = 25;
const MEMORY_SLACK: u64 = 32 << 20;
const DESCRIPTORS_SLACK: u64 = 32;
const DISK_SLACK: u64 = 32 << 20;
/// Allowed difference between the disk and the space report: the file system may allocate between
/// the two measurements.
const LEDGER_SLACK: u64 = 1 << 20;

/// Bytes, a count, bytes, and the 99th percentile of the write latency.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    memory: u64,
    descriptors: u64,
    disk: u64,
    p99_us: u64,
}

impl Sample {
    /// Waits until the store is idle, and samples.
    pub fn take(db: &Db, dir: &Path, latencies_us: &mut [u32]) -> Check<Sample> {
        ensure!(db.wait_idle(Duration::from_secs(300)), "the store does not come to rest: {}", db.describe());
        let disk = disk_bytes(dir)?;
        let told = db.space().doing(|| "space".into())?.total_bytes;
        ensure!(disk.abs_diff(told) <= LEDGER_SLACK, "{disk} B on disk, and the ledger says {told}");
        latencies_us.sort_unstable();
        let writes = latencies_us.len();
        let p99_us = u64::from(latencies_us.get(writes * 99 / 100).copied().unwrap_or_default());
        let (memory, descriptors) = (resident_bytes()?, entries(Path::new("/proc/self/fd"))?.count() as u64);
        println!(
            "soak: {} MB resident, {descriptors} descriptors, {} MB on disk, P99 of {writes} writes {p99_us} us",
            memory >> 20,
            disk >> 20,
        );
        Ok(Sample { memory, descriptors, disk, p99_us })
    }
}

/// Compares the largest samples of both halves.
pub(super) fn judge(samples: &[Sample], outcome: &mut Outcome) -> Check {
    ensure!(samples.len() >= 4, "{} rounds are too few to judge", samples.len());
    let (first, second) = samples.split_at(samples.len() / 2);
    let mut both = |names: [&'static str; 2], of: fn(&Sample) -> u64| {
        let most = |half: &[Sample]| half.iter().map(of).max().unwrap_or_default();
        outcome.note(names[0], most(first));
        outcome.note(names[1], most(second));
        (most(first), most(second))
    };
    let memory = both(["bytes resident, first half", "bytes resident, second half"], |s| s.memory);
    let descriptors = both(["descriptors, first half", "descriptors, second half"], |s| s.descriptors);
    let disk = both(["bytes on disk, first half", "bytes on disk, second half"], |s| s.disk);
    both(["P99 of writes, first half, us", "P99 of writes, second half, us"], |s| s.p99_us);
    within("resident memory", memory, MEMORY_SLACK)?;
    within("the number of open descriptors", descriptors, DESCRIPTORS_SLACK)?;
    within("space on disk", disk, DISK_SLACK)
}

fn within(what: &str, (before, after): (u64, u64), slack: u64) -> Check {
    let most = before + before * GROWTH_PERCENT / 100 + slack;
    ensure!(after <= most, "{what} grows: {before} at most in the first half, {after} in the second");
    Ok(())
}

/// Returns the resident memory of this process.
fn resident_bytes() -> Check<u64> {
    let status = std::fs::read_to_string("/proc/self/status").doing(|| "/proc/self/status".into())?;
    let told = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(told.and_then(|kb| kb.parse::<u64>().ok()).ok_or("/proc/self/status has no VmRSS")? << 10)
}

#[expect(clippy::disallowed_methods, reason = "looks at the process and the store from outside")]
fn entries(dir: &Path) -> Check<impl Iterator<Item = std::fs::DirEntry>> {
    Ok(std::fs::read_dir(dir).doing(|| dir.display().to_string())?.flatten())
}

/// Returns the allocated bytes of a directory's files.
fn disk_bytes(dir: &Path) -> Check<u64> {
    Ok(entries(dir)?.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_resource_use_is_reported() {
        let of = |i: u64| Sample { memory: 100 << 20, descriptors: 20 + i, disk: (50 << 20) * i, p99_us: 9 };
        let samples: Vec<Sample> = (1..=8).map(of).collect();
        let why = judge(&samples, &mut Outcome::default()).unwrap_err();
        assert!(why.starts_with("space on disk grows"), "{why}");
        let same = [of(1); 8];
        judge(&same, &mut Outcome::default()).unwrap();
    }
}
