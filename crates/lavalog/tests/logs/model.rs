//! Model of a store of logs: a map for each log. Operations are drawn from a seed, and each is
//! noted with its result before it is executed. So the contents after a failure or crash can be
//! judged.

use base::{ErrorKind, Result};
use io::Rng;
use lavalog::{Durability, LogBatch, LogHandle, LogStore, Lsn, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub fn options() -> Options {
    Options { group_bytes: Some(256 << 10), garbage_percent: 30, ..Options::default() }
}

/// Expected state of one log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneLog {
    pub records: BTreeMap<Lsn, Arc<[u8]>>,
    pub trimmed_below: Lsn,
    pub metadata: Option<Vec<u8>>,
}

impl OneLog {
    fn last(&self) -> Lsn {
        self.records.keys().next_back().copied().unwrap_or(self.trimmed_below)
    }
}

/// All logs by name.
pub type Model = BTreeMap<String, OneLog>;

/// Returns the contents of a store, read in every possible way.
pub fn contents(store: &LogStore) -> Model {
    let mut model = Model::new();
    for name in store.list_logs("", usize::MAX) {
        let log = store.open_log(&name).unwrap();
        let read = |record: Result<(Lsn, Vec<u8>)>| {
            let (lsn, bytes) = record.unwrap();
            (lsn, bytes.into())
        };
        let records: BTreeMap<Lsn, Arc<[u8]>> = log.scan(0).map(read).collect();
        for (lsn, bytes) in &records {
            let found = log.read(*lsn).unwrap();
            assert_eq!(found.as_deref(), Some(&bytes[..]), "record {lsn} of {name}");
        }
        assert_eq!(log.first_lsn().unwrap(), records.keys().next().copied());
        let metadata = log.metadata().unwrap().map(|bytes| bytes.to_vec());
        model.insert(name, OneLog { records, trimmed_below: 0, metadata });
    }
    model
}

/// Summarizes the logs.
pub fn summary(model: &Model) -> String {
    let logs = model.iter().map(|(name, log)| {
        let (first, last) = (log.records.keys().next(), log.records.keys().next_back());
        format!("{name}: {} records, {first:?} to {last:?}", log.records.len())
    });
    logs.collect::<Vec<_>>().join("; ")
}

/// Returns a model without its invisible state.
pub fn seen(model: &Model) -> Model {
    let seen = |log: &OneLog| OneLog { trimmed_below: 0, ..log.clone() };
    model.iter().map(|(name, log)| (name.clone(), seen(log))).collect()
}

/// The result of an operation, or of several written together.
#[derive(Clone, Debug)]
pub struct Change {
    /// Time of the start, by [`Driver::clock`].
    pub begun: u64,
    /// Time of the acknowledgement, if there was one.
    pub ended: Option<u64>,
    /// Whether the acknowledgement promises survival of a power failure.
    pub durable: bool,
    /// The complete state after the change.
    pub after: Model,
}

/// Number of events of interest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Operations refused for lack of space.
    pub refused: u64,
    /// Batches of several records.
    pub batches: u64,
    /// Trims that removed records.
    pub trims: u64,
    /// Truncations that removed records.
    pub truncations: u64,
    /// Records that replaced truncated ones.
    pub overwritten: u64,
    /// Logs that reused the name of a deleted one.
    pub recreated: u64,
}

/// Draws and executes operations.
pub struct Driver {
    pub rng: Rng,
    pub model: Model,
    /// All begun operations in order, without refused ones. The last may have failed: then its
    /// outcome is unknown.
    pub changes: Vec<Change>,
    /// Returns the time: in a simulation, the number of file system operations.
    pub clock: Box<dyn Fn() -> u64>,
    pub done: Done,
    /// For each log, the highest truncated LSN that was not reused yet.
    truncated: BTreeMap<String, Lsn>,
    /// Names of deleted logs.
    deleted: BTreeSet<String>,
}

/// Returns true if the operation certainly had no effect.
pub fn is_refusal(kind: ErrorKind) -> bool {
    use ErrorKind::{AlreadyExists, InvalidArgument, NoSpace, NotFound, TooLarge, Trimmed};
    matches!(kind, AlreadyExists | InvalidArgument | NoSpace | NotFound | TooLarge | Trimmed)
}

impl Driver {
    pub fn new(seed: u64) -> Driver {
        Driver::with_clock(seed, Box::new(|| 0))
    }

    pub fn with_clock(seed: u64, clock: Box<dyn Fn() -> u64>) -> Driver {
        Driver::continuing(seed, clock, Model::new())
    }

