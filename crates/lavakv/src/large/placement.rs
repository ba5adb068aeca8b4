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
//! Before its batch is appended to the log, a value is in the [`tail`] of its file, which survives the process whatever
//! fails; to the file itself it may go later. A durable write is acknowledged after **all** files were synced, and then
//! the log. Hence, whatever a loss of power takes: *every value logged up to a durable write is there, if that write was
//! acknowledged.*
//!
//! A sync of a file runs [`beside`] its writes, and is mostly the log's thread's ([`durable`]): a write waits for one only where the tail has no
//! room for what is not durable yet, and then with nothing locked.
//!
//! # Recovery
//!
//! Replay ([`replayed`]) reads each value from its file, or else from a tail, verified by the record's checksum (tied to
//! file and offset), key and sequence, and puts it into the memtable. All of it is flushed, to ordinary
//! vSSTs, before the store serves: what was read may so far be in the page cache only. The first value that is in neither
//! ends the log: its batch and everything after it is ignored, as after a page that is not there. By the rule above
//! nothing of that was acknowledged as durable. Since the ignored batches are still in the log, recovery raises every
//! family's log floor above them.
//!
//! # A full volume
//!
//! Room for the values of a write is taken in its file before any of them is placed ([`reserve`]), and room for the index
//! before it is written. Where there is none for the values, or for a tail, they are not placed: the log takes them like any
//! others, and the flush writes them again. So with this placement a store gets on wherever it would without, a limit needs
//! a reserve for two tails and no more, and a volume that is full is no failure in the sense of what follows.
//!
//! # Failure
//!
//! After a failed write or sync nothing is appended to the file any more. The memtable is frozen, the next one gets a file
//! of its own, and the flush writes the values from the memtable to an ordinary vSST. File and tail stay until then, since
//! the log refers to them.

use super::segments::Segments;
use crate::batch::payload::Payload;
use crate::batch::{Change, Entries, WriteBatch};
use crate::context::options::FamilyOptions;
use crate::tree::family::Family;
use crate::tree::{Tree, output};
use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, HashMap, Result, SeqNo, Uid, ValueKind};
use beside::{Beside, Syncs};
use io::{Access, CreateOptions, PendingSync};
use std::ops::DerefMut;
use std::sync::Arc;
use table::segment::RecordReference;
use table::vsst::record;
use table::{RecordLens, VsstBuilder, VsstOptions};
use tail::{Tail, Tails};
use version::{FamilyId, VsstMeta, names};

mod beside;
mod durable;
mod replayed;
mod tail;

pub(crate) use replayed::{PlacedValues, Replayed, lost};

/// Bytes collected before they are handed to the file system.
const WRITE_BUFFER_LEN: usize = 256 << 10;
/// Room is taken in pieces of this part of a memtable.
const RESERVED_PART: u64 = 16;
/// Write-back begins every so many bytes.
const SYNC_EVERY: u64 = 4 << 20;

/// The files of memtables that are not flushed yet.
pub(crate) struct Placement {
    tree: Arc<Tree>,
    segments: Arc<Segments>,
    /// By memtable.
    files: Mutex<HashMap<u64, Arc<Arrival>>, rank::Arrivals>,
    /// The length of `files`: changed under it, looked at without it.
    count: AtomicUsize,
    pub tails: Tails,
    /// Files of which a value is lost that only the log refers to, as the manifest is to list them.
    lost: Mutex<HashMap<u64, VsstMeta>, rank::ArrivalsLost>,
}

/// A file that values are appended to, and whose syncs let others append.
pub(crate) struct Arrival(Beside<ArrivalFile>);

/// The file itself.
pub(crate) struct ArrivalFile {
    pub number: u64,
    uid: Uid,
    state: State,
    /// The values in it that were logged.
    places: HashMap<SeqNo, RecordLens>,
    /// Bytes that are durable, and whether the file's name is.
    synced_bytes: u64,
    name_synced: bool,
    /// Until the values are in tables.
    tail: Option<Tail>,
    /// Up to here it is to be durable before anything is logged: a record that the tail did not take ends there.
    over_tail_bytes: u64,
    /// Where the last sync went that was begun.
    syncing_bytes: u64,
    /// When the first value came that no sync was begun for, in clock nanoseconds.
    waits_since_ns: Option<u64>,
    /// Up to here the volume has room for it.
    reserved_bytes: u64,
}

