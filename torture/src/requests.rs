//! Rows `async` and `async-io-errors`: asynchronous requests with crashes, and with failing
//! operations.
//!
//! A workload submits writes and reads without waiting, drops futures, and lets the store run for a
//! few steps at times. Writes of a handle are applied in order of submission, so a crash leaves the
//! state after a prefix of them. The prefix covers all writes reported as durable (after a process
//! crash: as visible), and none submitted later. In `async` the machine dies at many points of a
//! recorded workload. In `async-io-errors` one file system operation fails, all requests in flight
//! are answered, and then the power fails.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::crash::{crash, each_state, kind, loss};
use crate::history::Loss;
use crate::machine::{self, DIR};
use crate::plan;
use crate::tally;
use crate::wide::{self, Image, Widths};
use io::Rng;
use lavastore::testing::{CrashKind, FaultEffect, FaultPlan, SimEnv, block_on};
use lavastore::{
    Db, Durability, Entry, Error, ErrorKind, Request, RequestOptions, Requests, Result, Snapshot, Value,
    WriteBatch, WriteOptions,
};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

const KEYS: u64 = 16;
/// Maximum number of entries in a page.
const PAGE_LEN: usize = 7;

type State = BTreeMap<Vec<u8>, Vec<u8>>;
/// Effect of a write on its keys.
type WriteEffect = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A write, and the file system operations at which its state was reported.
struct SubmittedWrite {
    change: WriteEffect,
    visible: Option<Request<()>>,
    durable: Option<Request<()>>,
    is_durable: bool,
    submitted_op: u64,
    visible_op: Option<u64>,
    durable_op: Option<u64>,
    fate: WriteOutcome,
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteOutcome {
    /// No error.
    Written,
    /// Refused without any effect.
    Refused,
    /// Unknown.
    Unknown,
}

impl WriteOutcome {
    /// Returns the outcome of a write that failed before it was visible.
    fn of(e: &Error) -> WriteOutcome {
        match e.kind() {
            ErrorKind::Busy | ErrorKind::NoSpace | ErrorKind::Poisoned | ErrorKind::Closed => {
                WriteOutcome::Refused
            }
            _ => WriteOutcome::Unknown,
        }
    }
}

impl SubmittedWrite {
    fn is_over(&self) -> bool {
        self.visible.is_none() && self.durable.is_none()
    }

    /// Receives the reports at this file system operation. Returns errors.
    fn listen(&mut self, op: u64) -> Vec<Error> {
        let mut failed = Vec::new();
        if let Some(outcome) = self.visible.as_mut().and_then(Request::take) {
            self.visible = None;
            match outcome {
                Ok(()) => self.visible_op = Some(op),
                Err(e) => {
                    (self.fate, self.durable) = (WriteOutcome::of(&e), None);
                    failed.push(e);
                }
            }
        }
        // In this order: a durable write is reported as visible first.
        if self.visible.is_none()
            && let Some(outcome) = self.durable.as_mut().and_then(Request::take)
        {
            self.durable = None;
            match outcome {
                Ok(()) => self.durable_op = Some(op),
                Err(e) => failed.push(e),
            }
        }
        failed
    }
}

/// A read, with the bounds of visible writes at its moment.
struct Reading {
    keys: Vec<Vec<u8>>,
    from: usize,
    /// `None`: all writes submitted before the answer.
    to: Option<usize>,
    request: Reads,
}

enum Reads {
    One(Request<Option<Value>>),
    Several(Request<Vec<Option<Value>>>),
    /// The entries from the first key on.
    Page(Request<Vec<Entry>>),
}

/// Result of a read.
enum ReadResult {
    Values(Vec<Option<Value>>),
    Page(Vec<Entry>),
}

impl Reads {
    fn take(&mut self) -> Option<Result<ReadResult>> {
        match self {
            Reads::One(one) => one.take().map(|found| found.map(|value| ReadResult::Values(vec![value]))),
            Reads::Several(several) => several.take().map(|found| found.map(ReadResult::Values)),
            Reads::Page(page) => page.take().map(|page| page.map(ReadResult::Page)),
        }
    }
}

/// A held snapshot, with the bounds of visible writes when it was taken.
struct Held {
    snapshot: Snapshot,
    from: usize,
    to: usize,
}

struct RequestWorkload {
    sim: SimEnv,
    rng: Rng,
    writes: Vec<SubmittedWrite>,
    reads: Vec<Reading>,
    /// Number of submitted reads. It determines their kinds without a draw.
    reads_made: u64,
    held: Option<Held>,
    flushes: Vec<Request<()>>,
    /// An operation may fail.
    strikes: bool,
    widths: Widths,
}

fn apply(state: &mut State, change: &WriteEffect) {
    for (key, value) in change {
        match value {
            Some(value) => _ = state.insert(key.clone(), value.clone()),
            None => _ = state.remove(key),
        }
    }
}

/// Runs up to `steps` steps of the store, fewer if it is idle.
fn go_on(db: &Db, steps: u64) {
    let mut left = steps;
    block_on(
        db,
        poll_fn(|_| match left.checked_sub(1) {
            None => Poll::Ready(()),
            Some(fewer) => {
                left = fewer;
                Poll::Pending
            }
        }),
    );
}

impl RequestWorkload {
    fn new(sim: SimEnv, rng: Rng, strikes: bool) -> RequestWorkload {
        let (writes, reads, flushes) = (Vec::new(), Vec::new(), Vec::new());
        let widths = Widths::default();
        RequestWorkload { sim, rng, writes, reads, reads_made: 0, held: None, flushes, strikes, widths }
    }

