//! What the bookkeeping of values costs in a store of terabytes, without its data. For benchmarks (`lava bench scale-meta`).
//!
//! It makes the description of a store under random overwrites: vSSTs that are up to a third garbage, tables in one level, each of which
//! references vSSTs at random. How many names a table uses grows with the store; the lists of names, which are in the tables, are kept
//! here in place of these. So that they fit into memory, the level has no more tables than use [`Scale::names_max`] names together, and
//! what all tables have is told beside it. Then it does what
//! a running store does, and tells how long each takes, the best of some: a flush, a compaction of a table, the replacement of vSSTs, a
//! pick, a prune, a snapshot of the manifest, an open. What an edit takes is told for what is done before the lock of the manifest is taken, and for
//! what is done under it, where another flush came in between. What the caller counts time with may be the time of the processor.

use crate::{GcOptions, Ledger, Pins, pick, prune};
use base::{HashMap, Result, Uid, ValueKind, key};
use io::Rng;
use std::sync::Arc;
use version::{Dependency, Edit, FileMeta, Record, ReferenceTotals, State, Version, VsstMeta};

const FAMILY: u32 = 0;
const LEVEL: u32 = 6;
/// Bytes of a vSST, and of a table.
const FILE_BYTES: u64 = 64 << 20;
/// Bytes of an entry of a table that references a value.
const ENTRY_BYTES: u64 = 25;

/// The store that is made.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Bytes of all values.
    pub bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// The most names that all tables together use.
    pub names_max: u64,
    /// How often each thing is done, at least once.
    pub rounds: u64,
}

/// How much of everything there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Files of values.
    pub vssts: u64,
    /// Tables that such a store has.
    pub tables: u64,
    /// Tables that were made.
    pub tables_made: u64,
    /// Names that a table uses.
    pub names_per_table: u64,
    /// Memory of the sums under all names, which a version has.
    pub sums_bytes: u64,
    /// The lists of names that are in all tables, in memory: what a version had if it kept them.
    pub lists_bytes: u64,
    /// A snapshot of the manifest with all tables, about.
    pub manifest_bytes: u64,
    /// The snapshot that was made.
    pub manifest_made_bytes: u64,
}

/// What an edit takes, where a flush of somebody else was installed since it was worked out.
#[derive(Clone, Copy, Debug)]
pub struct EditTimes {
    /// To make the next state, and to encode the edit, with what was worked out: under the lock of the manifest, nanoseconds.
    pub apply_ns: u64,
    /// To derive the ledger of that with what was worked out, likewise, nanoseconds.
    pub ledger_ns: u64,
    /// To work out both before the lock is taken, nanoseconds.
    pub prepared_ns: u64,
    /// To work out what tables that come and go make of the sums under names, nanoseconds: a job does that before it installs.
    pub sums_ns: u64,
}

impl Default for EditTimes {
    fn default() -> Self {
        EditTimes { apply_ns: u64::MAX, ledger_ns: u64::MAX, prepared_ns: u64::MAX, sums_ns: u64::MAX }
    }
}

impl EditTimes {
    fn best(&mut self, of: EditTimes) {
        self.apply_ns = self.apply_ns.min(of.apply_ns);
        self.ledger_ns = self.ledger_ns.min(of.ledger_ns);
        self.prepared_ns = self.prepared_ns.min(of.prepared_ns);
        self.sums_ns = self.sums_ns.min(of.sums_ns);
    }
}

/// What everything takes, the best of all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// To derive the ledger by a walk over everything, nanoseconds.
    pub walk_ns: u64,
    /// A table and a file of values of a flush.
    pub flush: EditTimes,
    /// A compaction of one table that drops a record of each tenth name.
    pub compaction: EditTimes,
    /// The replacement of the files that a pick names; `None`: there was nothing to pick.
    pub collection: Option<EditTimes>,
    /// A pick, nanoseconds.
    pub pick_ns: u64,
    /// A pruning, nanoseconds.
    pub prune_ns: u64,
    /// To encode a snapshot of the manifest, nanoseconds.
    pub snapshot_ns: u64,
    /// To read it, and to check what it says, nanoseconds.
    pub open_ns: u64,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    pub counts: Counts,
    pub times: Times,
    /// The ledger that was carried from edit to edit is the one that a walk finds, and the snapshot was read as it was written.
    pub is_exact: bool,
}