    /// Creates a driver that continues from a durable state.
    pub fn continuing(seed: u64, clock: Box<dyn Fn() -> u64>, model: Model) -> Driver {
        let mut changes = Vec::new();
        if !model.is_empty() {
            changes.push(Change { begun: 0, ended: Some(0), durable: true, after: model.clone() });
        }
        let (truncated, deleted) = (BTreeMap::new(), BTreeSet::new());
        Driver { rng: Rng::new(seed), model, changes, clock, done: Done::default(), truncated, deleted }
    }

    /// Executes a call and applies its change to the model.
    fn call(
        &mut self,
        durable: bool,
        change: impl FnOnce(&mut Model),
        call: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut after = self.model.clone();
        change(&mut after);
        self.changes.push(Change { begun: (self.clock)(), ended: None, durable, after });
        let done = call();
        match &done {
            Ok(()) => {
                let end = (self.clock)();
                let change = self.changes.last_mut().unwrap();
                change.ended = Some(end);
                self.model = change.after.clone();
            }
            Err(e) if is_refusal(e.kind()) => {
                self.changes.pop();
                self.done.refused += u64::from(e.kind() == ErrorKind::NoSpace);
            }
            Err(_) => {}
        }
        done
    }

    fn name(&mut self) -> String {
        format!("log-{}", self.rng.below(6))
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = if self.rng.one_in(20) { self.rng.below(40_000) } else { self.rng.below(600) };
        let mut out = vec![0; len as usize];
        self.rng.fill(&mut out);
        out
    }

    fn log(&mut self, store: &LogStore, name: &str) -> Result<LogHandle> {
        if self.model.contains_key(name) {
            return store.open_log(name);
        }
        let change = |model: &mut Model| drop(model.insert(name.to_owned(), OneLog::default()));
        self.call(true, change, || store.create_log(name).map(drop))?;
        self.done.recreated += u64::from(self.deleted.remove(name));
        store.open_log(name)
    }

    /// Executes one operation. The model includes it unless it failed.
    pub fn one(&mut self, store: &LogStore, durability: Durability) -> Result<()> {
        let name = self.name();
        match self.rng.below(40) {
            0 => return self.delete(store, &name),
            1 => {
                store.seal()?;
                return Ok(());
            }
            _ => {}
        }
        let log = self.log(store, &name)?;
        let durable = durability == Durability::Durable;
        match self.rng.below(20) {
            0..=1 => self.trim(&name, &log, 30)?,
            2 => self.truncate(&name, &log, durability)?,
            3 => {
                let bytes = self.bytes();
                let bytes = &bytes[..bytes.len().min(100)];
                let change =
                    |model: &mut Model| model.get_mut(&name).unwrap().metadata = Some(bytes.to_vec());
                self.call(durable, change, || log.set_metadata(bytes, durability))?;
            }
            4 => self.batch(store, &name, &log, durability)?,
            _ => self.append(&name, &log, durability)?,
        }
        Ok(())
    }

    /// Trims a log so that at most `left` LSNs stay.
    pub fn trim(&mut self, name: &str, log: &LogHandle, left: u64) -> Result<()> {
        let below = self.model[name].last().saturating_sub(self.rng.below(left));
        let takes = self.model[name].records.keys().next().is_some_and(|first| *first < below);
        let change = |model: &mut Model| {
            let own = model.get_mut(name).unwrap();
            own.trimmed_below = own.trimmed_below.max(below);
            own.records = own.records.split_off(&below);
        };
        self.call(false, change, || log.trim(below))?;
        self.done.trims += u64::from(takes);
        Ok(())
    }

    /// Truncates a few of the newest records of a log.
    fn truncate(&mut self, name: &str, log: &LogHandle, durability: Durability) -> Result<()> {
        let last = self.model[name].last();
        let after = last.saturating_sub(self.rng.below(8));
        let takes = self.model[name].records.range(after + 1..).next().is_some();
        let change = |model: &mut Model| {
            drop(model.get_mut(name).unwrap().records.split_off(&(after + 1)));
        };
        self.call(durability == Durability::Durable, change, || log.truncate_after(after, durability))?;
        if takes {
            self.done.truncations += 1;
            self.truncated.insert(name.to_owned(), last);
        }
        Ok(())
    }

    /// Makes everything durable.
    pub fn sync(&mut self, store: &LogStore) -> Result<()> {
        self.call(true, |_| {}, || store.sync())
    }

