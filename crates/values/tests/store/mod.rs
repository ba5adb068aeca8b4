//! A hand-made store: real tables and vSSTs on the simulated file system, real edits, and jobs with
//! other edits in between. Every value follows from its key and sequence, so that any reference in
//! any version can be checked.

#![allow(dead_code, reason = "not every test uses all of it")]

use base::key::{self, encode};
use base::{Compression, InternalIterator, Result, SeqNo, Uid, ValueKind};
use cache::Cache;
use io::sim::SimEnv;
use io::{Access, CreateOptions, Env, ReadQueue, Rng};
use lavastore_values::*;
use std::cell::{Cell, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use table::source::read_now;
use table::{
    BlockRequest, FetchedBlocks, IterOptions, Ksst, KsstBuilder, ReadCounters, Reference, Source,
    TableIdentity, TableOptions, Vsst, VsstBuilder, VsstOptions,
};
use version::{Dependency, Edit, FamilyId, FileMeta, Record, State, Version, VsstClass, VsstMeta, names};

pub const FAMILY: FamilyId = 1;
/// Shorter values stay in the tables.
pub const SEPARATE_FROM: usize = 40;

/// Returns the only possible value of an entry.
pub fn value_of(user_key: &[u8], seq: SeqNo) -> Vec<u8> {
    let mut rng = Rng::new(seq ^ base::hash::key_hash(user_key));
    let len = if rng.one_in(4) { rng.below(SEPARATE_FROM as u64) } else { rng.range(40, 400) };
    let mut value = vec![0; len as usize];
    rng.fill(&mut value);
    if rng.one_in(2) {
        // Compressible.
        value.fill(seq as u8);
    }
    value
}

pub fn path_of(name: &str) -> PathBuf {
    io::fs::join(Path::new("/store"), name)
}

/// Opens files, and keeps them open.
pub struct Files {
    pub env: Env,
    cache: Arc<Cache>,
    tables: Mutex<BTreeMap<u64, Arc<Ksst>>>,
    vssts: Mutex<BTreeMap<u64, Arc<Vsst>>>,
}

impl Files {
    pub fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        if let Some(open) = self.tables.lock().unwrap().get(&file.number) {
            return Ok(open.clone());
        }
        let handle = self.env.fs.open(&path_of(&names::ksst(file.number)), Access::Buffered)?;
        let table = Arc::new(Ksst::open(handle, file.number, file.uid, file.global_seq, self.cache.clone())?);
        self.tables.lock().unwrap().insert(file.number, table.clone());
        Ok(table)
    }

    pub fn vsst(&self, meta: &VsstMeta) -> Result<Arc<Vsst>> {
        if let Some(open) = self.vssts.lock().unwrap().get(&meta.number) {
            return Ok(open.clone());
        }
        let handle = self.env.fs.open(&path_of(&names::vsst(meta.number)), Access::Buffered)?;
        let vsst = Arc::new(Vsst::open(handle, meta.number, meta.uid, self.cache.clone())?);
        self.vssts.lock().unwrap().insert(meta.number, vsst.clone());
        Ok(vsst)
    }
}

impl Files {
    pub fn forget(&self, number: u64) {
        self.tables.lock().unwrap().remove(&number);
        self.vssts.lock().unwrap().remove(&number);
    }
}

/// The part of the store that jobs see.
pub struct World {
    pub files: Arc<Files>,
    pub next_number: u64,
    pub compression: Compression,
    /// Number of submissions of lookup reads; `lookup_reads` counts the reads.
    pub submissions: Cell<u64>,
    pub lookup_reads: Cell<u64>,
}

impl World {
    pub fn begin(&mut self, alignment: u32, class: VsstClass) -> Result<OutputVsst> {
        let number = self.next_number;
        self.next_number += 1;
        let path = path_of(&names::vsst(number));
        let file = self.files.env.fs.create(&path, &CreateOptions::default())?;
        let uid = self.files.env.new_uid();
        let identity = TableIdentity { number, uid, family: FAMILY, ..TableIdentity::default() };
        let options = VsstOptions { compression: self.compression, alignment };
        let mut builder = VsstBuilder::new(file, &path, identity, &options, None);
        builder.set_class(class as u8);
        Ok(OutputVsst { number, path, volume: Default::default(), uid, builder })
    }

