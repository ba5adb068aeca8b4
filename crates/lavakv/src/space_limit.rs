//! The space contract: how much the store occupies, and of how much it may.
//!
//! What is occupied is kept by [`Meter`] as the files change; nobody lists the directory to know it.

use crate::engine::Engine;
use crate::metered_fs::{Meter, MeteredFs};
use io::Env;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the store occupies, and what the volume had when it was last asked.
#[derive(Debug)]
pub(crate) struct SpaceBudget {
    meter: Arc<Meter>,
    volume_bytes: AtomicU64,
    volume_used_bytes: AtomicU64,
    /// When the volume is to be asked again, in clock nanoseconds.
    ask_at_ns: AtomicU64,
}

/// The volume is asked how full it is at most this often.
const ASK_NS: u64 = 100_000_000;

impl SpaceBudget {
    /// The budget of the store in `dir`, and the environment through which all its files must be made.
    pub fn over(env: &Env, dir: &Path) -> (SpaceBudget, Env) {
        let meter = Arc::new(Meter::new(dir));
        let fs = MeteredFs { inner: env.fs.clone(), meter: meter.clone() };
        let budget = SpaceBudget {
            meter,
            volume_bytes: AtomicU64::new(0),
            volume_used_bytes: AtomicU64::new(0),
            ask_at_ns: AtomicU64::new(0),
        };
        (budget, Env { fs: Arc::new(fs), ..env.clone() })
    }

    /// The count of the files.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Asks the volume how full it is, unless it was asked a moment ago. After files were installed or removed.
    pub fn refresh(&self, engine: &Engine) {
        let now_ns = engine.env.clock.now_ns();
        if now_ns < self.ask_at_ns.load(Ordering::Relaxed) {
            return;
        }
        self.ask_at_ns.store(now_ns + ASK_NS, Ordering::Relaxed);
        // A volume that does not say is taken for what it was.
        let Ok(space) = engine.env.fs.space(&engine.dir) else { return };
        self.volume_bytes.store(space.total, Ordering::Relaxed);
        self.volume_used_bytes.store(space.total.saturating_sub(space.available), Ordering::Relaxed);
    }
}

impl Engine {
    /// Bytes that the store's files occupy now.
    #[allow(dead_code, reason = "schedulers and admission come with the next changes")]
    pub fn used_bytes(&self) -> u64 {
        self.space.meter.used_bytes()
    }

    /// How full the volume is, in percent; 0 as long as nobody knows. Cheap: to be asked whenever a job is picked.
    pub fn fill_percent(&self) -> u64 {
        let total = self.space.volume_bytes.load(Ordering::Relaxed);
        let used = self.space.volume_used_bytes.load(Ordering::Relaxed);
        used.saturating_mul(100).checked_div(total).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
