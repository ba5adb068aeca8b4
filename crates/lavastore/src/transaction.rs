//! Transactions, optimistic or with row locks.

use crate::handle::FamilyHandle;
use crate::range::{KeyRange, half_open};
use crate::write::write_with_logs;
use crate::{Db, Error, Family, LogBatch, Requests, Result, Value, WriteOptions, WriteRequest};
use transactions::{ForUpdate, LockOptions, Scan, TransactionOptions};

impl Db {
    /// Begins a transaction, to read several keys and change some of them, unless another write has
    /// changed these meanwhile. For one key, [`Db::fetch_and_update`] is shorter; for changes that
    /// depend on no read, a [`WriteBatch`](crate::WriteBatch) suffices.
    ///
    /// The transaction reads the state of this moment and takes no lock. It may run beside any
    /// number of others and of plain writes. [`Transaction::commit`] fails with `Conflict` if one
    /// of them has changed a key that it depends on: begin again.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// use lavastore::ErrorKind;
    /// db.put("anna", "90")?;
    /// let mut transfer = db.transaction();
    /// let anna: u32 = String::from_utf8_lossy(&transfer.get("anna")?.unwrap()).parse().unwrap();
    /// transfer.put("anna", (anna - 10).to_string())?;
    /// transfer.put("ben", "10")?;
    /// db.put("anna", "200")?; // of another thread
    /// assert_eq!(transfer.commit().unwrap_err().kind(), ErrorKind::Conflict);
    /// assert_eq!(db.get("ben")?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn transaction(&self) -> Transaction {
        self.transaction_with(&TransactionOptions::default())
    }

    /// Begins a transaction with row locks, for keys that many transactions change: they wait for
    /// each other where [`Db::transaction`] would have to begin again.
    ///
    /// It locks each key that it changes or reads by [`Transaction::get_for_update`], until it
    /// ends. Other transactions with locks and plain writes of that key wait meanwhile; a plain
    /// write waits for a second, or up to its own `wait_at_most`, and then fails with `Busy`. Reads without a lock wait for
    /// nothing. A plain write of a locked key by the same thread fails: write it in the transaction.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("stock", "9")?;
    /// let mut order = db.locking_transaction();
    /// // Nobody changes the stock from here on.
    /// let stock: u32 = String::from_utf8_lossy(&order.get_for_update("stock")?.unwrap()).parse().unwrap();
    /// order.put("stock", (stock - 1).to_string())?;
    /// order.commit()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn locking_transaction(&self) -> Transaction {
        let locks = Some(LockOptions::default());
        self.transaction_with(&TransactionOptions { locks, ..TransactionOptions::default() })
    }

    /// Begins a transaction as [`Db::transaction`] does, with another isolation, with row locks, or
    /// with another durability or longest wait of the commit.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// use lavastore::{Isolation, TransactionOptions, WriteOptions};
    /// let options = TransactionOptions {
    ///     isolation: Isolation::Serializable,
    ///     write: WriteOptions::durable(),
    ///     ..TransactionOptions::default()
    /// };
    /// let mut transaction = db.transaction_with(&options);
    /// transaction.put("key", "value")?;
    /// transaction.commit()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn transaction_with(&self, options: &TransactionOptions) -> Transaction {
        let family = self.default_handle();
        Transaction { inner: transactions::Transaction::begin(family.kv(), *options), family: family.clone() }
    }
}

/// Reads and changes that take effect together, or not at all; [`Db::transaction`](crate::Db::transaction)
/// begins one.
///
/// All reads show the moment of its begin, with the transaction's own changes on top. With row
/// locks ([`Db::locking_transaction`](crate::Db::locking_transaction)), a read without a lock shows
/// the moment of the first such read, and a locked one the newest value. The changes are in memory until [`Transaction::commit`] writes them as one batch; a drop discards them. They
/// may take as many bytes as a batch ([`limits::BATCH_LEN_MAX`](crate::limits::BATCH_LEN_MAX)),
/// with 128 bytes for each change, and the keys on which the commit depends 4 MiB. Its snapshot
/// retains overwritten data until the end, and it keeps the store open: keep transactions short.
///
/// The methods work on the family `default`; [`Transaction::family`] is for others.
///
/// ```
/// # let db = lavastore::testing::store();
/// let mut order = db.transaction();
/// if order.get("stock/7")?.is_none() {
///     order.put("stock/7", "100")?;
/// }
/// order.commit()?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[must_use = "it writes nothing until the commit"]
pub struct Transaction {
    inner: transactions::Transaction,
    family: FamilyHandle,
}

