//! How long the device itself takes: a page written in place, around the page cache, in a file of its own beside the store,
//! again and again. One probe only writes, fifty times a second; another makes what it wrote durable, ten times a second.
//!
//! So few small writes change little for the store. What they wait for, any write to the device waits for at that moment; so a
//! long latency of the store with a long one of the probe in the same second is none that an engine imposes. Where such a
//! file cannot be made nothing is known, and the run goes on without.

use crate::Result;
use crate::host::{now_ns, wait_until};
use crate::record::Recorder;
use io::{Access, AlignedBuf, Env, PAGE};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pages of the file, written in turn.
const PAGES: u64 = 16;

/// What is written.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The file.
    name: &'static str,
    /// From one write to the next.
    between_ns: u64,
    /// It is made durable, and that is part of it.
    durable: bool,
}

/// A page is written.
pub const WRITE: Probe = Probe { name: "device-probe", between_ns: 20_000_000, durable: false };
/// A page is written and synced.
pub const SYNC: Probe = Probe { name: "sync-probe", between_ns: 100_000_000, durable: true };

/// Writes until `stop`; nothing if there can be no such file in `dir`.
///
/// # Errors
/// Those of the writes.
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
        // Behind the write: one is made in the shortest of runs.
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