enum State {
    Open(Box<VsstBuilder>),
    Finished(Box<VsstMeta>),
    /// A write or sync failed: see the module. `durable`: every logged value in it is.
    Failed {
        durable: bool,
    },
}

impl ArrivalFile {
    fn create(tree: &Tree, family: &Family) -> Result<ArrivalFile> {
        let number = tree.files.manifest.allocate_file_number();
        let path = tree.context.path(&names::vsst(number));
        // Each sync hands over what there is; around the page cache that would write every last page twice.
        let create = CreateOptions {
            access: Access::Buffered,
            expected_len: 0,
            write_buffer_len: WRITE_BUFFER_LEN,
            sync_every: SYNC_EVERY,
            ..CreateOptions::default()
        };
        let file = tree.context.env.fs.create(&path, &create)?;
        let identity = output::identity(tree, family, number, 0, 0, &[]);
        let uid = identity.uid;
        let options = VsstOptions { compression: family.options().compression, alignment: 0 };
        let mut builder = VsstBuilder::new(file, &path, identity, &options, Some(tree.files.cache.clone()))
            .in_order_of_arrival();
        builder.set_created(tree.context.env.clock.unix_seconds());
        let state = State::Open(Box::new(builder));
        Ok(ArrivalFile {
            number,
            uid,
            state,
            places: HashMap::default(),
            synced_bytes: 0,
            name_synced: false,
            tail: None,
            over_tail_bytes: 0,
            syncing_bytes: 0,
            waits_since_ns: None,
            reserved_bytes: 0,
        })
    }

