//! Operations on a store of two engines, and its expected contents.

use super::engine::{Toy, ToyLog};
use super::model::{Entry, Model, Trim};
use super::session::{OpenEngines, Session, belongings, open, read};
use crate::check::{Check, Doing, ensure};
use crate::crash::{kind, loss};
use crate::driver::{compare, scan, write_one};
use crate::history::{Barrier, FamilyEntries, History, Loss, Write};
use crate::machine::{self, DIR, room};
use crate::plan::{self, Data};
use crate::state::{Change, FamilyId};
use io::{CreateOptions, Rng, SyncKind};
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{Db, Durability, Env, ErrorKind, Options};
use std::collections::BTreeMap;
use std::path::Path;
use store::manifest::{Engine, EngineFile, Record};
use store::names::{self, FileKind};
use store::volumes::Volume;

/// Kind of the toy log's own file.
const FILE_KIND: u8 = 1;

fn file_name(number: u64) -> String {
    FileKind::Engine { engine: Toy::ID.0, kind: FILE_KIND, number }.to_string()
}

/// Last crash of an engine that may have lost data; `None` if all promised data is there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending(Option<(u64, Loss)>);

impl Pending {
    /// Records a crash at this operation.
    pub fn of(op: u64, loss: Loss) -> Pending {
        Pending(Some((op, loss)))
    }

    /// Records a crash: at this operation for an open engine; a closed one may lose more than
    /// before.
    fn dies(&mut self, is_here: bool, op: u64, loss: Loss) {
        self.0 = match self.0 {
            _ if is_here => Some((op, loss)),
            Some((op, _)) if loss == Loss::Power => Some((op, loss)),
            seen => seen,
        };
    }
}

/// Expected state of both engines.
#[derive(Clone, Default)]
struct Expected {
    kv: History,
    kv_pending: Pending,
    toy: Model,
    toy_pending: Pending,
    /// The toy log's own file: the operation of its creation, its number, its bytes.
    file: Option<(u64, u64, Vec<u8>)>,
    /// All existing data of both engines is durable.
    is_settled: bool,
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Calls refused for lack of space.
    pub refused: u64,
    /// Checkpoints with the expected contents.
    pub checkpoints: u64,
    /// Checkpoints refused because the toy log had data in the log.
    pub checkpoints_refused: u64,
}

pub(super) struct EngineWorkload {
    pub sim: SimEnv,
    pub rng: Rng,
    data: Data,
    options: Options,
    expected: Expected,
    full: bool,
    /// The volume was full since the open.
    was_full: bool,
    /// Operations since the beginning count. Otherwise the machine restarts its count after each
    /// crash, and recovered data counts from there.
    is_recorded: bool,
    pub counts: Counts,
}

impl EngineWorkload {
    pub fn new(seed: u64) -> EngineWorkload {
        let mut rng = Rng::new(seed ^ 0x656e_6769_6e65);
        let options = Options { space_limit: None, ..plan::churn_options(&mut rng) };
        let data = if rng.one_in(2) { Data::churn(&mut rng) } else { Data::small(&mut rng) };
        let expected = Expected { is_settled: true, ..Expected::default() };
        let (sim, counts) = (machine::new(seed), Counts::default());
        EngineWorkload {
            sim,
            rng,
            data,
            options,
            expected,
            full: false,
            was_full: false,
            is_recorded: true,
            counts,
        }
    }

    /// Returns the state after a crash.
    pub fn after(&self, sim: SimEnv, rng: Rng, pending: Pending) -> EngineWorkload {
        let mut expected = self.expected.clone();
        let Pending(Some((op, loss))) = pending else { unreachable!("after a crash") };
        (expected.kv_pending, expected.toy_pending) = (pending, pending);
        expected.file = expected.file.filter(|(made_op, ..)| *made_op <= op);
        expected.is_settled = loss == Loss::Power;
        let (data, options, counts) = (self.data.clone(), self.options.clone(), Counts::default());
        EngineWorkload {
            sim,
            rng,
            data,
            options,
            expected,
            full: machine::is_lavafs(),
            was_full: false,
            is_recorded: false,
            counts,
        }
    }

    fn op(&self) -> u64 {
        self.sim.op_count()
    }

    fn env(&self) -> Check<Env> {
        machine::env(&self.sim)
    }

    /// Draws other options; the family keeps its own.
    fn redraw(&mut self) {
        if self.rng.one_in(2) {
            let drawn = plan::churn_options(&mut self.rng);
            self.options = Options { space_limit: None, family: self.options.family.clone(), ..drawn };
        }
    }

    // Sessions.

