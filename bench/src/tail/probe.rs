//! Latency of the device itself: repeated in-place writes of a page, bypassing the page cache, in a
//! separate file next to the store. One probe only writes, fifty times per second; another also
//! syncs, ten times per second.
//!
//! These few small writes hardly affect the store, but wait like any other write to the device. So
//! if a long latency of the store coincides with a long one of the probe, the engine did not cause
//! it. If the file cannot be created, the run continues without a probe.

use crate::Result;
use crate::host::{now_ns, wait_until};
use crate::record::Recorder;
use io::{Access, AlignedBuf, Env, PAGE};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of pages of the file, written in turn.
const PAGES: u64 = 16;

/// Parameters of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Name of the file.
    name: &'static str,
    /// Interval of the writes.
    between_ns: u64,
    /// Whether each write is synced within its latency.
    durable: bool,
}

/// Writes a page.
pub const WRITE: Probe = Probe { name: "device-probe", between_ns: 20_000_000, durable: false };
/// Writes and syncs a page.
pub const SYNC: Probe = Probe { name: "sync-probe", between_ns: 100_000_000, durable: true };

/// Writes until `stop`; `None` if the file cannot be created in `dir`.
///
/// # Errors
/// Errors of the writes.
pub fn probe(
    env: &Env,
    dir: &Path,
    probe: Probe,
    start_ns: u64,
    stop: &AtomicBool,
) -> Result<Option<Recorder>> {
    let path = dir.join(probe.name);
    let Ok(file) = env.fs.create_in_place(&path, PAGES * PAGE as u64, Access::Direct) else {
        return Ok(None);
    };
    let page = AlignedBuf::zeroed(PAGE);
    let mut record = Recorder::by_second(start_ns);
    let mut written = Ok(());
    for number in 0.. {
        let begin_ns = now_ns();
        written = file.write_at(&page, number % PAGES * PAGE as u64);
        if probe.durable && written.is_ok() {
            written = file.sync_data();
        }
        record.complete(begin_ns, now_ns(), 1, PAGE as u64);
        // Checked after the write, so that even the shortest run has one.
        if stop.load(Ordering::Relaxed) || written.is_err() {
            break;
        }
        wait_until(begin_ns + probe.between_ns);
    }
    drop(file);
    env.fs.remove(&path)?;
    written?;
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_write_and_leave_nothing() {
        let dir = crate::host::WorkDir::fresh(
            &std::env::temp_dir().join(format!("bench-probe-test-{}", std::process::id())),
        )
        .unwrap();
        for what in [WRITE, SYNC] {
            let stop = AtomicBool::new(false);
            let record = std::thread::scope(|scope| {
                let probe = scope.spawn(|| probe(&Env::kernel(), dir.path(), what, now_ns(), &stop));
                wait_until(now_ns() + 2 * what.between_ns);
                stop.store(true, Ordering::Relaxed);
                probe.join().unwrap().unwrap().unwrap()
            });
            assert!(record.ops > 0 && record.latency_ns.max() > 0);
            assert!(Env::kernel().fs.list(dir.path()).unwrap().is_empty());
            let nowhere = dir.path().join("none");
            assert!(probe(&Env::kernel(), &nowhere, what, 0, &AtomicBool::new(false)).unwrap().is_none());
        }
    }
}
