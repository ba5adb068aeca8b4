//! Observers of `bench log`: readers that follow the logs, and a space sampler.

use super::{Follow, LogArgs, LogEngine, LogSite, fill};
use crate::Result;
use crate::host::{now_ns, wait_until};
use crate::space::{allocated, allocated_in};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Sampling interval of the directory.
const LOOK_NS: u64 = 50_000_000;
/// Wait of a reader at the end of a log before it polls the others again.
const PATIENCE: Duration = Duration::from_millis(5);

/// Counts of the observers.
#[derive(Debug, Default)]
pub struct Beside {
    /// Records received and compared by readers.
    pub followed: AtomicU64,
    /// Maximum size of the files in bytes.
    pub bytes_max: AtomicU64,
}

impl Beside {
    /// Follows the logs of a reader from their ends until `stop`: those whose number is congruent
    /// to its own modulo readers.
    ///
    /// # Errors
    /// Errors of the engine; a wrong or duplicate record.
    pub fn follow(
        &self,
        engine: &dyn LogEngine,
        args: &LogArgs,
        reader: u64,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut logs: Vec<(u64, Box<dyn Follow + '_>)> = Vec::new();
        for log in (reader..args.logs).step_by(args.tail_readers as usize) {
            let follow = engine.follow(log)?.ok_or("this engine cannot follow a log: omit --tail-readers")?;
            logs.push((log, follow));
        }
        let mut expected = vec![0; args.record_size];
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            let before = self.followed.load(Ordering::Relaxed);
            for (log, follow) in &mut logs {
                while let Some((lsn, bytes)) = follow.next(Duration::ZERO)? {
                    self.compare(*log, lsn, &bytes, &mut expected)?;
                }
            }
            if self.followed.load(Ordering::Relaxed) == before && !logs.is_empty() {
                at = (at + 1) % logs.len();
                let (log, follow) = &mut logs[at];
                if let Some((lsn, bytes)) = follow.next(PATIENCE)? {
                    self.compare(*log, lsn, &bytes, &mut expected)?;
                }
            }
        }
        Ok(())
    }

    fn compare(&self, log: u64, lsn: u64, bytes: &[u8], expected: &mut [u8]) -> Result<()> {
        fill(log, lsn, expected);
        if bytes != expected {
            return Err(format!(
                "wrong answer: a follower of log {log} read record {lsn} with other bytes than were appended; the run has no result: report it"
            )
            .into());
        }
        self.followed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Samples the space until `stop`.
    pub fn watch(&self, site: &LogSite, dir: &Path, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let space = site.device.as_ref().map_or_else(|| allocated(dir), |_| allocated_in(&site.env, dir));
            self.bytes_max.fetch_max(space.bytes, Ordering::Relaxed);
            wait_until(now_ns() + LOOK_NS);
        }
    }
}
