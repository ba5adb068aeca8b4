//! Sizes that fit the volume and the space limit.
//!
//! The reserve of a store grows with the sizes of memtables, log groups, value files and tables.
//! With the default options it is a few hundred megabytes. On a volume of a hundred megabytes, or
//! with such a limit, the store would fill the last page. No space would be left for a log flush or
//! for the outputs of a compaction. So all sizes are halved until the overhead of an empty store is
//! a small part of both.
//!
//! The options are upper bounds, and are stored unchanged. Each open examines volume and limit
//! again.

use crate::context::family_options::FamilyOptions;
use crate::context::options::{Options, SpaceLimit};
use crate::context::sizes::overhead_bytes;

/// Divisor: the overhead of an empty store is at most this part of its room on the volume, and of
/// its space limit. About half of the overhead is the reserve, which holds no data.
const OVERHEAD_PART: u64 = 4;
/// Minimum of each size, bytes.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Number of halvings that reduce even the maximum of 4 GiB to the minimum.
const HALVES_MAX: u32 = 16;

/// The number of times that the sizes of the options are halved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SizeReduction {
    halves: u32,
}

impl SizeReduction {
    /// The strongest reduction: every size at its minimum.
    pub const SMALLEST: SizeReduction = SizeReduction { halves: HALVES_MAX };

    /// Returns the reduction for a store with this much room on its volume, its own files included,
    /// and for the size of the volume. `None`: unknown, treated as unlimited.
    pub fn to(options: &Options, (volume_bytes, total_bytes): (Option<u64>, Option<u64>)) -> SizeReduction {
        let volume = volume_bytes.unwrap_or(u64::MAX);
        let limit = match options.space_limit {
            Some(SpaceLimit::Bytes(bytes)) => bytes,
            Some(SpaceLimit::VolumePercent(percent)) => {
                total_bytes.map_or(u64::MAX, |total| SpaceLimit::percent_of(percent, total))
            }
            Some(SpaceLimit::Ratio(_)) | None => u64::MAX,
        };
        let fits = |fit: &SizeReduction| fit.overhead_bytes(options) <= volume.min(limit) / OVERHEAD_PART;
        (0..HALVES_MAX).map(|halves| SizeReduction { halves }).find(fits).unwrap_or(SizeReduction::SMALLEST)
    }

    /// Returns the overhead of an empty store with these sizes.
    pub fn overhead_bytes(self, options: &Options) -> u64 {
        overhead_bytes(&self.store(options), &self.family(&options.family))
    }

    /// Returns the reduced options of the store. The default family's options are unchanged.
    pub fn store(self, options: &Options) -> Options {
        let memtable_bytes = self.piece(options.memtable_bytes as u64) as usize;
        let pages = self.piece(options.expert.log_group_bytes) / io::PAGE as u64;
        let fitted = Options { memtable_bytes, ..options.clone() }
            .expert(|expert| expert.log_group_bytes = pages * io::PAGE as u64);
        let most = options.memory_bytes();
        let memory_bytes = (most >> self.halves).max(fitted.memory_bytes_min());
        Options { memory_bytes: memory_bytes.min(most), ..fitted }
    }

    /// Returns the reduced options of a family.
    pub fn family(self, options: &FamilyOptions) -> FamilyOptions {
        options.clone().derived().expert(|expert| {
            expert.file_bytes = self.piece(expert.file_bytes);
            expert.level_base_bytes = self.piece(expert.level_base_bytes).max(expert.file_bytes);
            expert.vsst_bytes = self.piece(expert.vsst_bytes);
        })
    }

    fn piece(self, bytes: u64) -> u64 {
        (bytes >> self.halves).max(PIECE_BYTES_MIN.min(bytes))
    }
}
