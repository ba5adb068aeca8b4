//! The space ledger: every byte of the store's directory has an owner.
//!
//! The sum is taken over a listing of the directory, each file attributed by what the manifest and the lists of files in
//! use say of it; nothing is counted along the way, so it cannot drift. Garbage is derived in turn (`values::ledger`). What
//! readers hold is worked out by the module `holders`. docs/guide/ledger.md tells how to read it.

use crate::files::data_file::DataFile;
use crate::tree::family::{Family, ReadState};
use crate::work::jobs::Jobs;
use base::{HashMap, Result};
use hidden::Hidden;
use lsm::TableSource;
use std::sync::Arc;
use store::speed::SpeedSpace;
use version::names::{self, FileKind};
use wal::{Lane, PriorGroup};

mod hidden;
mod holders;
mod rest;

pub use holders::{Holder, HolderKind, LogHolder};
pub use rest::{RestReport, RestState};

/// Who owns the bytes on disk. The [`parts`](Space::parts) sum to `total_bytes`, which is what the file system reports for
/// the files of the store (allocated, not logical, bytes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Tables (kSSTs) of the current state.
    pub table_bytes: u64,
    /// vSSTs of the current state, without the exposed garbage in them: live values and hidden garbage.
    pub value_bytes: u64,
    /// Exposed garbage: records of vSSTs that no table references any more.
    pub garbage_bytes: u64,
    /// Tables no longer in the current state that iterators, snapshots' readers or pending removal hold.
    pub pinned_bytes: u64,
    /// Outputs of jobs under way.
    pub job_bytes: u64,
    /// Log groups: live, spare and free, and the log's open pages.
    pub wal_bytes: u64,
    /// Manifests and the pointer to the current one.
    pub manifest_bytes: u64,
    /// Files of other engines on the same store.
    pub engines_bytes: u64,
    /// Files the store does not know.
    pub other_bytes: u64,
    /// All of the above.
    pub total_bytes: u64,
    /// Hidden garbage, inside `value_bytes`: separated values that newer entries of tables or memtables shadow and that
    /// compaction has not dropped yet. An estimate but for what snapshots keep, which is counted; the bounds are
    /// `hidden_bytes_min` and `hidden_bytes_max`.
    pub hidden_bytes: u64,
    /// Lower bound of hidden garbage: what compactions kept for snapshots of this process.
    pub hidden_bytes_min: u64,
    /// Upper bound of hidden garbage. All of a table from before this process counts until a report has read it.
    pub hidden_bytes_max: u64,
    /// Lower bound of live data inside `table_bytes` and `value_bytes`: logical bytes of the keys and values that no newer
    /// entry can hide.
    pub live_bytes_min: u64,
    /// Of `pinned_bytes`: files that no iterator holds. Reads or jobs under way do, or they are about to be removed.
    pub pinned_unheld_bytes: u64,
    /// Inside `table_bytes` and `value_bytes`: versions that compactions would have dropped but for snapshots that are
    /// still held, with keys, values and records.
    pub kept_bytes: u64,
    /// Inside `table_bytes` and `value_bytes`: files that are set aside because they cannot be read, by the lengths they
    /// should have. See [`crate::Db::damaged_files`].
    pub damaged_bytes: u64,
    /// Of `wal_bytes`: the groups that hold records somebody may need, the one that is written included. The rest are
    /// spares and the log's open pages.
    pub wal_in_use_bytes: u64,
    /// The column family for whose sake closed groups of the log are there, if any has entries that are in no table.
    pub log_holder: Option<LogHolder>,
    /// Snapshots and iterators with what each of them holds, the oldest first.
    pub holders: Vec<Holder>,
    /// The store is open for reading only: another process may hold snapshots and iterators, which are not known here.
    pub is_read_only: bool,
    /// Memtables, in memory only.
    pub memtable_bytes: u64,
    /// Number of snapshots held.
    pub snapshots: u64,
    /// Age of the oldest snapshot, nanoseconds.
    pub oldest_snapshot_ns: u64,
    /// Bytes still free on the volume, that of the store's directory.
    pub available_bytes: u64,
    /// The second disk, if the log has one: what of `total_bytes` is there.
    pub speed: Option<SpeedSpace>,
    /// Levels whose tables are to be there, in thousandths: [`crate::ExpertOptions::speed_levels`], or where [`crate::ExpertOptions::speed_moving`] has come to in this
    /// process. `None`: there is no second disk, or the store is open for reading only, and whoever writes it knows.
    pub speed_levels_milli: Option<u32>,
    /// What the files may occupy together: the limit, or what the volume has for them if that is less; 0: there is no limit,
    /// and the volume is not near it.
    pub limit_bytes: u64,
    /// Bytes below the limit that writes may not take, so that flush, compaction, collection and deletes can go on.
    pub reserve_bytes: u64,
    /// Whether deleted data leaves a store without writes, and the reason why not.
    pub rest: RestReport,
    /// What each column family has, in order of creation.
    pub families: Vec<FamilySpace>,
}

