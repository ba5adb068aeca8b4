//! `value_placement = log`: separated values are written once, while they are logged.
//!
//! By default a separated value is written twice, to the log and by the flush to a vSST. In a family with placement
//! *log* it is appended, in order of arrival, to a file that belongs to the family's active memtable; the log carries
//! where it lies, and the memtable the value itself, so that reads do not change. The flush writes only tables with
//! references, and the sorted index behind the values: the file is then a vSST like any other (whose records are in order
//! of arrival), and garbage collection one day brings them into the order of keys.
//!
//! # Order of durability
//!
//! A value is handed to the file system before its batch is appended to the log, so both survive the death of the process.
//! A durable write is acknowledged after **all** open files were synced, and then the log. Hence, whatever a loss of power
//! takes: *every value logged up to a durable write is there, if that write was acknowledged.*
//!
//! # Recovery
//!
//! Replay reads each value from its file, verified by the record's checksum (tied to file and offset), key and sequence,
//! and puts it into the memtable. After a crash all of it is flushed, to ordinary vSSTs, before the store serves: what was
//! read may so far be in the page cache only. The first value that is not there ends the log: its batch and everything
//! after it is ignored, as after a page that is not there. By the rule above nothing of that was acknowledged as durable.
//! Since the ignored batches are still in the log, recovery raises every family's log floor above them.
//!
//! Damage is told from a torn end as in the log: every reference states how far its file was durable when it was logged.
//! If the missing value lies below that mark of any reference, or if the store was closed cleanly, it is corruption.
//!
//! # Failure
//!
//! After a failed write nothing is appended to the file any more. The memtable is frozen, the next one gets a file of its
//! own, and the flush writes the values from the memtable to an ordinary vSST. The file stays until then, since the log
//! refers to it.

use crate::batch::{Change, Entries, WriteBatch};
use crate::engine::{Engine, Writer};
use crate::family::Family;
use crate::jobs::output;
use crate::options::ValuePlacement;
use crate::write_path::Payload;
use base::sync::lock;
use base::{Error, ErrorKind, HashMap, Result, SeqNo, Uid, ValueKind};
use io::{Access, CreateOptions, ReadFile};
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use table::segment::RecordReference;
use table::vsst::record::read_loose;
use table::{RecordLens, VsstBuilder, VsstOptions};
use version::{FamilyId, VsstMeta, names};

/// Bytes collected within one batch before they are handed over.
const WRITE_BUFFER_LEN: usize = 256 << 10;
/// Write-back begins every so many bytes.
const SYNC_EVERY: u64 = 4 << 20;

/// The files of memtables that are not flushed yet.
#[derive(Default)]
pub(crate) struct Placement {
    /// By memtable.
    files: Mutex<HashMap<u64, Arc<Mutex<ArrivalFile>>>>,
    count: AtomicUsize,
}

/// A file that values are appended to.
pub(crate) struct ArrivalFile {
    pub number: u64,
    uid: Uid,
    state: State,
    /// The values in it that were logged.
    places: HashMap<SeqNo, RecordLens>,
    /// Bytes that are durable, and whether the file's name is.
    synced_bytes: u64,
    name_synced: bool,
}

enum State {
    Open(Box<VsstBuilder>),
    Finished(Box<VsstMeta>),
    /// A write failed: see the module.
    Failed,
}

impl ArrivalFile {
    fn create(engine: &Engine, family: &Family) -> Result<ArrivalFile> {
        let number = engine.manifest.allocate_file_number();
        let path = engine.path(&names::vsst(number));
        // Each batch hands over what it has; around the page cache that would write every last page twice.
        let create = CreateOptions {
            access: Access::Buffered,
            expected_len: 0,
            write_buffer_len: WRITE_BUFFER_LEN,
            sync_every: SYNC_EVERY,
        };
        let file = engine.env.fs.create(&path, &create)?;
        let identity = output::identity(engine, family, number, 0, 0, &[]);
        let uid = identity.uid;
        let options = VsstOptions { compression: family.options().compression, alignment: 0 };
        let mut builder = VsstBuilder::new(file, &path, identity, &options, Some(engine.cache.clone()))
            .in_order_of_arrival();
        builder.set_created(engine.env.clock.unix_seconds());
        let state = State::Open(Box::new(builder));
        Ok(ArrivalFile {
            number,
            uid,
            state,
            places: HashMap::default(),
            synced_bytes: 0,
            name_synced: false,
        })
    }