/// Makes the description of such a store, and does with it what a running store does.
///
/// # Errors
/// `Corruption`: an edit does not fit the state, which is a fault of this module.
pub fn run(scale: &Scale, now_ns: &dyn Fn() -> u64) -> Result<Found> {
    let mut shop = Shop::new(scale, now_ns)?;
    let version = shop.version()?;
    let mut times = Times { walk_ns: shop.best_ns(|| drop(Ledger::of(&version))), ..Times::default() };
    for round in 0..scale.rounds.max(1) {
        let own = shop.flush()?;
        times.flush.best(own);
        times.compaction.best(shop.compaction(round)?);
        if let Some(of) = shop.collection()? {
            times.collection.get_or_insert_default().best(of);
        }
    }
    let version = shop.version()?;
    let (options, pins) = (GcOptions::default(), Pins::new());
    times.pick_ns = shop.best_ns(|| drop(pick(&version, &shop.ledger, &options, &|_| false)));
    times.prune_ns = shop.best_ns(|| drop(prune(&version, &shop.ledger, &pins)));
    let (snapshot, snapshot_ns) = timed(now_ns, || shop.state.snapshot());
    let read = || State::from_snapshot(Uid::default(), 1, &snapshot).and_then(|s| s.verify().map(|()| s));
    let (opened, open_ns) = timed(now_ns, read);
    let opened = opened?;
    (times.snapshot_ns, times.open_ns) = (snapshot_ns, open_ns);
    let is_exact = shop.ledger == Ledger::of(&version)
        && shop.ledger == Ledger::of(&opened.family(FAMILY)?.version)
        && opened.snapshot() == snapshot;
    Ok(Found { counts: shop.counts(&version, snapshot.len() as u64), times, is_exact })
}

fn bounds(from: u64, to: u64) -> (Vec<u8>, Vec<u8>) {
    let bound = |at: u64| key::encode(format!("{at:012}").as_bytes(), 1, ValueKind::Value);
    (bound(from), bound(to))
}

fn table(number: u64, place: u64, dependencies: Vec<Dependency>) -> FileMeta {
    let (smallest, largest) = bounds(place * 10, place * 10 + 9);
    let entries = FILE_BYTES / ENTRY_BYTES;
    let (min_seq, max_seq) = (number, number);
    FileMeta {
        number,
        len: FILE_BYTES,
        smallest,
        largest,
        min_seq,
        max_seq,
        entries,
        uses: dependencies.into(),
        ..FileMeta::default()
    }
}

fn timed<T>(now_ns: &dyn Fn() -> u64, work: impl FnOnce() -> T) -> (T, u64) {
    let begun_ns = now_ns();
    let made = work();
    (made, now_ns().saturating_sub(begun_ns))
}

/// The store, and what it is measured with.
struct Shop<'a> {
    scale: &'a Scale,
    now_ns: &'a dyn Fn() -> u64,
    rng: Rng,
    state: State,
    ledger: Ledger,
    /// What each table of the level references, as it says.
    lists: HashMap<u64, Vec<Dependency>>,
    /// The last number that a file got.
    last: u64,
    vssts: u64,
    tables: u64,
    tables_made: u64,
    names: u64,
}

impl<'a> Shop<'a> {
    fn new(scale: &'a Scale, now_ns: &'a dyn Fn() -> u64) -> Result<Self> {
        let vssts = (scale.bytes / FILE_BYTES).max(1);
        let references = scale.bytes / scale.value_bytes.max(1);
        let tables = (references.saturating_mul(ENTRY_BYTES) / FILE_BYTES).max(1);
        let names = vssts.min(FILE_BYTES / ENTRY_BYTES);
        let tables_made = (scale.names_max / names).clamp(1, tables);
        let state = State::empty(Uid::default(), 1);
        let ledger = Ledger::default();
        let (rng, lists) = (Rng::new(1), HashMap::default());
        let mut shop =
            Shop { scale, now_ns, rng, state, ledger, lists, last: vssts, vssts, tables, tables_made, names };
        shop.fill()?;
        shop.ledger = Ledger::of(&*shop.version()?);
        Ok(shop)
    }