    /// Runs a session that ends with a close. Data of closed engines must not change.
    pub fn session(&mut self, who: OpenEngines, steps: u64) -> Check {
        let before = belongings(&self.env()?, who)?;
        let session = self.open(who)?;
        self.make_file(&session)?;
        self.steps(&session, steps)?;
        if self.rng.below(4) > 0 {
            self.has_room()?;
        }
        match session.close() {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.full => {
                // The session ends as if the process had died.
                self.counts.refused += 1;
                let op = self.op();
                self.expected.kv_pending.dies(who.has_kv(), op, Loss::Process);
                self.expected.toy_pending.dies(who.has_toy(), op, Loss::Process);
                self.expected.is_settled = false;
            }
            closed => {
                closed.doing(|| "close".into())?;
                self.all_durable(who);
                // Data of a closed engine after a process crash may still be only in the page
                // cache.
                self.expected.is_settled |= who == OpenEngines::Both;
            }
        }
        self.check_untouched(who, &before, Loss::Process)
    }

    /// Marks the data of the open engines as durable after a close.
    fn all_durable(&mut self, who: OpenEngines) {
        let op = self.op();
        if who.has_toy() {
            self.expected.toy.all_durable(op);
        }
        if who.has_kv() {
            self.kv_all_durable();
        }
    }

    /// Runs a session that ends with a crash of the machine.
    pub fn session_cut_off(&mut self, who: OpenEngines, steps: u64) -> Check {
        let before = belongings(&self.env()?, who)?;
        let session = self.open(who)?;
        self.steps(&session, steps)?;
        let kind = kind(&mut self.rng);
        let (op, loss) = (self.op(), loss(kind));
        self.expected.kv_pending.dies(who.has_kv(), op, loss);
        self.expected.toy_pending.dies(who.has_toy(), op, loss);
        let after = self.sim.crash(kind, self.rng.next_u64());
        drop(session);
        // After the crash, only LavaFS is still as full as before.
        (self.sim, self.full) = (after, self.full && machine::is_lavafs());
        if loss == Loss::Process || self.expected.is_settled {
            self.check_untouched(who, &before, loss)?;
        }
        self.expected.is_settled = loss == Loss::Power;
        Ok(())
    }

    fn check_untouched(&self, who: OpenEngines, before: &BTreeMap<String, Vec<u8>>, loss: Loss) -> Check {
        let after = belongings(&self.env()?, who)?;
        let own = self.expected.file.as_ref().map(|(_, number, _)| *number);
        // A closed store's tails are durable elsewhere, and a file that its creator has not listed
        // yet may be lost.
        let goes_with_power = |name: &str| match names::parse(name) {
            Some(FileKind::Tail(_)) => true,
            Some(FileKind::Engine { number, .. }) => own != Some(number),
            _ => false,
        };
        for (name, bytes) in before.iter().filter(|(name, _)| loss == Loss::Process || !goes_with_power(name))
        {
            ensure!(after.get(name) == Some(bytes), "{who:?} touched {name} of somebody who was away");
        }
        let made = after.keys().find(|name| !before.contains_key(*name) && !name.ends_with(".tail"));
        ensure!(made.is_none(), "{who:?} made {made:?} for somebody who was away");
        Ok(())
    }

