//! Two-phase commit.

use crate::handle::FamilyHandle;
use crate::{Db, Result, Transaction, WriteOptions};

impl Transaction {
    /// Makes the changes durable without showing them: the first phase of a commit over several
    /// stores or services. From then on nothing but the device can keep
    /// [`PreparedTransaction::commit`] from succeeding, also after a crash.
    ///
    /// The transaction needs row locks ([`Db::locking_transaction`](crate::Db::locking_transaction)).
    /// They stay until commit or rollback, without expiry. The locks of changed rows come back with
    /// each open of the store. The name has 1 to 1,024 bytes; it identifies the transaction after a crash. The changes
    /// are a value in the family `lavastore.prepared`, which the store creates and which programs
    /// must not change.
    ///
    /// ```
    /// # let (db, other) = (lavastore::testing::store(), lavastore::testing::store());
    /// let (mut debit, mut credit) = (db.locking_transaction(), other.locking_transaction());
    /// debit.put("anna", "80")?;
    /// credit.put("ben", "20")?;
    /// let debit = debit.prepare("transfer/7")?;
    /// let credit = credit.prepare("transfer/7")?;
    /// // Here the coordinator records that transfer 7 is decided.
    /// debit.commit()?;
    /// credit.commit()?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: it has no row locks, depends on a range, or the name has another length.
    /// * `AlreadyExists`: another prepared transaction has this name. Choose another one.
    /// * `Conflict`: its locks have expired. Begin again.
    /// * `Corruption`: see [`Db::prepared_transactions`](crate::Db::prepared_transactions).
    /// * The errors of [`Db::write`](crate::Db::write).
    ///
    /// A family with prepared changes must not be dropped: the commit would fail with `NotFound`.
    /// After an error other than `Io` and `Poisoned` nothing was written, and the locks are released.
    /// After these two, open the store again and look for the name.
    pub fn prepare(self, name: impl AsRef<[u8]>) -> Result<PreparedTransaction> {
        let (inner, family, write) = self.into_parts();
        let inner = family.prepared().prepare(inner, name.as_ref())?;
        Ok(PreparedTransaction { inner, family, write })
    }
}

impl Db {
    /// Returns the names of the prepared transactions without a [`PreparedTransaction`] in this
    /// process: after an open those that a crash or a close has left, to commit them or roll them
    /// back.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.locking_transaction();
    /// transaction.put("key", "value")?;
    /// drop(transaction.prepare("transfer/7")?);
    /// assert_eq!(db.prepared_transactions()?, [b"transfer/7"]);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption`, `Io`: the family `lavastore.prepared` could not be read when the store was
    /// opened. The rows of its transactions are not locked then. Repair the store and open it again;
    /// delete a record that stays unreadable.
    pub fn prepared_transactions(&self) -> Result<Vec<Vec<u8>>> {
        let family = self.default_handle();
        family.prepared().names(family.kv())
    }

    /// Takes a prepared transaction by its name, to end it. `None`: it was ended, or a
    /// [`PreparedTransaction`] of it exists.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// for name in db.prepared_transactions()? {
    ///     if let Some(transaction) = db.prepared_transaction(&name)? {
    ///         transaction.roll_back()?; // unless the coordinator says otherwise
    ///     }
    /// }
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::prepared_transactions`], if there is no readable one of this name.
    pub fn prepared_transaction(&self, name: impl AsRef<[u8]>) -> Result<Option<PreparedTransaction>> {
        let family = self.default_handle().clone();
        let taken = family.prepared().take(family.kv(), name.as_ref())?;
        Ok(taken.map(|inner| PreparedTransaction { inner, family, write: WriteOptions::default() }))
    }
}

/// A transaction that is prepared and not decided; [`Transaction::prepare`] and
/// [`Db::prepared_transaction`](crate::Db::prepared_transaction) return it. Its drop leaves it
/// prepared: take it again by its name.
///
/// ```
/// # let db = lavastore::testing::store();
/// let mut transaction = db.locking_transaction();
/// transaction.put("key", "value")?;
/// drop(transaction.prepare("transfer/7")?);
/// let transaction = db.prepared_transaction("transfer/7")?.unwrap();
/// transaction.commit()?;
/// assert!(db.get("key")?.is_some());
/// # Ok::<(), lavastore::Error>(())
/// ```
#[must_use = "its rows stay locked until it is committed or rolled back"]
pub struct PreparedTransaction {
    inner: transactions::PreparedTransaction,
    /// Keeps the store open.
    family: FamilyHandle,
    write: WriteOptions,
}

impl PreparedTransaction {
    /// Returns the name with which it was prepared.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut transaction = db.locking_transaction();
    /// transaction.put("key", "value")?;
    /// assert_eq!(transaction.prepare("transfer/7")?.name(), b"transfer/7");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn name(&self) -> &[u8] {
        self.inner.name()
    }

    /// Writes the changes as one batch, and releases the row locks: the second phase. It has the
    /// durability of the transaction's options, or that of the store if it was taken by name, and is
    /// at least buffered. After a
    /// crash before it is durable, the next open lists the transaction once more: the coordinator
    /// keeps its decision until then.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # let mut transaction = db.locking_transaction();
    /// # transaction.put("key", "value")?;
    /// let prepared = transaction.prepare("transfer/7")?;
    /// assert_eq!(db.get("key")?, None, "not yet");
    /// prepared.commit()?;
    /// assert!(db.get("key")?.is_some());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write). It stays prepared: take it again by its name. After
    /// `Io` or `Poisoned` only the next open tells.
    pub fn commit(self) -> Result<()> {
        let PreparedTransaction { inner, family: _family, write } = self;
        inner.commit(&write)
    }

    /// Discards the changes and releases the row locks.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// # let mut transaction = db.locking_transaction();
    /// # transaction.put("key", "value")?;
    /// transaction.prepare("transfer/7")?.roll_back()?;
    /// assert_eq!(db.get("key")?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`PreparedTransaction::commit`].
    pub fn roll_back(self) -> Result<()> {
        let PreparedTransaction { inner, family: _family, write } = self;
        inner.roll_back(&write)
    }
}

impl std::fmt::Debug for PreparedTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PreparedTransaction(\"{}\")", self.name().escape_ascii())
    }
}