impl Transaction {
    /// Reads a key of the family `default`; `None` if it is absent. Under
    /// [`Isolation::Serializable`](crate::Isolation::Serializable) the commit depends on it.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.transaction().get("key")?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::get`](crate::Db::get); `TooLarge`: the transaction tracks too many keys. With row
    /// locks and `Serializable`, those of [`Transaction::get_for_update`].
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.inner.get(self.family.inner(), key.as_ref())
    }

    /// Reads a key of the family `default` that must stay unchanged until the commit, for a
    /// decision that rests on it. A key that an optimistic transaction changes itself needs only
    /// [`Transaction::get`]. With row locks, this call locks the key exclusively and shows its newest
    /// value.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.transaction();
    /// transaction.get_for_update("limit")?;
    /// transaction.put("used", "7")?;
    /// db.put("limit", "5")?;
    /// assert_eq!(transaction.commit().unwrap_err().kind(), lavastore::ErrorKind::Conflict);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`]. With row locks:
    /// * `Busy`: another transaction has held the lock for too long, or there are too many locks.
    /// * `Conflict`: a deadlock, the key has changed since the snapshot, or the locks have expired.
    ///   Drop the transaction and begin again.
    pub fn get_for_update(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_for_update_with(key, &ForUpdate::default())
    }

    /// Reads a key as [`Transaction::get_for_update`] does, with another lock or without the check
    /// that it is unchanged: a shared lock lets others read the row for update as well, for a row
    /// that many depend on and few change.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// use lavastore::{ForUpdate, LockMode};
    /// let shared = ForUpdate { lock: LockMode::Shared, ..ForUpdate::default() };
    /// let (mut one, mut other) = (db.locking_transaction(), db.locking_transaction());
    /// one.get_for_update_with("settings", &shared)?;
    /// other.get_for_update_with("settings", &shared)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`].
    pub fn get_for_update_with(&mut self, key: impl AsRef<[u8]>, terms: &ForUpdate) -> Result<Option<Value>> {
        self.inner.get_for_update(self.family.inner(), key.as_ref(), *terms)
    }

    /// Reads several keys as [`Transaction::get_for_update`] does, in the order of the arguments.
    /// The locks are taken in the order of the keys, so two such calls are no deadlock.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("anna", "90")?;
    /// let mut transfer = db.locking_transaction();
    /// let balances = transfer.multi_get_for_update(["ben", "anna"])?;
    /// assert_eq!(balances[1].as_deref(), Some(&b"90"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`], of any of the keys.
    pub fn multi_get_for_update<K: AsRef<[u8]>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        multi_get_for_update(&mut self.inner, &self.family, keys)
    }

    /// Sets a key of the family `default` at the commit. The commit fails if another write has
    /// changed the key since the begin. With row locks, this call locks the key.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.transaction();
    /// transaction.put("key", "value")?;
    /// assert_eq!(db.get("key")?, None, "not yet");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TooLarge`: key, value, changes or tracked keys are over the limits. Nothing was added, but the
    /// commit may depend on the key. With row locks, `Busy` and `Conflict` as
    /// [`Transaction::get_for_update`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.inner.put(self.family.inner(), key.as_ref(), value.as_ref())
    }

    /// Sets a key of the family `default` at the commit, also if another write has changed it since
    /// the begin: for changes that depend on no read. With row locks, the key is locked.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.transaction();
    /// transaction.put_untracked("last login", "today")?;
    /// db.put("last login", "yesterday")?;
    /// transaction.commit()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put_untracked(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.inner.put_untracked(self.family.inner(), key.as_ref(), value.as_ref())
    }

    /// Adds a merge operand to a key of the family `default` at the commit, also if another write has
    /// changed the key since the begin: so counters do not make transactions conflict. Own reads see
    /// the folded value. With row locks, the key is locked.
    ///
    /// ```
    /// use lavastore::{FamilyOptions, MergeChoice};
    /// # let db = lavastore::testing::store();
    /// let operator = Some(MergeChoice::counter());
    /// let options = FamilyOptions { merge_operator: operator, ..Default::default() };
    /// let counters = db.create_family("counters", &options)?;
    /// let mut transaction = db.transaction();
    /// transaction.put("order/1", "paid")?;
    /// transaction.family(&counters)?.merge("orders", 1i64.to_le_bytes())?;
    /// transaction.commit()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`]. The commit: `InvalidArgument`, if the family has no merge operator, or
    /// if it refuses the operand.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.inner.merge(self.family.inner(), key.as_ref(), operand.as_ref())
    }

    /// Deletes a key of the family `default` at the commit, also if another write has changed it
    /// since the begin. With row locks, the key is locked.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.transaction().delete_untracked("key")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_untracked(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.inner.delete_untracked(self.family.inner(), key.as_ref())
    }

    /// Deletes a key of the family `default` at the commit; an absent key is no error. The commit
    /// fails if another write has changed the key since the begin. With row locks, this call locks
    /// the key.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.transaction();
    /// transaction.delete("key")?;
    /// transaction.commit()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.inner.delete(self.family.inner(), key.as_ref())
    }

    /// Iterates over a range of the family `default` in ascending order, with the own changes so
    /// far.
    ///
    /// Under [`Isolation::Serializable`](crate::Isolation::Serializable) the commit depends on the
    /// part of the range that was shown: no key in it may appear, change or disappear. Otherwise
    /// it does not depend on it: read keys that must stay unchanged with
    /// [`Transaction::get_for_update`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.transaction();
    /// transaction.put("user/1", "ada")?;
    /// assert_eq!(transaction.range("user/".."user0")?.count(), 1);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption`, `Io`: a table cannot be opened. `Closed`, `Forked`: open the store again.
    pub fn range(&mut self, range: impl KeyRange) -> Result<TransactionIter<'_>> {
        scan(&mut self.inner, &self.family, &range)
    }

    /// Returns the transaction's methods for another family of the same store.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// let mut transaction = db.transaction();
    /// transaction.put("7", "ada")?;
    /// transaction.family(&names)?.put("ada", "7")?;
    /// transaction.commit()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: the family is of another store.
    pub fn family<'a>(&'a mut self, family: &'a Family) -> Result<TransactionFamily<'a>> {
        let family = family.handle();
        if family.store() != self.family.store() {
            return Err(Error::invalid("the transaction is of another store than the column family"));
        }
        Ok(TransactionFamily { transaction: self, family })
    }

    /// Moves the moment of the reads to the present, for a long transaction that has seen enough of
    /// the past. All keys on which the commit depends must be unchanged until now.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.transaction();
    /// db.put("key", "value")?;
    /// assert_eq!(transaction.get("key")?, None);
    /// transaction.set_snapshot()?;
    /// assert!(transaction.get("key")?.is_some());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Conflict`: a key on which the commit depends has changed: begin again. The errors of reads.
    pub fn set_snapshot(&mut self) -> Result<()> {
        self.inner.set_snapshot()
    }

    /// Sets a savepoint, to which [`Transaction::roll_back`] returns. Savepoints nest.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.transaction();
    /// transaction.set_savepoint();
    /// transaction.put("key", "value")?;
    /// assert!(transaction.roll_back());
    /// assert_eq!(transaction.get("key")?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn set_savepoint(&mut self) {
        self.inner.set_savepoint();
    }

    /// Discards the changes since the last savepoint, and the savepoint. Returns false, and
    /// discards nothing, if there is none. The commit still depends on the keys that were read or
    /// changed since, and row locks stay.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(!db.transaction().roll_back());
    /// ```
    pub fn roll_back(&mut self) -> bool {
        self.inner.roll_back_to_savepoint()
    }

    /// Writes all changes as one batch, if no other write has changed a key on which the
    /// transaction depends. On return every reader sees them, and they have the durability of the
    /// options. Without changes it checks the keys; a durable one then waits until all that it may
    /// have read is durable.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.transaction();
    /// transaction.put("key", "value")?;
    /// transaction.commit()?;
    /// assert!(db.get("key")?.is_some());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Conflict`: another write changed a key, or the row locks have expired. Nothing was written:
    ///   begin again.
    /// * `Busy`: other writes came after each check of very many keys. Begin again.
    /// * The errors of [`Db::write`](crate::Db::write), and of reads of the tracked keys.
    pub fn commit(self) -> Result<()> {
        self.inner.commit()
    }

    /// Writes all changes together with operations on logs, in one device write: both or neither
    /// survive a crash. [`Writer::write_with_logs`](crate::Writer::write_with_logs) has the rules.
    ///
    /// ```
    /// use lavastore::LogBatch;
    /// # let db = lavastore::testing::store_with_logs();
    /// let orders = db.logs()?.log("orders")?;
    /// let (mut stock, mut order) = (db.transaction(), LogBatch::new());
    /// stock.put("apples", "98")?;
    /// order.append(&orders, 1, "two apples");
    /// stock.commit_with_logs(&order)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::commit`] and of
    /// [`Writer::write_with_logs`](crate::Writer::write_with_logs). `InvalidArgument`: the transaction
    /// changes nothing, write the batch of logs alone.
    pub fn commit_with_logs(self, logs: &LogBatch<'_>) -> Result<()> {
        let write = self.inner.options().write;
        let (_, batch, conditions) = self.inner.into_parts();
        write_with_logs(&self.family, (&batch, Some(&conditions)), logs, &write)
    }
}