    pub fn begin_table(&mut self, level: u32) -> Result<KsstBuilder> {
        let number = self.next_number;
        self.next_number += 1;
        let path = path_of(&names::ksst(number));
        let file = self.files.env.fs.create(&path, &CreateOptions::default())?;
        let uid = self.files.env.new_uid();
        let identity = TableIdentity { number, uid, family: FAMILY, level, ..TableIdentity::default() };
        let options = TableOptions { block_len: 256, partition_len: 256, ..TableOptions::default() };
        Ok(KsstBuilder::new(file, &path, identity, &options, None))
    }
}

impl GcEnv for World {
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        self.files.table(file)
    }
    fn vsst(&self, meta: &VsstMeta) -> Result<Arc<Vsst>> {
        self.files.vsst(meta)
    }
    fn create(&mut self, alignment: u32, class: VsstClass) -> Result<OutputVsst> {
        self.begin(alignment, class)
    }
    fn now_ns(&self) -> Option<u64> {
        // Half of the stores have no clock.
        (self.compression == Compression::None).then(|| self.files.env.clock.now_ns())
    }
    fn read_wanted(&self, fetched: &mut FetchedBlocks, wants: &[BlockRequest]) {
        assert!(wants.windows(2).all(|pair| pair[0].extent < pair[1].extent), "ascending, each once");
        self.submissions.set(self.submissions.get() + 1);
        self.lookup_reads.set(self.lookup_reads.get() + wants.len() as u64);
        for want in wants {
            fetched.counters().count_request(want.extent.len);
            fetched.put(want, read_now(&want.file, want.extent));
        }
    }
    fn reads(&self) -> Option<ReadQueue> {
        Some(ReadQueue::of_background(&self.files.env))
    }
}

pub fn table_meta(builder: KsstBuilder) -> Result<FileMeta> {
    builder.finish().map(|table| lsm::file_meta(&table))
}

/// A compaction that has chosen its inputs and not written its outputs.
pub struct Compaction {
    pub inputs: Vec<(u32, Arc<FileMeta>)>,
    pub output_level: u32,
    /// Outline of the version from which it started.
    pub version: Arc<Version>,
    /// Whether references are renewed to the number of their file in that version.
    pub renews: bool,
    /// One in this many values is rewritten into a vSST of this compaction; 0: none.
    pub rewrites: u64,
    pub pins: Option<PinGuard>,
}

/// Outcome of an entry.
enum What {
    Tombstone,
    /// A value, which follows from its key; a long one goes into a new vSST.
    Value,
    Reference(Reference),
    /// Dropped, but the entries that it hid stay hidden.
    Gone,
}

type Memtable = BTreeMap<(Vec<u8>, Reverse<SeqNo>), ValueKind>;

pub struct Store {
    pub sim: SimEnv,
    pub world: World,
    pub state: State,
    pub pins: Arc<Pins>,
    pub memtable: Memtable,
    pub seq: SeqNo,
    pub busy: BTreeSet<u64>,
    /// Versions that readers hold.
    pub kept: Vec<Arc<Version>>,
    /// Newest entry of each key; all other entries may be dropped.
    pub newest: BTreeMap<Vec<u8>, (SeqNo, ValueKind)>,
}

impl Store {
    pub fn new(seed: u64) -> Store {
        let sim = SimEnv::new(seed);
        let env = sim.env();
        env.fs.create_dir_all(Path::new("/store")).unwrap();
        let files = Files {
            env,
            cache: Arc::new(Cache::new(1 << 20)),
            tables: Mutex::default(),
            vssts: Mutex::default(),
        };
        let create = Record::CreateFamily { id: FAMILY, name: "f".into(), options: Vec::new() };
        let state = State::empty(Uid::from_words(seed, 1), 1).apply(Edit(vec![create])).unwrap();
        let compression = if seed.is_multiple_of(2) { Compression::None } else { Compression::Lz4 };
        Store {
            sim,
            world: World {
                files: Arc::new(files),
                next_number: 10,
                compression,
                submissions: Cell::default(),
                lookup_reads: Cell::default(),
            },
            state,
            pins: Pins::new(),
            memtable: Memtable::new(),
            seq: 0,
            busy: BTreeSet::new(),
            kept: Vec::new(),
            newest: BTreeMap::new(),
        }
    }

    pub fn version(&self) -> Arc<Version> {
        self.state.family(FAMILY).unwrap().version.clone()
    }

    /// Commits an edit and removes the files that are no longer held.
    pub fn commit(&mut self, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let edit = Edit(records);
        self.state =
            self.state.apply(&edit).unwrap_or_else(|e| panic!("{e}: {edit:?}\n{}", self.state.describe()));
        self.state.verify().unwrap();
    }

