//! Holders of space: snapshots and iterators with their bytes, and the column families that keep
//! the log long.
//!
//! An **iterator** holds a read state: the tables, vSSTs and segments of one moment. Files replaced
//! since are on the list of obsolete files, and stay on disk for the iterator.
//!
//! A **snapshot** holds no file. It makes compactions keep versions that newer ones supersede.
//! Compactions count these exactly, as key and value bytes (`tree::retained`). Versions that no
//! compaction has encountered yet are estimated from the levels, like all unexposed garbage
//! ([`super::hidden`]).
//!
//! A **column family** holds the log groups written since its oldest unflushed entry.

use super::hidden::UnexposedEstimate;
use crate::files::log::TENANT;
use crate::tree::family::{Family, ReadState};
use crate::tree::open_iterators::Reader;
use crate::work::jobs::Jobs;
use base::{HashMap, HashSet, SeqNo};
use std::sync::Arc;
use table::Retained;
use wal::PriorGroup;

/// Tells whether a snapshot or an iterator holds space, since each is found elsewhere in a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HolderKind {
    /// A [`crate::Snapshot`], including its clones.
    #[default]
    Snapshot,
    /// An iterator or a cursor. The snapshot that it reads at is a holder of its own.
    Iterator,
}

impl HolderKind {
    /// Returns a stable one-word name for tables and logs.
    pub fn name(self) -> &'static str {
        match self {
            HolderKind::Snapshot => "snapshot",
            HolderKind::Iterator => "iterator",
        }
    }
}

/// Names a snapshot or iterator and the bytes that it keeps on disk: drop it to free them.
/// [`super::Space::holders`] lists them, the oldest first.
///
/// Bytes held by several readers count for each of them; the `alone` fields are the sure gain of a
/// drop. The space of a snapshot is freed by later compactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Number of the reader, as [`crate::Snapshot::id`] returns it.
    pub id: u64,
    /// Kind of the reader.
    pub kind: HolderKind,
    /// Name that the program gave it; empty if none. Names need not be unique.
    pub name: String,
    /// Iterators: the family that they read; empty if it was dropped.
    pub family: String,
    /// Sequence number of the last write that it sees.
    pub sequence: SeqNo,
    /// Time since its creation, nanoseconds.
    pub age_ns: u64,
    /// Obsolete files that it holds, allocated bytes: a part of [`super::Space::pinned_bytes`].
    pub file_bytes: u64,
    /// Part of `file_bytes` that no other iterator holds.
    pub file_alone_bytes: u64,
    /// Versions that compactions kept for it: counted, with keys, values and records.
    pub kept_bytes: u64,
    /// Part of `kept_bytes` that no other snapshot holds.
    pub kept_alone_bytes: u64,
    /// Estimated bytes of separated values that are superseded for newer readers and that future
    /// compactions must keep for it.
    pub hidden_bytes: u64,
    /// Upper bound of `hidden_bytes`. The lower bound is 0.
    pub hidden_bytes_max: u64,
}

impl Holder {
    /// Returns all bytes that it holds, to sort holders: of an iterator files, of a snapshot
    /// versions. The last part is an estimate, and parts are shared with other holders.
    pub fn bytes(&self) -> u64 {
        self.file_bytes.saturating_add(self.kept_bytes).saturating_add(self.hidden_bytes)
    }
}

/// Names the column family that keeps the log long: a flush frees the log.
/// [`super::Space::log_holder`] has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHolder {
    /// The family with the oldest unflushed entry.
    pub family: String,
    /// Sequence number of this entry.
    pub oldest_sequence: SeqNo,
    /// Bytes of closed log groups that the family holds.
    pub bytes: u64,
    /// Part of `bytes` that no other family holds: a flush of this family alone frees it.
    pub alone_bytes: u64,
}

/// Returns the bytes of closed groups that must stay for entries from `floor` on. Groups are
/// released oldest first, so a needed group keeps all later ones.
pub(super) fn log_bytes_from(groups: &[PriorGroup], floor: SeqNo) -> u64 {
    let Some((_active, closed)) = groups.split_last() else { return 0 };
    let needed = |g: &PriorGroup| g.seqs.last(TENANT).is_some_and(|last| last >= floor);
    closed.iter().skip_while(|g| !needed(g)).map(|g| g.len).sum()
}

/// Returns the holder of the oldest log group, if there is one.
pub(super) fn log_holder(families: &[Arc<Family>], groups: &[PriorGroup]) -> Option<LogHolder> {
    let mut floors: Vec<(SeqNo, &Arc<Family>)> =
        families.iter().filter_map(|f| Some((f.read_state().oldest_unflushed_seq()?, f))).collect();
    floors.sort_by_key(|(seq, _)| *seq);
    let (seq, family) = floors.first()?;
    let bytes = log_bytes_from(groups, *seq);
    let others = floors.get(1).map_or(0, |(seq, _)| log_bytes_from(groups, *seq));
    let alone_bytes = bytes.saturating_sub(others);
    Some(LogHolder { family: family.name.clone(), oldest_sequence: *seq, bytes, alone_bytes })
}

/// Sums of versions kept for snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeptSums {
    /// Records in vSSTs kept only for snapshots, present or past.
    pub record_bytes: u64,
    /// Keys, values and records kept for snapshots that are still open.
    pub held_bytes: u64,
}