    fn open(&mut self) -> Result<Db> {
        let async_threads = 1 + self.rng.below(3) as usize;
        let options = plan::options(&mut self.rng).expert(|expert| expert.async_threads = async_threads);
        let (env, begun) = (machine::try_env(&self.sim)?, self.sim.op_count());
        let db = Db::open_in(&env, DIR, &options)?;
        self.widths.begin(begun, wide::is_wide(&db));
        Ok(db)
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(16) {
            0 => self.rng.range(16_000, 40_000),
            1..=4 => self.rng.range(400, 6000),
            _ => self.rng.below(80),
        };
        let mut value = (self.writes.len() as u64).to_le_bytes().to_vec();
        value.resize(8 + len as usize, self.writes.len() as u8);
        value
    }

    fn change(&mut self) -> WriteEffect {
        let count = if self.rng.one_in(4) { self.rng.below(4) } else { 1 };
        let one = |life: &mut RequestWorkload| {
            let key = format!("key{:03}", life.rng.below(KEYS)).into_bytes();
            (key, (!life.rng.one_in(4)).then(|| life.value()))
        };
        (0..count).map(|_| one(self)).collect()
    }

    fn write(&mut self, requests: &Requests) -> Check {
        let change = self.change();
        let is_durable = self.rng.one_in(2);
        let durability = if is_durable { Durability::Durable } else { Durability::Buffered };
        let wait_at_most = match self.rng.below(8) {
            0 => Some(Duration::ZERO),
            1 => Some(Duration::from_micros(self.rng.range(1, 20_000))),
            _ => None,
        };
        let submitted_op = self.sim.op_count();
        let requests = requests.writing(&WriteOptions { durability: Some(durability), wait_at_most });
        let submitted = match &change[..] {
            [(key, Some(value))] => requests.put(&key[..], &value[..]),
            [(key, None)] => requests.delete(&key[..]),
            several => {
                let mut batch = WriteBatch::new();
                for (key, value) in several {
                    match value {
                        Some(value) => _ = batch.put(key, value),
                        None => _ = batch.delete(key),
                    }
                }
                requests.write(batch)
            }
        };
        let mut written = SubmittedWrite {
            change,
            visible: None,
            durable: None,
            is_durable,
            submitted_op,
            visible_op: None,
            durable_op: None,
            fate: WriteOutcome::Written,
        };
        match submitted {
            Ok(request) => {
                let (visible, durable) = request.split();
                written.visible = Some(visible);
                // Sometimes the future is dropped.
                written.durable = Some(durable).filter(|_| is_durable && !self.rng.one_in(6));
            }
            Err(e) => {
                self.may_fail(&e)?;
                written.fate = WriteOutcome::of(&e);
            }
        }
        self.writes.push(written);
        Ok(())
    }