    fn append(&mut self, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<RecordReference> {
        let State::Open(builder) = &mut self.state else {
            return Err(Error::invalid("a value was to be placed in a file that is not open"));
        };
        let (lens, offset) = builder.append(user_key, seq, value)?;
        self.places.insert(seq, lens);
        Ok(RecordReference {
            file: self.number,
            uid: self.uid,
            offset,
            raw_len: lens.raw_len,
            stored_len: lens.stored_len,
            synced_bytes: self.synced_bytes,
        })
    }

    fn flush(&mut self) -> Result<()> {
        if let State::Open(builder) = &mut self.state { builder.flush() } else { Ok(()) }
    }

    fn sync(&mut self, engine: &Engine) -> Result<()> {
        let State::Open(builder) = &mut self.state else { return Ok(()) };
        let bytes = builder.written_bytes();
        if bytes == self.synced_bytes {
            return Ok(());
        }
        if !self.name_synced {
            engine.env.fs.sync_dir(&engine.dir)?;
            self.name_synced = true;
        }
        builder.sync()?;
        self.synced_bytes = bytes;
        Ok(())
    }

    /// Gives the file its index, unless it has one; what the manifest is to know of it.
    pub fn finish(&mut self, engine: &Engine) -> Result<VsstMeta> {
        if let State::Finished(meta) = &self.state {
            return Ok(VsstMeta::clone(meta));
        }
        let State::Open(builder) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(Error::invalid("the file of a memtable's values failed earlier"));
        };
        let mut meta = values::vsst_meta(&builder.finish(Vec::new())?)?;
        // To the version it is a vSST: only a file of one large value is a segment there.
        meta.segment = false;
        meta.copies = engine.segments.token(self.number);
        self.state = State::Finished(Box::new(meta.clone()));
        Ok(meta)
    }

    /// The logged values that the flush need not write again.
    pub fn places(&self) -> impl Iterator<Item = (SeqNo, RecordLens)> + '_ {
        let sound = !matches!(self.state, State::Failed);
        self.places.iter().filter(move |_| sound).map(|(&seq, &lens)| (seq, lens))
    }
}

impl Placement {
    /// The file of a memtable, if it has one.
    pub fn of(&self, memtable: u64) -> Option<Arc<Mutex<ArrivalFile>>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        lock(&self.files).get(&memtable).cloned()
    }

    /// The memtable is in tables, or its family is gone.
    pub fn forget(&self, memtable: u64) {
        let mut files = lock(&self.files);
        files.remove(&memtable);
        self.count.store(files.len(), Ordering::Release);
    }

    fn file_for(&self, engine: &Engine, family: &Family) -> Result<Arc<Mutex<ArrivalFile>>> {
        let active = family.view().active.clone();
        let mut files = lock(&self.files);
        if let Some(file) = files.get(&active.id()) {
            return Ok(file.clone());
        }
        let file = ArrivalFile::create(engine, family)?;
        engine.segments.hold(engine, file.number, family.id, &active, 0);
        let file = Arc::new(Mutex::new(file));
        files.insert(active.id(), file.clone());
        self.count.store(files.len(), Ordering::Release);
        Ok(file)
    }

    /// Makes every value placed so far durable.
    pub fn sync(&self, engine: &Engine) -> Result<()> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let files: Vec<_> = lock(&self.files).values().cloned().collect();
        files.iter().try_for_each(|file| lock(file).sync(engine))
    }
}

/// Values of at least so many bytes are placed while they are logged; `None`: none are.
fn placed_from(family: &Family) -> Option<usize> {
    let options = family.options();
    let placed = options.value_placement == ValuePlacement::Log && options.min_blob_size > 0;
    placed.then_some(options.min_blob_size)
}

/// Places the values of a write whose first sequence is given, under the writer's lock. The body to log instead of the
/// payload's own; `None` if nothing was placed.
pub(crate) fn place(
    engine: &Engine,
    payload: &Payload<'_>,
    families: &[Arc<Family>],
    first_seq: SeqNo,
) -> Result<Option<Vec<u8>>> {
    if families.iter().all(|f| placed_from(f).is_none()) {
        return Ok(None);
    }
    let placed = match payload {
        Payload::One(family, change) => {
            let mut body = Vec::new();
            place_one(engine, family, first_seq, change, &mut body)?.then_some(body)
        }
        Payload::Batch(batch) => place_batch(engine, batch, families, first_seq)?,
    };
    if placed.is_some() {
        for family in families {
            if let Some(file) = engine.placement.of(family.view().active.id()) {
                lock(&file).flush()?;
            }
        }
    }
    Ok(placed)
}

fn place_batch(
    engine: &Engine,
    batch: &WriteBatch,
    families: &[Arc<Family>],
    first_seq: SeqNo,
) -> Result<Option<Vec<u8>>> {
    let (mut body, mut any) = (Vec::new(), false);
    for (seq, change) in (first_seq..).zip(Entries::of(batch.body())) {
        let change = change.expect("a batch encodes its own entries");
        let family = families.iter().find(|f| f.id == change.family);
        let family = family.expect("families were looked up by the batch's list");
        any |= place_one(engine, family, seq, &change, &mut body)?;
    }
    Ok(any.then_some(body))
}

