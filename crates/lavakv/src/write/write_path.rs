//! The write path: admission, log, memtable, visible, durable.
//!
//! **One serialization point.** Under the writer's lock a batch gets its sequences and its place in the log, and takes the
//! lock of insertions (`Engine::inserting`), under which it gets its entries in the memtables and becomes visible. With the
//! second lock taken the first is given up ([`WriteOp::lets_next_in`]), so that the next write is logged meanwhile. So
//! memtable order, page order and sequence order agree. Whoever freezes a memtable does it under the writer's lock and after
//! [`settle`]: it holds whole batches, all of them visible.
//!
//! **Visible, then durable.** A durable write then waits, outside the lock, until the log has made every page up to its
//! own durable ([`wal::Wal::sync`], where concurrent waiters share one device write). It is acknowledged after that. A
//! reader may thus see a write a moment before it is durable, as with any write that is not synced at once; nothing is
//! *acknowledged* early. If the sync fails, the store is poisoned and the write is reported as failed.
//!
//! The path is a state machine ([`WriteOp`]), so that a blocking call and an asynchronous one drive the same steps.
//!
//! **Over several families.** If the store has more than one family, a flush first makes the log durable up to what it
//! flushes: otherwise a power loss could keep one family's half of a batch (in a table) and lose the other's (in the
//! log). Volatile batches are in no log; if one spans families, the next flush freezes all families and installs them in
//! one edit.

use crate::context::event::Event;
use crate::context::event::StallCause;
use crate::context::options::Durability;
use crate::engine::Engine;
use crate::files::log_groups::{Ballast, Need};
use crate::large::segments::Draft;
use crate::space::space_limit::admission::{self, Admission, Ask};
use crate::space::space_limit::live_log_bytes_max;
use crate::tree::family::Family;
use crate::tree::writer::Writer;
use crate::work::jobs;
use crate::write::batch::{self, Change, Entries, WriteBatch};
use crate::write::throttle::Pressure;
use base::sync::atomic::Ordering;
use base::sync::{Mutex, MutexGuard, lock, rank, read, try_lock};
use base::{Error, ErrorKind, Result, SeqNo, ValueKind};
use std::sync::Arc;
use table::SegmentReference;
use table::segment::RecordReference;
use wal::{Position, TenantId};

/// The longest write during which the next one is logged.
const UNDER_WAY_BYTES_MAX: usize = 16 << 10;
/// How often who waits for a lock looks whether it is free, before it sleeps; and how long it pauses between two looks.
const LOOKS: usize = 64;
const PAUSES: usize = 4;

/// What is written.
pub(crate) enum Payload<'a> {
    /// One change to a family that is already known.
    One(&'a Arc<Family>, Change<'a>),
    /// A batch.
    Batch(&'a WriteBatch),
}

impl Payload<'_> {
    fn count(&self) -> u32 {
        match self {
            Payload::One(..) => 1,
            Payload::Batch(b) => b.len() as u32,
        }
    }

    /// Bytes the memtables will grow by, roughly.
    fn weight(&self) -> usize {
        match self {
            Payload::One(_, c) => c.key.len() + c.value.len() + 64,
            Payload::Batch(b) => b.byte_len() + 64 * b.len(),
        }
    }

    fn is_delete_only(&self) -> bool {
        let frees = |kind: ValueKind| kind.is_tombstone() || kind == ValueKind::RangeDeletion;
        match self {
            Payload::One(_, c) => frees(c.kind),
            Payload::Batch(b) => Entries::of(b.body()).all(|c| c.is_ok_and(|c| frees(c.kind))),
        }
    }
}

/// Where a write stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteStep {
    /// It is visible; it is not durable yet, and the next step waits for the device.
    NeedIo,
    /// It is acknowledged.
    Done,
}

enum Stage {
    Start,
    Logged(Position),
    Done,
}

/// A write as resumable steps.
pub(crate) struct WriteOp<'a> {
    engine: &'a Arc<Engine>,
    payload: Payload<'a>,
    durability: Durability,
    stage: Stage,
    /// The segments that the payload refers to; kept from the moment in which it may be in the log.
    drafts: Vec<Draft>,
}

