//! What a store of logs must hold: a map for each log. Operations are drawn from a seed.

use base::ErrorKind;
use io::Rng;
use lavalog::{Durability, LogBatch, LogHandle, LogStore, Lsn, Options};
use std::collections::BTreeMap;

pub fn options() -> Options {
    Options { group_bytes: 256 << 10, garbage_percent: 30, ..Options::default() }
}

/// One log as it must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneLog {
    pub records: BTreeMap<Lsn, Vec<u8>>,
    pub trimmed_below: Lsn,
    pub metadata: Option<Vec<u8>>,
}

/// All of them, by name.
pub type Model = BTreeMap<String, OneLog>;

/// What is in a store, read through every way there is.
pub fn contents(store: &LogStore) -> Model {
    let mut model = Model::new();
    for name in store.list_logs("", usize::MAX) {
        let log = store.open_log(&name).unwrap();
        let records: BTreeMap<Lsn, Vec<u8>> = log.scan(0).map(|record| record.unwrap()).collect();
        for (lsn, bytes) in &records {
            assert_eq!(log.read(*lsn).unwrap().as_ref(), Some(bytes), "record {lsn} of {name}");
        }
        assert_eq!(log.first_lsn().unwrap(), records.keys().next().copied());
        let metadata = log.metadata().unwrap().map(|bytes| bytes.to_vec());
        model.insert(name, OneLog { records, trimmed_below: 0, metadata });
    }
    model
}

/// The same without what cannot be seen.
pub fn seen(model: &Model) -> Model {
    let seen = |log: &OneLog| OneLog { trimmed_below: 0, ..log.clone() };
    model.iter().map(|(name, log)| (name.clone(), seen(log))).collect()
}

/// Draws operations.
pub struct Driver {
    pub rng: Rng,
    pub model: Model,
}

impl Driver {
    pub fn new(seed: u64) -> Driver {
        Driver { rng: Rng::new(seed), model: Model::new() }
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

    /// One operation; the model has it even if it was refused for want of room, which is for the caller to undo.
    pub fn one(&mut self, store: &LogStore, durability: Durability) -> base::Result<()> {
        let name = self.name();
        match self.rng.below(40) {
            0 => return self.delete(store, &name),
            1 => {
                store.seal()?;
                return Ok(());
            }
            _ => {}
        }
        let log = store.log(&name)?;
        self.model.entry(name.clone()).or_default();
        match self.rng.below(20) {
            0..=1 => {
                let own = &self.model[&name];
                let last = own.records.keys().next_back().copied().unwrap_or(own.trimmed_below);
                let below = last.saturating_sub(self.rng.below(30));
                log.trim(below)?;
                let own = self.model.get_mut(&name).unwrap();
                own.trimmed_below = own.trimmed_below.max(below);
                own.records = own.records.split_off(&below);
            }
            2 => {
                let own = &self.model[&name];
                let last = own.records.keys().next_back().copied().unwrap_or(own.trimmed_below);
                let after = last.saturating_sub(self.rng.below(8));
                log.truncate_after(after, durability)?;
                drop(self.model.get_mut(&name).unwrap().records.split_off(&(after + 1)));
            }
            3 => {
                let bytes = self.bytes();
                let bytes = bytes[..bytes.len().min(100)].to_vec();
                log.set_metadata(&bytes, durability)?;
                self.model.get_mut(&name).unwrap().metadata = Some(bytes);
            }
            4 => self.batch(store, &name, &log, durability)?,
            _ => self.append(&name, &log, durability)?,
        }
        Ok(())
    }

    fn delete(&mut self, store: &LogStore, name: &str) -> base::Result<()> {
        match store.delete_log(name) {
            Ok(()) => assert!(self.model.remove(name).is_some(), "{name} was there"),
            Err(e) if e.kind() == ErrorKind::NotFound => assert!(!self.model.contains_key(name)),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn lsn(&mut self, name: &str) -> Lsn {
        let own = &self.model[name];
        let last = own.records.keys().next_back().copied().unwrap_or(own.trimmed_below);
        match self.rng.below(10) {
            0 => last.saturating_sub(self.rng.below(20)),
            1 => last + 1 + self.rng.below(5),
            _ => last + 1,
        }
    }

    fn append(&mut self, name: &str, log: &LogHandle, durability: Durability) -> base::Result<()> {
        let (lsn, bytes) = (self.lsn(name), self.bytes());
        let own = self.model.get_mut(name).unwrap();
        match log.append(lsn, &bytes, durability) {
            Err(e) if e.kind() == ErrorKind::Trimmed => assert!(lsn < own.trimmed_below, "{e}"),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                assert_ne!(own.records.get(&lsn), Some(&bytes));
                let there = own.records[&lsn].clone();
                log.append(lsn, &there, durability)?;
            }
            Err(e) => return Err(e),
            Ok(()) => {
                assert!(lsn >= own.trimmed_below);
                let before = own.records.insert(lsn, bytes.clone());
                assert!(before.is_none_or(|before| before == bytes));
            }
        }
        Ok(())
    }

    fn batch(
        &mut self,
        store: &LogStore,
        name: &str,
        log: &LogHandle,
        durability: Durability,
    ) -> base::Result<()> {
        let other_name = self.name();
        let other = store.log(&other_name)?;
        self.model.entry(other_name.clone()).or_default();
        let records: Vec<Vec<u8>> = (0..1 + self.rng.below(5)).map(|_| self.bytes()).collect();
        let end = |own: &OneLog| own.records.keys().next_back().copied().unwrap_or(own.trimmed_below) + 1;
        let (mut batch, mut added) = (LogBatch::new(), Vec::new());
        let mut next = BTreeMap::from([(name, end(&self.model[name]))]);
        next.entry(&other_name).or_insert(end(&self.model[&other_name]));
        for (i, bytes) in records.iter().enumerate() {
            let (to, handle) = if i % 2 == 0 { (name, log) } else { (&*other_name, &other) };
            let lsn = next.get_mut(to).unwrap();
            batch.append(handle, *lsn, bytes);
            added.push((to.to_owned(), *lsn, bytes.clone()));
            *lsn += 1;
        }
        store.write(&batch, durability)?;
        for (to, lsn, bytes) in added {
            self.model.get_mut(&to).unwrap().records.insert(lsn, bytes);
        }
        Ok(())
    }
}
