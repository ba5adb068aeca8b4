//! What `vlsm` can be told, how that is stored, and the sizes that follow from it.
//!
//! Stored are six numbers, varints in this order: `table_bytes`, `poor_percent`, `level_1_tables`, `growth_max`, what
//! `overlap` is measured against (0: the table, 1: a full table), and `queue_tables`. Without the last it has its default, and no bytes at
//! all stand for all defaults.

use crate::policy::cutter::PHYSICAL_BYTES_MIN;
use crate::policy::leveled::parameters::Leveled;
use base::codec::{Reader, put_varint};
use base::{Error, Result};
use version::Version;

/// What the overlap of a good table of level 1 is measured against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlapOf {
    /// It is at most `level_1_tables` times as long as the table itself: then the table is no dearer to merge than in a tree
    /// whose levels grow by that factor.
    #[default]
    Table,
    /// It is at most as long as `level_1_tables` full tables, however short the table.
    FullTable,
}

/// The parameters of the compaction policy `vlsm` ([`PolicyChoice::vlsm`](crate::policy::PolicyChoice::vlsm)).
///
/// ```
/// use lavastore_lsm::policy::{PolicyChoice, VlsmOptions};
/// let small = VlsmOptions { table_bytes: 2 << 20, ..VlsmOptions::default() };
/// assert_eq!(PolicyChoice::vlsm(&small).name, "vlsm");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlsmOptions {
    /// M: the size of a table, and of what level 0 sends down at once. At most the `file_bytes` of the family. Default: 8 MiB.
    pub table_bytes: u64,
    /// A table of level 1 that meets too much ends at this part of M, in percent, so that what it meets is paid for at
    /// least that. Default: 50.
    pub poor_percent: u32,
    /// f: level 1 is to hold so many tables of M, and a good table of it meets at most as many of its own length in
    /// level 2. Default: 8.
    pub level_1_tables: u32,
    /// F: level 2 may be at most so many times as large as level 1; then a level is added. Default: 12.
    pub growth_max: u32,
    /// What the overlap of a good table is measured against. Default: the table.
    pub overlap: OverlapOf,
    /// q: in so many tables of level 0 a key may be before they go down. The more, the less often level 1 is rewritten, and the
    /// more tables a read may have to look into. At least the `l0_compaction_files` of the family, at most half of its
    /// `l0_slowdown_files`. Default: 8.
    pub queue_tables: u32,
}

/// Of those who do not say another.
const QUEUE_TABLES: u32 = 8;

impl Default for VlsmOptions {
    fn default() -> Self {
        VlsmOptions {
            table_bytes: 8 << 20,
            poor_percent: 50,
            level_1_tables: 8,
            growth_max: 12,
            overlap: OverlapOf::default(),
            queue_tables: QUEUE_TABLES,
        }
    }
}

impl VlsmOptions {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if *self != VlsmOptions::default() {
            let overlap = u64::from(self.overlap == OverlapOf::FullTable);
            let [poor, tables, growth, queue] =
                [self.poor_percent, self.level_1_tables, self.growth_max, self.queue_tables].map(u64::from);
            let numbers = [self.table_bytes, poor, tables, growth, overlap, queue];
            numbers.iter().for_each(|n| put_varint(&mut out, *n));
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(VlsmOptions::default());
        }
        let fault =
            || Error::invalid("compaction policy \"vlsm\" version 1: its parameters are five or six numbers");
        let mut r = Reader::new(bytes);
        let mut number = |name, low, high| within(name, r.varint().map_err(|_| fault())?, low, high);
        let table_bytes = number("table_bytes", 4 << 10, 4 << 30)?;
        let poor_percent = number("poor_percent", 1, 100)? as u32;
        let level_1_tables = number("level_1_tables", 1, 1000)? as u32;
        let growth_max = number("growth_max", 2, 1000)? as u32;
        let overlap = match number("overlap", 0, 1)? {
            0 => OverlapOf::Table,
            _ => OverlapOf::FullTable,
        };
        let queue_tables = match r.rest() {
            [] => QUEUE_TABLES,
            _ => within("queue_tables", r.varint().map_err(|_| fault())?, 1, 1000)? as u32,
        };
        match r.rest() {
            [] => Ok(VlsmOptions {
                table_bytes,
                poor_percent,
                level_1_tables,
                growth_max,
                overlap,
                queue_tables,
            }),
            _ => Err(fault()),
        }
    }
}

fn within(name: &str, value: u64, low: u64, high: u64) -> Result<u64> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    let text = format!("compaction policy \"vlsm\": {name} = {value} is out of range: {low} to {high}");
    Err(Error::invalid(text))
}

/// vLSM with its parameters.
#[derive(Clone, Debug)]
pub struct Vlsm {
    /// What is as in `leveled`: everything below level 2, and the sizes of tables. Its `file_bytes` are M.
    pub tree: Leveled,
    /// The rest.
    pub options: VlsmOptions,
}

impl Vlsm {
    /// In a tree that is otherwise as `tree` has it; its tables are no longer than there.
    pub fn new(options: VlsmOptions, tree: Leveled) -> Self {
        let table_bytes = options.table_bytes.min(tree.file_bytes).max(1);
        let tree = Leveled { file_bytes: table_bytes, ..tree };
        Vlsm { tree, options: VlsmOptions { table_bytes, ..options } }
    }

    /// f.
    pub(in crate::policy) fn factor(&self) -> u64 {
        u64::from(self.options.level_1_tables.max(1))
    }

    /// F.
    pub(super) fn growth_max(&self) -> u64 {
        u64::from(self.options.growth_max.max(2))
    }

    /// q.
    pub(super) fn queue_tables(&self) -> u64 {
        u64::from(self.options.queue_tables).max(self.tree.l0_compaction_files as u64)
    }

    /// m, compensated bytes.
    pub(in crate::policy) fn poor_bytes(&self) -> u64 {
        self.tree.file_bytes / 100 * u64::from(self.options.poor_percent.min(100))
    }

    /// No table of level 1 is cut for its overlap below so many physical bytes.
    pub(in crate::policy) fn least_bytes(&self) -> u64 {
        PHYSICAL_BYTES_MIN.min(self.tree.file_bytes / 4)
    }

    /// What a good table of so many bytes may meet at most, if a full one of the next level has `full`. All physical.
    pub(in crate::policy) fn good_overlap(&self, bytes: u64, full: u64) -> u64 {
        let of = if self.options.overlap == OverlapOf::Table { bytes } else { full };
        of.saturating_mul(self.factor())
    }

    /// What a table of level 1 may meet at most, physical bytes: beyond that it ends, whatever its length. A table of average
    /// density that is full meets F tables, one more that it enters last, and another that it ends in.
    pub(in crate::policy) fn overlap_cap(&self, version: &Version, level: usize) -> u64 {
        self.tree.table_bytes(version, level + 1).saturating_mul(self.growth_max() + 2)
    }
}
