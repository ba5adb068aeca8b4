//! Measures the bookkeeping cost of values in a store of terabytes, without its data. For
//! benchmarks (`lava bench scale-meta`).
//!
//! It builds the metadata of a store under random overwrites: vSSTs that are up to a third garbage,
//! and tables in one level, each of which references vSSTs at random. The number of blob ids that a
//! table uses grows with the store. The dependency lists, which are normally in the tables, are
//! kept in memory here. To fit into memory, the level is limited to tables that together use
//! [`Scale::names_max`] blob ids, and the totals for all tables are reported in addition.
//!
//! Then it performs the operations of a running store, and reports the best time of each: a flush,
//! a compaction of a table, the replacement of vSSTs, a pick, a prune, a snapshot of the manifest,
//! an open. The time of an edit is split into the work before the manifest lock is taken, and the
//! work under it, with another flush in between. The caller's clock may be processor time.

use crate::{GcOptions, Ledger, Pins, pick, prune};
use base::{HashMap, Result, Uid, ValueKind, key};
use io::Rng;
use std::sync::Arc;
use version::{Dependency, Edit, FileMeta, Record, ReferenceTotals, State, Version, VsstMeta};

const FAMILY: u32 = 0;
const LEVEL: u32 = 6;
/// Length of a vSST, and of a table, in bytes.
const FILE_BYTES: u64 = 64 << 20;
/// Bytes of a table entry that references a value.
const ENTRY_BYTES: u64 = 25;

/// Parameters of the store.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Bytes of all values.
    pub bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Maximum number of blob ids that all tables together use.
    pub names_max: u64,
    /// Number of repetitions of each operation, at least 1.
    pub rounds: u64,
}

/// Sizes of the store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Number of value files.
    pub vssts: u64,
    /// Number of tables of such a store.
    pub tables: u64,
    /// Number of tables that were built.
    pub tables_made: u64,
    /// Number of blob ids that a table uses.
    pub names_per_table: u64,
    /// Memory of the sums under all blob ids in a version.
    pub sums_bytes: u64,
    /// Memory of the dependency lists of all tables, if a version kept them.
    pub lists_bytes: u64,
    /// Approximate bytes of a manifest snapshot with all tables.
    pub manifest_bytes: u64,
    /// Bytes of the snapshot that was made.
    pub manifest_made_bytes: u64,
}

/// Times of an edit, with another flush installed since the edit was prepared.
#[derive(Clone, Copy, Debug)]
pub struct EditTimes {
    /// Time to apply and encode the prepared edit under the manifest lock, in nanoseconds.
    pub apply_ns: u64,
    /// Time to derive the next ledger under the manifest lock, in nanoseconds.
    pub ledger_ns: u64,
    /// Time to prepare both before the lock is taken, in nanoseconds.
    pub prepared_ns: u64,
    /// Time to compute the changes of the sums under blob ids by added and removed tables, in
    /// nanoseconds: a job does that before it installs.
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

/// Times of all operations, the best of all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Time to compute the ledger by a full walk, in nanoseconds.
    pub walk_ns: u64,
    /// A flush of a table and a value file.
    pub flush: EditTimes,
    /// A compaction of one table that drops a record of each tenth blob id.
    pub compaction: EditTimes,
    /// The replacement of the picked files; `None`: there was nothing to pick.
    pub collection: Option<EditTimes>,
    /// Time of a pick, in nanoseconds.
    pub pick_ns: u64,
    /// Time of a prune, in nanoseconds.
    pub prune_ns: u64,
    /// Time to encode a snapshot of the manifest, in nanoseconds.
    pub snapshot_ns: u64,
    /// Time to read and verify the snapshot, in nanoseconds.
    pub open_ns: u64,
}

/// Results of the benchmark.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    pub counts: Counts,
    pub times: Times,
    /// True if the ledger derived from edit to edit equals that of a walk, and the snapshot was
    /// read back unchanged.
    pub is_exact: bool,
}

/// Builds the metadata of such a store, and performs the operations of a running store on it.
///
/// # Errors
/// `Corruption` if an edit does not fit the state, which is a fault of this module.
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

/// The store, with the tools for measuring it.
struct Shop<'a> {
    scale: &'a Scale,
    now_ns: &'a dyn Fn() -> u64,
    rng: Rng,
    state: State,
    ledger: Ledger,
    /// Dependency list of each table of the level.
    lists: HashMap<u64, Vec<Dependency>>,
    /// Last file number in use.
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

    /// Returns the references to a file by one table.
    fn dependency(&self, blob_id: u64, bytes: u64) -> Dependency {
        Dependency { blob_id, count: bytes / self.scale.value_bytes, raw_bytes: bytes, stored_bytes: bytes }
    }

    /// Creates files with 67 to 99 % of their records referenced, by tables that each use `names`
    /// blob ids.
    fn fill(&mut self) -> Result<()> {
        let create = Record::CreateFamily { id: FAMILY, name: "default".into(), options: vec![] };
        let files =
            (1..=self.vssts).map(|number| Record::AddVsst { family: FAMILY, meta: self.vsst(number) });
        let records = [create].into_iter().chain(files).collect();
        self.state = self.state.clone().apply(Edit(records))?;
        // All referenced bytes, divided among the tables that are built.
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

    /// Returns the records that add a table, replacing another one or not, and the time to compute
    /// the changes of the sums under blob ids.
    fn tables(&self, level: u32, meta: FileMeta, old: Option<u64>) -> (Vec<Record>, u64) {
        let mut come = [meta];
        let gone = old.and_then(|number| self.lists.get(&number)).map(Vec::as_slice);
        let (sums, sums_ns) = timed(self.now_ns, || Record::references(FAMILY, &mut come, gone));
        let remove = |number| Record::RemoveFile { family: FAMILY, level, number };
        let add = |meta| Record::AddFile { family: FAMILY, level, meta };
        (old.map(remove).into_iter().chain(come.map(add)).chain(sums).collect(), sums_ns)
    }

    /// Prepares an edit, installs a flush of another thread, and then applies the edit and derives
    /// the ledger.
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

    /// Installs a flush of another thread.
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
            // 298 files and twelve of flushes; collections do not increase the number.
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
