//! What goes on beside the writers of `bench log`: readers that follow the logs, and whoever looks how much space they take.

use super::{Follow, LogArgs, LogEngine, LogSite, fill};
use crate::Result;
use crate::host::{now_ns, wait_until};
use crate::space::{allocated, allocated_in};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks at the directory.
const LOOK_NS: u64 = 50_000_000;
/// How long a reader waits at the end of one log before it looks at the others again.
const PATIENCE: Duration = Duration::from_millis(5);

/// What was seen beside the writers.
#[derive(Debug, Default)]
pub struct Beside {
    /// Records that readers got, all of them compared.
    pub followed: AtomicU64,
    /// The most that the files took, bytes.
    pub bytes_max: AtomicU64,
}

impl Beside {
    /// Follows the logs of one of the readers until `stop`: those whose number is its own, modulo readers. Each from its end.
    ///
    /// # Errors
    /// Those of the engine; a record that is not what was appended, or that comes twice.
    pub fn follow(
        &self,
        engine: &dyn LogEngine,
        args: &LogArgs,
        reader: u64,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut logs: Vec<(u64, Box<dyn Follow + '_>)> = Vec::new();
        for log in (reader..args.logs).step_by(args.tail_readers as usize) {
            let follow = engine.follow(log)?.ok_or("this engine does not offer to follow a log")?;
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
            return Err(format!("wrong answer: who follows log {log} got another record {lsn}").into());
        }
        self.followed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Looks at the space that is taken, until `stop`.
    pub fn watch(&self, site: &LogSite, dir: &Path, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let space = site.device.as_ref().map_or_else(|| allocated(dir), |_| allocated_in(&site.env, dir));
            self.bytes_max.fetch_max(space.bytes, Ordering::Relaxed);
            wait_until(now_ns() + LOOK_NS);
        }
    }
}