impl<'a> WriteOp<'a> {
    pub fn new(engine: &'a Arc<Engine>, payload: Payload<'a>, durability: Durability) -> Self {
        Self::with_drafts(engine, payload, durability, Vec::new())
    }

    /// A write that refers to these segments, which are finished. If it is not logged they are removed.
    pub fn with_drafts(
        engine: &'a Arc<Engine>,
        payload: Payload<'a>,
        durability: Durability,
        drafts: Vec<Draft>,
    ) -> Self {
        WriteOp { engine, payload, durability, stage: Stage::Start, drafts }
    }

    /// Advances. After an error the write's fate is unknown until the store is reopened, except for the kinds that are
    /// returned before anything is logged (`InvalidArgument`, `TooLarge`, `NotFound`, `NoSpace`, `Closed`, `Poisoned`).
    pub fn step(&mut self) -> Result<WriteStep> {
        match self.stage {
            Stage::Start => {
                let position = self.log_and_insert()?;
                match position {
                    Some(position) if self.durability == Durability::Durable => {
                        self.stage = Stage::Logged(position);
                        Ok(WriteStep::NeedIo)
                    }
                    _ => {
                        self.stage = Stage::Done;
                        Ok(WriteStep::Done)
                    }
                }
            }
            Stage::Logged(position) => {
                // First the values, then what says where they are.
                let engine = self.engine;
                let synced = engine.placement.sync(engine).and_then(|()| engine.wal().sync(position));
                synced
                    .inspect_err(|e| {
                        if !base::canary::is("log-sync-failure-does-not-poison") {
                            engine.health.poison(e);
                        }
                    })
                    .map_err(of_unknown_fate)?;
                self.stage = Stage::Done;
                Ok(WriteStep::Done)
            }
            Stage::Done => Ok(WriteStep::Done),
        }
    }

    /// Drives the steps to the end.
    pub fn run(mut self) -> Result<()> {
        while self.step()? != WriteStep::Done {}
        Ok(())
    }

    fn log_and_insert(&mut self) -> Result<Option<Position>> {
        let engine = self.engine;
        let count = self.payload.count();
        if let Payload::Batch(batch) = &self.payload {
            batch.check(0)?;
        }
        if count == 0 {
            return Ok(None);
        }
        let families = self.families()?;
        pace(engine, &families, &self.payload)?;
        let mut writer = self.enter(&families)?;
        make_room(engine, &mut writer, &families, &self.payload)?;
        let first_seq = writer.next_seq;
        let last_seq = first_seq + u64::from(count) - 1;
        if last_seq > base::MAX_SEQ {
            return Err(Error::new(ErrorKind::TooLarge, "the store has used up its sequence numbers"));
        }
        let position = match self.durability {
            Durability::Volatile => {
                writer.volatile_seq = last_seq;
                if families.len() > 1 {
                    writer.volatile_over_families = true;
                    engine.volatile_over_families_seq.store(last_seq, Ordering::Release);
                }
                None
            }
            durability => {
                shorten_log(engine, &mut writer, &self.payload);
                let places = crate::large::placement::reserve(engine, &self.payload, &families)?;
                let placed = (!places.is_empty())
                    .then(|| {
                        crate::large::placement::place(engine, &self.payload, &families, &places, first_seq)
                    })
                    .transpose()
                    .inspect_err(|_| crate::large::placement::give_up(engine, &mut writer, &families, true))?
                    .flatten();
                let body = placed.as_deref();
                let logged = log(engine, &mut writer, &self.payload, body, (first_seq, last_seq), durability);
                let unlogged = logged.as_ref().is_err_and(|failure| matches!(failure, Unlogged::Certain(_)));
                if logged.is_err() && body.is_some() {
                    crate::large::placement::give_up(engine, &mut writer, &families, unlogged);
                }
                self.drafts.iter_mut().filter(|_| !unlogged).for_each(Draft::keep);
                Some(logged?)
            }
        };
        self.drafts.iter_mut().for_each(Draft::keep);
        writer.next_seq = last_seq + 1;
        let order = wait_patiently(engine, &engine.inserting);
        // In this order, so that the next write may be logged now, and comes into the memtables after this one.
        let writer = (!self.lets_next_in(&families)).then_some(writer);
        let bytes = insert(engine, &self.payload, &families, first_seq);
        engine.snapshots.publish(last_seq);
        drop(order);
        if let Some(mut writer) = writer
            && engine.segments.over_bound.swap(false, Ordering::AcqRel)
        {
            families.iter().for_each(|family| freeze(engine, &mut writer, family));
        }
        engine.scheduler.wake_dozing();
        engine.stats.write_batches.add(1);
        engine.stats.write_entries.add(u64::from(count));
        engine.stats.user_bytes_written.add(bytes);
        Ok(position)
    }

