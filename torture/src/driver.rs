//! Random operations on a simulated store with a model and a history.
//!
//! The driver serves the row that compares every answer with the model, and rows that record a run
//! to crash it, damage it, or inject errors. Their [`DriverParameters`] differ.

mod calls;
mod knobs;
mod singles;
mod space;
mod terms;
mod time;

pub(crate) use calls::{add, at, compare, compare_checkpoint, families_of, scan, write_one, write_with};
pub(crate) use knobs::DriverParameters;

use self::singles::Singles;
use crate::check::{Check, Doing, ensure, show};
use crate::files;
use crate::history::{Barrier, FamilyChange, History, Write};
use crate::iterators::{Twin, Within};
use crate::machine::{self, DIR, room};
use crate::plan::{self, Data};
use crate::state::{Change, Contents, FamilyId};
use crate::tally;
use crate::wide::{self, Widths};
use io::Rng;
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{
    CompactRequest, Db, Durability, Error, ErrorKind, Family, Options, ReadOptions, SeqNo, Snapshot,
    SpaceLimit, SpacePolicy, WriteBatch,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::time::Duration;

/// Error kinds of writes without any effect.
const REFUSALS: [ErrorKind; 4] =
    [ErrorKind::Poisoned, ErrorKind::Closed, ErrorKind::NotFound, ErrorKind::InvalidArgument];

/// Under a tight limit, one in this many steps changes it.
const LIMIT_CHANGE_ONE_IN: u64 = 25;

/// Contents of all families, cheap to copy.
pub(crate) type Model = BTreeMap<FamilyId, Contents>;

/// A store under test.
pub(crate) struct Driver {
    pub sim: SimEnv,
    pub rng: Rng,
    pub data: Data,
    pub knobs: DriverParameters,
    pub options: Options,
    pub history: History,
    pub model: Model,
    /// Checkpoints: directory, the operation after which it is durable, contents.
    pub checkpoints: Vec<(String, u64, Model)>,
    /// A call failed, so the model may differ from the visible state.
    pub doubtful: bool,
    singles: Singles,
    /// Capacity of the volume. With a bound, calls may fail with `NoSpace` and then have no effect.
    capacity: Option<u64>,
    /// The volume is bounded, or the store may not have noticed the end of the bound.
    squeezed: bool,
    /// The volume was bounded since the open: jobs may have failed and been retried.
    was_full: bool,
    /// Number of calls refused with `NoSpace`.
    pub refused: u64,
    /// Writes refused because they would have waited.
    pub busy: u64,
    /// Changes of the space limit of the open store.
    pub limit_changes: u64,
    /// Maximum size of the store's files at any moment.
    peak_max: Option<u64>,
    // Readers are declared before the store, so that they are dropped first.
    iterators: Vec<Twin>,
    snapshots: Vec<(Snapshot, Model)>,
    /// A read-only store for `catch_up`.
    reader: Option<Db>,
    families: Vec<Family>,
    /// Operations at which a job was between two of its steps.
    pub between_steps: Vec<u64>,
    /// The ranges of operations in which the log may have several writes in flight.
    pub widths: Widths,
    /// The next open uses other options than the last one.
    redrawn: bool,
    db: Option<Db>,
}

impl Driver {
    pub fn new(seed: u64, knobs: DriverParameters, data: Data) -> Self {
        let mut rng = Rng::new(seed);
        let options = knobs.draw_options(&mut rng);
        let may_lose = knobs.volatile;
        Driver {
            sim: machine::new(seed),
            rng,
            data,
            knobs,
            options,
            history: History::default(),
            model: Model::from([(0, Contents::default())]),
            checkpoints: Vec::new(),
            doubtful: false,
            singles: Singles::new(may_lose),
            capacity: None,
            squeezed: false,
            was_full: false,
            refused: 0,
            busy: 0,
            limit_changes: 0,
            peak_max: None,
            between_steps: Vec::new(),
            widths: Widths::default(),
            redrawn: false,
            iterators: Vec::new(),
            snapshots: Vec::new(),
            reader: None,
            families: Vec::new(),
            db: None,
        }
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("open between steps")
    }

    /// Opens the store, finds its families, and compares.
    pub fn open(&mut self) -> Check {
        if plan::is_tight(&self.options) {
            room::watch(&self.sim);
        }
        let before = if plan::is_tight(&self.options) { room::peak(&self.sim)? } else { 0 };
        let env = machine::env(&self.sim)?;
        let open = || Db::open_in(&env, DIR, &self.options);
        let begun = self.sim.op_count();
        let db = match open() {
            // Recovery writes may not fit, or other options may not allow them.
            Err(e) if e.kind() == ErrorKind::NoSpace && self.capacity.is_some() => {
                self.capacity = None;
                room::set_capacity(&self.sim, None)?;
                open()
            }
            opened => opened,
        };
        let db = db.doing(|| format!("open with {}", plan::describe(&self.options)))?;
        self.was_full = self.capacity.is_some();
        self.widths.begin(begun, wide::is_wide(&db));
        self.families = families_of(&db)?;
        self.db = Some(db);
        self.peak_max = self.peak_max(before)?;
        if std::mem::take(&mut self.redrawn) && plan::is_tight(&self.options) {
            // Data logged under other options was admitted under them, and may exceed the limit
            // now.
            room::watch(&self.sim);
        }
        self.check_peak()?;
        let mut ids: Vec<FamilyId> = self.families.iter().map(Family::id).collect();
        ids.sort_unstable();
        let expected: Vec<FamilyId> = self.model.keys().copied().collect();
        ensure!(self.doubtful || ids == expected, "families {ids:?} after open instead of {expected:?}");
        if self.knobs.reads && self.rng.one_in(2) { self.compare_all() } else { Ok(()) }
    }

    /// A store below its limit in bytes never exceeds it; one above never exceeds its present use
    /// plus its reserve. `before`: bytes used before the open.
    fn peak_max(&self, before: u64) -> Check<Option<u64>> {
        let Some(SpaceLimit::Bytes(limit)) =
            self.options.space_limit.filter(|_| plan::is_tight(&self.options))
        else {
            return Ok(None);
        };
        let space = self.db().space().doing(|| "space".into())?;
        let unflushed = space.memtable_bytes + space.memtable_bytes / 8;
        let needed = space.total_bytes + unflushed + space.reserve_bytes;
        Ok(Some(if before.max(needed) <= limit { limit } else { needed.max(room::peak(&self.sim)?) }))
    }

    fn check_peak(&self) -> Check {
        let Some(most) = self.peak_max else { return Ok(()) };
        let peak = room::peak(&self.sim)?;
        ensure!(
            peak <= most,
            "{peak} B were occupied where {most} B may be: {}",
            plan::describe(&self.options)
        );
        Ok(())
    }

    /// Same for the state that `sim` left, reopened under the same options.
    pub fn check_peak_of(&self, sim: &SimEnv) -> Check {
        let Some(most) = self.peak_max else { return Ok(()) };
        let peak = room::peak(sim)?;
        ensure!(peak <= most, "{peak} B were occupied by the open where {most} B may be");
        Ok(())
    }

    /// Checks that the store recovers from passed errors: it writes, flushes and becomes idle.
    pub fn works_again(&mut self) -> Check {
        if self.db.is_none() {
            return Ok(());
        }
        let may_fail = std::mem::replace(&mut self.knobs.faults, false);
        let works = self.write().and_then(|()| self.flush());
        self.knobs.faults = may_fail;
        works?;
        let rests = self.db().wait_idle(Duration::from_secs(60));
        ensure!(rests, "it does not come to rest: {}", self.db().describe());
        Ok(())
    }

    /// Returns true if a call may fail for lack of space, without any effect.
    fn may_be_full(&self) -> bool {
        self.squeezed || plan::is_tight(&self.options)
    }

    /// Opens the store and runs all steps.
    pub fn run(&mut self) -> Check {
        self.open()?;
        self.steps(self.knobs.steps)
    }

    /// Runs some steps; stops early if a fault has closed the store.
    pub fn steps(&mut self, count: u64) -> Check {
        for step in 0..count {
            self.step().map_err(|why| format!("step {step}: {why}"))?;
            if self.db.is_none() {
                return Ok(());
            }
            self.background()?;
            self.check_peak().map_err(|why| format!("step {step}: {why}"))?;
        }
        Ok(())
    }

    fn background(&mut self) -> Check {
        if self.rng.one_in(3) {
            for _ in 0..self.rng.below(6) {
                self.db().engine().run_background_step();
                if self.db().engine().jobs_under_way() > 0 {
                    self.between_steps.push(self.sim.op_count());
                }
            }
        }
        if self.rng.one_in(40) {
            self.sim.advance_ns(2_000_000_000);
        }
        self.disturb()
    }

    /// Additional disturbances, drawn from a separate generator so that recorded seeds keep their
    /// draws.
    fn disturb(&mut self) -> Check {
        let mut aside = Rng::new(self.rng.clone().next_u64() ^ 0x6469_7374_7572);
        if aside.one_in(60) {
            time::jump(&self.sim, &mut aside);
        }
        if !self.knobs.reads {
            self.hold_snapshots(&mut aside);
        }
        if aside.one_in(LIMIT_CHANGE_ONE_IN) { self.change_limit(&mut aside) } else { Ok(()) }
    }

    /// Holds snapshots even in runs without reads, so that flushes, compactions and collections
    /// keep data for them.
    fn hold_snapshots(&mut self, aside: &mut Rng) {
        if aside.one_in(10) {
            self.snapshots.push((self.db().snapshot(), self.model.clone()));
        }
        if !self.snapshots.is_empty() && aside.one_in(20) {
            let i = aside.below(self.snapshots.len() as u64) as usize;
            drop(self.snapshots.swap_remove(i));
        }
    }

    /// Runs one random operation.
    fn step(&mut self) -> Check {
        if self.rng.one_in(self.knobs.upkeep_one_in) {
            return self.upkeep();
        }
        if self.knobs.reads && self.rng.one_in(2) { self.read() } else { self.write() }
    }

    fn upkeep(&mut self) -> Check {
        match self.rng.below(16) {
            0..=2 => self.flush(),
            3 | 4 => self.compact(),
            5 | 6 if self.knobs.families => self.change_families(),
            7 | 8 if self.knobs.reopen => self.reopen(),
            9 if self.knobs.kills => self.kill(),
            10 if self.knobs.checkpoints => self.checkpoint(),
            11 if self.knobs.reads => self.read_only(),
            12 => self.look(),
            13 | 14 => self.settle(),
            _ => self.flush(),
        }
    }

    fn family(&mut self) -> Family {
        self.families[self.rng.below(self.families.len() as u64) as usize].clone()
    }

    // Writing.

    fn durability(&mut self) -> Durability {
        match self.rng.below(if self.knobs.volatile { 4 } else { 3 }) {
            0 => Durability::Durable,
            3 => Durability::Volatile,
            _ => Durability::Buffered,
        }
    }

    pub fn write(&mut self) -> Check {
        let mut durability = self.durability();
        let begin_op = self.sim.op_count();
        let seq = self.db().snapshot().sequence();
        let (changes, result) = if self.rng.one_in(2) {
            let family = self.family();
            let change = self.data.change(&mut self.rng);
            let change = self.singles.variant(&self.rng, &family, change);
            if matches!(change, Change::DeleteRange(..)) {
                durability = self.options.durability;
            }
            let result = write_with(&family, &change, &self.terms(durability));
            (vec![(family.id(), change)], result)
        } else {
            let mut batch = WriteBatch::new();
            let mut changes = Vec::new();
            for _ in 0..self.rng.below(8) {
                let family = self.family();
                let change = self.data.change(&mut self.rng);
                let change = self.singles.variant(&self.rng, &family, change);
                add(&mut batch, &family, &change);
                changes.push((family.id(), change));
            }
            (changes, self.db().writing(&self.terms(durability)).write(&batch))
        };
        if result.as_ref().is_err_and(|e| e.kind() == ErrorKind::Busy) {
            changes.iter().for_each(|(id, change)| self.singles.doubt(*id, change));
            return self.busy(seq);
        }
        self.wrote((begin_op, seq), durability, changes, result)
    }

    /// `begun`: the operation and the last sequence number before the call.
    fn wrote(
        &mut self,
        (begin_op, seq): (u64, SeqNo),
        durability: Durability,
        changes: Vec<(FamilyId, Change)>,
        result: Result<(), Error>,
    ) -> Check {
        let failed = result.is_err();
        if failed {
            changes.iter().for_each(|(id, change)| self.singles.doubt(*id, change));
        }
        if let Err(e) = &result
            && e.kind() == ErrorKind::NoSpace
            && self.may_be_full()
        {
            self.refused += 1;
            return self.refusal(&changes, e);
        }
        if let Err(e) = result {
            let refused = REFUSALS.contains(&e.kind());
            self.excuse(e, "write")?;
            if refused {
                return Ok(());
            }
        } else {
            for (id, change) in &changes {
                self.model.entry(*id).or_default().apply(change);
            }
        }
        let end_op = self.sim.op_count();
        let used = self.db().snapshot().sequence() - seq;
        ensure!(
            failed || used == 0 || used == changes.len() as u64,
            "{} changes took {used} sequences",
            changes.len()
        );
        let first_seq = (!failed && used > 0).then_some(seq + 1);
        self.history.writes.push(Write { begin_op, end_op, durability, changes, failed, first_seq });
        Ok(())
    }

    /// Deletes free space: under a limit they may be refused only if snapshots or iterators keep
    /// the deleted data.
    fn refusal(&self, changes: &[(FamilyId, Change)], error: &Error) -> Check {
        let deletes =
            changes.iter().all(|(_, change)| !matches!(change, Change::Put(..) | Change::Merge(..)));
        let limited = !self.squeezed && matches!(self.options.space_limit, Some(SpaceLimit::Bytes(_)));
        let kept = !self.snapshots.is_empty() || !self.iterators.is_empty();
        // With a deadline they are refused after it, however much is being freed.
        let waited = matches!(self.options.space_policy, SpacePolicy::Wait { .. });
        ensure!(
            !deletes || !limited || kept || waited,
            "a write that only deletes was refused: {error}: {}",
            self.db().describe()
        );
        Ok(())
    }

    /// Excuses an error: any typed one if faults are injected, `NoSpace` if there may be no space,
    /// otherwise none.
    fn excuse(&mut self, error: Error, what: &str) -> Check {
        if error.kind() == ErrorKind::NoSpace && self.may_be_full() {
            // Under a limit, flushes and reads have space.
            let needs_none = ["flush", "close", "get", "iter", "space", "verify"].contains(&what);
            ensure!(self.squeezed || !needs_none, "{what} under a limit: {error}");
            self.refused += 1;
            return Ok(());
        }
        ensure!(self.knobs.faults, "{what}: {error}");
        let impossible = [ErrorKind::TooLarge, ErrorKind::UserCallback];
        ensure!(!impossible.contains(&error.kind()), "{what}, after a fault: {error}");
        self.doubtful = true;
        Ok(())
    }

    fn barrier(&mut self, upto: usize) {
        self.history.barriers.push(Barrier { end_op: self.sim.op_count(), upto });
    }

    /// Makes a short write. Returns false if there was no space for it.
    pub fn put_small(&mut self) -> Check<bool> {
        let (begin_op, before) = (self.sim.op_count(), self.refused);
        let seq = self.db().snapshot().sequence();
        let family = self.family();
        let change = Change::Put(self.data.key(&mut self.rng), vec![7; 10]);
        self.singles.note(family.id(), &change);
        let result = write_one(&family, &change, Durability::Buffered);
        self.wrote((begin_op, seq), Durability::Buffered, vec![(family.id(), change)], result)?;
        Ok(self.refused == before)
    }

    /// Deletes everything, in one of several ways.
    pub fn delete_all(&mut self) -> Check {
        for family in self.families.clone() {
            let keys: Vec<Vec<u8>> = self.model[&family.id()].entries().keys().cloned().collect();
            let by_range = self.rng.one_in(3);
            let one = |key: Vec<u8>| Change::Delete(key);
            let changes: Vec<Change> = match keys.last() {
                Some(last) if by_range => {
                    let end = [&last[..], &[0]].concat();
                    vec![Change::DeleteRange(Vec::new(), end)]
                }
                _ => keys.into_iter().map(one).collect(),
            };
            for change in changes {
                self.singles.note(family.id(), &change);
                let begin_op = self.sim.op_count();
                let seq = self.db().snapshot().sequence();
                // With the default durability.
                let durability = self.options.durability;
                let result = write_one(&family, &change, durability);
                self.wrote((begin_op, seq), durability, vec![(family.id(), change)], result)?;
                self.check_peak()?;
            }
        }
        Ok(())
    }

    // Upkeep.

    pub fn flush(&mut self) -> Check {
        let upto = self.history.writes.len();
        match self.db().flush() {
            Ok(()) => self.barrier(upto),
            Err(e) => self.excuse(e, "flush")?,
        }
        Ok(())
    }

    fn compact(&mut self) -> Check {
        let upto = self.history.writes.len();
        let family = self.family();
        let (a, b) = (self.data.key(&mut self.rng), self.data.key(&mut self.rng));
        let (start, end) = if a <= b { (a, b) } else { (b, a) };
        let start = if self.rng.one_in(3) { Bound::Unbounded } else { Bound::Included(start) };
        let end = if self.rng.one_in(3) { Bound::Unbounded } else { Bound::Excluded(end) };
        // Drawn last, so that earlier draws keep their values.
        let request = CompactRequest { rewrite: self.rng.one_in(3), ..Default::default() };
        match family.compact_range_with((start, end), &request, &mut |_| {}) {
            Ok(()) => self.barrier(upto),
            Err(e) => self.excuse(e, "compact_range")?,
        }
        Ok(())
    }

    fn change_families(&mut self) -> Check {
        let begin_op = self.sim.op_count();
        let create = self.families.len() == 1 || (self.families.len() < 4 && self.rng.one_in(2));
        if create {
            let free = (0..6).map(|n| format!("family {n}")).find(|n| self.db().open_family(n).is_err());
            let name = free.ok_or("no free name")?;
            let options = plan::family_options(&mut self.rng);
            match self.db().create_family(&name, &options) {
                Ok(family) => {
                    self.model.insert(family.id(), Contents::default());
                    self.history.families.push(FamilyChange {
                        begin_op,
                        end_op: self.sim.op_count(),
                        id: family.id(),
                        created: true,
                    });
                    self.families.push(family);
                }
                Err(e) => {
                    self.history.failed_creations += 1;
                    self.excuse(e, "create_column_family")?;
                }
            }
            return Ok(());
        }
        let index = 1 + self.rng.below(self.families.len() as u64 - 1) as usize;
        let family = self.families[index].clone();
        match self.db().drop_family(&family) {
            Ok(()) => {
                self.families.remove(index);
                self.model.remove(&family.id());
                let end_op = self.sim.op_count();
                self.history.families.push(FamilyChange {
                    begin_op,
                    end_op,
                    id: family.id(),
                    created: false,
                });
                let gone = family.get(b"k").map(|_| ()).map_err(|e| e.kind());
                ensure!(gone == Err(ErrorKind::NotFound), "a read of a dropped family gave {gone:?}");
            }
            Err(e) => {
                self.history.failed_drops.push(family.id());
                self.excuse(e, "drop_column_family")?;
            }
        }
        Ok(())
    }

    /// Closes the store after releasing its handles. Sometimes a reader outlives it.
    pub fn close(&mut self) -> Check {
        self.snapshots.clear();
        let mut survivor = if self.rng.one_in(3) { self.iterators.pop() } else { None };
        self.iterators.clear();
        self.families.clear();
        let upto = self.history.writes.len();
        let db = self.db.take().expect("open between steps");
        tally::add(&db);
        if let Some(mut twin) = survivor.take_if(|_| self.rng.one_in(2)) {
            drop(db);
            twin.walk(&mut self.rng, &self.data).map_err(|why| format!("after a drop: {why}"))?;
            // Dropping the last reader closes the store.
            drop(twin);
            self.barrier(upto);
            return Ok(());
        }
        match db.close() {
            Ok(()) => self.barrier(upto),
            Err(e) => return self.excuse(e, "close"),
        }
        survivor.map_or(Ok(()), |mut twin| twin.is_refused(&mut self.rng, &self.data))
    }

    fn new_options(&mut self) {
        if self.rng.one_in(4) {
            return;
        }
        self.options = self.knobs.draw_options(&mut self.rng);
        self.redrawn = true;
    }

    pub fn reopen(&mut self) -> Check {
        self.close()?;
        self.new_options();
        match self.open() {
            Err(_) if self.knobs.faults => {
                self.doubtful = true;
                Ok(())
            }
            other => other,
        }
    }

    /// Kills and restarts the process. Acknowledged writes survive; volatile writes are flushed
    /// first.
    fn kill(&mut self) -> Check {
        if self.knobs.volatile {
            self.flush()?;
        }
        let after = self.sim.crash(CrashKind::ProcessKill, self.rng.next_u64());
        self.abandon();
        self.sim = after;
        self.new_options();
        self.open()
    }

    /// Drops the store without a close; the simulator's crashed copies do not see the drop.
    pub fn abandon(&mut self) {
        self.iterators.clear();
        self.snapshots.clear();
        self.reader = None;
        self.families.clear();
        if let Some(db) = self.db.take() {
            tally::add(&db);
        }
    }

    fn checkpoint(&mut self) -> Check {
        let dir = format!("/checkpoint{}", self.checkpoints.len());
        let upto = self.history.writes.len();
        match self.db().checkpoint(&dir) {
            Ok(()) => self.barrier(upto),
            Err(e) => return self.excuse(e, "checkpoint"),
        }
        self.checkpoints.push((dir.clone(), self.sim.op_count(), self.model.clone()));
        if self.knobs.reads && !self.knobs.faults {
            let options = plan::options(&mut self.rng);
            compare_checkpoint(&self.sim, &dir, options, &self.model)?;
        }
        Ok(())
    }

    fn read_only(&mut self) -> Check {
        if self.knobs.volatile || self.doubtful || self.knobs.faults {
            return Ok(());
        }
        let options = plan::options(&mut self.rng);
        let db = match self.reader.take() {
            Some(reader) => reader.catch_up().doing(|| "catch_up".into())?,
            None => Db::open_read_only_in(&machine::env(&self.sim)?, DIR, &options)
                .doing(|| "open_read_only".into())?,
        };
        compare(&self.model, &scan(&db).map_err(|why| format!("read-only: {why}"))?)
            .map_err(|why| format!("read-only: {why}"))?;
        let refused = db.put(b"k", b"v").map_err(|e| e.kind());
        ensure!(refused == Err(ErrorKind::ReadOnly), "a write to a read-only store gave {refused:?}");
        // Its open files keep their space.
        self.reader = Some(db).filter(|_| self.capacity.is_none() && self.peak_max.is_none());
        Ok(())
    }

    /// Waits until the store is idle, sometimes without readers: exactly the reachable files exist.
    pub fn settle(&mut self) -> Check {
        self.reader = None;
        if self.rng.one_in(2) {
            self.let_readers_go();
        }
        if self.knobs.faults {
            // With a permanently failing call the store may never become idle.
            self.db().wait_idle(Duration::from_millis(200));
            return Ok(());
        }
        if self.capacity.is_some() {
            // Jobs wait for space.
            self.db().wait_idle(Duration::from_millis(200));
            return Ok(());
        }
        let readers = !self.iterators.is_empty();
        let check = if self.was_full { files::check_files_at_rest } else { files::check_at_rest };
        check(self.db(), &machine::env(&self.sim)?, DIR.as_ref(), readers)
    }

    /// Drops all iterators and snapshots.
    pub fn let_readers_go(&mut self) {
        self.iterators.clear();
        self.snapshots.clear();
        self.reader = None;
    }

    /// Runs reports and checks that change nothing.
    fn look(&mut self) -> Check {
        let space = match self.db().space() {
            Ok(space) => space,
            Err(e) => return self.excuse(e, "space"),
        };
        let sum: u64 = space.parts().iter().map(|(_, bytes)| bytes).sum();
        ensure!(sum == space.total_bytes, "the ledger of space sums to {sum}, not {}", space.total_bytes);
        let _ = (self.db().describe(), self.db().stats(), self.db().cache_stats());
        self.verify()
    }

    pub fn verify(&mut self) -> Check {
        match self.db().verify() {
            Ok(report) if report.errors.is_empty() => Ok(()),
            Ok(report) => self.excuse(report.errors[0].clone(), "verify"),
            Err(e) => self.excuse(e, "verify"),
        }
    }

    // Reading.

    fn read(&mut self) -> Check {
        match self.rng.below(12) {
            0 => self.take_snapshot(),
            1 | 2 => self.make_iterator(),
            3..=5 if !self.iterators.is_empty() => {
                let i = self.rng.below(self.iterators.len() as u64) as usize;
                let mut twin = self.iterators.swap_remove(i);
                twin.walk(&mut self.rng, &self.data)
                    .map_err(|why| format!("family {}: {why}", twin.family))?;
                if !self.rng.one_in(3) {
                    self.iterators.push(twin);
                }
                Ok(())
            }
            6 => self.compare_all(),
            _ => self.get(),
        }
    }

    fn take_snapshot(&mut self) -> Check {
        if self.snapshots.len() > 3 || (self.rng.one_in(3) && !self.snapshots.is_empty()) {
            let i = self.rng.below(self.snapshots.len() as u64) as usize;
            drop(self.snapshots.swap_remove(i));
        }
        self.snapshots.push((self.db().snapshot(), self.model.clone()));
        Ok(())
    }

    /// Returns a snapshot or none, and the expected contents of a family (empty if the family is
    /// newer).
    fn moment(&mut self, family: FamilyId) -> (Option<Snapshot>, Rc<crate::state::Entries>) {
        let some = !self.snapshots.is_empty() && self.rng.one_in(2);
        let (snapshot, model) = if some {
            let i = self.rng.below(self.snapshots.len() as u64) as usize;
            let (snapshot, model) = &self.snapshots[i];
            (Some(snapshot.clone()), model)
        } else {
            (None, &self.model)
        };
        (snapshot, model.get(&family).map(Contents::shared).unwrap_or_default())
    }

    fn get(&mut self) -> Check {
        let family = self.family();
        let (snapshot, entries) = self.moment(family.id());
        for _ in 0..4 {
            let key = match self.rng.below(3) {
                0 if !entries.is_empty() => {
                    let nth = self.rng.below(entries.len() as u64) as usize;
                    entries.keys().nth(nth).cloned().unwrap_or_default()
                }
                _ => self.data.key(&mut self.rng),
            };
            let options = ReadOptions::default();
            let found = match at(&family, snapshot.as_ref(), &options).get(&key) {
                Ok(found) => found,
                Err(e) => return self.excuse(e, "get"),
            };
            if self.doubtful {
                continue;
            }
            let expected = entries.get(&key);
            ensure!(
                found.as_deref() == expected.map(Vec::as_slice),
                "get {} in family {}{}: {} instead of {}",
                show(&key),
                family.id(),
                if snapshot.is_some() { " at a snapshot" } else { "" },
                found.as_deref().map_or("nothing".into(), show),
                expected.map_or("nothing".into(), |v| show(v))
            );
        }
        Ok(())
    }

    fn make_iterator(&mut self) -> Check {
        let family = self.family();
        let (snapshot, entries) = self.moment(family.id());
        let within = Within::draw(&mut self.rng, &self.data);
        let iterator = match within.cursor(&family, snapshot.as_ref()) {
            Ok(iterator) => iterator,
            Err(e) => return self.excuse(e, "iter"),
        };
        if self.doubtful || self.knobs.faults {
            return Ok(());
        }
        let mut twin = Twin::new(iterator, family.id(), &within, &entries);
        twin.walk(&mut self.rng, &self.data).map_err(|why| format!("family {}: {why}", family.id()))?;
        if self.iterators.len() < 4 {
            self.iterators.push(twin);
        }
        Ok(())
    }

    /// Compares all contents.
    pub fn compare_all(&mut self) -> Check {
        match scan(self.db()) {
            Ok(_) if self.doubtful => Ok(()),
            Ok(found) => compare(&self.model, &found),
            Err(_) if self.knobs.faults => {
                self.doubtful = true;
                Ok(())
            }
            Err(why) => Err(why),
        }
    }
}
