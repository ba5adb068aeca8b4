//! The space report: every byte of the store's directory has an owner.
//!
//! The report is computed from a listing of the directory. The manifest and the lists of open files
//! determine the owner of each file. No running counters are involved, so the report cannot drift.
//! Garbage is derived as well (`values::ledger`), and `holders` computes the bytes that readers
//! hold. docs/guide/ledger.md explains how to read the report.

use crate::files::data_file::DataFile;
use crate::tree::family::{Family, ReadState};
use crate::work::jobs::Jobs;
use base::{HashMap, Result};
use hidden::UnexposedEstimate;
use lsm::TableSource;
use std::sync::Arc;
use store::fast_tier::FastTierSpace;
use version::names::{self, FileKind};
use wal::{Lane, PriorGroup};

mod hidden;
mod holders;
mod rest;

pub use holders::{Holder, HolderKind, LogHolder};
pub use rest::{RestReport, RestState};

/// Tells the owner of each byte on disk, to find the reason for the size of a store; `Db::space`
/// returns it.
///
/// The [`parts`](Space::parts) sum to `total_bytes`: the allocated, not logical, bytes that the
/// file system reports for the files of the store. *Exposed* garbage can be collected at once
/// (`Db::collect_garbage`). *Unexposed* garbage has to be found by compaction first
/// (`Db::compact_range`). [`Space::holders`] names snapshots and iterators to drop. All fields are
/// bytes unless their text has another unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Files of keys and small values. Compaction frees superseded entries in them.
    pub table_bytes: u64,
    /// Value files (vSSTs), which hold separated values, without exposed garbage: live values and
    /// unexposed garbage.
    pub value_bytes: u64,
    /// Exposed garbage: separated values that no key refers to any more. Collection frees it.
    pub garbage_bytes: u64,
    /// Obsolete tables and value files, held by iterators, by reads in progress, or until their
    /// removal. Drop the iterators in `holders` to free them.
    pub pinned_bytes: u64,
    /// Unfinished outputs of running flushes, compactions and collections.
    pub job_bytes: u64,
    /// The write-ahead log, with its spare files. `log_holder` names the family to flush if it is
    /// long.
    pub wal_bytes: u64,
    /// Manifests and the pointer to the current one.
    pub manifest_bytes: u64,
    /// Files of other engines in the same store, such as its logs (`Db::engines`).
    pub engines_bytes: u64,
    /// Unknown files, which the store neither reads nor removes.
    pub other_bytes: u64,
    /// Sum of the parts: all bytes that the file system has allocated for the store.
    pub total_bytes: u64,
    /// Unexposed garbage inside `value_bytes`: separated values that newer entries of tables or
    /// memtables supersede and that compaction has not dropped yet. An estimate, except for the
    /// part kept for snapshots, which is counted. Its bounds are `hidden_bytes_min` and
    /// `hidden_bytes_max`.
    pub hidden_bytes: u64,
    /// Lower bound of unexposed garbage: versions that compactions of this process kept for
    /// snapshots.
    pub hidden_bytes_min: u64,
    /// Upper bound of unexposed garbage. A table written before the open counts completely until a
    /// report has read it.
    pub hidden_bytes_max: u64,
    /// Lower bound of live data inside `table_bytes` and `value_bytes`: logical bytes of keys and
    /// values that no newer entry can supersede.
    pub live_bytes_min: u64,
    /// Part of `pinned_bytes` that no iterator holds. Running reads or jobs hold these files, or
    /// their removal is pending.
    pub pinned_unheld_bytes: u64,
    /// Inside `table_bytes` and `value_bytes`: versions that compactions kept only for snapshots
    /// that are still open, with keys, values and records.
    pub kept_bytes: u64,
    /// Inside `table_bytes` and `value_bytes`: files set aside as unreadable, by the lengths they
    /// should have. See [`crate::Db::damaged_files`].
    pub damaged_bytes: u64,
    /// Part of `wal_bytes`: groups with records that may be needed, including the active group. The
    /// rest are spares and the log's open pages.
    pub wal_in_use_bytes: u64,
    /// The column family that holds closed groups of the log, if any family has unflushed entries.
    pub log_holder: Option<LogHolder>,
    /// Snapshots and iterators with the space that each holds, oldest first.
    pub holders: Vec<Holder>,
    /// The store is open for reading only: snapshots and iterators of other processes are unknown
    /// here.
    pub is_read_only: bool,
    /// Bytes of memtables, in memory only and not in `total_bytes`.
    pub memtable_bytes: u64,
    /// Number of open snapshots.
    pub snapshots: u64,
    /// Age of the oldest open snapshot, nanoseconds; 0 without one.
    pub oldest_snapshot_ns: u64,
    /// Free bytes on the volume of the store's directory.
    pub available_bytes: u64,
    /// The fast tier, if the store has one: its part of `total_bytes`.
    pub speed: Option<FastTierSpace>,
    /// Levels on the fast tier, in thousandths: [`crate::ExpertOptions::fast_tier_levels`], or the
    /// current value of [`crate::ExpertOptions::fast_tier_adaptive`] in this process. `None`: there
    /// is no fast tier, or the store is open for reading only, so that only the writing process
    /// knows.
    pub fast_tier_levels_milli: Option<u32>,
    /// Maximum total size of the files: the limit, or the space available on the volume if that is
    /// less. 0: there is no limit, and the volume is not nearly full.
    pub limit_bytes: u64,
    /// Bytes below the limit reserved for flush, compaction, collection and deletes.
    pub reserve_bytes: u64,
    /// Whether a store without writes frees deleted data, and the reason if not.
    pub rest: RestReport,
    /// Space of each column family, in order of creation.
    pub families: Vec<FamilySpace>,
}