    fn version(&self) -> Result<Arc<Version>> {
        Ok(self.state.family(FAMILY)?.version.clone())
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn best_ns(&self, mut of: impl FnMut()) -> u64 {
        (0..self.scale.rounds.max(1)).map(|_| timed(self.now_ns, &mut of).1).min().unwrap_or(0)
    }

    fn vsst(&self, number: u64) -> VsstMeta {
        let (smallest, largest) = bounds(0, 999_999_999_999);
        VsstMeta {
            number,
            uid: Uid::from_words(number, 1),
            len: FILE_BYTES,
            record_bytes: FILE_BYTES,
            raw_bytes: FILE_BYTES,
            entries: FILE_BYTES / self.scale.value_bytes,
            smallest,
            largest,
            min_seq: 1,
            max_seq: 1,
            ..VsstMeta::default()
        }
    }

    /// References to a file by one table.
    fn dependency(&self, blob_id: u64, bytes: u64) -> Dependency {
        Dependency { blob_id, count: bytes / self.scale.value_bytes, raw_bytes: bytes, stored_bytes: bytes }
    }

    /// Files of which 67 to 99 of 100 records are referenced, by tables that each use as many names as there are in it.
    fn fill(&mut self) -> Result<()> {
        let create = Record::CreateFamily { id: FAMILY, name: "default".into(), options: vec![] };
        let files =
            (1..=self.vssts).map(|number| Record::AddVsst { family: FAMILY, meta: self.vsst(number) });
        let records = [create].into_iter().chain(files).collect();
        self.state = self.state.clone().apply(Edit(records))?;
        // All that is referenced, shared by the tables that there are.
        let each_bytes = FILE_BYTES * self.vssts / (self.tables_made * self.names);
        let live: Vec<u64> = (0..self.vssts).map(|_| self.rng.range(67, 100)).collect();
        let step = (self.vssts / self.names).max(1);
        for place in 0..self.tables_made {
            let mut blob_ids: Vec<u64> =
                (0..self.names).map(|nth| 1 + (nth * step + place) % self.vssts).collect();
            blob_ids.sort_unstable();
            blob_ids.dedup();
            let live_bytes =
                |id: u64| live.get(id as usize - 1).map_or(0, |percent| each_bytes * percent / 100);
            let dependencies: Vec<Dependency> =
                blob_ids.into_iter().map(|id| self.dependency(id, live_bytes(id))).collect();
            let meta = table(self.number(), place, dependencies.clone());
            self.lists.insert(meta.number, dependencies);
            let (records, _) = self.tables(LEVEL, meta, None);
            self.state = self.state.clone().apply(Edit(records))?;
        }
        Ok(())
    }

    /// The records by which a table comes, in place of another one or not, and how long it takes to work out what they make of the
    /// sums under names.
    fn tables(&self, level: u32, meta: FileMeta, old: Option<u64>) -> (Vec<Record>, u64) {
        let mut come = [meta];
        let gone = old.and_then(|number| self.lists.get(&number)).map(Vec::as_slice);
        let (sums, sums_ns) = timed(self.now_ns, || Record::references(FAMILY, &mut come, gone));
        let remove = |number| Record::RemoveFile { family: FAMILY, level, number };
        let add = |meta| Record::AddFile { family: FAMILY, level, meta };
        (old.map(remove).into_iter().chain(come.map(add)).chain(sums).collect(), sums_ns)
    }

    /// An edit, worked out and then applied when somebody else has installed a flush, and the ledger of what comes of it.
    fn edit(&mut self, records: Vec<Record>) -> Result<EditTimes> {
        let (before, tried) = (self.version()?, Edit(records));
        let work_out = || -> Result<_> {
            let state = self.state.apply(&tried)?;
            let version = state.family(FAMILY)?.version.clone();
            let ledger = self.ledger.after(&before, &version);
            Ok((version, ledger))
        };
        let (worked_out, prepared_ns) = timed(self.now_ns, work_out);
        let (after, ledger) = worked_out?;
        self.others()?;
        let (mut edit, state) = (tried.clone(), self.state.clone());
        let under_lock = || {
            edit.rest_on(&tried, FAMILY, &before, &after);
            state.apply(edit)
        };
        let (state, apply_ns) = timed(self.now_ns, under_lock);
        self.state = state?;
        let now = self.version()?;
        let (ledger, ledger_ns) = timed(self.now_ns, || ledger.after(&after, &now));
        self.ledger = ledger;
        Ok(EditTimes { apply_ns, ledger_ns, prepared_ns, sums_ns: 0 })
    }

    fn flushed(&mut self) -> (Vec<Record>, u64) {
        let (file, number) = (self.number(), self.number());
        let meta = table(number, 5, vec![self.dependency(file, FILE_BYTES * 9 / 10)]);
        let (mut records, sums_ns) = self.tables(0, meta, None);
        records.push(Record::AddVsst { family: FAMILY, meta: self.vsst(file) });
        (records, sums_ns)
    }

    fn flush(&mut self) -> Result<EditTimes> {
        let (records, sums_ns) = self.flushed();
        Ok(EditTimes { sums_ns, ..self.edit(records)? })
    }

    /// Somebody else installs a flush.
    fn others(&mut self) -> Result<()> {
        let (before, (records, _)) = (self.version()?, self.flushed());
        self.state = self.state.apply(Edit(records))?;
        self.ledger = self.ledger.after(&before, &*self.version()?);
        Ok(())
    }

    fn compaction(&mut self, round: u64) -> Result<EditTimes> {
        let version = self.version()?;
        let files = version.files(LEVEL as usize);
        let Some(old) = files.get((round % self.tables_made) as usize).cloned() else {
            return Ok(EditTimes::default());
        };
        let mut list = self.lists.get(&old.number).cloned().unwrap_or_default();
        for of in list.iter_mut().step_by(10) {
            of.count = of.count.saturating_sub(1);
            of.stored_bytes = of.stored_bytes.saturating_sub(self.scale.value_bytes);
        }
        let mut meta = table(self.number(), 0, list.clone());
        (meta.smallest, meta.largest) = (old.smallest.clone(), old.largest.clone());
        let number = meta.number;
        let (records, sums_ns) = self.tables(LEVEL, meta, Some(old.number));
        self.lists.remove(&old.number);
        self.lists.insert(number, list);
        Ok(EditTimes { sums_ns, ..self.edit(records)? })
    }

    fn collection(&mut self) -> Result<Option<EditTimes>> {
        let version = self.version()?;
        let Some(picked) = pick(&version, &self.ledger, &GcOptions::default(), &|_| false) else {
            return Ok(None);
        };
        let inputs: Vec<u64> = picked.numbers().collect();
        let number = self.number();
        let mut output = self.vsst(number);
        output.blob_ids = inputs.iter().flat_map(|&input| version.names_of(input)).collect();
        output.blob_ids.sort_unstable();
        self.edit(vec![Record::ReplaceVsst { family: FAMILY, inputs, outputs: vec![output] }]).map(Some)
    }

    fn counts(&self, version: &Version, manifest_bytes: u64) -> Counts {
        let one = version.files(LEVEL as usize).first().map(|f| FileMeta::clone(f));
        let add = one.map(|meta| Record::AddFile { family: FAMILY, level: LEVEL, meta });
        let table_bytes = Edit(add.into_iter().collect()).encode().len() as u64;
        let sum_bytes = size_of::<(u64, ReferenceTotals)>() as u64;
        Counts {
            vssts: version.vssts.len() as u64,
            tables: self.tables,
            tables_made: self.tables_made,
            names_per_table: self.names,
            sums_bytes: version.references.len() as u64 * sum_bytes,
            lists_bytes: self.tables * self.names * size_of::<Dependency>() as u64,
            manifest_bytes: manifest_bytes + (self.tables - self.tables_made) * table_bytes,
            manifest_made_bytes: manifest_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_small_store_is_described_and_its_ledger_stays_exact() {
        let ticks = Cell::new(0);
        let tick = || {
            ticks.set(ticks.get() + 1);
            ticks.get()
        };
        for value_bytes in [1000, 16_000] {
            let scale = Scale { bytes: 20_000_000_000, value_bytes, names_max: 2000, rounds: 3 };
            let found = run(&scale, &tick).unwrap();
            assert!(found.is_exact, "{found:?}");
            let counts = found.counts;
            assert_eq!(counts.names_per_table, 298);
            let tables = 20_000_000_000 / value_bytes * ENTRY_BYTES / FILE_BYTES;
            assert_eq!((counts.tables, counts.tables_made), (tables.max(1), tables.clamp(1, 6)));
            // 298 files, twelve of flushes; what is collected becomes no more.
            assert!((290..=310).contains(&counts.vssts), "{counts:?}");
            assert_eq!(counts.lists_bytes, counts.tables * 298 * 32);
            assert!((290 * 40..=310 * 40).contains(&counts.sums_bytes), "{counts:?}");
            assert!((298 * 60..298 * 130).contains(&counts.manifest_made_bytes), "no lists: {counts:?}");
            let times = found.times;
            let collection = times.collection.unwrap();
            let edits = [times.flush, times.compaction].map(|of| [of.ledger_ns, of.prepared_ns, of.sums_ns]);
            for taken_ns in [times.walk_ns, times.pick_ns].into_iter().chain(edits.concat()) {
                assert_eq!(taken_ns, 1, "each is timed once");
            }
            assert_eq!((collection.apply_ns, collection.prepared_ns), (1, 1));
        }
    }
}
