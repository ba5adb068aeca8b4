//! Updates of single keys that no other write can come between.

use crate::write::Writer;
use crate::{Db, Result, Value, WriteOptions};
use transactions::atomic::{self, Update};

impl Db {
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
    /// set it. It may be called several times, so it must have no other effect. There is no limit of
    /// rounds; [`WriteOptions::wait_at_most`] bounds each of them.
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