    /// True if the next write may be logged while this one is put into the memtables. Those that have to do with more than
    /// the log and the memtables, or count for a limit of the space, go alone; so do long ones, since the memory of what
    /// is under way is not booked yet.
    fn lets_next_in(&self, families: &[Arc<Family>]) -> bool {
        let plain =
            self.drafts.is_empty() && !families.iter().any(|f| crate::large::placement::is_on(&f.options()));
        plain && self.payload.weight() <= UNDER_WAY_BYTES_MAX && !self.engine.space.is_limited()
    }

    /// The writer's lock, once there is room on disk for the write.
    fn enter(&self, families: &[Arc<Family>]) -> Result<MutexGuard<'a, Writer>> {
        let engine = self.engine;
        let mut since_ns = None;
        loop {
            let mut writer = wait_patiently(engine, &engine.writer);
            // Families are dropped under this lock.
            if let Some(family) = families.iter().find(|family| family.is_dropped()) {
                return Err(gone(&family.name));
            }
            if !engine.space.is_limited() && !engine.log.ballast_is_short() {
                return Ok(writer);
            }
            let placed = families.iter().any(|f| crate::large::placement::is_on(&f.options()));
            let ask = Ask::of_write(self.payload.weight(), placed, self.payload.is_delete_only());
            // A limit may begin to hold while this waits for the lock.
            let since_ns = *since_ns.get_or_insert_with(|| engine.env.clock.now_ns());
            match admission::admit(engine, &mut writer, ask, since_ns)? {
                Admission::Granted => return Ok(writer),
                Admission::Wait { working } => {
                    drop(writer);
                    admission::wait(engine, ask, working);
                }
            }
        }
    }

    fn families(&self) -> Result<Vec<Arc<Family>>> {
        match &self.payload {
            Payload::One(family, _) if family.is_dropped() => Err(gone(&family.name)),
            Payload::One(family, _) => Ok(vec![Arc::clone(family)]),
            Payload::Batch(batch) => {
                let all = read(&self.engine.families);
                let find = |id: &u32| all.get(id).cloned().ok_or_else(|| gone(&format!("with id {id}")));
                batch.families().iter().map(find).collect()
            }
        }
    }
}

fn gone(family: &str) -> Error {
    Error::not_found(format!("column family {family} does not exist: it was dropped"))
}

/// Why a batch was not logged.
enum Unlogged {
    /// Nothing of it is in the log.
    Certain(Error),
    /// It may be found there after a restart.
    Perhaps(Error),
}

impl From<Unlogged> for Error {
    fn from(failure: Unlogged) -> Error {
        match failure {
            Unlogged::Certain(e) | Unlogged::Perhaps(e) => e,
        }
    }
}

/// The error of a write that may be found in the log after a restart, under a kind that does not say that nothing of it
/// was logged. A file system may have kinds like that of its own: one that stopped everything after a failure elsewhere says
/// `Poisoned`, and so does the log to all who wait for a sync that failed; a device may find out late that it is full.
fn of_unknown_fate(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Poisoned | ErrorKind::NoSpace => error.with_kind(ErrorKind::Io),
        _ => error,
    }
}

