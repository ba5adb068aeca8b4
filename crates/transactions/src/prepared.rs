//! Two-phase commit: a prepared transaction survives a crash, and can then be committed whatever
//! happens.
//!
//! A coordinator prepares a transaction in each store that takes part. If all have succeeded, it
//! records its decision, and then commits each of them; otherwise it rolls them back. After a crash
//! it finds the prepared transactions by name, and carries its decision out.
//!
//! **Record.** The prepared changes are one value in the family [`FAMILY`], which the first prepared
//! transaction creates. The key is the name of the transaction, the value:
//!
//! ```text
//! record := version u8 = 1 | changes
//! changes := WriteBatch::encode
//! ```
//!
//! So flush, collection, verification and repair treat a prepared transaction as any value
//! (docs/format/prepared.md). A record in the log alone would be written once, but it would retain
//! its log group until the decision, which may take days.
//!
//! **Commit** is one batch: the changes, and the delete of the record. **Rollback** is the delete
//! alone. So each is atomic, and a second one finds no record.
//!
//! **Locks.** A prepared transaction keeps its row locks, without expiry, until it is committed or
//! rolled back. The open of a store locks the rows that its records change again, before the store
//! is handed out. (Rows that were only read are locked until the close.) Ranges have no locks, so a transaction that depends on one cannot be prepared.

use crate::atomic::put_if_absent;
use crate::transaction::Transaction;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result};
use lavakv::{
    ColumnFamily, Conditions, Db, Durability, FamilyOptions, LockOwner, ReadOptions, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The family with the records.
pub const FAMILY: &str = "lavastore.prepared";

/// Most bytes of a name.
pub const NAME_LEN_MAX: usize = 1 << 10;

/// The version of a record.
const VERSION: u8 = 1;

/// The prepared transactions of an open store without a [`PreparedTransaction`].
#[derive(Debug)]
pub struct PreparedTransactions {
    /// By name, with the first failure of the open.
    waiting: Mutex<Waiting, rank::PreparedTransactions>,
}

#[derive(Debug, Default)]
struct Waiting {
    by_name: BTreeMap<Vec<u8>, Prepared>,
    /// Some records could not be read, or their rows not be locked.
    failure: Option<Error>,
}

/// A transaction whose record is durable.
#[derive(Debug)]
struct Prepared {
    /// Its changes, and the delete of the record.
    commit: WriteBatch,
    /// The delete of the record.
    rollback: WriteBatch,
    /// Its row locks.
    conditions: Conditions,
}

impl Prepared {
    fn new(family: &ColumnFamily, name: &[u8], changes: WriteBatch, owner: LockOwner) -> Prepared {
        let (mut commit, mut rollback) = (changes, WriteBatch::new());
        commit.delete_cf(family, name);
        rollback.delete_cf(family, name);
        Prepared { commit, rollback, conditions: Conditions { reads: None, owner: Some(owner) } }
    }
}

impl PreparedTransactions {
    /// Reads the records of a store that is being opened, and locks their rows. A record that
    /// cannot be read does not prevent the open: see [`PreparedTransactions::names`].
    pub fn recover(db: &Db) -> Arc<PreparedTransactions> {
        let mut waiting = Waiting::default();
        waiting.failure = read_records(db, &mut waiting).err().or(waiting.failure);
        Arc::new(PreparedTransactions { waiting: Mutex::new(waiting) })
    }

    /// Returns the names of the prepared transactions without a [`PreparedTransaction`].
    ///
    /// # Errors
    /// Those of a read at the open; `Corruption` for a record.
    pub fn names(&self, db: &Db) -> Result<Vec<Vec<u8>>> {
        db.check_process()?;
        let waiting = lock(&self.waiting);
        match &waiting.failure {
            Some(e) => Err(e.clone()),
            None => Ok(waiting.by_name.keys().cloned().collect()),
        }
    }

    /// Takes a prepared transaction. `None`: there is none of this name, or a
    /// [`PreparedTransaction`] of it exists.
    ///
    /// # Errors
    /// Those of [`PreparedTransactions::names`], if there is none of this name.
    pub fn take(self: &Arc<Self>, db: &Db, name: &[u8]) -> Result<Option<PreparedTransaction>> {
        db.check_process()?;
        let mut waiting = lock(&self.waiting);
        match (waiting.by_name.remove(name), &waiting.failure) {
            (None, Some(e)) => Err(e.clone()),
            (found, _) => Ok(found.map(|prepared| self.handle(db, name, prepared))),
        }
    }

    /// Prepares a transaction, durably.
    ///
    /// # Errors
    /// `InvalidArgument`: the transaction has no locks, depends on a range, or the name has a wrong
    /// length. `AlreadyExists`: a prepared transaction has this name. `Conflict`: the locks have
    /// expired. Those of [`PreparedTransactions::names`], of a write, and of the creation of a family.
    pub fn prepare(self: &Arc<Self>, transaction: Transaction, name: &[u8]) -> Result<PreparedTransaction> {
        if name.is_empty() || name.len() > NAME_LEN_MAX {
            let why = format!(
                "a prepared transaction has a name of {} bytes, and 1 to {NAME_LEN_MAX} are supported",
                name.len()
            );
            return Err(Error::invalid(why));
        }
        if transaction.options().locks.is_none() {
            let why = "a transaction without row locks cannot be prepared, since others could change its rows \
                       until the commit: begin it with locks";
            return Err(Error::invalid(why));
        }
        let (db, changes, conditions) = transaction.into_parts();
        self.names(&db)?;
        if conditions.reads.is_some() {
            let why = "a transaction that depends on a range cannot be prepared, since ranges have no locks: \
                       read single keys, or scan under snapshot isolation";
            return Err(Error::invalid(why));
        }
        let owner = conditions.owner.map_or_else(|| db.lock_owner(None), Ok)?;
        owner.keep()?;
        let family = match db.column_family(FAMILY) {
            Some(family) => family,
            None => create_family(&db)?,
        };
        let record = [&[VERSION][..], &changes.encode()].concat();
        let prepared = Prepared::new(&family, name, changes, owner);
        // From here on the commit must not fail for reasons that are known now.
        db.check_batch(&prepared.commit)?;
        let durable = WriteOptions { durability: Some(Durability::Durable), ..WriteOptions::default() };
        if !put_if_absent(&db, &family, name, &record, &durable)? {
            let why = "a prepared transaction has this name: commit it, roll it back, or choose another name";
            return Err(Error::new(ErrorKind::AlreadyExists, why));
        }
        Ok(self.handle(&db, name, prepared))
    }

    fn handle(self: &Arc<Self>, db: &Db, name: &[u8], prepared: Prepared) -> PreparedTransaction {
        PreparedTransaction {
            db: db.clone(),
            all: self.clone(),
            name: name.to_vec(),
            prepared: Some(prepared),
        }
    }
}

/// Creates the family of the records, unless another thread does.
fn create_family(db: &Db) -> Result<ColumnFamily> {
    match db.create_column_family(FAMILY, FamilyOptions::default()) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            db.column_family(FAMILY).ok_or_else(|| e.with_kind(ErrorKind::Busy))
        }
        created => created,
    }
}

