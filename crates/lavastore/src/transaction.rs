//! Transactions and atomic updates of single keys.

use crate::handle::FamilyHandle;
use crate::range::{KeyRange, half_open};
use crate::write::Writer;
use crate::{Db, Error, Family, Result, Value, WriteOptions};
use transactions::atomic::{self, Update};
use transactions::{OptimisticTransaction, Scan, TransactionOptions};

impl Db {
    /// Begins a transaction, to read several keys and then change some of them so that no other
    /// write comes between. For one key, [`Db::fetch_and_update`] is shorter; for changes that
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

    /// Begins a transaction as [`Db::transaction`] does, with another isolation, durability or
    /// longest wait of the commit.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// use lavastore::{Isolation, TransactionOptions, WriteOptions};
    /// let options =
    ///     TransactionOptions { isolation: Isolation::Serializable, write: WriteOptions::durable() };
    /// let mut transaction = db.transaction_with(&options);
    /// transaction.put("key", "value")?;
    /// transaction.commit()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn transaction_with(&self, options: &TransactionOptions) -> Transaction {
        let family = self.default_handle();
        Transaction { inner: OptimisticTransaction::begin(family.kv(), *options), family: family.clone() }
    }

    /// Sets a key of the family `default` only if it is absent, so that of several callers one
    /// creates it. Returns false if the key exists; then nothing is written. [`Db::put`] replaces
    /// the value.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.put_if_absent("leader", "node 1")?);
    /// assert!(!db.put_if_absent("leader", "node 2")?);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::get`] and [`Db::put`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.writing(&WriteOptions::default()).put_if_absent(key, value)
    }

    /// Replaces a value of the family `default` only if it is the expected one. Returns false if
    /// the key has another value or is absent; then nothing is written. For an absent key use
    /// [`Db::put_if_absent`]; to derive the new value from the old one, [`Db::fetch_and_update`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("state", "open")?;
    /// assert!(db.compare_and_set("state", "open", "closed")?);
    /// assert!(!db.compare_and_set("state", "open", "closed")?);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::get`] and [`Db::put`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool> {
        self.writing(&WriteOptions::default()).compare_and_set(key, expected, value)
    }

    /// Replaces a value of the family `default` by a function of it, for counters and sets. No
    /// other write comes between. Returns the value before.
    ///
    /// `update` gets the present value, or `None` for an absent key, and decides to keep, delete or
    /// set it. It runs again after another write of the key, so it must have no other effect.
    /// [`WriteOptions::wait_at_most`] bounds each round.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// use lavastore::Update;
    /// let add = |old: Option<&[u8]>| {
    ///     let old = old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap_or_default()));
    ///     Update::Set((old + 1).to_le_bytes().to_vec())
    /// };
    /// db.fetch_and_update("visits", add)?;
    /// assert_eq!(db.fetch_and_update("visits", add)?.as_deref(), Some(&1u64.to_le_bytes()[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::get`] and [`Db::put`].
    pub fn fetch_and_update(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnMut(Option<&[u8]>) -> Update,
    ) -> Result<Option<Value>> {
        self.writing(&WriteOptions::default()).fetch_and_update(key, update)
    }
}

impl Writer<'_> {
    /// Sets a key only if it is absent; see [`Db::put_if_absent`](crate::Db::put_if_absent).
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let durable = db.writing(&lavastore::WriteOptions::durable());
    /// assert!(durable.put_if_absent("key", "value")?);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a get and of [`Writer::put`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (family, options) = self.parts();
        atomic::put_if_absent(family.kv(), family.inner(), key.as_ref(), value.as_ref(), options)
    }

    /// Replaces a value only if it is the expected one; see
    /// [`Db::compare_and_set`](crate::Db::compare_and_set).
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let durable = db.writing(&lavastore::WriteOptions::durable());
    /// assert!(!durable.compare_and_set("key", "old", "new")?);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a get and of [`Writer::put`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool> {
        let (family, options) = self.parts();
        let (expected, value) = (Some(expected.as_ref()), Some(value.as_ref()));
        atomic::compare_and_set(family.kv(), family.inner(), key.as_ref(), expected, value, options)
    }

    /// Replaces a value by a function of it; see
    /// [`Db::fetch_and_update`](crate::Db::fetch_and_update).
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let durable = db.writing(&lavastore::WriteOptions::durable());
    /// durable.fetch_and_update("key", |_| lavastore::Update::Delete)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a get and of [`Writer::put`].
    pub fn fetch_and_update(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnMut(Option<&[u8]>) -> Update,
    ) -> Result<Option<Value>> {
        let (family, options) = self.parts();
        atomic::fetch_and_update(family.kv(), family.inner(), key.as_ref(), options, update)
    }
}

/// Reads and changes that take effect together, or not at all; [`Db::transaction`](crate::Db::transaction)
/// begins one.
///
/// All reads show the moment of its begin, with the transaction's own changes on top. The changes
/// are in memory until [`Transaction::commit`] writes them as one batch; a drop discards them. They
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
    inner: OptimisticTransaction,
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
    /// Those of [`Db::get`](crate::Db::get); `TooLarge`: the transaction tracks too many keys.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.inner.get(self.family.inner(), key.as_ref())
    }

    /// Reads a key of the family `default` that must stay unchanged until the commit, for a
    /// decision that rests on it. A key that the transaction changes itself needs only
    /// [`Transaction::get`].
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
    /// As [`Transaction::get`].
    pub fn get_for_update(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.inner.get_for_update(self.family.inner(), key.as_ref())
    }

    /// Sets a key of the family `default` at the commit. The commit fails if another write has
    /// changed the key since the begin.
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
    /// commit may depend on the key.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.inner.put(self.family.inner(), key.as_ref(), value.as_ref())
    }

    /// Deletes a key of the family `default` at the commit; an absent key is no error. The commit
    /// fails if another write has changed the key since the begin.
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
    /// changed since.
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
    /// options. Without changes it checks the keys only.
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
    /// * `Conflict`: another write changed a key. Nothing was written: begin again.
    /// * `Busy`: other writes came after each check of very many keys. Begin again.
    /// * The errors of [`Db::write`](crate::Db::write), and of reads of the tracked keys.
    pub fn commit(self) -> Result<()> {
        self.inner.commit()
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
        self.transaction.inner.get_for_update(self.family.inner(), key.as_ref())
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
    inner: &'a mut OptimisticTransaction,
    family: &FamilyHandle,
    range: &impl KeyRange,
) -> Result<TransactionIter<'a>> {
    let (lower_bound, upper_bound) = half_open(range);
    let options = lavakv::ReadOptions { lower_bound, upper_bound, ..Default::default() };
    inner.scan(family.inner(), options).map(TransactionIter)
}