/// Appends to the log, providing a group where it asks for one. `body`: what to log instead of the payload's own entries.
fn log(
    engine: &Arc<Engine>,
    writer: &mut Writer,
    payload: &Payload<'_>,
    body: Option<&[u8]>,
    (first_seq, last_seq): (SeqNo, SeqNo),
    durability: Durability,
) -> Result<Position, Unlogged> {
    let header = batch::header(first_seq, payload.count());
    let mut scratch = std::mem::take(&mut writer.scratch);
    let body: &[u8] = match payload {
        _ if body.is_some() => body.unwrap_or_default(),
        Payload::Batch(b) => b.body(),
        Payload::One(_, change) => {
            scratch.clear();
            change.encode_into(&mut scratch);
            &scratch
        }
    };
    let witness = engine.manifest.durable_edit();
    let logged = loop {
        match engine.wal().append(TenantId::FIRST, &[&header, body], first_seq, last_seq, durability, witness)
        {
            Ok(position) => break Ok(position),
            Err(e) if e.kind() == ErrorKind::Busy => {
                let len = header.len() + body.len();
                if let Err(e) = provide_group(engine, writer, len, payload.is_delete_only()) {
                    break Err(Unlogged::Certain(e));
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::NoSpace | ErrorKind::TooLarge) => {
                break Err(Unlogged::Certain(e));
            }
            Err(e) => {
                engine.health.poison(&e);
                break Err(Unlogged::Perhaps(of_unknown_fate(e)));
            }
        }
    };
    writer.scratch = scratch;
    logged
}

/// Gives the log a group for a batch. Where there is no room for one, deletes wait for what a flush of everything frees.
fn provide_group(engine: &Arc<Engine>, writer: &mut Writer, batch_len: usize, frees: bool) -> Result<()> {
    let need = if frees { Need::Deletes } else { Need::Usual };
    match engine.log.provide(engine, batch_len, need) {
        Err(e) if frees && e.kind() == ErrorKind::NoSpace && flush_for_room(engine, writer, batch_len) => {
            engine.log.provide(engine, batch_len, Need::Last)
        }
        provided => provided,
    }
}

/// Before another group is made for a log that is over its bound: waits for the flushes that make it shorter. Where space
/// is scarce such a group takes what these flushes are going to need, and a durable delete takes a page of it, so that
/// small deletes fill groups long before they fill a memtable.
///
/// Before anything of the write is placed: a value is to lie in the file of the memtable that takes it, and here memtables
/// are frozen.
fn shorten_log(engine: &Arc<Engine>, writer: &mut Writer, payload: &Payload<'_>) {
    // A change may take more in the log than in the payload: where its value lies, if that is somewhere else.
    if !engine.space.is_limited() || engine.wal().has_room(2 * payload.weight()) {
        return;
    }
    let live_max = live_log_bytes_max(&engine.options, engine.space.limit_bytes());
    while engine.wal().live_bytes() > live_max {
        let oldest = oldest_unflushed(engine);
        if let Some((_, family)) = &oldest {
            freeze(engine, writer, family);
        }
        let oldest_seq = oldest.map(|(seq, _)| seq);
        let moved = stall(engine, StallCause::Log, || {
            let short = engine.wal().live_bytes() <= live_max;
            let flushed = oldest_unflushed(engine).map(|(seq, _)| seq) != oldest_seq;
            let stuck = engine.health.is_stuck(engine.env.clock.now_ns()) || !jobs::can_work(engine);
            (short || flushed || stuck).then_some(short || flushed)
        });
        if !moved {
            return;
        }
    }
}

/// There is no room for another group, not even for deletes: flushes everything, so that groups of the log that are full
/// come back. What deletes hide in memtables is not written, so this may find room where nothing else does. False if it did
/// not: then the log must not have the room that a later flush needs.
fn flush_for_room(engine: &Arc<Engine>, writer: &mut Writer, batch_len: usize) -> bool {
    let (least, live_bytes) = (wal::group_len_needed(batch_len), engine.wal().live_bytes());
    freeze_all(engine, writer);
    if engine.log.give_ballast(engine, Ballast::Jobs) {
        engine.health.space_found();
    }
    stall(engine, StallCause::Log, || {
        let found = engine.log.has_fitting(least) || engine.wal().live_bytes() < live_bytes;
        let stuck = engine.health.is_stuck(engine.env.clock.now_ns())
            || engine.health.is_poisoned()
            || !jobs::can_work(engine);
        (found || stuck).then_some(found || engine.memory.backlog() == 0)
    })
}

/// The family with the oldest change that is in memtables only, and that change's sequence.
fn oldest_unflushed(engine: &Engine) -> Option<(SeqNo, Arc<Family>)> {
    let families = engine.all_families().into_iter();
    families.filter_map(|f| f.oldest_unflushed_seq().map(|seq| (seq, f))).min_by_key(|(seq, _)| *seq)
}

/// Takes a lock that is held for a few microseconds: to sleep until it is free takes longer.
fn wait_patiently<'a, T, R: rank::Ranked>(engine: &Engine, mutex: &'a Mutex<T, R>) -> MutexGuard<'a, T> {
    let looks = if engine.env.is_simulated() { 1 } else { LOOKS };
    for _ in 0..looks {
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
    }
    lock(mutex)
}

