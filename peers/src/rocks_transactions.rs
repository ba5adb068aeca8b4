//! RocksDB's transactions: `TransactionDB` with row locks, `OptimisticTransactionDB` without.
//!
//! As by default, transactions read the newest state and no snapshot; the keys that they read for update and write are
//! locked, or checked at the commit. (LavaStore's optimistic transactions read one moment, which is stricter.)

use crate::rocks::{Rocks, VERSION};
use bench::engine::EngineTransaction;
use bench::{Batch, Engine, EngineSettings, Error, Opener, Result};
use rocksdb::{
    Direction, ErrorKind, IteratorMode, OptimisticTransactionDB, OptimisticTransactionOptions, Transaction,
    TransactionDB, TransactionDBOptions, TransactionOptions, WriteOptions,
};
use std::path::Path;
use std::time::Duration;

/// Opens RocksDB for transactions.
pub struct RocksTransactions {
    /// Options other than those of transactions.
    pub rocks: Rocks,
    /// With row locks.
    pub locks: bool,
}

impl Opener for RocksTransactions {
    fn name(&self) -> String {
        format!("RocksDB {VERSION} {}", if self.locks { "TransactionDB" } else { "OptimisticTransactionDB" })
    }

    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        let options = self.rocks.options(settings);
        let db = match self.locks {
            true => Kind::Locks(TransactionDB::open(&options, &TransactionDBOptions::default(), dir)?),
            false => Kind::Optimistic(OptimisticTransactionDB::open(&options, dir)?),
        };
        Ok(Box::new(TransactionEngine { db, settings: self.rocks.described(settings), sync: settings.sync }))
    }
}

enum Kind {
    Locks(TransactionDB),
    Optimistic(OptimisticTransactionDB),
}

/// An open RocksDB with transactions.
struct TransactionEngine {
    db: Kind,
    settings: Vec<(String, String)>,
    sync: bool,
}

/// A transaction of either kind.
struct RocksTransaction<'a, D>(Transaction<'a, D>);

fn copied(found: Option<Vec<u8>>, value: &mut Vec<u8>) -> bool {
    value.clear();
    found.inspect(|bytes| value.extend_from_slice(bytes)).is_some()
}

impl<D> EngineTransaction for RocksTransaction<'_, D> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(copied(self.0.get(key)?, value))
    }

    fn get_for_update(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(copied(self.0.get_for_update(key, true)?, value))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(self.0.commit()?)
    }
}

impl Engine for TransactionEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        match &self.db {
            Kind::Locks(db) => db.put(key, value)?,
            Kind::Optimistic(db) => db.put(key, value)?,
        }
        Ok(())
    }

    fn write(&self, batch: &Batch, _durable: bool) -> Result<()> {
        batch.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        match &self.db {
            Kind::Locks(db) => db.delete(key)?,
            Kind::Optimistic(db) => db.delete(key)?,
        }
        Ok(())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = match &self.db {
            Kind::Locks(db) => db.get(key)?,
            Kind::Optimistic(db) => db.get(key)?,
        };
        Ok(copied(found, value))
    }

    fn scan(&self, start: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let from = IteratorMode::From(start, Direction::Forward);
        let mut count = 0;
        let mut each = |entry: std::result::Result<(Box<[u8]>, Box<[u8]>), rocksdb::Error>| -> Result<()> {
            let (key, value) = entry?;
            visit(&key, &value);
            count += 1;
            Ok(())
        };
        match &self.db {
            Kind::Locks(db) => db.iterator(from).take(limit as usize).try_for_each(&mut each)?,
            Kind::Optimistic(db) => db.iterator(from).take(limit as usize).try_for_each(&mut each)?,
        }
        Ok(count)
    }

    fn flush(&self) -> Result<()> {
        Err("the comparison of transactions needs no flush".into())
    }

    fn settle(&self, _timeout: Duration) -> Result<bool> {
        Ok(true)
    }

    fn transaction(&self, _locks: bool) -> Result<Option<Box<dyn EngineTransaction + '_>>> {
        let mut write = WriteOptions::default();
        write.set_sync(self.sync);
        Ok(Some(match &self.db {
            Kind::Locks(db) => {
                Box::new(RocksTransaction(db.transaction_opt(&write, &TransactionOptions::default())))
            }
            Kind::Optimistic(db) => {
                let options = OptimisticTransactionOptions::default();
                Box::new(RocksTransaction(db.transaction_opt(&write, &options)))
            }
        }))
    }

    fn is_conflict(&self, error: &Error) -> bool {
        let error = error.downcast_ref::<rocksdb::Error>();
        error.is_some_and(|e| matches!(e.kind(), ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain))
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
