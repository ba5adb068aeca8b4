//! The size of a drawn store, and the sizes of its parts.

use crate::machine;
use crate::plan::pick;
use io::Rng;

/// Minimum and maximum size of a store of the row `quiet-large` in bytes.
const LARGE_BYTES: (u64, u64) = (1 << 20, 20 << 30);
/// Approximate number of values of a large store.
const VALUES: u64 = 20_000;
/// Up to this size, files and memtables have the sizes of the row `quiet`.
const UNSCALED_BYTES: u64 = 16 << 20;
/// Maximum scale: memtables have at most 512 KiB times this.
const SCALE_MAX: u64 = 256;
/// Size of a log group of an unscaled store in bytes.
const GROUP_BYTES: u64 = 256 << 10;

/// The size of a store and of its parts.
#[derive(Clone, Debug)]
pub(super) struct Size {
    /// Bytes of values written first.
    pub bytes: u64,
    /// Lengths of the shortest and the longest value in bytes.
    pub lens: (usize, usize),
    /// Size of files and memtables relative to a small store.
    pub scale: u64,
    /// Size of a log group in bytes.
    pub group_bytes: u64,
}

impl Size {
    /// Draws a size from 64 KB to 4 MB with equal probability per magnitude.
    pub fn small(rng: &mut Rng) -> Size {
        let lens = pick(rng, &[(20, 200), (400, 2_000), (20, 6_000)]);
        Size { bytes: (64 << 10) << rng.below(7), lens, scale: 1, group_bytes: GROUP_BYTES }
    }

    /// Draws a size from 1 MB to 20 GB with equal probability per magnitude; on LavaFS up to the
    /// size of the volume.
    pub fn large(rng: &mut Rng) -> Size {
        let (least, most) = LARGE_BYTES;
        let most = if machine::is_lavafs() { UNSCALED_BYTES } else { most };
        let bytes = (least as f64 * (most as f64 / least as f64).powf(rng.unit())) as u64;
        let longest = (2 * bytes / VALUES).clamp(200, 4 << 20) as usize;
        let scale = (bytes / UNSCALED_BYTES).clamp(1, SCALE_MAX);
        Size { bytes, lens: (longest / 4, longest), scale, group_bytes: GROUP_BYTES * scale.min(64) }
    }

    pub fn value_len(&self, rng: &mut Rng) -> usize {
        rng.range(self.lens.0 as u64, self.lens.1 as u64 + 1) as usize
    }
}
