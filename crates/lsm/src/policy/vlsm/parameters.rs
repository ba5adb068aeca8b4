//! Parameters of `vlsm`, their encoding, and the sizes derived from them.
//!
//! The encoding has six varints in this order: `table_bytes`, `poor_percent`, `level_1_tables`,
//! `growth_max`, the reference of `overlap` (0: the table, 1: a full table), and `queue_tables`. If
//! the last is missing it has its default. An empty encoding stands for all defaults.

use crate::policy::cutter::PHYSICAL_BYTES_MIN;
use crate::policy::leveled::parameters::Leveled;
use base::codec::{Reader, put_varint};
use base::{Error, Result};
use version::Version;

/// Chooses the reference size for the overlap of a good table of level 1, a tuning of
/// [`VlsmOptions`] that few programs need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlapOf {
    /// The overlap is at most `level_1_tables` times the length of the table. Then its merge costs
    /// no more than in a tree whose levels grow by that factor.
    #[default]
    Table,
    /// The overlap is at most the length of `level_1_tables` full tables, however short the table.
    FullTable,
}

/// Tunes the compaction policy `vlsm` ([`PolicyChoice::vlsm`](crate::policy::PolicyChoice::vlsm));
/// the defaults suit most programs. Values out of range are refused with `InvalidArgument` when a
/// family uses them.
///
/// ```
/// use lavastore_lsm::policy::{PolicyChoice, VlsmOptions};
/// let small = VlsmOptions { table_bytes: 2 << 20, ..VlsmOptions::default() };
/// assert_eq!(PolicyChoice::vlsm(&small).name, "vlsm");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlsmOptions {
    /// M: target size of a table, and of the data that level 0 sends down at once. Bytes, 4 KiB to
    /// 4 GiB; above the `file_bytes` of the family these apply. Default: 8 MiB.
    pub table_bytes: u64,
    /// m: size at which a table of level 1 with too much overlap ends, in percent of M, 1 to 100.
    /// At least that much data then justifies its merge. Default: 50.
    pub poor_percent: u32,
    /// f: number of tables of size M in level 1, 1 to 1000. A good table of level 1 overlaps at
    /// most f times its own length in level 2. Default: 8.
    pub level_1_tables: u32,
    /// F: maximum ratio of level 2 to level 1, 2 to 1000; beyond that a level is added. Default:
    /// 12.
    pub growth_max: u32,
    /// Reference size for the overlap of a good table. Default: the table.
    pub overlap: OverlapOf,
    /// q: number of level 0 tables that may contain a key before they go down. With a larger q,
    /// level 1 is rewritten less often, and a read may have to search more tables. 1 to 1000; the
    /// policy uses at least the `l0_compaction_files` of the family, and at most half of its
    /// `l0_slowdown_files`. Default: 8.
    pub queue_tables: u32,
}

/// Default of `queue_tables`.
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
        let fault = || {
            Error::invalid(format!(
                "compaction policy \"vlsm\" version 1 takes five or six numbers as parameters, not these \
                 {} bytes",
                bytes.len()
            ))
        };
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
    /// Parameters shared with `leveled`: everything below level 2, and the sizes of tables. Its
    /// `file_bytes` are M.
    pub tree: Leveled,
    /// Parameters of vLSM itself.
    pub options: VlsmOptions,
}

impl Vlsm {
    /// Returns the policy for a tree with the parameters of `tree`. Its tables are at most as long
    /// as those of `tree`.
    pub fn new(options: VlsmOptions, tree: Leveled) -> Self {
        let table_bytes = options.table_bytes.min(tree.file_bytes).max(1);
        let tree = Leveled { file_bytes: table_bytes, ..tree };
        Vlsm { tree, options: VlsmOptions { table_bytes, ..options } }
    }

    /// Returns f.
    pub(in crate::policy) fn factor(&self) -> u64 {
        u64::from(self.options.level_1_tables.max(1))
    }

    /// Returns F.
    pub(super) fn growth_max(&self) -> u64 {
        u64::from(self.options.growth_max.max(2))
    }

    /// Returns q.
    pub(super) fn queue_tables(&self) -> u64 {
        u64::from(self.options.queue_tables).max(self.tree.l0_compaction_files as u64)
    }

    /// Returns m, in compensated bytes.
    pub(in crate::policy) fn poor_bytes(&self) -> u64 {
        self.tree.file_bytes / 100 * u64::from(self.options.poor_percent.min(100))
    }

    /// Returns the minimum physical length at which a table of level 1 is cut for its overlap.
    pub(in crate::policy) fn least_bytes(&self) -> u64 {
        PHYSICAL_BYTES_MIN.min(self.tree.file_bytes / 4)
    }

    /// Returns the maximum overlap of a good table with `bytes`, if a full table of the next level
    /// has `full`. All are physical bytes.
    pub(in crate::policy) fn good_overlap(&self, bytes: u64, full: u64) -> u64 {
        let of = if self.options.overlap == OverlapOf::Table { bytes } else { full };
        of.saturating_mul(self.factor())
    }

    /// Returns the maximum overlap of a table of level 1, in physical bytes; beyond that it ends,
    /// whatever its length. A full table of average density overlaps F tables, and one partly
    /// covered table at each end.
    pub(in crate::policy) fn overlap_cap(&self, version: &Version, level: usize) -> u64 {
        self.tree.table_bytes(version, level + 1).saturating_mul(self.growth_max() + 2)
    }
}
