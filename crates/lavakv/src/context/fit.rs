//! Sizes that fit the volume and the space limit.
//!
//! The reserve of a store grows with its pieces: memtables, log groups, value files, tables. With the default options it
//! is a few hundred megabytes. A volume or a limit of a hundred has no room for that: the store would fill it to the last
//! page, without room for a flush of the log or for the outputs of a compaction. So all pieces are halved until the overhead
//! of an empty store is a small part of both.
//!
//! The options state the sizes at most, and are stored unchanged. Each open looks at volume and limit anew.

use crate::context::family_options::FamilyOptions;
use crate::context::options::{Options, SpaceLimit};
use crate::context::sizes::overhead_bytes;

/// The overhead of an empty store is at most this part of its room on the volume, and of its space limit. About half of the
/// overhead is the reserve, which no data takes.
const OVERHEAD_PART: u64 = 4;
/// The smallest pieces, bytes.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// The most halvings that make a piece smaller: options have 4 GiB at most.
const HALVES_MAX: u32 = 16;

/// How often the sizes of the options are halved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fit {
    halves: u32,
}

impl Fit {
    /// Every piece is as small as it can be.
    pub const SMALLEST: Fit = Fit { halves: HALVES_MAX };

    /// For a store with so many bytes of room on its volume, the own files included, and a volume of so many bytes; `None`: unknown,
    /// taken for large.
    pub fn to(options: &Options, (volume_bytes, total_bytes): (Option<u64>, Option<u64>)) -> Fit {
        let volume = volume_bytes.unwrap_or(u64::MAX);
        let limit = match options.space_limit {
            Some(SpaceLimit::Bytes(bytes)) => bytes,
            Some(SpaceLimit::VolumePercent(percent)) => {
                total_bytes.map_or(u64::MAX, |total| SpaceLimit::percent_of(percent, total))
            }
            Some(SpaceLimit::Ratio(_)) | None => u64::MAX,
        };
        let fits = |fit: &Fit| fit.overhead_bytes(options) <= volume.min(limit) / OVERHEAD_PART;
        (0..HALVES_MAX).map(|halves| Fit { halves }).find(fits).unwrap_or(Fit::SMALLEST)
    }

    /// The overhead of an empty store with these sizes.
    pub fn overhead_bytes(self, options: &Options) -> u64 {
        overhead_bytes(&self.store(options), &self.family(&options.family))
    }

    /// The options of the store. Those of the default family are as they were given.
    pub fn store(self, options: &Options) -> Options {
        let memtable_bytes = self.piece(options.memtable_bytes as u64) as usize;
        let pages = self.piece(options.expert.log_group_bytes) / io::PAGE as u64;
        let fitted = Options { memtable_bytes, ..options.clone() }
            .expert(|expert| expert.log_group_bytes = pages * io::PAGE as u64);
        let most = options.memory_bytes();
        let memory_bytes = (most >> self.halves).max(fitted.memory_bytes_min());
        Options { memory_bytes: memory_bytes.min(most), ..fitted }
    }

    /// The options of a family.
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