/// Under the writer's lock: waits until everything that was logged is in the memtables, and visible. Nothing follows as long
/// as the writer's lock is held.
pub(crate) fn settle(engine: &Engine) {
    if !base::canary::is("frozen-while-a-write-is-under-way") {
        drop(lock(&engine.inserting));
    }
}

/// Puts the changes into the memtables; returns key and value bytes.
fn insert(engine: &Engine, payload: &Payload<'_>, families: &[Arc<Family>], first_seq: SeqNo) -> u64 {
    match payload {
        Payload::One(family, change) => insert_one(engine, family, first_seq, change),
        Payload::Batch(batch) => {
            let mut bytes = 0;
            for (seq, change) in (first_seq..).zip(Entries::of(batch.body())) {
                let change = change.expect("a batch encodes its own entries");
                let family = families.iter().find(|f| f.id == change.family);
                let family = family.expect("families were looked up by the batch's list");
                bytes += insert_one(engine, family, seq, &change);
            }
            bytes
        }
    }
}

/// Puts one change into the active memtable of its family, and books the memory; returns key and value bytes. Under the
/// writer's lock, or in recovery.
pub(crate) fn insert_one(engine: &Engine, family: &Family, seq: SeqNo, change: &Change<'_>) -> u64 {
    let view = family.view();
    let before = view.active.bytes();
    view.active.insert(seq, change.kind, change.key, change.value);
    engine.memory.grew(view.active.bytes() - before);
    if change.is_placed() {
        // In recovery: a value that is lost.
        if let Ok(reference) = RecordReference::decode(change.value) {
            engine.segments.hold(engine, reference.file, family.id, &view.active, 0);
        }
    } else if change.kind == ValueKind::SegmentReference {
        let reference =
            SegmentReference::decode(change.value).expect("checked with the limits of the change");
        engine.segments.hold(engine, reference.file, family.id, &view.active, reference.stored_len);
        return change.key.len() as u64 + reference.raw_len;
    }
    (change.key.len() + change.value.len()) as u64
}

/// Slows down where a limit is near: pays for all bytes of the write.
fn pace(engine: &Engine, families: &[Arc<Family>], payload: &Payload<'_>) -> Result<()> {
    pay(engine, payload.weight() as u64, payload.is_delete_only(), || pressure(engine, families))
}

/// The same for bytes of a value in a file of its own, which go neither through memory nor through L0: they pay for the
/// garbage and the space alone.
pub(crate) fn pace_segment(engine: &Engine, family: &Arc<Family>, bytes: u64) -> Result<()> {
    family.check_served()?;
    let bytes = if base::canary::is("segments-pay-nothing") { 0 } else { bytes };
    pay(engine, bytes, false, || pressure(engine, std::slice::from_ref(family)).of_space())
}