    /// Accepts errors of limits in a workload without faults.
    fn may_fail(&self, e: &Error) -> Check {
        let limits = matches!(e.kind(), ErrorKind::Busy | ErrorKind::NoSpace);
        ensure!(limits || self.sim.faults_fired() > 0, "nothing has failed, and yet: {e}");
        Ok(())
    }

    fn visible(&self) -> usize {
        self.writes.iter().rposition(|write| write.visible_op.is_some()).map_or(0, |n| n + 1)
    }

    /// Reads with one request, or sometimes with one per key concurrently, at the present state or
    /// at a snapshot taken some reads ago.
    fn read(&mut self, db: &Db, requests: &Requests) -> Check {
        let count = self.rng.range(1, 5);
        let keys: Vec<Vec<u8>> =
            (0..count).map(|_| format!("key{:03}", self.rng.below(KEYS)).into_bytes()).collect();
        self.reads_made += 1;
        match self.reads_made % 11 {
            3 => {
                let (snapshot, from, to) = (db.snapshot(), self.visible(), self.writes.len());
                self.held = Some(Held { snapshot, from, to });
            }
            9 => self.held = None,
            _ => {}
        }
        let held = self.held.as_ref().filter(|_| self.reads_made.is_multiple_of(2));
        let (from, to) = held.map_or_else(|| (self.visible(), None), |held| (held.from, Some(held.to)));
        let requests = held.map_or_else(|| requests.clone(), |held| requests.reading_at(&held.snapshot));
        let scans = self.reads_made % 5 < 2;
        let submit = |keys: Vec<Vec<u8>>| match &keys[..] {
            [key, ..] if scans => requests.scan(key.clone().., PAGE_LEN).map(Reads::Page),
            [key] => requests.get(&key[..]).map(Reads::One),
            several => requests.multi_get(several.iter().cloned()).map(Reads::Several),
        };
        let apart = self.reads_made.is_multiple_of(3);
        let asked = if apart { keys.into_iter().map(|key| vec![key]).collect() } else { vec![keys] };
        for keys in asked {
            match submit(keys.clone()) {
                Ok(request) => self.reads.push(Reading { keys, from, to, request }),
                Err(e) => self.may_fail(&e)?,
            }
        }
        Ok(())
    }

    /// Receives all present reports.
    fn listen(&mut self) -> Check {
        let op = self.sim.op_count();
        let mut failed: Vec<Error> = self.writes.iter_mut().flat_map(|write| write.listen(op)).collect();
        for mut read in std::mem::take(&mut self.reads) {
            match read.request.take() {
                None => self.reads.push(read),
                Some(Err(e)) => failed.push(e),
                Some(Ok(found)) => self.judge(&read, found)?,
            }
        }
        for flush in &mut self.flushes {
            failed.extend(flush.take().and_then(Result::err));
        }
        failed.iter().try_for_each(|e| self.may_fail(e))
    }

    /// Checks that a read returned the state after some of the writes.
    fn judge(&self, read: &Reading, found: ReadResult) -> Check {
        let fits = |state: &State| match &found {
            ReadResult::Values(values) => {
                let keys = read.keys.iter().map(|key| state.get(key).map(|value| &value[..]));
                keys.eq(values.iter().map(|value| value.as_deref()))
            }
            ReadResult::Page(page) => {
                let from = read.keys.first().cloned().unwrap_or_default();
                let entries = state.range(from..).take(PAGE_LEN);
                entries.eq(page.iter().map(|(key, value)| (key, value)))
            }
        };
        let to = read.to.unwrap_or(self.writes.len());
        ensure!(self.states(read.from, to).any(|state| fits(&state)), "a read found what never was");
        Ok(())
    }

