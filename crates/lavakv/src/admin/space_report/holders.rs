//! Who holds space: snapshots and iterators with what each keeps, and the column families that keep the log long.
//!
//! An **iterator** holds a read state: the tables, vSSTs and segments of one moment. Those that the store has replaced since are
//! on the list of obsolete files, and stay on disk for it.
//!
//! A **snapshot** holds no file. It makes compaction keep versions that newer ones hide. What compactions have kept so far
//! was counted by them (`tree::retained`), exactly, as key and value bytes; what they have not met yet is estimated from the
//! levels like all hidden garbage ([`super::hidden`]).
//!
//! A **column family** holds the log groups that were written since the oldest entry which only its memtables have.

use super::hidden::Hidden;
use crate::files::log::TENANT;
use crate::tree::family::{Family, ReadState};
use crate::tree::open_iterators::Reader;
use crate::work::jobs::Jobs;
use base::{HashMap, HashSet, SeqNo};
use std::sync::Arc;
use table::Retained;
use wal::PriorGroup;

/// What kind of reader holds space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HolderKind {
    /// A [`crate::Snapshot`], all its clones together.
    #[default]
    Snapshot,
    /// A [`crate::DbIterator`]. If it reads at a snapshot, that is listed on its own.
    Iterator,
}

impl HolderKind {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            HolderKind::Snapshot => "snapshot",
            HolderKind::Iterator => "iterator",
        }
    }
}

/// A snapshot or iterator, and the bytes that stay on disk because of it. What several hold is counted for each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its number, as [`crate::Snapshot::id`] gives it.
    pub id: u64,
    /// What it is.
    pub kind: HolderKind,
    /// The name it was given; empty if none.
    pub name: String,
    /// Iterators: the family they walk; empty if it was dropped.
    pub family: String,
    /// The last write it sees.
    pub sequence: SeqNo,
    /// How long it has been held, nanoseconds.
    pub age_ns: u64,
    /// Obsolete files that it keeps, bytes allocated: a part of [`super::Space::pinned_bytes`].
    pub file_bytes: u64,
    /// Those of them that no other iterator keeps.
    pub file_alone_bytes: u64,
    /// Versions that compactions would have dropped but for it: counted, with keys, values and records.
    pub kept_bytes: u64,
    /// Those of them that no other snapshot keeps.
    pub kept_alone_bytes: u64,
    /// Separated values that are hidden from everybody newer and that compaction will have to keep for it: estimated.
    pub hidden_bytes: u64,
    /// Upper bound of `hidden_bytes`. The lower one is 0.
    pub hidden_bytes_max: u64,
}

impl Holder {
    /// All that it holds; the last part is an estimate.
    pub fn bytes(&self) -> u64 {
        self.file_bytes.saturating_add(self.kept_bytes).saturating_add(self.hidden_bytes)
    }
}

/// The column family that keeps the log long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHolder {
    /// The family with the oldest entry that only log and memtables have.
    pub family: String,
    /// The sequence of this entry.
    pub oldest_sequence: SeqNo,
    /// Closed log groups that are there for its sake, bytes of their files.
    pub bytes: u64,
    /// Those of them that no other family needs: what a flush of this one alone sets free.
    pub alone_bytes: u64,
}

/// Closed groups that must stay for entries from `floor` on, bytes. Groups are released from the oldest on, so one that is
/// needed keeps those behind it.
pub(super) fn log_bytes_from(groups: &[PriorGroup], floor: SeqNo) -> u64 {
    let Some((_active, closed)) = groups.split_last() else { return 0 };
    let needed = |g: &PriorGroup| g.seqs.last(TENANT).is_some_and(|last| last >= floor);
    closed.iter().skip_while(|g| !needed(g)).map(|g| g.len).sum()
}

/// Who holds the oldest group of the log, if anybody does.
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

/// What was kept for snapshots, by who keeps it now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeptSums {
    /// Records of vSSTs that are kept for snapshots, present or past. Nobody but them sees these.
    pub record_bytes: u64,
    /// Keys, values and records that snapshots keep which are still held.
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

/// All snapshots and iterators, the oldest first, with the files that iterators keep. `obsolete`: the obsolete files that
/// are still there, with their bytes. Also: bytes of those that no iterator keeps.
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

/// The obsolete files that each of the iterators keeps.
fn kept_files(jobs: &Jobs, readers: &[(u64, Reader)], obsolete: &HashMap<u64, u64>) -> Vec<HashSet<u64>> {
    if obsolete.is_empty() {
        return vec![HashSet::default(); readers.len()];
    }
    // Iterators made at about the same time share a read state.
    let mut of_views: HashMap<*const ReadState, HashSet<u64>> = HashMap::default();
    let files = readers.iter().map(|(_, reader)| {
        let Some(read_state) = reader.read_state.upgrade() else { return HashSet::default() };
        let files =
            of_views.entry(Arc::as_ptr(&read_state)).or_insert_with(|| files_of(jobs, &read_state, obsolete));
        files.clone()
    });
    let files = files.collect();
    // A reader that went meanwhile has left its read state to this function, and nobody else tells that files are free now.
    jobs.tree.was_let_go();
    files
}

fn files_of(jobs: &Jobs, read_state: &ReadState, obsolete: &HashMap<u64, u64>) -> HashSet<u64> {
    let memtables: Vec<u64> = read_state.frozen.iter().chain([&read_state.active]).map(|m| m.id()).collect();
    let vssts = read_state.version.vssts.keys();
    let all = tables_of(read_state).chain(vssts).chain(jobs.large.segments.of_memtables(&memtables));
    all.filter(|number| obsolete.contains_key(number)).collect()
}

/// What compaction has not met yet and will have to keep in a family, for each of the snapshots among `holders`.
pub(super) fn estimate_hidden(hidden: &Hidden<'_>, holders: &mut [Holder]) {
    for holder in holders.iter_mut().filter(|h| h.kind == HolderKind::Snapshot) {
        let max = hidden.bounds(Some(holder.sequence)).records_max;
        let likely = hidden.likely_for(holder.sequence).min(max);
        holder.hidden_bytes = holder.hidden_bytes.saturating_add(likely);
        holder.hidden_bytes_max = holder.hidden_bytes_max.saturating_add(max);
    }
}

/// The tables of a family.
pub(super) fn tables_of(read_state: &ReadState) -> impl Iterator<Item = u64> + '_ {
    read_state.version.levels.iter().flat_map(|level| level.iter().map(|file| file.number))
}