/// Pays for so many bytes, a piece at a time at the price of the moment. Outside of all locks, so that whoever does not write
/// waits for nothing.
fn pay(engine: &Engine, bytes: u64, frees: bool, pressure: impl Fn() -> Pressure) -> Result<()> {
    let mut left = bytes;
    let mut slept: Option<(StallCause, u64)> = None;
    let mut outcome = Ok(());
    while left > 0 && outcome.is_ok() {
        let Some((rate, cause)) = pressure().allowed_rate() else { break };
        if cause == StallCause::Space && frees {
            break;
        }
        let (paid, sleep_ns) = engine.pacer.charge(engine.env.clock.now_ns(), left, rate);
        left = if base::canary::is("writes-pay-for-their-first-piece") { 0 } else { left - paid };
        if sleep_ns > 0 {
            engine.env.clock.sleep_ns(sleep_ns);
            let total_ns = slept.map_or(0, |(_, ns)| ns) + sleep_ns;
            slept = Some((cause, total_ns));
            outcome = engine.health.check();
        }
    }
    if let Some((cause, total_ns)) = slept {
        record_stall(engine, cause, total_ns);
    }
    outcome
}

/// Admission: freezes full memtables, and waits where a limit is reached.
fn make_room(
    engine: &Arc<Engine>,
    writer: &mut Writer,
    families: &[Arc<Family>],
    payload: &Payload<'_>,
) -> Result<()> {
    engine.health.check()?;
    let weight = payload.weight();
    for family in families {
        let view = family.view();
        if view.is_unserved {
            return Err(family.unserved());
        }
        let is_full = view.active.bytes() >= engine.options.memtable_bytes;
        drop(view);
        if is_full {
            freeze(engine, writer, family);
        }
    }
    if engine.log_over_bound.swap(false, Ordering::AcqRel)
        && let Some((_, family)) = oldest_unflushed(engine)
    {
        freeze(engine, writer, &family);
    }
    wait_for_memory(engine, writer, weight as u64, payload)?;
    let stop_files = |f: &Arc<Family>| f.options().l0_stop_files;
    if let Some(full) = families.iter().find(|f| f.view().l0_depth >= stop_files(f)) {
        stall(engine, StallCause::L0, || {
            let open =
                full.view().l0_depth < stop_files(full) || full.is_dropped() || engine.health.is_poisoned();
            let stuck = engine.space.is_limited() && !jobs::can_work(engine);
            (open || stuck || engine.health.is_stuck(engine.env.clock.now_ns())).then_some(())
        });
        engine.health.check()?;
    }
    Ok(())
}

fn wait_for_memory(
    engine: &Arc<Engine>,
    writer: &mut Writer,
    weight: u64,
    payload: &Payload<'_>,
) -> Result<()> {
    let max = engine.options.memory_bytes as u64;
    let mut retried = false;
    if engine.memory.used() + weight + UNDER_WAY_BYTES_MAX as u64 > max {
        settle(engine);
    }
    while engine.memory.used() > 0 && engine.memory.used() + weight > max {
        if engine.memory.backlog() == 0 {
            // The budget is spread over many families, none of them full: the largest goes first.
            let largest = engine.all_families().into_iter().max_by_key(|f| f.view().active.bytes());
            match largest {
                Some(family) if !family.view().active.is_empty() => freeze(engine, writer, &family),
                _ => return Ok(()),
            }
        }
        if is_refused(engine) && payload.is_delete_only() && engine.log.ballast_is_short() && !retried {
            // The job that failed was given the ballast. Deletes are what it is there for: they wait for the next try.
            retried = true;
            engine.health.retry();
        }
        if is_refused(engine) {
            // Deletes are how a user makes room: they may use a quarter more.
            if payload.is_delete_only() && engine.memory.used() + weight <= max + max / 4 {
                return Ok(());
            }
            return Err(Error::new(
                ErrorKind::NoSpace,
                "memory is full and tables cannot be written for want of disk space; writes resume when space returns",
            )
            .at_file(&engine.dir));
        }
        if let Some(e) = engine.health.held_up(engine.env.clock.now_ns()) {
            return Err(
                e.context("memory is full and tables cannot be written; writes resume when this has passed")
            );
        }
        stall(engine, StallCause::Memory, || {
            let fits = engine.memory.used() + weight <= max || engine.memory.backlog() == 0;
            let stuck = is_refused(engine) || engine.health.held_up(engine.env.clock.now_ns()).is_some();
            (fits || engine.health.is_poisoned() || stuck).then_some(())
        });
        engine.health.check()?;
    }
    Ok(())
}