    pub fn prune(&mut self) {
        let (records, removed) = prune(&self.version(), &Ledger::of(&self.version()), &self.pins);
        let before = self.version();
        self.commit(records);
        for meta in removed {
            assert!(!self.version().vssts.contains_key(&meta.number));
            assert!(before.names_of(meta.number).iter().all(|n| !before.references.contains_key(n)));
        }
    }

    /// Removes files that no version holds; `held` are the versions of running jobs.
    pub fn remove_files(&mut self, held: &[Arc<Version>], writing: &BTreeSet<u64>) {
        let current = self.version();
        let versions = held.iter().chain(&self.kept).chain([&current]);
        let used: BTreeSet<u64> = versions.flat_map(|v| v.file_numbers().collect::<Vec<_>>()).collect();
        for entry in self.world.files.env.fs.list(Path::new("/store")).unwrap() {
            let number = match names::parse(&entry.name) {
                Some(names::FileKind::Ksst(n) | names::FileKind::Vsst(n)) => n,
                _ => continue,
            };
            if !used.contains(&number) && !writing.contains(&number) {
                self.world.files.env.fs.remove(&path_of(&entry.name)).unwrap();
                self.world.files.forget(number);
            }
        }
    }

    pub fn write(&mut self, rng: &mut Rng, keys: u64) {
        self.seq += 1;
        let key = format!("key{:05}", rng.below(keys)).into_bytes();
        let kind = if rng.one_in(6) { ValueKind::Deletion } else { ValueKind::Value };
        self.newest.insert(key.clone(), (self.seq, kind));
        self.memtable.insert((key, Reverse(self.seq)), kind);
    }

    /// Deletes every key that was ever written.
    pub fn delete_all(&mut self) {
        for (key, newest) in &mut self.newest {
            self.seq += 1;
            *newest = (self.seq, ValueKind::Deletion);
            self.memtable.insert((key.clone(), Reverse(self.seq)), ValueKind::Deletion);
        }
    }

    pub fn file_count(&self) -> usize {
        self.world.files.env.fs.list(Path::new("/store")).unwrap().len()
    }

    /// Writes the memtable into a table at level 0, and its values into vSSTs, with hot and cold
    /// split or not.
    pub fn flush(&mut self, rng: &mut Rng) {
        let memtable = std::mem::take(&mut self.memtable);
        if memtable.is_empty() {
            return;
        }
        let entries = memtable.into_iter().map(|((key, Reverse(seq)), kind)| {
            let what = match kind {
                ValueKind::Value => What::Value,
                _ => What::Tombstone,
            };
            (key, seq, what)
        });
        let (tables, vssts) = self.write_files(entries.collect(), 0, usize::MAX, rng);
        let mut records: Vec<Record> =
            vssts.into_iter().map(|meta| Record::AddVsst { family: FAMILY, meta }).collect();
        records.extend(self.tables_come(tables, 0, &[]));
        self.commit(records);
    }

    /// Returns the records that add tables, with the changes of the sums under blob ids by these
    /// and the removed tables.
    fn tables_come(&self, mut come: Vec<FileMeta>, level: u32, go: &[Arc<FileMeta>]) -> Vec<Record> {
        let gone = self.lists(go);
        let sums = Record::references(FAMILY, &mut come, gone.iter().map(Vec::as_slice));
        let add = |meta| Record::AddFile { family: FAMILY, level, meta };
        come.into_iter().map(add).chain(sums).collect()
    }

    /// Reads the dependency lists of tables.
    fn lists(&self, files: &[Arc<FileMeta>]) -> Vec<Vec<Dependency>> {
        let list = |f: &Arc<FileMeta>| {
            self.world.files.table(f).unwrap().dependencies(&mut ReadCounters::default()).unwrap()
        };
        files.iter().map(list).collect()
    }

