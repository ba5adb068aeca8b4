//! Sizes that fit the volume.
//!
//! The reserve of a store grows with its pieces: memtables, log groups, value files, tables. With the default options it
//! comes to a few hundred megabytes, and a volume of a hundred could keep none of it: the store would fill it to the last
//! page, and then there is no room to flush what the log holds, nor for the outputs that would free something. So where the
//! volume has little for the store, all of these are halved until the overhead of an empty store is a small part of that.
//! The options are what they are at most, and are stored as they were given; each opening looks at the volume anew.

use crate::context::family_options::FamilyOptions;
use crate::context::options::Options;
use crate::context::sizes::overhead_bytes;

/// The overhead of an empty store is at most this part of what the volume has for it.
const OVERHEAD_PART: u64 = 4;
/// The smallest pieces, bytes.
const PIECE_BYTES_MIN: u64 = 512 << 10;
/// After so many halves nothing gets smaller: options have 4 GiB at most.
const HALVES_MAX: u32 = 13;

/// How often the sizes of the options are halved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fit {
    halves: u32,
}

impl Fit {
    /// For a store that may have so many bytes of its volume.
    pub fn to(options: &Options, volume_bytes: u64) -> Fit {
        let fits = |fit: &Fit| {
            let overhead = overhead_bytes(&fit.store(options), &fit.family(&options.family));
            overhead <= volume_bytes / OVERHEAD_PART
        };
        let mut all = (0..=HALVES_MAX).map(|halves| Fit { halves });
        all.clone().find(fits).or(all.next_back()).unwrap_or_default()
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