/// What one column family has. File lengths, not allocated bytes: what a file system adds to them is in [`Space`] only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilySpace {
    /// Its name.
    pub name: String,
    /// The levels that have tables.
    pub levels: Vec<LevelSpace>,
    /// vSSTs.
    pub vssts: u64,
    /// Bytes of these files.
    pub vsst_bytes: u64,
    /// Of `vssts`: those that hold one large value.
    pub segments: u64,
    /// Names of former vSSTs that lead to present ones.
    pub aliases: u64,
    /// References to separated values in tables, hidden ones included.
    pub references: u64,
    /// Records in vSSTs, garbage included, bytes.
    pub record_bytes: u64,
    /// Those that no table references any more.
    pub garbage_bytes: u64,
    /// The largest share of garbage in one vSST, percent.
    pub garbage_percent_max: u64,
    /// Estimate of hidden garbage, see [`Space::hidden_bytes`].
    pub hidden_bytes: u64,
    /// Its lower bound.
    pub hidden_bytes_min: u64,
    /// Its upper bound.
    pub hidden_bytes_max: u64,
    /// Lower bound of live data, see [`Space::live_bytes_min`].
    pub live_bytes_min: u64,
    /// Closed groups of the log that must stay because only memtables have what it wrote since, bytes of their files.
    pub log_bytes: u64,
}

/// One level of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelSpace {
    /// Its number.
    pub level: usize,
    /// Tables.
    pub files: u64,
    /// Bytes of the tables.
    pub bytes: u64,
    /// The same as if every value lay with its key and every tombstone were what it hides.
    pub compensated_bytes: u64,
    /// Entries.
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

    /// With what is hidden. `kept_bytes`: records of versions that only snapshots, past or present, kept.
    fn with_hidden(self, hidden: &Hidden<'_>, kept_bytes: u64) -> FamilySpace {
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

    /// Compensated bytes of all levels and of the last one.
    fn index_bytes(&self) -> (u64, u64) {
        let all = self.levels.iter().map(|l| l.compensated_bytes).sum();
        (all, self.levels.last().map_or(0, |l| l.compensated_bytes))
    }

    /// Compensated bytes of all levels over those of the last one: how much larger than its data the tree is. 1.11 is what
    /// levels of ten times each other come to; 0 without tables.
    pub fn index_amplification(&self) -> f64 {
        amplification(self.index_bytes())
    }
}

impl Space {
    /// Name and value of each part that belongs to the sum.
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

    /// Space amplification of the index over all families: see [`FamilySpace::index_amplification`].
    pub fn index_amplification(&self) -> f64 {
        let families = self.families.iter().map(FamilySpace::index_bytes);
        amplification(families.fold((0, 0), |sum, family| (sum.0 + family.0, sum.1 + family.1)))
    }

    /// Adds a family to what is told of all.
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

/// Reads tables from before this process that are not known yet, so many bytes a report at most: what they hold bounds what
/// is hidden and what is live.
fn learn(jobs: &Jobs, families: &[Arc<Family>]) {
    let mut left = LEARNED_BYTES_MAX;
    for read_state in families.iter().map(|family| family.read_state()) {
        let files = read_state.version.levels.iter().flat_map(|level| level.iter());
        for file in files.filter(|file| file.known.notes().is_none()) {
            if left == 0 {
                return;
            }
            left = left.saturating_sub(file.len);
            // A table that cannot be read is reported by whoever needs it.
            if let Ok(notes) = jobs.files.tables.table(file).and_then(|table| table.notes()) {
                file.known.note(notes);
            }
        }
    }
}

/// Tables of which so many bytes were read are not followed by another one in the same report.
const LEARNED_BYTES_MAX: u64 = 64 << 20;

/// Takes the ledger: one directory listing, attributed by the manifest's state, and some tables read.
pub(crate) fn space(jobs: &Jobs) -> Result<Space> {
    learn(jobs, &jobs.tree.families.all());
    known_space(jobs)
}

/// The ledger without a read of a table.
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
        let hidden = Hidden::of(&read_state)?;
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
    out.speed = SpeedSpace::of(&jobs.context.env, &jobs.context.dir)?;
    let is_placing = out.speed.is_some() && !out.is_read_only;
    out.speed_levels_milli = is_placing.then(|| jobs.tree.speed.pointer(&jobs.context.options));
    out.limit_bytes = if jobs.space.is_limited() { jobs.space.limit_bytes() } else { 0 };
    out.reserve_bytes = jobs.space.reserve_bytes();
    out.rest = RestReport::of(jobs);
    debug_assert_eq!(out.parts().iter().map(|(_, n)| n).sum::<u64>(), out.total_bytes);
    Ok(out)
}

/// Lists the directory and attributes each file. Returns the obsolete files that are still there, with their bytes.
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
            Some(FileKind::Ksst(n) | FileKind::SpeedKsst(n)) if state.place_of(n).is_some() => {
                &mut out.table_bytes
            }
            Some(FileKind::Vsst(n) | FileKind::SpeedVsst(n)) if state.place_of(n).is_some() => {
                &mut out.value_bytes
            }
            Some(FileKind::Ksst(n) | FileKind::SpeedKsst(n) | FileKind::Vsst(n) | FileKind::SpeedVsst(n))
                if listed.contains(&n) =>
            {
                obsolete.insert(n, bytes);
                &mut out.pinned_bytes
            }
            Some(FileKind::Vsst(n)) if segments.contains(&n) => &mut out.value_bytes,
            Some(FileKind::Ksst(_) | FileKind::SpeedKsst(_) | FileKind::Vsst(_) | FileKind::SpeedVsst(_)) => {
                &mut out.job_bytes
            }
            // The other lanes are other engines'.
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
                | FileKind::Speed,
            ) => &mut out.manifest_bytes,
            Some(FileKind::StagingTemp(0)) => &mut out.wal_bytes,
            Some(FileKind::Engine { .. } | FileKind::LaneStaging(_) | FileKind::StagingTemp(_)) => {
                &mut out.engines_bytes
            }
            Some(FileKind::Lock | FileKind::SpeedLock) | None => &mut out.other_bytes,
        };
        *owner += bytes;
        out.total_bytes += bytes;
    }
    Ok(obsolete)
}