    /// Returns the states after the first `from` writes, and after each later one up to `to`. A
    /// write of unknown outcome is there or not. It is not if a later logged write was visible,
    /// since nothing is logged behind a write that may be in the log. (A write without changes is
    /// not logged.)
    fn states(&self, from: usize, to: usize) -> impl Iterator<Item = State> + '_ {
        let mut states = vec![State::new()];
        let is_logged = |write: &SubmittedWrite| write.visible_op.is_some() && !write.change.is_empty();
        let last_visible = self.writes.iter().rposition(is_logged);
        let after = (0..=to).map(move |n| {
            let write = n.checked_sub(1).and_then(|n| Some((n, self.writes.get(n)?)));
            let written = write.filter(|(n, write)| match write.fate {
                WriteOutcome::Written => true,
                WriteOutcome::Refused => false,
                WriteOutcome::Unknown => last_visible.is_none_or(|last| *n > last),
            });
            if let Some((_, write)) = written {
                let before = states.clone();
                states.iter_mut().for_each(|state| apply(state, &write.change));
                states.extend(before.into_iter().filter(|_| write.fate == WriteOutcome::Unknown));
            }
            states.clone()
        });
        after.skip(from).flatten()
    }

    fn act(&mut self, db: &Db, requests: &Requests) -> Check {
        match self.rng.below(20) {
            0..=9 => self.write(requests),
            10..=12 => self.read(db, requests),
            13 => match requests.flush() {
                Ok(flush) => {
                    self.flushes.push(flush);
                    Ok(())
                }
                Err(e) => self.may_fail(&e),
            },
            14..=16 => self.listen(),
            _ => {
                let steps = self.rng.below(10);
                go_on(db, steps);
                Ok(())
            }
        }
    }

    /// Runs a session. At its end the store is dropped with requests in flight, or after all of
    /// them.
    fn session(&mut self, count: u64) -> Check {
        let db = match self.open() {
            Ok(db) => db,
            Err(e) => return self.may_fail(&e),
        };
        let depth = [2, 32, 1024][self.rng.below(3) as usize];
        let requests =
            db.requests(&RequestOptions { depth, ..Default::default() }).doing(|| "requests".into())?;
        for _ in 0..count {
            self.act(&db, &requests)?;
        }
        if self.strikes || self.rng.one_in(2) {
            let all_over = |requests: &Requests| requests.in_flight() == 0;
            block_on(&db, poll_fn(|_| if all_over(&requests) { Poll::Ready(()) } else { Poll::Pending }));
            self.listen()?;
            ensure!(
                self.writes.iter().all(SubmittedWrite::is_over),
                "no more is in flight, and a write was not told"
            );
        }
        tally::add(&db);
        self.held = None;
        drop((requests, db));
        self.listen_after_close()
    }

    /// Checks that all requests in flight are answered when the store closes.
    fn listen_after_close(&mut self) -> Check {
        let op = self.sim.op_count();
        self.writes.iter_mut().for_each(|write| drop(write.listen(op)));
        ensure!(
            self.writes.iter().all(SubmittedWrite::is_over),
            "the store is closed, and a write was not told"
        );
        self.reads.clear();
        self.flushes.clear();
        Ok(())
    }

    fn note(&self, outcome: &mut Outcome) {
        let told =
            |of: fn(&SubmittedWrite) -> bool| self.writes.iter().filter(|write| of(write)).count() as u64;
        outcome.note(tally::TOLD_DURABLE, told(|write| write.durable_op.is_some()));
        outcome.note(tally::REFUSED, told(|write| write.fate == WriteOutcome::Refused));
    }

    /// Describes the most similar state for an error message.
    fn nearest(&self, found: &State) -> String {
        let differing = |state: &State| {
            let keys = state.keys().chain(found.keys()).filter(|key| state.get(*key) != found.get(*key));
            keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect::<BTreeSet<_>>()
        };
        let all = self.states(0, self.writes.len()).map(|state| differing(&state)).enumerate();
        let nearest = all.min_by_key(|(_, keys)| keys.len());
        nearest.map_or_else(String::new, |(n, keys)| format!("is most like after {n}, but for {keys:?}"))
    }