/// Finds the column family that uses the space, and its garbage; a part of [`Space`].
///
/// File lengths, not allocated bytes: only [`Space`] includes the overhead of the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilySpace {
    /// Name of the family.
    pub name: String,
    /// Non-empty levels of tables, the newest data first.
    pub levels: Vec<LevelSpace>,
    /// Number of value files (vSSTs), which hold separated values.
    pub vssts: u64,
    /// Bytes of the value files, garbage included.
    pub vsst_bytes: u64,
    /// Number of files that hold one large value.
    pub segments: u64,
    /// Number of names of former value files that lead to current ones.
    pub aliases: u64,
    /// Number of references to separated values in tables, superseded ones included.
    pub references: u64,
    /// Bytes of records in value files, garbage included.
    pub record_bytes: u64,
    /// Bytes of records that no table references any more: exposed garbage, which collection frees.
    pub garbage_bytes: u64,
    /// Maximum share of garbage in one value file, percent.
    pub garbage_percent_max: u64,
    /// Estimate of unexposed garbage, see [`Space::hidden_bytes`].
    pub hidden_bytes: u64,
    /// Lower bound of unexposed garbage, see [`Space::hidden_bytes_min`].
    pub hidden_bytes_min: u64,
    /// Upper bound of unexposed garbage, see [`Space::hidden_bytes_max`].
    pub hidden_bytes_max: u64,
    /// Lower bound of live data, see [`Space::live_bytes_min`].
    pub live_bytes_min: u64,
    /// Bytes of closed log groups held by the family's unflushed entries: a flush frees them.
    pub log_bytes: u64,
}

/// Shows the size of one level of a family, to judge the shape of its tree. Higher numbers have
/// older data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelSpace {
    /// Level number, from 0, the newest data.
    pub level: usize,
    /// Number of tables.
    pub files: u64,
    /// Bytes of the tables.
    pub bytes: u64,
    /// Bytes of the tables, counting each value with its key, and each tombstone as the data that
    /// it supersedes.
    pub compensated_bytes: u64,
    /// Number of entries in the tables, superseded versions and tombstones included.
    pub entries: u64,
}

impl FamilySpace {
    fn of(family: &Family, read_state: &ReadState, groups: &[PriorGroup]) -> FamilySpace {
        let (version, ledger) = (&read_state.version, &read_state.ledger);
        let used = version.levels.iter().enumerate().filter(|(_, files)| !files.is_empty());
        let level = |(level, files): (usize, &version::Level)| LevelSpace {
            level,
            files: files.len() as u64,
            bytes: files.bytes(),
            compensated_bytes: files.compensated_bytes(),
            entries: files.iter().map(|f| f.entries).sum(),
        };
        FamilySpace {
            name: family.name.clone(),
            levels: used.map(level).collect(),
            vssts: version.vssts.len() as u64,
            vsst_bytes: version.vssts.values().map(|v| v.len).sum(),
            segments: version.vssts.values().filter(|v| v.segment).count() as u64,
            aliases: version.aliases.len() as u64,
            references: version.references.values().map(|r| r.count).sum(),
            record_bytes: ledger.record_bytes(),
            garbage_bytes: ledger.exposed_bytes(),
            garbage_percent_max: ledger.ratio_ppm_max() / 10_000,
            log_bytes: family
                .read_state()
                .oldest_unflushed_seq()
                .map_or(0, |seq| holders::log_bytes_from(groups, seq)),
            ..FamilySpace::default()
        }
    }