    fn delete(&mut self, store: &LogStore, name: &str) -> Result<()> {
        let was = self.model.contains_key(name);
        match self.call(true, |model| drop(model.remove(name)), || store.delete_log(name)) {
            Ok(()) => {
                assert!(was, "{name} was there");
                self.truncated.remove(name);
                self.deleted.insert(name.to_owned());
            }
            Err(e) if e.kind() == ErrorKind::NotFound => assert!(!was),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn lsn(&mut self, name: &str) -> Lsn {
        let last = self.model[name].last();
        match self.rng.below(10) {
            0 => last.saturating_sub(self.rng.below(20)),
            1 => last + 1 + self.rng.below(5),
            _ => last + 1,
        }
    }

    /// Appends a record at the next LSN, or a little before or after it.
    pub fn append(&mut self, name: &str, log: &LogHandle, durability: Durability) -> Result<()> {
        let (lsn, bytes) = (self.lsn(name), self.bytes());
        let durable = durability == Durability::Durable;
        let own = &self.model[name];
        let (before, trimmed_below) = (own.records.get(&lsn).cloned(), own.trimmed_below);
        let change = |model: &mut Model| {
            model.get_mut(name).unwrap().records.insert(lsn, bytes[..].into());
        };
        match self.call(durable, change, || log.append(lsn, &bytes, durability)) {
            Err(e) if e.kind() == ErrorKind::Trimmed => assert!(lsn < trimmed_below, "{e}"),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let there = before.unwrap();
                assert_ne!(&there[..], &bytes[..]);
                self.call(durable, |_| {}, || log.append(lsn, &there, durability))?;
            }
            Err(e) => return Err(e),
            Ok(()) => {
                assert!(lsn >= trimmed_below);
                if before.is_none() && self.truncated.get(name).is_some_and(|last| lsn <= *last) {
                    self.done.overwritten += 1;
                }
                assert!(before.is_none_or(|before| before[..] == bytes[..]));
            }
        }
        Ok(())
    }

    fn batch(&mut self, store: &LogStore, name: &str, log: &LogHandle, durability: Durability) -> Result<()> {
        let other_name = self.name();
        let other = self.log(store, &other_name)?;
        let records: Vec<Vec<u8>> = (0..1 + self.rng.below(5)).map(|_| self.bytes()).collect();
        let (mut batch, mut added) = (LogBatch::new(), Vec::new());
        let mut next = BTreeMap::from([(name, self.model[name].last() + 1)]);
        next.entry(&other_name).or_insert(self.model[&other_name].last() + 1);
        for (i, bytes) in records.iter().enumerate() {
            let (to, handle) = if i % 2 == 0 { (name, log) } else { (&*other_name, &other) };
            let lsn = next.get_mut(to).unwrap();
            batch.append(handle, *lsn, bytes);
            added.push((to.to_owned(), *lsn, bytes));
            *lsn += 1;
        }
        let change = |model: &mut Model| {
            for (to, lsn, bytes) in &added {
                model.get_mut(to).unwrap().records.insert(*lsn, bytes[..].into());
            }
        };
        self.call(durability == Durability::Durable, change, || store.write(&batch, durability))?;
        self.done.batches += 1;
        Ok(())
    }

    /// Resolves the outcome of the last failed operation from the contents found. Repeats a trim
    /// whose outcome is invisible.
    pub fn resolve(&mut self, store: &LogStore, found: &Model) -> Result<()> {
        let Some(last) = self.changes.pop_if(|last| last.ended.is_none()) else { return Ok(()) };
        if seen(&last.after) != *found {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.model, last.after.clone());
        self.changes.push(Change { ended: Some((self.clock)()), durable: false, ..last });
        for (name, log) in &self.model {
            if before.get(name).is_some_and(|before| before.trimmed_below < log.trimmed_below) {
                store.open_log(name)?.trim(log.trimmed_below)?;
            }
        }
        Ok(())
    }

    /// Returns the number of changes guaranteed after a crash at a time: the last guaranteed one
    /// and all before it. `power`: changes that survive only a process crash may be gone.
    pub fn promised(&self, at: u64, power: bool) -> usize {
        let is_promised =
            |change: &Change| change.ended.is_some_and(|ended| ended <= at) && (change.durable || !power);
        self.changes.iter().rposition(is_promised).map_or(0, |last| last + 1)
    }

    /// Returns the state after this many changes.
    pub fn after(&self, count: usize) -> Model {
        count.checked_sub(1).map_or_else(Model::new, |last| self.changes[last].after.clone())
    }

    /// Judges whether `left` is a permitted state after a crash at a time: all guaranteed changes,
    /// in order. Returns the number of changes left.
    pub fn may_leave(&self, left: &Model, at: u64, power: bool) -> std::result::Result<usize, String> {
        let least = self.promised(at, power);
        let most = self.changes.iter().take_while(|change| change.begun <= at).count();
        let state = |count: usize| seen(&self.after(count));
        (least..=most).rev().find(|count| state(*count) == *left).ok_or_else(|| {
            format!(
                "what is left is none of the states {least} to {most} that it may be in: [{}], of which the first is [{}], the last [{}]",
                summary(left),
                summary(&state(least)),
                summary(&state(most))
            )
        })
    }
}