/// Reads all records and locks their rows; goes on after a bad one.
fn read_records(db: &Db, waiting: &mut Waiting) -> Result<()> {
    let Some(family) = db.column_family(FAMILY) else { return Ok(()) };
    let mut records = db.iter_cf(&family, ReadOptions::default())?;
    records.seek_to_first()?;
    while records.valid() {
        let name = records.key().to_vec();
        let locked = decode(records.value()?).and_then(|changes| {
            let owner = db.lock_owner(None)?;
            owner.lock_rows_of(&changes)?;
            Ok(Prepared::new(&family, &name, changes, owner))
        });
        match locked {
            Ok(prepared) => drop(waiting.by_name.insert(name, prepared)),
            Err(e) => {
                let why =
                    format!("the prepared transaction \"{}\" of family {FAMILY}: {e}", name.escape_ascii());
                waiting.failure.get_or_insert_with(|| Error::corruption(why));
            }
        }
        records.next()?;
    }
    Ok(())
}

fn decode(record: &[u8]) -> Result<WriteBatch> {
    match record.split_first() {
        Some((&VERSION, changes)) => WriteBatch::decode(changes),
        Some((version, _)) => {
            let why = format!("its record has version {version}, and this release reads version {VERSION}");
            Err(Error::corruption(why))
        }
        None => Err(Error::corruption("its record is empty")),
    }
}

/// A transaction whose changes are durable, and which is neither committed nor rolled back yet. Its
/// drop leaves it so: take it again by its name.
#[derive(Debug)]
pub struct PreparedTransaction {
    db: Db,
    all: Arc<PreparedTransactions>,
    name: Vec<u8>,
    /// `None`: it is committed or rolled back.
    prepared: Option<Prepared>,
}

impl PreparedTransaction {
    /// Returns its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Writes the changes, and releases the locks.
    ///
    /// # Errors
    /// Those of a write, but never `Conflict`. It stays prepared then.
    pub fn commit(mut self, options: &WriteOptions) -> Result<()> {
        self.end(|prepared| &prepared.commit, options)
    }

    /// Discards the changes, and releases the locks.
    ///
    /// # Errors
    /// As [`PreparedTransaction::commit`].
    pub fn roll_back(mut self, options: &WriteOptions) -> Result<()> {
        self.end(|prepared| &prepared.rollback, options)
    }

    fn end(&mut self, batch: impl Fn(&Prepared) -> &WriteBatch, options: &WriteOptions) -> Result<()> {
        // In no log, the record would come back after a crash, and undo later writes.
        let durability = match options.durability.unwrap_or_else(|| self.db.durability()) {
            Durability::Volatile => Durability::Buffered,
            durability => durability,
        };
        let options = WriteOptions { durability: Some(durability), ..*options };
        if let Some(prepared) = &self.prepared {
            self.db.write_if(batch(prepared), &prepared.conditions, &options)?;
        }
        self.prepared = None;
        Ok(())
    }
}

impl Drop for PreparedTransaction {
    fn drop(&mut self) {
        // In a child of `fork` another thread may have held the lock.
        if let Some(prepared) = self.prepared.take().filter(|_| self.db.check_process().is_ok()) {
            lock(&self.all.waiting).by_name.insert(std::mem::take(&mut self.name), prepared);
        }
    }
}
