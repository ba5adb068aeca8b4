//! Correlated compaction: tables of the deepest level are written anew together with values they reference, so that
//! values whose keys are neighbours lie side by side again.
//!
//! After LavaKV ("on-demand correlated compaction and GC"), with two differences:
//!
//! * **Scattered** is a table whose values lie in `spread_max` vSSTs more than they would fill. That is what a scan pays
//!   for: a vSST is in key order, so what it holds of a stretch of keys is read at once, and a scan makes as many
//!   requests for a stretch as there are vSSTs that have a part of it. (How many tables reference a vSST, which LavaKV
//!   bounds, follows.) A version has sums only (`version::uses`): which tables a vSST concerns is an estimate
//!   (`estimate`), and a table too many is rewritten for little.
//! * **Whole vSSTs are taken.** Under random overwrites every vSST has a few values of every table. Rebuilding all values
//!   of one table would leave a little garbage in every vSST, too little anywhere to be collected, and so would the next
//!   table, until all must be collected at once. So a [`Relocation`] is a pass over the whole deepest level for some
//!   vSSTs, the most scattered ones, of a bounded size: behind the relocation stands one run of vSSTs in key order in their
//!   place, and nothing references the old ones any more, which are dropped without a collection. Room is needed for one
//!   such run, whatever the size of the store; and each relocation makes of many vSSTs under a table about one.
//!
//! The relocation keeps no tables between steps, only how far it has come (as [`super::manual`]). Upper levels are not visited:
//! a vSST that they reference stays, with less in it. The vSSTs of a relocation should not be collected while it lasts: their
//! garbage will be dropped for nothing at its end.

use super::compaction::{Compaction, Reason};
use super::facts::{Facts, Moves};
use super::in_progress::InProgress;
use base::key;
use estimate::{Ranges, Shares, Spread};
use std::collections::BTreeSet;
use std::sync::Arc;
use version::{Dependency, FileMeta, Version, VsstMeta};

mod estimate;

/// What a relocation takes.
#[derive(Clone, Copy, Debug)]
pub struct RelocationOptions {
    /// Tables of the deepest level that reference more vSSTs than this, beyond those that their values would fill, are
    /// scattered.
    pub spread_max: u64,
    /// Referenced bytes of the vSSTs that a relocation takes; the first two are taken whatever they have.
    pub bytes_max: u64,
    /// The size of a vSST. A compaction of the relocation ends with the table by which it has so many bytes of records to
    /// rewrite.
    pub job_bytes: u64,
}

/// A relocation under way. See the module.
#[derive(Clone, Debug)]
pub struct Relocation {
    vssts: BTreeSet<u64>,
    level: usize,
    job_bytes: u64,
    /// The largest internal key that is done.
    done_to: Option<Vec<u8>>,
}

/// What is next.
#[derive(Clone, Debug)]
pub enum RelocationStep {
    /// Start this compaction.
    Start(Box<Compaction>),
    /// A running job is in the way.
    Wait,
    /// All is done.
    Done,
}

/// What the deepest level references in one vSST.
struct Piece<'a> {
    vsst: &'a Arc<VsstMeta>,
    /// About: what all tables reference, shared out among them.
    stored_bytes: u64,
    /// By how many tables, at least. Where several names lead to it: by those that use the most common one.
    tables: u64,
}