    /// Writes entries into tables with a maximum number of entries, and new values into vSSTs.
    fn write_files(
        &mut self,
        entries: Vec<(Vec<u8>, SeqNo, What)>,
        level: u32,
        entries_max: usize,
        rng: &mut Rng,
    ) -> (Vec<FileMeta>, Vec<VsstMeta>) {
        let vsst_bytes = rng.range(500, 20_000);
        let world = RefCell::new(&mut self.world);
        fn world_of<'a>(world: &'a RefCell<&mut World>) -> RefMut<'a, World> {
            RefMut::map(world.borrow_mut(), |w| &mut **w)
        }
        let world = &world;
        let begin = |class| VsstSeries::new(vsst_bytes, move || world_of(world).begin(0, class));
        let (mut hot, mut cold) = (begin(VsstClass::Hot), begin(VsstClass::Cold));
        let mut tables = Vec::new();
        let mut table: Option<(KsstBuilder, usize, Vec<u8>)> = None;
        for (key, seq, what) in entries {
            let full =
                |(_, count, last): &(KsstBuilder, usize, Vec<u8>)| *count >= entries_max && *last != key;
            if table.as_ref().is_some_and(full) {
                tables.push(table_meta(table.take().unwrap().0).unwrap());
            }
            let (builder, count, last) =
                table.get_or_insert_with(|| (world_of(world).begin_table(level).unwrap(), 0, Vec::new()));
            (*count, *last) = (*count + 1, key.clone());
            let (kind, bytes) = match what {
                What::Tombstone | What::Gone => (ValueKind::Deletion, Vec::new()),
                What::Reference(reference) => (ValueKind::Reference, reference.encode()),
                What::Value => match value_of(&key, seq) {
                    value if value.len() < SEPARATE_FROM => (ValueKind::Value, value),
                    value => {
                        let is_hot = base::hash::key_hash(&key).is_multiple_of(3);
                        let series = if is_hot { &mut hot } else { &mut cold };
                        (ValueKind::Reference, series.add(&key, seq, &value).unwrap().encode())
                    }
                },
            };
            builder.add(&encode(&key, seq, kind), &bytes).unwrap();
        }
        tables.extend(table.map(|(builder, ..)| table_meta(builder).unwrap()));
        let mut vssts = hot.finish().unwrap();
        vssts.extend(cold.finish().unwrap());
        (tables, vssts)
    }

    /// Chooses the inputs of a compaction, pins, and marks them busy. `None` if there is nothing to
    /// do.
    pub fn begin_compaction(&mut self, rng: &mut Rng) -> Option<Compaction> {
        let version = self.version();
        let level = rng.below(3) as u32;
        let idle = |f: &Arc<FileMeta>| !self.busy.contains(&f.number);
        let upper: Vec<_> = match level {
            0 => version.files(0).to_vec(),
            // The last level is compacted with itself.
            _ => {
                let files = version.files(level as usize);
                files.get(rng.below(files.len() as u64) as usize).cloned().into_iter().collect()
            }
        };
        let low = upper.iter().map(|f| f.smallest_user_key()).min()?;
        let high = upper.iter().map(|f| f.largest_user_key()).max()?;
        let output_level = (level + 1).min(2);
        let mut inputs: Vec<(u32, Arc<FileMeta>)> = upper.iter().map(|f| (level, f.clone())).collect();
        if output_level != level {
            let below = version.overlapping(output_level as usize, Some(low), Some(high));
            inputs.extend(below.into_iter().map(|f| (output_level, f)));
        }
        // No other compaction may write an overlapping file there, so none runs at the same time.
        if !self.busy.is_empty() || !inputs.iter().all(|(_, f)| idle(f)) {
            return None;
        }
        self.busy.extend(inputs.iter().map(|(_, f)| f.number));
        let files: Vec<_> = inputs.iter().map(|(_, f)| f.clone()).collect();
        let mut pins = self.pins.hold(FAMILY);
        let lists = self.lists(&files);
        let used = used_names(lists.iter().map(Vec::as_slice));
        pins.narrow(names_to_pin(&version, &used));
        let rewrites = if rng.one_in(3) { rng.range(2, 9) } else { 0 };
        let version = Arc::new(outline(&version, &used, &[]));
        Some(Compaction { inputs, output_level, version, renews: rng.one_in(2), rewrites, pins: Some(pins) })
    }

    /// Merges the inputs, drops hidden entries (sometimes keeping those that a snapshot may see),
    /// and installs the result.
    pub fn finish_compaction(&mut self, mut job: Compaction, rng: &mut Rng) {
        let mut entries: BTreeMap<(Vec<u8>, Reverse<SeqNo>), What> = BTreeMap::new();
        for (_, file) in &job.inputs {
            let mut cursor = self.world.files.table(file).unwrap().iter(IterOptions::default());
            cursor.seek_to_first().unwrap();
            while cursor.valid() {
                let (user_key, trailer) = key::split(cursor.key());
                let seq = trailer >> 8;
                let what = match ValueKind::from_u8(trailer as u8).unwrap() {
                    ValueKind::Reference => {
                        let mut reference = Reference::decode(cursor.value()).unwrap();
                        if job.renews {
                            let meta = job.version.resolve(reference.blob_id, user_key, seq).unwrap();
                            reference.blob_id = meta.number;
                        }
                        What::Reference(reference)
                    }
                    ValueKind::Deletion => What::Tombstone,
                    _ => What::Value,
                };
                entries.insert((user_key.to_vec(), Reverse(seq)), what);
                cursor.next().unwrap();
            }
        }
        let mut kept: Vec<(Vec<u8>, SeqNo, What)> = Vec::new();
        for ((key, Reverse(seq)), mut what) in entries {
            let above = kept.last().filter(|(last, ..)| *last == key);
            let (hidden, uncovered) = (above.is_some(), above.is_some_and(|(.., w)| matches!(w, What::Gone)));
            let bottom = job.output_level == 2 && matches!(what, What::Tombstone);
            if (hidden && (uncovered || !rng.one_in(8))) || (bottom && !hidden && self.is_bottom(&job, &key))
            {
                // A dropped tombstone must not uncover the entries that it hid here.
                if bottom && !hidden {
                    kept.push((key, 0, What::Gone));
                }
                continue;
            }
            if job.rewrites > 0 && rng.one_in(job.rewrites) && matches!(what, What::Reference(_)) {
                what = What::Value;
            }
            kept.push((key, seq, what));
        }
        kept.retain(|(.., what)| !matches!(what, What::Gone));
        let entries_max = rng.range(20, 200) as usize;
        let (tables, vssts) = self.write_files(kept, job.output_level, entries_max, rng);
        let mut records: Vec<Record> = job
            .inputs
            .iter()
            .map(|(level, f)| Record::RemoveFile { family: FAMILY, level: *level, number: f.number })
            .collect();
        records.extend(vssts.into_iter().map(|meta| Record::AddVsst { family: FAMILY, meta }));
        let inputs: Vec<_> = job.inputs.iter().map(|(_, f)| f.clone()).collect();
        records.extend(self.tables_come(tables, job.output_level, &inputs));
        self.commit(records);
        job.inputs.iter().for_each(|(_, f)| assert!(self.busy.remove(&f.number)));
        drop(job.pins.take());
    }

    /// Returns true if no entry of the key lies under the outputs.
    fn is_bottom(&self, job: &Compaction, key: &[u8]) -> bool {
        let inputs: BTreeSet<u64> = job.inputs.iter().map(|(_, f)| f.number).collect();
        self.version().lookup(key).all(|(level, f)| level < 2 || inputs.contains(&f.number))
    }

    /// Checks every entry of `version` in a table: its referenced record exists and has the right
    /// value.
    pub fn check(&self, version: &Version) -> u64 {
        let mut checked = 0;
        for file in version.levels.iter().flatten() {
            let mut cursor = self.world.files.table(file).unwrap().iter(IterOptions::default());
            cursor.seek_to_first().unwrap();
            while cursor.valid() {
                let (user_key, trailer) = key::split(cursor.key());
                let seq = trailer >> 8;
                if trailer as u8 == ValueKind::Reference as u8 {
                    let reference = Reference::decode(cursor.value()).unwrap();
                    let meta = version
                        .resolve(reference.blob_id, user_key, seq)
                        .expect("a name that leads somewhere");
                    let vsst = self.world.files.vsst(meta).unwrap();
                    let mut counters = ReadCounters::default();
                    let got = vsst.get(user_key, seq, &reference, false, &mut counters).unwrap();
                    assert_eq!(&got[..], value_of(user_key, seq), "the value of another entry");
                    checked += 1;
                }
                cursor.next().unwrap();
            }
        }
        checked
    }

    /// Checks that the current version has the newest entry of every flushed key.
    pub fn check_newest(&self) {
        let version = self.version();
        for (key, (seq, kind)) in &self.newest {
            if self.memtable.contains_key(&(key.clone(), Reverse(*seq))) {
                continue;
            }
            let mut counters = ReadCounters::default();
            let hash = base::hash::key_hash(key);
            let found = version.lookup(key).find_map(|(_, file)| {
                self.world.files.table(file).unwrap().get(key, base::MAX_SEQ, hash, &mut counters).unwrap()
            });
            match found {
                Some(found) => assert_eq!(found.seq, *seq, "an older entry of {}", key.escape_ascii()),
                None => assert_eq!(*kind, ValueKind::Deletion, "{} is lost", key.escape_ascii()),
            }
        }
    }
}
