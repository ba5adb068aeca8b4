//! The work of the threads of a run.

use super::story::{Batch, Checkpoint, Guest, Story, contents, key};
use crate::check::{Check, Doing, ensure};
use crate::files::check_at_rest;
use crate::machine;
use crate::machine::DIR;
use crate::plan::{self, pick};
use crate::state::{Change, Entries, OPERAND_LEN_MAX};
use io::{Priority, Rng};
use lavastore::testing::{FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore::{
    Cancel, CheckpointOptions, CompactRequest, Db, Durability, Env, Error, ErrorKind, Family, GcRequest,
    Options, Snapshot, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Parameters of a run.
#[derive(Clone)]
pub(crate) struct Shape {
    options: Options,
    lavafs: bool,
    writers: usize,
    /// Maximum number of batches per writer.
    batches: u64,
    readers: usize,
    upkeep: usize,
    slots: u64,
    value_len: u64,
    /// The nth call of a kind fails.
    fault: Option<(u64, OpKind)>,
    /// The store is closed at once, with running jobs.
    hurry: bool,
    /// The nth sync of the manifest fails from the close on.
    fault_at_close: Option<u64>,
    /// All writes are volatile: after a crash both families have the same flushed data.
    pub volatile: bool,
    /// A thread closes the store beside the others, and opens it again.
    closes: bool,
}

impl Shape {
    pub fn drawn(rng: &mut Rng, lavafs: bool) -> Shape {
        let drawn = if rng.one_in(2) { plan::churn_options(rng) } else { plan::options(rng) };
        let kinds = match lavafs {
            false => [OpKind::SyncDir, OpKind::SyncDir, OpKind::Sync, OpKind::SyncData, OpKind::WriteDurable],
            true => [
                OpKind::SyncData,
                OpKind::WriteDurable,
                OpKind::SyncData,
                OpKind::WriteDurable,
                OpKind::WriteAt,
            ],
        };
        let fault = (rng.below(16), pick(rng, &kinds));
        let drawn = plan::scrubbed(rng, Options { io_budget: 0, ..drawn });
        // Time passes only when all threads are idle: a slow scrub would dominate the run.
        let scrub_bytes_per_s = if drawn.expert.scrub_bytes_per_s > 0 { 1 << 40 } else { 0 };
        Shape {
            options: plan::roomy(drawn.expert(|expert| expert.scrub_bytes_per_s = scrub_bytes_per_s)),
            lavafs,
            writers: rng.range(1, 4) as usize,
            batches: pick(rng, &[3, 8, 8, 20]),
            readers: rng.below(3) as usize,
            upkeep: rng.below(3) as usize,
            slots: pick(rng, &[2, 8, 30]),
            value_len: pick(rng, &[30, 600, 3000, 9000]),
            fault: rng.one_in(3).then_some(fault),
            hurry: rng.one_in(2),
            fault_at_close: rng.one_in(6).then(|| rng.below(2)),
            volatile: rng.clone().one_in(8),
            closes: {
                let mut own = rng.clone();
                own.next_u64();
                own.one_in(5)
            },
        }
    }

    pub fn describe(&self) -> String {
        let Shape {
            lavafs,
            writers,
            batches,
            readers,
            upkeep,
            slots,
            value_len,
            fault,
            hurry,
            fault_at_close,
            volatile,
            closes,
            ..
        } = self;
        format!(
            "lavafs {lavafs}, {writers} writers of {batches} batches, {readers} readers, {upkeep} at upkeep, {slots} keys, \
             values of {value_len}, fault {fault:?}, hurry {hurry}, at close {fault_at_close:?}, volatile {volatile}, closes {closes}, {}",
            plan::describe(&self.options)
        )
    }
}

/// State shared by the threads of a run. (Neither its lock nor its clock is a point of the
/// schedule.)
struct ScheduleState {
    db: Db,
    mirror: Family,
    sim: SimEnv,
    env: Env,
    shape: Shape,
    story: Mutex<Story>,
    ticks: AtomicU64,
    /// The close of [`Shape::closes`] has begun.
    is_closing: AtomicBool,
}

impl ScheduleState {
    fn story(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present tick of the run's clock and the operation count of the machine.
    fn now(&self) -> (u64, u64) {
        (self.ticks.fetch_add(1, Relaxed), self.sim.op_count())
    }

    /// Excuses errors after a file system fault, and `Closed` errors once a close has begun.
    fn excused<T>(&self, result: Check<T>) -> Check<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.sim.faults_fired() > 0 => Ok(None),
            Err(why) if self.is_closing.load(Relaxed) && why.contains("closed: the store was closed") => {
                Ok(None)
            }
            Err(why) => Err(why),
        }
    }
}

type Body = Box<dyn FnOnce(&ScheduleState) -> Check + Send>;

/// Main thread: opens the store, starts the others, waits for them, compares, and closes.
pub(crate) fn run(env: &Env, sim: &SimEnv, shape: Shape, mut rng: Rng) -> Check<Story> {
    let env = if shape.lavafs { machine::env_with_threads(sim, env)? } else { env.clone() };
    let db = Db::open_in(&env, DIR, &shape.options).doing(|| "open".into())?;
    let mirror = db.create_family("mirror", &plan::family_options(&mut rng)).doing(|| "create".into())?;
    if let Some((nth, kind)) = shape.fault {
        sim.inject(FaultPlan::nth(nth, FaultEffect::Eio).kinds(&[kind]));
    }
    let writers = (0..shape.writers).map(|_| Vec::new()).collect();
    let story = Story { created_op: sim.op_count(), mirror: mirror.id(), writers, ..Story::default() };
    let shared = Arc::new(ScheduleState {
        db,
        mirror,
        sim: sim.clone(),
        env,
        shape,
        story: Mutex::new(story),
        ticks: AtomicU64::new(1),
        is_closing: AtomicBool::new(false),
    });
    let mut bodies: Vec<(String, Body)> = Vec::new();
    for writer in 0..shared.shape.writers {
        let rng = rng.fork();
        bodies.push((format!("writer-{writer}"), Box::new(move |shared| write(shared, writer, rng))));
    }
    for reader in 0..shared.shape.readers {
        let rng = rng.fork();
        bodies.push((format!("reader-{reader}"), Box::new(move |shared| read(shared, rng))));
    }
    for n in 0..shared.shape.upkeep {
        let rng = rng.fork();
        bodies.push((format!("upkeep-{n}"), Box::new(move |shared| upkeep(shared, n, rng))));
    }
    if shared.shape.closes {
        let rng = rng.fork();
        bodies.push(("closer".into(), Box::new(move |shared| close_beside(shared, rng))));
    }
    together(&shared, bodies)?;
    end(shared)
}

/// Runs each body in a thread; returns the first error.
fn together(shared: &Arc<ScheduleState>, bodies: Vec<(String, Body)>) -> Check {
    let spawner = shared.env.spawner.clone().ok_or("a machine with threads")?;
    let complaints: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut threads = Vec::new();
    for (name, body) in bodies {
        let (shared, complaints, who) = (shared.clone(), complaints.clone(), name.clone());
        let run = move || {
            if let Err(why) = body(&shared) {
                let mut complaints = complaints.lock().unwrap_or_else(PoisonError::into_inner);
                complaints.push(format!("{who}: {why}"));
            }
        };
        threads.push(spawner.spawn(&name, Priority::Foreground, Box::new(run)).doing(|| "spawn".into())?);
    }
    threads.into_iter().for_each(|thread| {
        let _ = thread.join();
    });
    let first = complaints.lock().unwrap_or_else(PoisonError::into_inner).first().cloned();
    first.map_or(Ok(()), Err)
}

/// Compares everything after all threads have ended, and closes the store.
fn end(shared: Arc<ScheduleState>) -> Check<Story> {
    if let Some(look) = shared.excused(both(&shared, &shared.db.snapshot(), false))? {
        let story = shared.story();
        story.check_look(&look.0, &look.1, &story.bounds()).map_err(|why| format!("at the end, {why}"))?;
    }
    if shared.sim.faults_fired() == 0 && !shared.shape.hurry && !shared.shape.closes {
        shared.excused(check_at_rest(&shared.db, &shared.env, DIR.as_ref(), false))?;
    }
    crate::tally::add(&shared.db);
    let is_wide = crate::wide::is_wide(&shared.db) && shared.shape.writers > 1;
    let mut story = shared.story();
    story.is_wide = is_wide;
    let refused = ("batches that did not wait", story.refused);
    story.counts =
        crate::tally::take().chain([refused].into_iter().filter(|(_, count)| *count > 0)).collect();
    drop(story);
    let shared = Arc::into_inner(shared).ok_or("another thread is left")?;
    let ScheduleState { db, mirror, sim, story, shape, .. } = shared;
    drop(mirror);
    if let Some(nth) = shape.fault_at_close.filter(|_| !shape.lavafs) {
        sim.inject(FaultPlan::nth(nth, FaultEffect::Eio).kinds(&[OpKind::Sync]).path("MANIFEST"));
    }
    let closed = db.close();
    let mut story = story.into_inner().unwrap_or_else(PoisonError::into_inner);
    story.faulted = sim.faults_fired() > 0;
    sim.clear_faults();
    match closed {
        Err(e) if !story.faulted => Err(format!("close: {e}")),
        _ => Ok(story),
    }
}

/// Closes the store during calls of other threads, and checks their promised data after a reopen.
fn close_beside(shared: &ScheduleState, mut rng: Rng) -> Check {
    shared.env.clock.sleep_ns(rng.below(200_000_000));
    shared.is_closing.store(true, Relaxed);
    if shared.excused(shared.db.clone().close().doing(|| "close".into()))?.is_none() {
        return Ok(());
    }
    let again = Db::open_in(&shared.env, DIR, &shared.shape.options).doing(|| "open after a close".into());
    let Some(again) = shared.excused(again)? else { return Ok(()) };
    let look = || {
        let mirror = again.open_family("mirror").doing(|| "open the mirror".into())?;
        Ok((contents(again.iter(), false)?, contents(mirror.iter(), false)?))
    };
    if let Some(look) = shared.excused(look())? {
        let story = shared.story();
        story.check_look(&look.0, &look.1, &story.bounds()).map_err(|why| format!("after a close, {why}"))?;
    }
    shared.excused(again.close().doing(|| "close again".into())).map(drop)
}

fn change(shared: &ScheduleState, writer: usize, rng: &mut Rng) -> Change {
    let slot = rng.below(shared.shape.slots);
    match rng.below(12) {
        0 => {
            let end = slot + 1 + rng.below(shared.shape.slots);
            Change::DeleteRange(key(writer, slot), key(writer, end.min(99)))
        }
        1 | 2 => Change::Delete(key(writer, slot)),
        _ => {
            let mut value = vec![0; 12 + rng.below(shared.shape.value_len) as usize];
            rng.fill(&mut value[..12]);
            match merges(shared, rng) && value.len() <= OPERAND_LEN_MAX {
                true => Change::Merge(key(writer, slot), value),
                false => Change::Put(key(writer, slot), value),
            }
        }
    }
}

/// Returns true if a put is to be a merge in both families, drawn aside so that recorded seeds keep
/// their draws.
fn merges(shared: &ScheduleState, rng: &Rng) -> bool {
    let takes = |family: &Family| family.options().merge_operator.is_some();
    takes(shared.db.default_family()) && takes(&shared.mirror) && plan::aside(rng, 0x6d65_7267).one_in(2)
}

fn write(shared: &ScheduleState, writer: usize, mut rng: Rng) -> Check {
    for _ in 0..rng.range(1, shared.shape.batches + 1) {
        let changes: Vec<Change> = (0..rng.range(1, 4)).map(|_| change(shared, writer, &mut rng)).collect();
        let mut batch = WriteBatch::new();
        for change in &changes {
            for family in [shared.db.default_family(), &shared.mirror] {
                match change {
                    Change::Put(key, value) => batch.family(family).put(key, value),
                    Change::Merge(key, operand) => batch.family(family).merge(key, operand),
                    Change::Delete(key) => batch.family(family).delete(key),
                    Change::SingleDelete(key) => batch.family(family).single_delete(key),
                    Change::DeleteRange(start, end) => batch.family(family).delete_range(start..end),
                };
            }
        }
        let logged = pick(&mut rng, &[Durability::Durable, Durability::Durable, Durability::Buffered]);
        let durability = if shared.shape.volatile { Durability::Volatile } else { logged };
        let begun = shared.now();
        let batch_begun = Batch { begun, ended: None, durability, changes, failed: false };
        shared.story().writers[writer].push(batch_begun);
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        // Not drawn, so that recorded seeds keep their draws.
        let waits = !shared.story().writers[writer].len().is_multiple_of(4);
        let options = if waits { options } else { options.no_wait() };
        let written = shared.db.writing(&options).write(&batch);
        let now = shared.now();
        if !waits && written.as_ref().is_err_and(|e| e.kind() == ErrorKind::Busy) {
            // The refused batch may never be seen, and promises nothing for earlier ones.
            let mut story = shared.story();
            story.refused += 1;
            let batch = story.writers[writer].last_mut().ok_or("it was pushed")?;
            (batch.ended, batch.durability) = (Some(now), Durability::Volatile);
            batch.changes.clear();
            continue;
        }
        {
            let mut story = shared.story();
            let batch = story.writers[writer].last_mut().ok_or("it was pushed")?;
            batch.ended = Some(now);
            batch.failed = written.is_err();
        }
        if shared.excused(written.doing(|| "write".into()))?.is_none() {
            return Ok(());
        }
        if rng.one_in(12) {
            shared.env.clock.sleep_ns(rng.below(2_000_000_000));
        }
    }
    Ok(())
}

/// Returns both families in one state of the store.
fn both(shared: &ScheduleState, at: &Snapshot, backwards: bool) -> Check<(Entries, Entries)> {
    let default = contents(at.iter(), backwards)?;
    let mirror = contents(at.family(&shared.mirror).iter(), !backwards)?;
    Ok((default, mirror))
}

fn read(shared: &ScheduleState, mut rng: Rng) -> Check {
    for _ in 0..rng.range(1, 6) {
        let least: Vec<usize> = shared.story().bounds().into_iter().map(|(returned, _)| returned).collect();
        let snapshot = shared.db.snapshot();
        let most: Vec<usize> = shared.story().bounds().into_iter().map(|(_, begun)| begun).collect();
        let bounds: Vec<(usize, usize)> = least.into_iter().zip(most).collect();
        let Some(look) = shared.excused(both(shared, &snapshot, rng.one_in(2)))? else { continue };
        shared.story().check_look(&look.0, &look.1, &bounds)?;
        for _ in 0..rng.below(4) {
            let key = key(rng.below(shared.shape.writers as u64) as usize, rng.below(shared.shape.slots));
            let family = if rng.one_in(2) { &shared.mirror } else { shared.db.default_family() };
            let got = snapshot.family(family).get(&key).doing(|| "get".into());
            let Some(got) = shared.excused(got)? else { continue };
            let got = got.as_deref().map(<[u8]>::to_vec);
            ensure!(got.as_ref() == look.0.get(&key), "get and scan of a snapshot disagree");
        }
        if rng.one_in(2) {
            shared.env.clock.sleep_ns(rng.below(20_000_000));
            let Some(again) = shared.excused(both(shared, &snapshot, rng.one_in(2)))? else { continue };
            ensure!(again == look, "a snapshot has changed");
        }
    }
    Ok(())
}

fn upkeep(shared: &ScheduleState, nth: usize, mut rng: Rng) -> Check {
    let db = &shared.db;
    for step in 0..rng.range(1, 6) {
        if rng.one_in(2) {
            shared.env.clock.sleep_ns(rng.below(30_000_000));
        }
        let done = match rng.below(8) {
            0..=2 => db.flush().doing(|| "flush".into()),
            3 => {
                let family = if rng.one_in(2) { &shared.mirror } else { db.default_family() };
                let request = CompactRequest { cancel: deadline(shared, &rng), ..Default::default() };
                unless_cancelled(family.compact_range_with(.., &request, &mut |_| {}))
                    .doing(|| "compact_range".into())
            }
            4 => {
                let until_percent = Some(rng.below(30) as u32);
                let request = GcRequest { until_percent, cancel: deadline(shared, &rng) };
                unless_cancelled(db.collect_garbage(&request).map(drop)).doing(|| "collect_garbage".into())
            }
            5 => checkpoint(shared, format!("/copy-{nth}-{step}"), deadline(shared, &rng)),
            6 => guest(shared, format!("guest-{nth}-{step}"), &mut rng),
            _ => ledger(shared),
        };
        shared.excused(done)?;
    }
    Ok(())
}

fn ledger(shared: &ScheduleState) -> Check {
    let space = shared.db.space().doing(|| "space".into())?;
    let sum: u64 = space.parts().iter().map(|(_, bytes)| bytes).sum();
    ensure!(sum == space.total_bytes, "the ledger of space sums to {sum}, not {}", space.total_bytes);
    Ok(())
}

/// Returns a deadline for some long calls. Not drawn from `rng`, so that recorded seeds keep their
/// draws.
fn deadline(shared: &ScheduleState, rng: &Rng) -> Option<Cancel> {
    let mut own = rng.clone();
    own.one_in(3).then(|| Cancel::with_deadline(&shared.env, Duration::from_nanos(own.below(20_000_000))))
}

fn unless_cancelled(done: Result<(), Error>) -> Result<(), Error> {
    done.or_else(|e| if e.kind() == ErrorKind::Cancelled { Ok(()) } else { Err(e) })
}

fn checkpoint(shared: &ScheduleState, dir: String, cancel: Option<Cancel>) -> Check {
    let least: Vec<usize> = shared.story().bounds().into_iter().map(|(returned, _)| returned).collect();
    match shared.db.checkpoint_with(&dir, &CheckpointOptions { cancel }) {
        Err(e) if matches!(e.kind(), ErrorKind::Cancelled | ErrorKind::Closed) => {
            let is_left = shared.env.fs.exists(Path::new(&dir)).is_ok_and(|is_left| is_left);
            ensure!(
                !is_left || shared.sim.faults_fired() > 0,
                "{dir} is left of a checkpoint that ended: {e}"
            );
            return if e.kind() == ErrorKind::Cancelled {
                Ok(())
            } else {
                Err(e).doing(|| "checkpoint".into())
            };
        }
        made => made.doing(|| "checkpoint".into())?,
    }
    let mut story = shared.story();
    let most = story.bounds().into_iter().map(|(_, begun)| begun);
    let bounds = least.into_iter().zip(most).collect();
    story.checkpoints.push(Checkpoint { dir, bounds, end_op: shared.sim.op_count() });
    Ok(())
}

/// Creates and drops a family.
fn guest(shared: &ScheduleState, name: String, rng: &mut Rng) -> Check {
    let nth = {
        let mut story = shared.story();
        story.guests.push(Guest {
            name: name.clone(),
            created: (shared.sim.op_count(), None),
            dropped: None,
        });
        story.guests.len() - 1
    };
    let family = shared.db.create_family(&name, &plan::family_options(rng)).doing(|| "create".into())?;
    shared.story().guests[nth].created.1 = Some(shared.sim.op_count());
    for n in 0..rng.below(4) {
        let value = vec![n as u8; rng.below(2000) as usize];
        family.put([n as u8], &value).doing(|| "put".into())?;
        let got = family.get([n as u8]).doing(|| "get".into())?;
        ensure!(got.as_deref() == Some(value.as_slice()), "what was put into {name} is not there");
    }
    if rng.one_in(3) {
        return Ok(());
    }
    shared.story().guests[nth].dropped = Some((shared.sim.op_count(), None));
    shared.db.drop_family(&family).doing(|| "drop".into())?;
    shared.story().guests[nth].dropped.as_mut().ok_or("it was set")?.1 = Some(shared.sim.op_count());
    Ok(())
}