    /// Opens the store and checks the contents of the open engines.
    pub fn open(&mut self, who: OpenEngines) -> Check<Session> {
        self.redraw();
        let session = match open(&self.env()?, DIR, who, &self.options) {
            // The writes of an open may not fit.
            Err(e) if e.kind() == ErrorKind::NoSpace && self.full => {
                self.counts.refused += 1;
                self.has_room()?;
                open(&self.env()?, DIR, who, &self.options)
            }
            opened => opened,
        };
        self.was_full = self.full;
        let session = session.doing(|| format!("open of {who:?} with {}", plan::describe(&self.options)))?;
        if let Some(db) = &session.db {
            let found = scan(db)?;
            let pending = self.expected.kv_pending.0.take();
            let (op, loss) = pending.unwrap_or((u64::MAX, Loss::Process));
            self.expected.kv.changed();
            self.expected.kv.check(op, loss, &found).map_err(|why| format!("{who:?}: LavaKV: {why}"))?;
            if !self.is_recorded {
                self.expected.kv = history_of(&found);
            }
        }
        if let Some(toy) = &session.toy {
            let pending = self.expected.toy_pending.0.take();
            let (op, loss) = pending.unwrap_or((u64::MAX, Loss::Process));
            let kind = if loss == Loss::Power { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
            let mut found = self.expected.toy.clone();
            found.check(op, kind, toy).map_err(|why| format!("{who:?}: the toy log: {why}"))?;
            if !self.is_recorded {
                self.expected.toy = found;
            }
        }
        self.check_file(DIR)?;
        Ok(session)
    }

    // The toy log's own file.

    /// Checks that the file is unchanged, whichever engines are open.
    fn check_file(&self, dir: &str) -> Check {
        let Some((_, number, bytes)) = &self.expected.file else { return Ok(()) };
        let name = file_name(*number);
        ensure!(read(&self.env()?, dir, &name)? == *bytes, "{dir}: {name} is not what it was");
        Ok(())
    }

    /// Creates the file once.
    fn make_file(&mut self, session: &Session) -> Check {
        if session.toy.is_none() || self.expected.file.is_some() || self.full {
            return Ok(());
        }
        let number = session.manifest.allocate_file_number();
        let name = file_name(number);
        let mut bytes = vec![0; self.rng.range(1, 9000) as usize];
        self.rng.fill(&mut bytes);
        let env = self.env()?;
        let path = io::fs::join(Path::new(DIR), &name);
        let write = || -> lavastore::Result<()> {
            let mut file = env.fs.create(&path, &CreateOptions::default())?;
            file.append(&bytes)?;
            file.sync(SyncKind::Full)?;
            session.manifest.files().sync_dir()?;
            let file = EngineFile { number, kind: FILE_KIND, volume: Volume::DIRECTORY };
            let add = vec![Record::AddEngineFile { engine: Toy::ID, file }];
            session.manifest.commit_store(|_| Ok(add), |_| {}).map(drop)
        };
        write().doing(|| "make a file".into())?;
        self.expected.file = Some((self.op(), number, bytes));
        Ok(())
    }

    // Room.

    fn has_room(&mut self) -> Check {
        self.full = false;
        room::set_capacity(&self.sim, None)?;
        self.sim.advance_ns(2_000_000_000);
        Ok(())
    }

    fn is_full(&mut self) -> Check {
        (self.full, self.was_full) = (true, true);
        let more = [0, 30 << 10, 200 << 10][self.rng.below(3) as usize];
        room::set_capacity(&self.sim, Some(room::used(&self.sim)? + more))
    }

    /// Counts a refusal for lack of space and fails on any other error. The store notices new space
    /// with a delay.
    fn excuse(&mut self, e: lavastore::Error, what: &str) -> Check {
        ensure!(e.kind() == ErrorKind::NoSpace, "{what}: {e}");
        ensure!(self.full || self.was_full, "{what}, with room: {e}");
        self.counts.refused += 1;
        Ok(())
    }

    // Steps.

    fn steps(&mut self, session: &Session, count: u64) -> Check {
        for step in 0..count {
            let done = match (&session.db, &session.toy) {
                (Some(db), Some(_)) if self.rng.one_in(2) => self.kv_step(session, db),
                (Some(db), None) => self.kv_step(session, db),
                (_, Some(toy)) => self.toy_step(session, toy),
                (None, None) => Ok(()),
            };
            done.map_err(|why| format!("{:?}, step {step}: {why}", session.who))?;
            match self.rng.below(40) {
                0 if !self.full => self.is_full()?,
                0..=4 if self.full => self.has_room()?,
                5 => self.sim.advance_ns(2_000_000_000),
                6 => {
                    let rolled = session.manifest.commits().roll();
                    rolled.or_else(|e| self.excuse(e, "roll"))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn kv_step(&mut self, session: &Session, db: &Db) -> Check {
        match self.rng.below(20) {
            0 => match db.flush() {
                Ok(()) => {
                    self.kv_all_durable();
                    Ok(())
                }
                Err(e) => self.excuse(e, "flush"),
            },
            1 => {
                let compacted = db.compact_range(..);
                compacted.or_else(|e| self.excuse(e, "compact_range"))
            }
            2..=5 => {
                for _ in 0..self.rng.below(8) {
                    db.engine().run_background_step();
                }
                Ok(())
            }
            6 => self.checkpoint(session, db),
            _ => self.kv_write(db),
        }
    }

    fn kv_write(&mut self, db: &Db) -> Check {
        let change = self.data.change(&mut self.rng);
        let change = plan::with_merges(&self.rng, db.default_family(), change);
        let range = matches!(change, Change::DeleteRange(..));
        let durable = if range { self.options.durability == Durability::Durable } else { self.rng.one_in(2) };
        let durability = if durable { Durability::Durable } else { Durability::Buffered };
        let is_nothing = matches!(&change, Change::DeleteRange(start, end) if start == end);
        let begin_op = self.op();
        if let Err(e) = write_one(db.default_family(), &change, durability) {
            return self.excuse(e, "write");
        }
        let (end_op, changes) = (self.op(), vec![(0, change)]);
        let write = Write { begin_op, end_op, durability, changes, failed: false, first_seq: None };
        self.expected.kv.writes.push(write);
        if durable && !is_nothing && self.expected.toy_pending.0.is_none() {
            // One durability domain: a durable write also makes earlier writes of the other engine
            // durable.
            self.expected.toy.all_durable(end_op);
        }
        Ok(())
    }

    /// Marks all writes of LavaKV as durable.
    fn kv_all_durable(&mut self) {
        let (end_op, upto) = (self.op(), self.expected.kv.writes.len());
        self.expected.kv.barriers.push(Barrier { end_op, upto });
    }

    /// Takes a checkpoint: it holds LavaKV's data and the toy log's files, and is refused if the
    /// toy log has data in the log.
    fn checkpoint(&mut self, session: &Session, db: &Db) -> Check {
        let dir = format!("/checkpoint-{}", self.rng.next_u64());
        match db.checkpoint(&dir) {
            Ok(()) => self.kv_all_durable(),
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                let begun = self.env()?.fs.exists(Path::new(&dir)).doing(|| "look".into())?;
                ensure!(!begun, "a checkpoint that is refused was begun: {e}");
                let has_nothing = session.toy.as_ref().is_some_and(|toy| toy.range().is_empty());
                ensure!(!has_nothing, "refused for the sake of an engine that has nothing in the log: {e}");
                self.counts.checkpoints_refused += 1;
                return Ok(());
            }
            Err(e) => return self.excuse(e, "checkpoint"),
        }
        if self.full {
            return Ok(());
        }
        let found = scan(db)?;
        let model = found.into_iter().map(|(id, e)| (id, crate::state::Contents::from_entries(e))).collect();
        let copy =
            open(&self.env()?, &dir, OpenEngines::Both, &self.options).doing(|| format!("open of {dir}"))?;
        if let Some(db) = &copy.db {
            compare(&model, &scan(db)?).map_err(|why| format!("{dir}: {why}"))?;
        }
        self.check_file(&dir)?;
        if let (Some(toy), Some(theirs)) = (&session.toy, &copy.toy) {
            ensure!(theirs.range().is_empty(), "{dir}: {:?} without a log", theirs.range());
            ensure!(toy.range() == theirs.range(), "{dir}: {:?}, not {:?}", theirs.range(), toy.range());
        }
        self.counts.checkpoints += 1;
        copy.close().doing(|| format!("close of {dir}"))
    }

    fn toy_step(&mut self, session: &Session, toy: &ToyLog) -> Check {
        match self.rng.below(14) {
            0 => self.toy_trim(toy),
            1..=3 => match &session.store {
                Some(store) => store.tend().map(drop).or_else(|e| self.excuse(e, "tend")),
                None => Ok(()),
            },
            _ => self.toy_append(toy),
        }
    }

    fn toy_append(&mut self, toy: &ToyLog) -> Check {
        let len_max = [10, 300, 5000, 30_000][self.rng.below(4) as usize];
        let mut bytes = vec![0; 1 + self.rng.below(len_max) as usize];
        self.rng.fill(&mut bytes);
        let durable = self.rng.one_in(2);
        let durability = if durable { Durability::Durable } else { Durability::Buffered };
        let begun_op = self.op();
        let (number, ticket) = match toy.append(&bytes, durability) {
            Err(e) => return self.excuse(e, "append"),
            Ok(appended) => appended,
        };
        ensure!(number as usize == self.expected.toy.entries.len() + 1, "entry {number} comes next");
        let buffered_op = (!durable).then(|| self.op());
        self.expected.toy.entries.push(Entry { bytes, ticket, begun_op, buffered_op, durable_op: None });
        if durable && !self.rng.one_in(3) {
            toy.sync(ticket).doing(|| "sync".into())?;
            let op = self.op();
            self.expected.toy.durable(ticket, op);
            if self.expected.kv_pending.0.is_none() {
                self.kv_all_durable();
            }
        }
        Ok(())
    }

    fn toy_trim(&mut self, toy: &ToyLog) -> Check {
        let range = toy.range();
        let all = self.rng.one_in(3);
        let below = if all { range.end } else { range.start + self.rng.below(range.end - range.start + 1) };
        self.expected.toy.trims.push(Trim { below, begun_op: self.op(), done_op: None });
        match toy.trim(below) {
            Err(e) => {
                self.expected.toy.trims.pop();
                self.excuse(e, "trim")
            }
            Ok(()) => {
                let op = self.op();
                if let Some(trim) = self.expected.toy.trims.last_mut() {
                    trim.done_op = Some(op);
                }
                Ok(())
            }
        }
    }
}

/// Returns a history that produces the found contents.
fn history_of(found: &FamilyEntries) -> History {
    let puts = |(id, entries): (&FamilyId, &BTreeMap<Vec<u8>, Vec<u8>>)| -> Vec<(FamilyId, Change)> {
        entries.iter().map(|(key, value)| (*id, Change::Put(key.clone(), value.clone()))).collect()
    };
    let changes = found.iter().flat_map(puts).collect();
    let durability = Durability::Durable;
    let write = Write { begin_op: 0, end_op: 0, durability, changes, failed: false, first_seq: None };
    let mut history = History::default();
    history.writes.push(write);
    history
}