impl Transaction {
    /// Returns the transaction below, the store, and the options of the commit.
    pub(crate) fn into_parts(self) -> (transactions::Transaction, FamilyHandle, WriteOptions) {
        let write = self.inner.options().write;
        (self.inner, self.family, write)
    }
}

impl Requests {
    /// Submits the commit of a transaction, and returns at once. It completes twice:
    /// [`WriteRequest::visible`] resolves when readers see the changes, and the request itself when
    /// they have their durability. [`Transaction::commit`] blocks instead.
    ///
    /// The write has the options of these requests, not those of the transaction, and its place in
    /// their order.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let requests = db.requests(&Default::default())?;
    /// let mut transaction = db.transaction();
    /// transaction.put("key", "value")?;
    /// # lavastore::testing::block_on(&db, async {
    /// let mut commit = requests.commit(transaction)?;
    /// commit.visible().await?;
    /// commit.await
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Requests::write`]. The request: those of [`Transaction::commit`].
    /// `InvalidArgument`: the transaction is of another store.
    pub fn commit(&self, transaction: Transaction) -> Result<WriteRequest> {
        if transaction.family.store() != self.handle().store() {
            return Err(Error::invalid("the transaction is of another store than the requests"));
        }
        transaction.inner.commit_async(self.inner())
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({} changes)", self.inner.changes().len())
    }
}

/// The methods of a [`Transaction`] for one family; [`Transaction::family`] returns it.
///
/// ```
/// # let db = lavastore::testing::store();
/// let names = db.family("names")?;
/// let mut transaction = db.transaction();
/// let mut of_names = transaction.family(&names)?;
/// of_names.put("ada", "7")?;
/// assert!(of_names.get("ada")?.is_some());
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Debug)]
pub struct TransactionFamily<'a> {
    transaction: &'a mut Transaction,
    family: &'a FamilyHandle,
}

