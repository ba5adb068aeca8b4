//! Correlated compaction: rewrites tables of the deepest level together with values that they
//! reference, so that values of neighboring keys lie side by side again.
//!
//! After LavaKV ("on-demand correlated compaction and GC"), with two differences:
//!
//! * A table is **scattered** if its values lie in at least `spread_max` more vSSTs than they would
//!   fill. A scan pays for scatter: a vSST is in key order, so its part of a key range is read at
//!   once. For each key range a scan makes one request per vSST with a part of it. (LavaKV bounds
//!   how many tables reference a vSST, which follows.) A version has only sums (`version::uses`),
//!   so the set of tables that reference a vSST is an estimate (`estimate`). If the estimate is too
//!   high, a table is rewritten for little benefit.
//! * **Whole vSSTs are taken.** Under random overwrites every vSST has a few values of every table.
//!   Rebuilding all values of one table would leave a little garbage in every vSST, too little
//!   anywhere to be collected. So would the next table, until all vSSTs must be collected at once.
//!   So a [`Relocation`] is a pass over the whole deepest level for a bounded size of vSSTs, the
//!   most scattered ones. After the pass, one run of vSSTs in key order has replaced them. No table
//!   references the old vSSTs any more, and they are dropped without a collection. The pass needs
//!   space for one such run, whatever the size of the store. Each pass reduces the many vSSTs under
//!   a table to about one.
//!
//! The relocation keeps no tables between steps, only its position (as [`super::manual`]). Upper
//! levels are not visited: a vSST that they reference stays, with fewer live values. The vSSTs of a
//! relocation should not be collected while it lasts: the relocation drops their garbage at no cost
//! at its end.

use super::compaction::{Compaction, Reason};
use super::facts::{PickInputs, SingleFileCompactions};
use super::in_progress::InProgress;
use base::key;
use estimate::{Ranges, Shares, Spread};
use std::collections::BTreeSet;
use std::sync::Arc;
use version::{Dependency, FileMeta, Version, VsstMeta};

mod estimate;

/// Options of a relocation.
#[derive(Clone, Copy, Debug)]
pub struct RelocationOptions {
    /// Maximum number of vSSTs that a table of the deepest level references beyond those that its
    /// values would fill. Tables above it are scattered.
    pub spread_max: u64,
    /// Maximum referenced bytes of the vSSTs that a relocation takes; the first two are taken
    /// whatever their size.
    pub bytes_max: u64,
    /// Target size of a vSST. A compaction of the relocation ends with the table at which it
    /// reaches this many bytes of records to rewrite.
    pub job_bytes: u64,
}

/// A relocation in progress: see the module.
#[derive(Clone, Debug)]
pub struct Relocation {
    vssts: BTreeSet<u64>,
    level: usize,
    job_bytes: u64,
    /// Largest internal key that is done.
    done_to: Option<Vec<u8>>,
}

/// Next step of a relocation.
#[derive(Clone, Debug)]
pub enum RelocationStep {
    /// Start this compaction.
    Start(Box<Compaction>),
    /// A running job is in the way.
    Wait,
    /// The relocation is complete.
    Done,
}

/// The part of a vSST that the deepest level references.
struct Piece<'a> {
    vsst: &'a Arc<VsstMeta>,
    /// Estimated stored bytes: the bytes that all tables reference, divided evenly among the
    /// tables.
    stored_bytes: u64,
    /// Minimum number of referencing tables. If several blob ids resolve to the vSST, this counts
    /// the tables of the most common one.
    tables: u64,
}

impl<'a> Piece<'a> {
    /// Computes the piece of `vsst`. `upper` has the tables above the deepest level. Every upper
    /// table that may use a blob id is assumed to use it, so that references are never wrongly
    /// attributed to the deepest level.
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
    /// Returns a relocation of the vSSTs that need it most, if any table of the deepest level is
    /// scattered: those with the fewest bytes for each referencing table. All are of one class, so
    /// that hot and cold values stay apart. Returns `None` if it would not halve the number of
    /// (table, vSST) references.
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
        // A single vSST would only be moved.
        let several = |class| order.iter().filter(|p| p.vsst.class == class).count() > 1;
        let class = order.iter().map(|p| p.vsst.class).find(|&class| several(class))?;
        let (mut vssts, mut bytes, mut links) = (BTreeSet::new(), 0u64, 0u64);
        for piece in order.iter().filter(|p| p.vsst.class == class) {
            let more = bytes.saturating_add(piece.stored_bytes);
            // A vSST with half its size for each table counts as ordered.
            let in_order = piece.stored_bytes / piece.tables.max(1) > options.job_bytes / 2;
            if in_order || more > options.bytes_max && vssts.len() >= 2 {
                break;
            }
            vssts.insert(piece.vsst.number);
            (bytes, links) = (more, links.saturating_add(piece.tables));
        }
        // In key order, each table would reference one of them, and one more at each border between
        // two.
        let shares = Shares::of(version, &vssts);
        let concerned = |f: &&Arc<FileMeta>| shares.of_table(f) > 0;
        let tables = version.files(level).iter().filter(concerned).count() as u64;
        let in_order = tables.saturating_add(bytes / options.job_bytes.max(1));
        let pays = links > 0 && links >= in_order.saturating_mul(2);
        pays.then_some(Relocation { vssts, level, job_bytes: options.job_bytes, done_to: None })
    }

    /// Returns the vSSTs to relocate.
    pub fn vssts(&self) -> &BTreeSet<u64> {
        &self.vssts
    }

    /// Returns the next step for the current tree.
    pub fn step(&mut self, facts: &PickInputs<'_>, moves: &dyn SingleFileCompactions) -> RelocationStep {
        let version = facts.version;
        self.vssts.retain(|n| version.vssts.contains_key(n));
        let files = version.files(self.level);
        let from = self
            .done_to
            .as_deref()
            .map_or(0, |done| files.partition_point(|f| key::compare(&f.smallest, done).is_le()));
        // An unreadable table keeps its references.
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

/// Returns the bytes of records in `vssts` that a table with this dependency list references.
pub fn relocated_bytes(version: &Version, list: &[Dependency], vssts: &BTreeSet<u64>) -> u64 {
    let taken = |blob_id| version.resolve_all(blob_id).any(|v| vssts.contains(&v.number));
    let theirs = list.iter().filter(|d| taken(d.blob_id));
    theirs.fold(0, |sum: u64, d| sum.saturating_add(d.stored_bytes))
}

/// Returns a rewrite, in place, of neighbors of the deepest level with their values in `vssts`.
fn rewritten(
    facts: &PickInputs<'_>,
    moves: &dyn SingleFileCompactions,
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