/// A job found no room a moment ago. If that was earlier it says nothing: it is tried again.
fn is_refused(engine: &Engine) -> bool {
    engine.health.out_of_space() && engine.health.must_wait(engine.env.clock.now_ns())
}

fn pressure(engine: &Engine, families: &[Arc<Family>]) -> Pressure {
    let mut p = Pressure {
        memory_used: engine.memory.used(),
        // Memtables grow in pieces of up to a megabyte: near the limit writers must be slow before the last one.
        memory_max: (engine.options.memory_bytes - engine.options.memtable_bytes / 8) as u64,
        backlog: engine.memory.backlog(),
        flush_bytes_per_s: engine.flush_rate.get(),
        l0_bytes_per_s: engine.l0_rate.get(),
        gc_bytes_per_s: engine.gc_rate.get(),
        ..Default::default()
    };
    if let Some((room, margin)) = engine.space_room() {
        (p.space_room, p.space_margin) = (room, margin);
    }
    let limited = engine.has_own_limit();
    for family in families {
        let view = family.view();
        if !view.is_damaged {
            p.garbage_over_percent = p.garbage_over_percent.max(view.digest.garbage_over_percent(limited));
        }
        let files = view.l0_depth as u64;
        if files > p.l0_files {
            let options = family.options();
            p.l0_files = files;
            p.l0_slowdown = options.l0_slowdown_files as u64;
            p.l0_stop = options.l0_stop_files as u64;
        }
    }
    // While the user holds collection off nobody takes garbage away, however slowly writers go; nor what damaged files
    // keep.
    if p.garbage_over_percent > 0 && engine.gc_is_paused() {
        p.garbage_over_percent = 0;
    }
    p
}

/// Waits for background work, and books the wait.
pub(crate) fn stall<T>(engine: &Arc<Engine>, cause: StallCause, ready: impl FnMut() -> Option<T>) -> T {
    let start = engine.env.clock.now_ns();
    engine.scheduler.notify_work();
    let out = engine.scheduler.wait_until(engine, ready);
    record_stall(engine, cause, engine.env.clock.now_ns() - start);
    out
}

/// Books a wait of a writer.
pub(crate) fn record_stall(engine: &Engine, cause: StallCause, ns: u64) {
    engine.stats.stalls.add(1);
    engine.stats.stall_ns.add(ns);
    engine.stats.stall_ns_max.max(ns);
    match cause {
        StallCause::Memory => engine.stats.stall_memory_ns.add(ns),
        StallCause::L0 => engine.stats.stall_l0_ns.add(ns),
        StallCause::Log => engine.stats.stall_log_ns.add(ns),
        StallCause::Garbage => engine.stats.stall_garbage_ns.add(ns),
        StallCause::Space => engine.stats.stall_space_ns.add(ns),
    }
    engine.tell(&Event::Stall { cause, wait_ns: ns });
}

/// Freezes the active memtables of all families.
pub(crate) fn freeze_all(engine: &Arc<Engine>, writer: &mut Writer) {
    for family in engine.all_families() {
        freeze(engine, writer, &family);
    }
}

/// Freezes the active memtable of a family (of all families, if a volatile batch spans several) and wakes the flush.
pub(crate) fn freeze(engine: &Arc<Engine>, writer: &mut Writer, family: &Arc<Family>) {
    settle(engine);
    let all = std::mem::take(&mut writer.volatile_over_families)
        && !base::canary::is("volatile-batch-frozen-by-halves");
    let families = if all { engine.all_families() } else { vec![Arc::clone(family)] };
    {
        // Flushes are picked under the claims: none takes one family's half of a batch before the other's is frozen.
        let together = all && !base::canary::is("flush-picked-while-families-freeze");
        let _claims = together.then(|| lock(&engine.claims));
        for family in families {
            let active = family.view().active.clone();
            if active.is_empty() && active.range_tombstones().is_empty() {
                continue;
            }
            engine.memory.froze(active.bytes());
            family.freeze(writer.next_memtable_id);
            writer.next_memtable_id += 1;
        }
    }
    engine.scheduler.notify_work();
}