impl TransactionFamily<'_> {
    /// Reads a key, as [`Transaction::get`] does.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// assert_eq!(db.transaction().family(&names)?.get("ada")?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.transaction.inner.get(self.family.inner(), key.as_ref())
    }

    /// Reads a key that must stay unchanged, as [`Transaction::get_for_update`] does.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// assert_eq!(db.transaction().family(&names)?.get_for_update("ada")?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_for_update(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_for_update_with(key, &ForUpdate::default())
    }

    /// Reads a key as [`Transaction::get_for_update_with`] does.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// db.transaction().family(&names)?.get_for_update_with("ada", &Default::default())?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`].
    pub fn get_for_update_with(&mut self, key: impl AsRef<[u8]>, terms: &ForUpdate) -> Result<Option<Value>> {
        self.transaction.inner.get_for_update(self.family.inner(), key.as_ref(), *terms)
    }

    /// Reads several keys as [`Transaction::multi_get_for_update`] does.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// let found = db.transaction().family(&names)?.multi_get_for_update(["ada", "bob"])?;
    /// assert_eq!(found.len(), 2);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::multi_get_for_update`].
    pub fn multi_get_for_update<K: AsRef<[u8]>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        multi_get_for_update(&mut self.transaction.inner, self.family, keys)
    }

    /// Sets a key at the commit, as [`Transaction::put_untracked`] does.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// db.transaction().family(&names)?.put_untracked("ada", "7")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put_untracked(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.inner.put_untracked(self.family.inner(), key.as_ref(), value.as_ref())
    }

    /// Adds a merge operand to a key at the commit, as [`Transaction::merge`] does.
    ///
    /// ```
    /// use lavastore::{FamilyOptions, MergeChoice};
    /// # let db = lavastore::testing::store();
    /// let operator = Some(MergeChoice::append(b","));
    /// let options = FamilyOptions { merge_operator: operator, ..Default::default() };
    /// let tags = db.create_family("tags", &options)?;
    /// let mut transaction = db.transaction();
    /// transaction.family(&tags)?.merge("ada", "poetry")?;
    /// transaction.commit()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::merge`].
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.inner.merge(self.family.inner(), key.as_ref(), operand.as_ref())
    }

    /// Deletes a key at the commit, as [`Transaction::delete_untracked`] does.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// db.transaction().family(&names)?.delete_untracked("ada")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_untracked(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.inner.delete_untracked(self.family.inner(), key.as_ref())
    }

    /// Sets a key at the commit, as [`Transaction::put`] does.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// db.transaction().family(&names)?.put("ada", "7")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.inner.put(self.family.inner(), key.as_ref(), value.as_ref())
    }

    /// Deletes a key at the commit, as [`Transaction::delete`] does.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// db.transaction().family(&names)?.delete("ada")?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.inner.delete(self.family.inner(), key.as_ref())
    }

    /// Iterates over a range, as [`Transaction::range`] does.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let names = db.family("names")?;
    /// assert_eq!(db.transaction().family(&names)?.range(..)?.count(), 0);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn range(&mut self, range: impl KeyRange) -> Result<TransactionIter<'_>> {
        scan(&mut self.transaction.inner, self.family, &range)
    }
}