    /// Takes room for `more` bytes, so that what is logged never meets a full volume afterwards. An error changes nothing.
    fn reserve(&mut self, tree: &Tree, more: u64) -> Result<()> {
        let State::Open(builder) = &mut self.state else { return Ok(()) };
        let needed = builder.written_bytes().saturating_add(more);
        if needed <= self.reserved_bytes {
            return Ok(());
        }
        // In pieces, but where there is too little for one, no more than is needed. A limit admitted no more than the write.
        let ahead = tree.context.options.memtable_bytes as u64 / RESERVED_PART;
        let ahead = if tree.space.has_room_left(ahead.saturating_add(3 * more)) { ahead } else { 0 };
        match builder.reserve(more.saturating_add(ahead)) {
            Ok(()) => self.reserved_bytes = needed.saturating_add(ahead),
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                builder.reserve(more)?;
                self.reserved_bytes = needed;
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn append(&mut self, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<RecordReference> {
        let (State::Open(builder), Some(tail)) = (&mut self.state, &self.tail) else {
            return Err(Error::invalid("a value was to be placed in a file that is not open"));
        };
        let (lens, offset) = builder.append(user_key, seq, value)?;
        if lens.stored_len > tail.len() || tail.keep(offset, builder.last_record()).is_err() {
            self.over_tail_bytes = builder.written_bytes();
        }
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

    fn tail_len(&self) -> u64 {
        self.tail.as_ref().map_or(0, Tail::len)
    }

    /// True if the tail has no room for a record of so many bytes besides those that are not durable.
    fn would_overwrite(&self, record_len: usize) -> bool {
        self.written_bytes() + record_len as u64 > self.synced_bytes + self.tail_len()
    }

    /// Gives the file its index, unless it has one; what the manifest is to know of it. All values are durable: then a
    /// failure of what follows takes none of them.
    fn finish(&mut self, token: Arc<()>) -> Result<VsstMeta> {
        if let State::Finished(meta) = &self.state {
            return Ok(VsstMeta::clone(meta));
        }
        if let State::Open(builder) = &mut self.state {
            // Where there is no room for the index the flush is tried again, with the values where they are.
            builder.reserve(builder.index_len_max())?;
        }
        let State::Open(builder) = std::mem::replace(&mut self.state, State::Failed { durable: true }) else {
            return Err(Error::invalid("the file of a memtable's values failed earlier"));
        };
        let mut meta = values::vsst_meta(&builder.finish(Vec::new())?)?;
        // To the version it is a vSST: only a file of one large value is a segment there.
        meta.segment = false;
        meta.copies = token;
        self.state = State::Finished(Box::new(meta.clone()));
        Ok(meta)
    }

    /// The logged values that the flush need not write again.
    pub fn places(&self) -> impl Iterator<Item = (SeqNo, RecordLens)> + '_ {
        let sound = !matches!(self.state, State::Failed { .. });
        self.places.iter().filter(move |_| sound).map(|(&seq, &lens)| (seq, lens))
    }
}

impl Syncs for ArrivalFile {
    /// What is left of the sync of the file, and whether its name is still to be made durable.
    type Run = (Option<PendingSync>, bool);

    fn written_bytes(&self) -> u64 {
        if let State::Open(builder) = &self.state { builder.written_bytes() } else { 0 }
    }

    fn is_durable(&self, bytes: u64) -> Result<bool> {
        match &self.state {
            State::Open(_) => Ok(self.synced_bytes >= bytes),
            State::Finished(_) | State::Failed { durable: true } => Ok(true),
            State::Failed { durable: false } => {
                let why = "a file of values failed with values in it that are logged, but not durable";
                Err(Error::new(ErrorKind::Io, why))
            }
        }
    }

    fn begin(&mut self) -> Result<Self::Run> {
        let State::Open(builder) = &mut self.state else {
            return Err(Error::invalid("a file of values that is not open was to be synced"));
        };
        (self.syncing_bytes, self.waits_since_ns) = (builder.written_bytes(), None);
        Ok((builder.begin_sync()?, !self.name_synced))
    }

    fn end(&mut self, ran: Result<()>) -> Result<()> {
        let State::Open(builder) = &mut self.state else { return ran };
        if let Err(e) = builder.end_sync(ran) {
            // A second sync could succeed without what the first one lost: the name of the file, or bytes of it.
            self.state = State::Failed { durable: false };
            return Err(e);
        }
        if base::canary::is("placed-sync-covers-what-came-later") {
            self.syncing_bytes = builder.written_bytes();
        }
        (self.synced_bytes, self.name_synced) = (self.syncing_bytes, true);
        Ok(())
    }
}

impl Arrival {
    /// The file, to look at or append to.
    pub fn lock(&self) -> impl DerefMut<Target = ArrivalFile> + '_ {
        self.0.lock()
    }

    /// Makes all values in it durable. Others may append meanwhile.
    fn sync(&self, tree: &Tree) -> Result<()> {
        let synced = self.0.sync(|(file, is_new)| {
            let named = if is_new { tree.files.sync_dir() } else { Ok(()) };
            named.and_then(|()| file.map_or(Ok(()), |run| run()))
        });
        synced.map_err(|e| e.at_file(tree.context.path(&names::vsst(self.lock().number))))
    }

    fn append(&self, tree: &Tree, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<RecordReference> {
        // Under the writer's lock: nobody else appends in between.
        let full = self.lock().would_overwrite(record::len_max(user_key.len(), value.len()));
        if full {
            self.sync(tree)?;
        }
        let mut file = self.lock();
        let was_half_full = file.is_half_full();
        file.waits_since_ns.get_or_insert_with(|| tree.context.now_ns());
        let reference = file.append(user_key, seq, value);
        if !was_half_full && file.is_half_full() {
            drop(file);
            tree.context.signals.notify_work();
        }
        reference
    }

    /// All that was appended since the last call may be logged.
    fn keep_safe(&self, tree: &Tree) -> Result<()> {
        let unsafe_to_log = {
            let file = self.lock();
            file.over_tail_bytes > file.synced_bytes
        };
        if unsafe_to_log { self.sync(tree) } else { Ok(()) }
    }

    /// Makes all values durable and gives the file its index; what the manifest is to know of it.
    pub fn finish(&self, tree: &Tree, segments: &Segments) -> Result<VsstMeta> {
        self.sync(tree)?;
        let token = segments.token(self.lock().number);
        self.0.settled().finish(token)
    }

    /// Nothing more is appended. `durable`: see [`State::Failed`].
    fn fail(&self, durable: bool) {
        self.0.settled().state = State::Failed { durable };
    }
}

impl Placement {
    pub fn new(tree: &Arc<Tree>, segments: &Arc<Segments>) -> Placement {
        Placement {
            tree: tree.clone(),
            segments: segments.clone(),
            files: Mutex::default(),
            count: AtomicUsize::default(),
            tails: Tails::new(&tree.space, &tree.files),
            lost: Mutex::default(),
        }
    }

    /// A value in this file is lost.
    pub fn set_lost(&self, meta: &VsstMeta) {
        lock(&self.lost).insert(meta.number, meta.clone());
    }

    /// True if a value in the file is lost.
    pub fn is_lost(&self, number: u64) -> bool {
        lock(&self.lost).contains_key(&number)
    }

    /// What the manifest is to say of a file of which a value is lost, once a table refers to it.
    pub fn lost(&self, number: u64) -> Option<VsstMeta> {
        let meta = lock(&self.lost).get(&number)?.clone();
        Some(VsstMeta { copies: self.segments.token(number), ..meta })
    }

    /// The file of a memtable, if it has one.
    pub fn of(&self, memtable: u64) -> Option<Arc<Arrival>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        lock(&self.files).get(&memtable).cloned()
    }

    /// A value in a file cannot be read any more. The flush then writes all values of its memtable from memory, as after a
    /// failed write. Under the writer's lock; the memtable is to be frozen before it is let go.
    pub fn distrust(&self, number: u64) {
        let files: Vec<_> = lock(&self.files).values().cloned().collect();
        for file in files {
            let concerned = {
                let file = file.lock();
                file.number == number && matches!(file.state, State::Open(_))
            };
            if !concerned {
                continue;
            }
            // The values that can be read are to stay as durable as they were promised.
            match file.sync(&self.tree) {
                Ok(()) => file.fail(true),
                Err(e) => self.tree.context.health.poison(&e),
            }
        }
    }

    /// The memtable is in tables, or its family is gone.
    pub fn forget(&self, memtable: u64) {
        let mut files = lock(&self.files);
        let file = files.remove(&memtable);
        self.count.store(files.len(), Ordering::Release);
        drop(files);
        if let Some(tail) = file.and_then(|file| file.lock().tail.take()) {
            self.tails.put(tail);
        }
    }

    /// The file of the family's active memtable. It is made if there is none, for `more` bytes to begin with.
    fn file_for(&self, family: &Family, more: u64) -> Result<Arc<Arrival>> {
        let active = family.read_state().active.clone();
        let mut files = lock(&self.files);
        if let Some(file) = files.get(&active.id()) {
            return Ok(file.clone());
        }
        let tail = self.tails.take(more)?;
        let mut file = match ArrivalFile::create(&self.tree, family) {
            Ok(file) => file,
            Err(e) => {
                self.tails.put(tail);
                return Err(e);
            }
        };
        file.tail = Some(tail);
        self.segments.hold(file.number, family.id, &active, 0);
        let file = Arc::new(Arrival(Beside::new(file)));
        files.insert(active.id(), file.clone());
        self.count.store(files.len(), Ordering::Release);
        Ok(file)
    }

    /// True if values are placed that no table has yet.
    pub fn has_values(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }
}

/// Where the values of a write go.
#[derive(Default)]
pub(crate) struct Places {
    /// The families that have room for theirs.
    pub families: Vec<FamilyId>,
    /// Files that are to be made durable first, with nothing locked: their tails have no room otherwise.
    pub full: Vec<Arc<Arrival>>,
}

/// True if the value of a change is to be placed: it is separated, and no shorter than what the log would say instead, so that
/// no batch becomes longer by that, and too long for the log.
fn is_long(change: &Change<'_>, options: &FamilyOptions) -> bool {
    let least = options.min_blob_size.max(RecordReference::ENCODED_LEN_MAX);
    change.kind == ValueKind::Value && change.value.len() >= least
}

impl Placement {
    /// Takes room for the values of a write, under the writer's lock, before anything of it is placed or logged. After an error, or if it
    /// is not made for now, nothing has changed, and the same write may be tried again.
    pub fn reserve(&self, payload: &Payload<'_>, families: &[Arc<Family>]) -> Result<Places> {
        let mut places = Places::default();
        for family in families {
            if !family.places_values() {
                continue;
            }
            let options = family.options();
            let len = |change: &Change<'_>| {
                if is_long(change, &options) {
                    record::len_max(change.key.len(), change.value.len()) as u64
                } else {
                    0
                }
            };
            let bytes: u64 = match payload {
                Payload::One(_, change) => len(change),
                Payload::Batch(batch) => {
                    let own = Entries::of(batch.body()).flatten().filter(|change| change.family == family.id);
                    own.map(|change| len(&change)).sum()
                }
            };
            if bytes == 0 {
                continue;
            }
            if self.has_place(family, bytes)? {
                places.families.push(family.id);
                places.full.extend(self.full_for(family, bytes));
            } else {
                self.tree.context.stats.writes_not_placed.add(1);
            }
        }
        Ok(places)
    }

    /// True if there is a file with room for so many bytes of values of the family.
    fn has_place(&self, family: &Family, bytes: u64) -> Result<bool> {
        let reserved =
            self.file_for(family, 3 * bytes).and_then(|file| file.lock().reserve(&self.tree, bytes));
        match reserved {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                let active = family.read_state().active.clone();
                if active.is_empty()
                    && let Some(file) = self.of(active.id())
                {
                    let number = file.lock().number;
                    self.forget(active.id());
                    // The memtable lives on: it must not keep a file that neither it nor the log refers to.
                    self.segments.unlogged(number);
                }
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Places the values of a write whose first sequence is given, under the writer's lock, in `places`: the families that
    /// `reserve` found. The body to log instead of the payload's own; `None` if nothing was placed.
    pub fn place(
        &self,
        payload: &Payload<'_>,
        families: &[Arc<Family>],
        places: &[FamilyId],
        first_seq: SeqNo,
    ) -> Result<Option<Vec<u8>>> {
        let placed = match payload {
            Payload::One(family, change) => {
                let mut body = Vec::new();
                self.place_one(family, places, first_seq, change, &mut body)?.then_some(body)
            }
            Payload::Batch(batch) => self.place_batch(batch, families, places, first_seq)?,
        };
        if placed.is_some() {
            for family in families {
                if let Some(file) = self.of(family.read_state().active.id()) {
                    file.keep_safe(&self.tree)?;
                }
            }
        }
        Ok(placed)
    }

    fn place_batch(
        &self,
        batch: &WriteBatch,
        families: &[Arc<Family>],
        places: &[FamilyId],
        first_seq: SeqNo,
    ) -> Result<Option<Vec<u8>>> {
        let (mut body, mut any) = (Vec::new(), false);
        for (seq, change) in (first_seq..).zip(Entries::of(batch.body())) {
            let change = change.expect("a batch encodes its own entries");
            let family = families.iter().find(|f| f.id == change.family);
            let family = family.expect("families were looked up by the batch's list");
            any |= self.place_one(family, places, seq, &change, &mut body)?;
        }
        Ok(any.then_some(body))
    }

    /// Appends the entry to log for one change. True if its value was placed.
    fn place_one(
        &self,
        family: &Family,
        places: &[FamilyId],
        seq: SeqNo,
        change: &Change<'_>,
        body: &mut Vec<u8>,
    ) -> Result<bool> {
        if !is_long(change, &family.options()) || !places.contains(&family.id) {
            change.encode_into(body);
            return Ok(false);
        }
        let file = self.file_for(family, 0)?;
        let reference = file.append(&self.tree, change.key, seq, change.value)?;
        self.tree.context.stats.segment_bytes_written.add(reference.stored_len);
        self.tree.context.stats.values_placed.add(1);
        let reference = reference.encode();
        Change { kind: ValueKind::PlacedReference, value: &reference, ..*change }.encode_into(body);
        Ok(true)
    }

    /// A write that had placed values was not logged, or could not place them: nothing more is appended to these files, as
    /// the sequences from `next_seq` on will be used again. See the module on failure. `unlogged`: nothing of the write is in the log
    /// for sure. The families whose memtables are to be frozen before anything else is written.
    pub fn give_up(&self, next_seq: SeqNo, families: &[Arc<Family>], unlogged: bool) -> Vec<Arc<Family>> {
        let mut to_freeze = Vec::new();
        for family in families {
            let active = family.read_state().active.clone();
            let Some(file) = self.of(active.id()) else { continue };
            let (number, logged_bytes, synced_bytes) = {
                let file = file.lock();
                let logged = file.places.iter().filter(|(seq, _)| **seq < next_seq);
                (file.number, logged.map(|(_, lens)| lens.stored_len).sum::<u64>(), file.synced_bytes)
            };
            file.fail(synced_bytes >= logged_bytes || file.sync(&self.tree).is_ok());
            if let Err(e) = file.sync(&self.tree) {
                // No later durable write may be acknowledged.
                self.tree.context.health.poison(&e);
            }
            if active.is_empty() {
                self.forget(active.id());
                if unlogged && logged_bytes == 0 {
                    // The memtable lives on: it must not keep a file that neither it nor the log refers to.
                    self.segments.unlogged(number);
                } else {
                    self.segments.dropped(&[number]);
                }
            } else {
                to_freeze.push(family.clone());
            }
        }
        to_freeze
    }
}

#[cfg(test)]
mod tests;