    /// Adds the unexposed garbage. `kept_bytes`: records of versions kept only for snapshots,
    /// present or past.
    fn with_hidden(self, hidden: &UnexposedEstimate<'_>, kept_bytes: u64) -> FamilySpace {
        let bounds = hidden.bounds(None);
        let max = bounds.records_max;
        let min = kept_bytes.min(max);
        FamilySpace {
            hidden_bytes: hidden.likely().saturating_add(kept_bytes).clamp(min, max),
            hidden_bytes_min: min,
            hidden_bytes_max: max,
            live_bytes_min: bounds.live_min,
            ..self
        }
    }

    /// Returns the compensated bytes of all levels, and of the last one.
    fn index_bytes(&self) -> (u64, u64) {
        let all = self.levels.iter().map(|l| l.compensated_bytes).sum();
        (all, self.levels.last().map_or(0, |l| l.compensated_bytes))
    }

    /// Returns the compensated bytes of all levels relative to the last one, to see how much
    /// superseded data the tree holds. 1.11 is the ideal for levels that grow tenfold; 0 without
    /// tables. `compact_range` lowers it.
    pub fn index_amplification(&self) -> f64 {
        amplification(self.index_bytes())
    }
}

impl Space {
    /// Returns the name and value in bytes of each part of `total_bytes`, to print or chart them.
    /// [`Space::families`] divides the tables and values by family.
    ///
    /// `live` and `hidden` divide `value_bytes` by the estimate; all others are exact.
    pub fn parts(&self) -> [(&'static str, u64); 10] {
        [
            ("tables", self.table_bytes),
            ("live", self.value_bytes - self.hidden_bytes.min(self.value_bytes)),
            ("hidden", self.hidden_bytes.min(self.value_bytes)),
            ("garbage", self.garbage_bytes),
            ("pinned", self.pinned_bytes),
            ("jobs", self.job_bytes),
            ("wal", self.wal_bytes),
            ("manifest", self.manifest_bytes),
            ("engines", self.engines_bytes),
            ("other", self.other_bytes),
        ]
    }

    /// Returns the space amplification of the index over all families, as one number to watch; 0
    /// without tables: see [`FamilySpace::index_amplification`].
    pub fn index_amplification(&self) -> f64 {
        let families = self.families.iter().map(FamilySpace::index_bytes);
        amplification(families.fold((0, 0), |sum, family| (sum.0 + family.0, sum.1 + family.1)))
    }

    /// Adds a family to the sums.
    fn add(&mut self, own: FamilySpace) {
        let garbage = own.garbage_bytes.min(self.value_bytes);
        self.value_bytes -= garbage;
        self.garbage_bytes += garbage;
        self.hidden_bytes += own.hidden_bytes;
        self.hidden_bytes_min += own.hidden_bytes_min;
        self.hidden_bytes_max += own.hidden_bytes_max;
        self.live_bytes_min += own.live_bytes_min;
        self.families.push(own);
    }
}

fn amplification((all, last): (u64, u64)) -> f64 {
    if last == 0 { 0.0 } else { all as f64 / last as f64 }
}

/// Reads tables written before the open that are still unknown, up to a limit per report. Their
/// notes improve the bounds of unexposed garbage and of live data.
fn learn(jobs: &Jobs, families: &[Arc<Family>]) {
    let mut left = LEARNED_BYTES_MAX;
    for read_state in families.iter().map(|family| family.read_state()) {
        let files = read_state.version.levels.iter().flat_map(|level| level.iter());
        for file in files.filter(|file| file.known.notes().is_none()) {
            if left == 0 {
                return;
            }
            left = left.saturating_sub(file.len);
            // Readers report unreadable tables.
            if let Ok(notes) = jobs.files.tables.table(file).and_then(|table| table.notes()) {
                file.known.note(notes);
            }
        }
    }
}

/// Bytes of tables read per report, after which no further table is read.
const LEARNED_BYTES_MAX: u64 = 64 << 20;

/// Computes the report: lists the directory, and reads some tables.
pub(crate) fn space(jobs: &Jobs) -> Result<Space> {
    learn(jobs, &jobs.tree.families.all());
    known_space(jobs)
}

/// Computes the report without reading tables.
pub(crate) fn known_space(jobs: &Jobs) -> Result<Space> {
    let mut out = Space {
        memtable_bytes: jobs.space.memory.used(),
        is_read_only: jobs.files.manifest.is_read_only(),
        ..Default::default()
    };
    let obsolete = list(jobs, &mut out)?;
    let (mut readers, unheld_bytes) = holders::holders(jobs, &obsolete);
    (out.pinned_unheld_bytes, out.snapshots) = (unheld_bytes, jobs.tree.snapshots.all().len() as u64);
    let groups = jobs.log.reader().in_use();
    let families = jobs.tree.families.all();
    for family in &families {
        let read_state = family.read_state();
        let hidden = UnexposedEstimate::of(&read_state)?;
        holders::estimate_hidden(&hidden, &mut readers);
        let kept = jobs.tree.kept.of(holders::tables_of(&read_state));
        let sums = holders::share_out(&kept, &mut readers);
        out.kept_bytes += sums.held_bytes;
        out.add(FamilySpace::of(family, &read_state, &groups).with_hidden(&hidden, sums.record_bytes));
    }
    out.damaged_bytes = jobs
        .tree
        .damaged_files(|number| jobs.large.segments.holds(number))
        .iter()
        .map(|file| file.bytes)
        .sum();
    out.wal_in_use_bytes = groups.iter().map(|g| g.len).sum();
    out.log_holder = holders::log_holder(&families, &groups);
    out.oldest_snapshot_ns =
        readers.iter().filter(|h| h.kind == HolderKind::Snapshot).map(|h| h.age_ns).max().unwrap_or(0);
    out.holders = readers;
    out.available_bytes = jobs.context.env.fs.space(&jobs.context.dir)?.available;
    out.speed = FastTierSpace::of(&jobs.context.env, &jobs.context.dir)?;
    let is_placing = out.speed.is_some() && !out.is_read_only;
    out.fast_tier_levels_milli = is_placing.then(|| jobs.tree.speed.pointer(&jobs.context.options));
    out.limit_bytes = if jobs.space.is_limited() { jobs.space.limit_bytes() } else { 0 };
    out.reserve_bytes = jobs.space.reserve_bytes();
    out.rest = RestReport::of(jobs);
    debug_assert_eq!(out.parts().iter().map(|(_, n)| n).sum::<u64>(), out.total_bytes);
    Ok(out)
}

/// Lists the directory and attributes each file. Returns the bytes of obsolete files that still
/// exist.
fn list(jobs: &Jobs, out: &mut Space) -> Result<HashMap<u64, u64>> {
    let entries = jobs.context.env.fs.list(&jobs.context.dir)?;
    jobs.space.meter().correct(&entries);
    let state = jobs.files.manifest.state();
    let (listed, segments) = (jobs.files.obsolete.map(DataFile::number), jobs.large.segments.live());
    let mut obsolete = HashMap::default();
    let log_group = |number| state.store.log_groups.get(&state.store.log_groups.in_file(number)?);
    let log_lane = |number| log_group(number).map_or(Lane::FIRST, |group| group.lane);
    for entry in &entries {
        let bytes = entry.allocated;
        let owner = match names::parse(&entry.name) {
            Some(FileKind::Ksst(n) | FileKind::FastKsst(n)) if state.place_of(n).is_some() => {
                &mut out.table_bytes
            }
            Some(FileKind::Vsst(n) | FileKind::FastVsst(n)) if state.place_of(n).is_some() => {
                &mut out.value_bytes
            }
            Some(FileKind::Ksst(n) | FileKind::FastKsst(n) | FileKind::Vsst(n) | FileKind::FastVsst(n))
                if listed.contains(&n) =>
            {
                obsolete.insert(n, bytes);
                &mut out.pinned_bytes
            }
            Some(FileKind::Vsst(n)) if segments.contains(&n) => &mut out.value_bytes,
            Some(FileKind::Ksst(_) | FileKind::FastKsst(_) | FileKind::Vsst(_) | FileKind::FastVsst(_)) => {
                &mut out.job_bytes
            }
            // Other lanes belong to other engines.
            Some(FileKind::Log(n)) if log_lane(n) != Lane::FIRST => &mut out.engines_bytes,
            Some(FileKind::Log(_) | FileKind::Room(_) | FileKind::Tail(_) | FileKind::Staging) => {
                &mut out.wal_bytes
            }
            Some(
                FileKind::Manifest(_)
                | FileKind::ManifestCopy(_)
                | FileKind::Current
                | FileKind::CurrentTemp
                | FileKind::CurrentCopy
                | FileKind::CurrentCopyTemp
                | FileKind::Unfinished
                | FileKind::FastTier,
            ) => &mut out.manifest_bytes,
            Some(FileKind::StagingTemp(0)) => &mut out.wal_bytes,
            Some(FileKind::Engine { .. } | FileKind::LaneStaging(_) | FileKind::StagingTemp(_)) => {
                &mut out.engines_bytes
            }
            Some(FileKind::Lock | FileKind::FastLock) | None => &mut out.other_bytes,
        };
        *owner += bytes;
        out.total_bytes += bytes;
    }
    Ok(obsolete)
}