/// Adds `kept`, of the tables of one family, to the snapshots among `holders`.
pub(super) fn share_out(kept: &[Retained], holders: &mut [Holder]) -> KeptSums {
    let mut sums = KeptSums::default();
    for one in kept {
        let bytes = one.table_bytes.saturating_add(one.record_bytes);
        sums.record_bytes = sums.record_bytes.saturating_add(one.record_bytes);
        let sees =
            |h: &&mut Holder| h.kind == HolderKind::Snapshot && (one.first..=one.last).contains(&h.sequence);
        let mut seeing: Vec<&mut Holder> = holders.iter_mut().filter(sees).collect();
        if !seeing.is_empty() {
            sums.held_bytes = sums.held_bytes.saturating_add(bytes);
        }
        if let [only] = &mut seeing[..] {
            only.kept_alone_bytes = only.kept_alone_bytes.saturating_add(bytes);
        }
        seeing.iter_mut().for_each(|h| h.kept_bytes = h.kept_bytes.saturating_add(bytes));
    }
    sums
}

/// Returns all snapshots and iterators, oldest first, with the files that iterators hold, and the
/// bytes of files that no iterator holds. `obsolete`: bytes of obsolete files that still exist.
pub(super) fn holders(jobs: &Jobs, obsolete: &HashMap<u64, u64>) -> (Vec<Holder>, u64) {
    let now_ns = jobs.context.env.clock.now_ns();
    let snapshot = |(sequence, held): (SeqNo, crate::tree::snapshot::Registration)| Holder {
        id: held.id,
        name: held.name.to_string(),
        sequence,
        age_ns: now_ns.saturating_sub(held.since_ns),
        ..Holder::default()
    };
    let mut all: Vec<Holder> = jobs.tree.snapshots.all().into_iter().map(snapshot).collect();
    let readers = jobs.tree.readers.all();
    let kept_by = kept_files(jobs, &readers, obsolete);
    let mut keepers: HashMap<u64, usize> = HashMap::default();
    kept_by.iter().flatten().for_each(|&number| *keepers.entry(number).or_default() += 1);
    for ((id, reader), files) in readers.iter().zip(&kept_by) {
        let bytes_of = |number: &u64| obsolete.get(number).copied().unwrap_or(0);
        let alone = files.iter().filter(|number| keepers.get(number) == Some(&1));
        all.push(Holder {
            id: *id,
            kind: HolderKind::Iterator,
            name: reader.name.to_string(),
            family: jobs.tree.families.get(reader.family).map(|f| f.name.clone()).unwrap_or_default(),
            sequence: reader.seq,
            age_ns: now_ns.saturating_sub(reader.since_ns),
            file_bytes: files.iter().map(bytes_of).sum(),
            file_alone_bytes: alone.map(bytes_of).sum(),
            ..Holder::default()
        });
    }
    all.sort_by_key(|h| (std::cmp::Reverse(h.age_ns), h.id));
    let by_nobody = obsolete.iter().filter(|(number, _)| !keepers.contains_key(number));
    (all, by_nobody.map(|(_, bytes)| bytes).sum())
}

/// Returns the obsolete files that each iterator holds.
fn kept_files(jobs: &Jobs, readers: &[(u64, Reader)], obsolete: &HashMap<u64, u64>) -> Vec<HashSet<u64>> {
    if obsolete.is_empty() {
        return vec![HashSet::default(); readers.len()];
    }
    // Iterators created at about the same time share a read state.
    let mut of_views: HashMap<*const ReadState, HashSet<u64>> = HashMap::default();
    let files = readers.iter().map(|(_, reader)| {
        let Some(read_state) = reader.read_state.upgrade() else { return HashSet::default() };
        let files =
            of_views.entry(Arc::as_ptr(&read_state)).or_insert_with(|| files_of(jobs, &read_state, obsolete));
        files.clone()
    });
    let files = files.collect();
    // This function may hold the last reference to the read state of a dropped iterator, so it must
    // announce that files are free.
    jobs.tree.was_let_go();
    files
}

fn files_of(jobs: &Jobs, read_state: &ReadState, obsolete: &HashMap<u64, u64>) -> HashSet<u64> {
    let memtables: Vec<u64> = read_state.frozen.iter().chain([&read_state.active]).map(|m| m.id()).collect();
    let vssts = read_state.version.vssts.keys();
    let all = tables_of(read_state).chain(vssts).chain(jobs.large.segments.of_memtables(&memtables));
    all.filter(|number| obsolete.contains_key(number)).collect()
}

/// Estimates, for each snapshot among `holders`, the bytes that future compactions must keep for it
/// in a family.
pub(super) fn estimate_hidden(hidden: &UnexposedEstimate<'_>, holders: &mut [Holder]) {
    for holder in holders.iter_mut().filter(|h| h.kind == HolderKind::Snapshot) {
        let max = hidden.bounds(Some(holder.sequence)).records_max;
        let likely = hidden.likely_for(holder.sequence).min(max);
        holder.hidden_bytes = holder.hidden_bytes.saturating_add(likely);
        holder.hidden_bytes_max = holder.hidden_bytes_max.saturating_add(max);
    }
}

/// Returns the tables of a family.
pub(super) fn tables_of(read_state: &ReadState) -> impl Iterator<Item = u64> + '_ {
    read_state.version.levels.iter().flat_map(|level| level.iter().map(|file| file.number))
}