/// Keys and values of a range in ascending order, as a [`Transaction`] or an
/// [`IndexedBatch`](crate::IndexedBatch) sees them; [`Transaction::range`] returns it. After an
/// error it ends.
///
/// ```
/// # let db = lavastore::testing::store();
/// db.put("a", "1")?;
/// for entry in db.transaction().range(..)? {
///     let (key, value) = entry?;
///     assert_eq!((&key[..], &value[..]), (&b"a"[..], &b"1"[..]));
/// }
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is asked"]
pub struct TransactionIter<'a>(pub(crate) Scan<'a>);

impl Iterator for TransactionIter<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

fn scan<'a>(
    inner: &'a mut transactions::Transaction,
    family: &FamilyHandle,
    range: &impl KeyRange,
) -> Result<TransactionIter<'a>> {
    let (lower_bound, upper_bound) = half_open(range);
    let options = lavakv::ReadOptions { lower_bound, upper_bound, ..Default::default() };
    inner.scan(family.inner(), options).map(TransactionIter)
}

fn multi_get_for_update<K: AsRef<[u8]>>(
    inner: &mut transactions::Transaction,
    family: &FamilyHandle,
    keys: impl IntoIterator<Item = K>,
) -> Result<Vec<Option<Value>>> {
    let keys: Vec<K> = keys.into_iter().collect();
    let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    inner.multi_get_for_update(family.inner(), &keys, ForUpdate::default())
}