    /// Checks the state after a crash at this operation.
    fn check(&self, left: &SimEnv, op: u64, lost: Loss, rng: &mut Rng) -> Check {
        let known = |known: Option<u64>| known.is_some_and(|at| at <= op);
        let promised = |write: &SubmittedWrite| match lost {
            Loss::Power => known(write.durable_op),
            // A durable write is promised only once it is durable, and a buffered write without
            // changes is not logged.
            Loss::Process => {
                let is_logged = !write.is_durable && !write.change.is_empty();
                known(write.durable_op) || known(write.visible_op) && is_logged
            }
        };
        let must = self.writes.iter().rposition(promised).map_or(0, |n| n + 1);
        let may = self.writes.iter().filter(|write| write.submitted_op <= op).count();
        let db = Db::open_in(&machine::env(left)?, DIR, &plan::options(rng)).doing(|| "open".into())?;
        let found: State = db.iter().collect::<Result<_>>().doing(|| "scan".into())?;
        let fits = self.states(must, may.max(must)).any(|state| state == found);
        ensure!(fits, "after {must} to {may} of {} writes it {}", self.writes.len(), self.nearest(&found));
        // Checks that the store continues.
        let options = RequestOptions { write: WriteOptions::durable(), ..Default::default() };
        let put = db.requests(&options).and_then(|requests| requests.put("after", "all"));
        match put.and_then(|put| block_on(&db, put)) {
            // Its limit may be tight.
            Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
            put => put.doing(|| "a put after recovery".into()),
        }
    }
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut life = RequestWorkload::new(machine::new(seed), Rng::new(seed ^ 0x6173_796e_6300), false);
    let lived = guarded(|| {
        for _ in 0..life.rng.range(1, 4) {
            let count = life.rng.range(20, 120);
            life.session(count)?;
        }
        Ok(())
    });
    if let Err(why) = lived.and_then(|lived: Check| lived) {
        outcome.failures.push(format!("while recording: {why}"));
        return outcome;
    }
    life.note(&mut outcome);
    let record = life.sim.record();
    let ops = record.mutations();
    each_state(seed, outcome, |rng| {
        let (op, kind, left) = crash(&record, &ops, rng);
        let image = Image { hash: left.state_hash(), is_wide: life.widths.at(op) };
        let checked = guarded(|| life.check(&left, op, loss(kind), rng)).and_then(|checked| checked);
        (image, checked.map_err(|why| format!("{kind:?} at operation {op}: {why}")))
    })
}

const EFFECTS: [(FaultEffect, bool, &str); 6] = [
    (FaultEffect::Eio, false, "EIO"),
    (FaultEffect::Eio, true, "EIO for good"),
    (FaultEffect::Short, false, "a short transfer"),
    (FaultEffect::NoSpace, false, "ENOSPC"),
    (FaultEffect::NoSpace, true, "ENOSPC for good"),
    (FaultEffect::NoDescriptor, false, "EMFILE"),
];

pub(crate) fn case_io_errors(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    for (nth, (effect, sticky, name)) in (0..).zip(EFFECTS) {
        let struck =
            guarded(|| strike(seed * 6 + nth, effect, sticky, &mut outcome)).and_then(|struck| struck);
        outcome.take(struck.map_err(|why| format!("{name}: {why}")));
    }
    outcome
}

/// Runs a session on existing data with one failing operation.
fn strike(seed: u64, effect: FaultEffect, sticky: bool, outcome: &mut Outcome) -> Check {
    let mut rng = Rng::new(seed ^ 0x7374_7269_6b65);
    let mut life = RequestWorkload::new(machine::new(seed), rng.fork(), true);
    life.session(rng.range(5, 60))?;
    let plan = FaultPlan::nth(rng.below(120), effect);
    life.sim.inject(if sticky { plan.sticky() } else { plan });
    life.session(rng.range(20, 100))?;
    life.sim.clear_faults();
    life.note(outcome);
    let kind = kind(&mut rng);
    let (op, left) = (life.sim.op_count(), life.sim.crash(kind, seed));
    // Data covered by a failed sync is not promised.
    let lost = if life.sim.faults_fired() > 0 || kind != CrashKind::ProcessKill {
        Loss::Power
    } else {
        Loss::Process
    };
    life.check(&left, op, lost, &mut rng).map_err(|why| format!("{kind:?}: {why}"))
}
