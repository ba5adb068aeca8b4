//! The space contract on a volume that fills up: the third part of [`crate::contract`].
//!
//! The user names a directory on a small, otherwise idle volume, such as a loop mount or a `tmpfs`
//! of 1 GB. Two stores run there one after the other: one without a limit, and one with a limit
//! above the volume's size, so that the free space is the limit. The live data is 90 % of the
//! initially free space unless `--num` says otherwise; [`crate::full`] runs the workload. Meanwhile
//! the free space is sampled continuously.

use crate::Result;
use crate::args::BenchArgs;
use crate::engine::Opener;
use crate::full::Full;
use crate::host::{StopOnDrop, WorkDir, now_ns, wait_until};
use crate::limit::{SAMPLE_NS, SpaceLimit};
use io::FileSystem;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Live data in percent of the initially free space.
const LIVE_PERCENT: u64 = 90;
/// The excessive limit as a multiple of the volume.
const BEYOND: u64 = 2;

/// The report of a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OnVolume {
    /// Limit of the store.
    pub limit_bytes: Option<u64>,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Initially free space.
    pub available_bytes: u64,
    /// Minimum free space.
    pub available_bytes_min: u64,
    /// Number of keys in the store.
    pub keys: u64,
    /// Raw bytes of keys and values.
    pub live_bytes: u64,
    /// Observations of the full store.
    #[serde(flatten)]
    pub full: Full,
}

impl OnVolume {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        format!(
            "volume, {:<7}{:.0} MB live of {:.0} MB free, {:.0} MB free at the least; {}",
            if self.limit_bytes.is_some() { "limit" } else { "none" },
            mb(self.live_bytes),
            mb(self.available_bytes),
            mb(self.available_bytes_min),
            self.full.text()
        )
    }
}

/// Runs both stores below `parent`, and removes them. Each is filled for `seconds`.
pub fn on_volume(
    args: &BenchArgs,
    opener: &dyn Opener,
    parent: &Path,
    seconds: f64,
) -> Result<Vec<OnVolume>> {
    let fs = io::Env::kernel().fs;
    [false, true]
        .into_iter()
        .map(|limited| one(args, opener, fs.as_ref(), parent, limited, seconds))
        .collect()
}

fn one(
    args: &BenchArgs,
    opener: &dyn Opener,
    fs: &dyn FileSystem,
    parent: &Path,
    limited: bool,
    seconds: f64,
) -> Result<OnVolume> {
    let dir = WorkDir::fresh(parent)?;
    let before = fs.space(dir.path())?;
    let limit_bytes = limited.then(|| before.total.saturating_mul(BEYOND));
    let num = args.num.unwrap_or_else(|| keys_of(args, before.available * LIVE_PERCENT / 100));
    let args = BenchArgs { num: Some(num), space_limit: limit_bytes.map(SpaceLimit::Bytes), ..args.clone() };
    let (least, stop) = (AtomicU64::new(before.available), AtomicBool::new(false));
    let full = std::thread::scope(|scope| {
        scope.spawn(|| watch(fs, dir.path(), &least, &stop));
        let _stop = StopOnDrop(&stop);
        Full::run(&args, opener, dir.path(), seconds)
    });
    Ok(OnVolume {
        limit_bytes,
        volume_bytes: before.total,
        available_bytes: before.available,
        available_bytes_min: least.into_inner(),
        keys: num,
        live_bytes: args.live_bytes(),
        full: full?,
    })
}

/// Returns the number of keys whose raw data, with values, is at most about `bytes`.
pub(crate) fn keys_of(args: &BenchArgs, bytes: u64) -> u64 {
    let each = (args.sizes().mean() + args.key_size as f64).max(1.0);
    let mut keys = (bytes as f64 / each) as u64;
    loop {
        let live = BenchArgs { num: Some(keys), ..args.clone() }.live_bytes();
        let over = live.saturating_sub(bytes);
        if over == 0 || keys <= 1 {
            return keys.max(1);
        }
        keys = keys.saturating_sub((over as f64 / each) as u64 + 1);
    }
}

fn watch(fs: &dyn FileSystem, dir: &Path, least: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if let Ok(space) = fs.space(dir) {
            least.fetch_min(space.available, Ordering::Relaxed);
        }
        wait_until(now_ns() + SAMPLE_NS);
    }
}