impl<'a> Piece<'a> {
    /// `upper`: the tables above the deepest level. Each of them that may use a name is taken to do so, so that nothing is taken for the deepest
    /// level's that it does not reference.
    fn of(version: &Version, vsst: &'a Arc<VsstMeta>, upper: &Ranges) -> Piece<'a> {
        let (mut all, mut below, mut most) = (0u64, 0u64, 0u64);
        for name in version.names_of(vsst.number) {
            let tables = version.references.get(&name).map_or(0, |totals| totals.tables);
            let deepest = tables.saturating_sub(upper.around(name));
            (all, below, most) =
                (all.saturating_add(tables), below.saturating_add(deepest), most.max(deepest));
        }
        let stored_bytes = u128::from(version.referenced_in(vsst.number).stored_bytes);
        let stored_bytes = (stored_bytes * u128::from(below) / u128::from(all.max(1))) as u64;
        Piece { vsst, stored_bytes, tables: most }
    }
}

impl Relocation {
    /// The vSSTs that most need to be relocated, if any table of the deepest level is scattered: those with the least in
    /// each table that references them. All of one class, so that hot and cold values stay apart. None if that would not
    /// halve the pairs of a table and a vSST of theirs that it references.
    pub fn choose(version: &Version, options: &RelocationOptions, busy: &InProgress) -> Option<Relocation> {
        let level = version.deepest_level().filter(|&level| level > 0)?;
        let spread = Spread::of(version);
        let is_scattered = |table: &&FileMeta| {
            let would_fill = table.uses.sums().stored_bytes / options.job_bytes.max(1);
            spread.of_table(table) > would_fill.saturating_add(options.spread_max)
        };
        let of_level = |level: usize| version.files(level).iter().map(|table| &**table);
        let scattered = Ranges::of(of_level(level).filter(is_scattered));
        let upper = Ranges::of((0..level).flat_map(of_level));
        let concerns = |vsst: &Arc<VsstMeta>| {
            version.names_of(vsst.number).iter().any(|&name| scattered.around(name) > 0)
        };
        let vssts = version.vssts.values().filter(|v| !v.segment && v.global_seq.is_none());
        let pieces = vssts.filter(|v| !busy.has_vsst(v.number) && concerns(v));
        let mut order: Vec<Piece<'_>> =
            pieces.map(|vsst| Piece::of(version, vsst, &upper)).filter(|p| p.tables > 0).collect();
        order.sort_by_key(|p| (p.stored_bytes / p.tables.max(1), p.vsst.number));
        // One alone would only be moved.
        let several = |class| order.iter().filter(|p| p.vsst.class == class).count() > 1;
        let class = order.iter().map(|p| p.vsst.class).find(|&class| several(class))?;
        let (mut vssts, mut bytes, mut links) = (BTreeSet::new(), 0u64, 0u64);
        for piece in order.iter().filter(|p| p.vsst.class == class) {
            let more = bytes.saturating_add(piece.stored_bytes);
            // Where a table has half a vSST, that is in order.
            let in_order = piece.stored_bytes / piece.tables.max(1) > options.job_bytes / 2;
            if in_order || more > options.bytes_max && vssts.len() >= 2 {
                break;
            }
            vssts.insert(piece.vsst.number);
            (bytes, links) = (more, links.saturating_add(piece.tables));
        }
        // In order, each table would reference one of them, and one more for each border between two.
        let shares = Shares::of(version, &vssts);
        let concerned = |f: &&Arc<FileMeta>| shares.of_table(f) > 0;
        let tables = version.files(level).iter().filter(concerned).count() as u64;
        let in_order = tables.saturating_add(bytes / options.job_bytes.max(1));
        let pays = links > 0 && links >= in_order.saturating_mul(2);
        pays.then_some(Relocation { vssts, level, job_bytes: options.job_bytes, done_to: None })
    }

    /// The vSSTs that it takes.
    pub fn vssts(&self) -> &BTreeSet<u64> {
        &self.vssts
    }

    /// What to do next, given how things are now.
    pub fn step(&mut self, facts: &Facts<'_>, moves: &dyn Moves) -> RelocationStep {
        let version = facts.version;
        self.vssts.retain(|n| version.vssts.contains_key(n));
        let files = version.files(self.level);
        let from = self
            .done_to
            .as_deref()
            .map_or(0, |done| files.partition_point(|f| key::compare(&f.smallest, done).is_le()));
        // A table that cannot be read goes on referring to what it refers to.
        let readable = |f: &FileMeta| !facts.set_aside.has(f.number);
        let shares = Shares::of(version, &self.vssts);
        let bytes_of = |f: &FileMeta| if readable(f) { shares.of_table(f) } else { 0 };
        let Some(first) = (from..files.len()).find(|&i| bytes_of(&files[i]) > 0) else {
            return RelocationStep::Done;
        };
        let (mut relocated, mut physical, mut end) = (0u64, 0u64, first);
        for f in &files[first..] {
            let more = bytes_of(f);
            physical = physical.saturating_add(f.len);
            let wide = end > first && physical > moves.widest_bytes();
            if more == 0 || wide || relocated >= self.job_bytes {
                break;
            }
            relocated = relocated.saturating_add(more);
            end += 1;
        }
        match rewritten(facts, moves, self.level, first..end, &self.vssts) {
            Some(compaction) => {
                self.done_to = files.get(end - 1).map(|f| f.largest.clone());
                RelocationStep::Start(Box::new(compaction))
            }
            None => RelocationStep::Wait,
        }
    }
}

/// Bytes of records in `vssts` that a table with this list references.
pub fn relocated_bytes(version: &Version, list: &[Dependency], vssts: &BTreeSet<u64>) -> u64 {
    let taken = |blob_id| version.resolve_all(blob_id).any(|v| vssts.contains(&v.number));
    let theirs = list.iter().filter(|d| taken(d.blob_id));
    theirs.fold(0, |sum: u64, d| sum.saturating_add(d.stored_bytes))
}

/// Neighbours of the deepest level are rewritten where they are, with what they reference in `vssts`.
fn rewritten(
    facts: &Facts<'_>,
    moves: &dyn Moves,
    level: usize,
    files: std::ops::Range<usize>,
    vssts: &BTreeSet<u64>,
) -> Option<Compaction> {
    let version = facts.version;
    let upper = version.files(level).get(files)?.to_vec();
    if upper.iter().any(|f| !facts.is_free(f)) {
        return None;
    }
    let used = |n: &u64| {
        let names = version.names_of(*n);
        upper.iter().any(|f| names.iter().any(|&name| f.uses.may_have(name)))
    };
    let free = vssts.iter().copied().filter(|&n| !facts.busy.has_vsst(n));
    let relocate_vssts: Vec<u64> = free.filter(used).collect();
    if relocate_vssts.is_empty() {
        return None;
    }
    moves.in_place(level, upper, Reason::Relocation, relocate_vssts)
}

#[cfg(test)]
mod tests;