/// Appends the entry to log for one change. True if its value was placed.
fn place_one(
    engine: &Engine,
    family: &Family,
    seq: SeqNo,
    change: &Change<'_>,
    body: &mut Vec<u8>,
) -> Result<bool> {
    let from = placed_from(family).filter(|_| change.kind == ValueKind::Value);
    if from.is_none_or(|from| change.value.len() < from) {
        change.encode_into(body);
        return Ok(false);
    }
    let file = engine.placement.file_for(engine, family)?;
    let reference = lock(&file).append(change.key, seq, change.value)?;
    engine.stats.segment_bytes_written.add(reference.stored_len);
    let reference = reference.encode();
    Change { kind: ValueKind::SegmentReference, value: &reference, ..*change }.encode_into(body);
    Ok(true)
}

/// A write that had placed values was not logged, or could not place them: nothing more is appended to these files, as
/// the sequences will be used again. See the module on failure.
pub(crate) fn give_up(engine: &Arc<Engine>, writer: &mut Writer, families: &[Arc<Family>]) {
    for family in families {
        let active = family.view().active.clone();
        let Some(file) = engine.placement.of(active.id()) else { continue };
        let mut file = lock(&file);
        let logged_bytes = file.places.values().map(|lens| lens.stored_len).sum::<u64>();
        if file.synced_bytes < logged_bytes && file.sync(engine).is_err() {
            // Values that were logged can no longer be made durable, so no later durable write may be acknowledged.
            let why = "a file of values failed with values in it that are logged, but not durable";
            engine
                .health
                .poison(&Error::new(ErrorKind::Io, why).at_file(engine.path(&names::vsst(file.number))));
        }
        file.state = State::Failed;
        let number = file.number;
        drop(file);
        if active.is_empty() {
            engine.placement.forget(active.id());
            engine.segments.dropped(engine, &[number]);
        } else {
            crate::write_path::freeze(engine, writer, family);
        }
    }
}

/// What replay knows of placed values.
#[derive(Default)]
pub(crate) struct Replayed {
    /// How far each file is known to have been durable, and its family.
    files: HashMap<u64, (u64, FamilyId)>,
    open: HashMap<u64, Option<Arc<dyn ReadFile>>>,
    /// The first value that is missing: where it was to end, and why it is not there.
    missing: Option<(u64, u64, Error)>,
    /// The last sequence that is ignored because of it.
    pub ignored_to: Option<SeqNo>,
}

impl Replayed {
    /// The values of a batch's placed entries, in order; `None` if the batch is to be ignored.
    pub fn values(
        &mut self,
        engine: &Engine,
        placed: &[(SeqNo, Change<'_>)],
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let mut values = Vec::new();
        for (seq, change) in placed {
            let reference = RecordReference::decode(change.value)?;
            let known = self.files.entry(reference.file).or_insert((0, change.family));
            known.0 = known.0.max(reference.synced_bytes);
            if self.missing.is_some() {
                continue;
            }
            match self.read(engine, *seq, change, &reference) {
                Ok(value) => values.push(value),
                Err(e) if e.is_corruption() => {
                    let end = reference.offset.saturating_add(reference.stored_len);
                    self.missing = Some((reference.file, end, e));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(self.missing.is_none().then_some(values))
    }

    fn read(
        &mut self,
        engine: &Engine,
        seq: SeqNo,
        change: &Change<'_>,
        reference: &RecordReference,
    ) -> Result<Vec<u8>> {
        let path = engine.path(&names::vsst(reference.file));
        let open = || match engine.env.fs.open(&path, Access::Buffered) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        let file = match self.open.entry(reference.file) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(open()?),
        };
        let Some(file) = file else {
            return Err(
                Error::corruption("a file with values that the log refers to is missing").at_file(path)
            );
        };
        let record = read_loose(&**file, reference.uid, reference.offset, reference.stored_len)?;
        if (&record.user_key[..], record.seq) != (change.key, seq) {
            let why = "the record that the log refers to is of another key";
            return Err(Error::corruption(why).at_file(path).at_offset(reference.offset));
        }
        Ok(record.value)
    }

    /// True if the log refers to placed values.
    pub fn is_any(&self) -> bool {
        !self.files.is_empty()
    }

    /// After the whole log: fails if a value is missing that was durable. `closed`: the log was closed cleanly.
    pub fn judge(&self, closed: bool) -> Result<()> {
        let Some((file, end, e)) = &self.missing else { return Ok(()) };
        let durable = self.files.get(file).is_some_and(|(synced, _)| end <= synced);
        if !closed && !durable {
            return Ok(());
        }
        Err(e
            .clone()
            .context("a value that was durable is gone; restore the file from a checkpoint or backup"))
    }

    /// Keeps the files until what was read from them is in tables.
    pub fn hold(&self, engine: &Engine) {
        for (&number, &(_, family)) in &self.files {
            let Some(family) = engine.family(family) else { continue };
            let active = family.view().active.clone();
            if !active.is_empty() {
                engine.segments.hold(engine, number, family.id, &active, 0);
            }
        }
    }
}
