//! Requests in flight: futures and a completion queue.

use crate::handle::Handle;
use crate::range::{KeyRange, half_open};
use crate::{
    Entry, Family, Request, RequestOptions, RequestQueue, Result, Snapshot, Value, WriteBatch, WriteOptions,
    WriteRequest,
};
use lavakv::process::Owned;

/// Makes requests of a store without waiting for them: one thread has thousands in flight. Made by [`Db::requests`](crate::Db::requests).
///
/// Each call submits at once and gives a future, for any runtime ([`Request`], [`WriteRequest`]); or a [`RequestQueue`] takes the requests,
/// for a loop of one's own. What memory can answer is answered before the call returns. Nothing that is submitted depends on its
/// future: dropped, it is done all the same, and nobody is told.
///
/// * **Bounded.** As many may be in flight as [`RequestOptions::depth`] says; one more is refused at once, with `Busy`, and nothing happened.
/// * **Order.** Writes are applied in the order in which they were submitted: one that waits, as every write may
///   ([`WriteOptions`]), holds up those behind it. Reads are not held up, and see what is visible: await
///   [`WriteRequest::visible`] to read one's own write.
/// * **Shared.** Clones share the bound and the order; so do those made by [`Requests::family`], [`Requests::writing`] and
///   [`Requests::reading_at`]. It keeps the store
///   open, as any handle does; its futures do not. A store that is closed resolves all of them.
///
/// ```
/// use lavastore::{RequestOptions, Requests, Result, WriteOptions};
/// async fn pay(requests: &Requests) -> Result<()> {
///     let order = requests.put("order/1", "paid")?;
///     let stock = requests.put("stock/apples", "98")?;
///     // Both in one write of the device.
///     order.await?;
///     stock.await
/// }
/// # let db = lavastore::testing::store();
/// let options = RequestOptions { write: WriteOptions::durable(), ..Default::default() };
/// let requests = db.requests(&options)?;
/// # lavastore::testing::block_on(&db, pay(&requests))?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone)]
pub struct Requests {
    inner: Owned<lavakv::Requests>,
    family: Handle,
}

impl Requests {
    pub(crate) fn new(family: &Handle, options: &RequestOptions) -> Result<Requests> {
        Ok(Requests { inner: Owned::new(family.kv().requests(options)?), family: family.clone() })
    }

    /// The same for another family of the store: it shares the bound and the order of writes.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let requests = db.requests(&Default::default())?;
    /// let users = requests.family(&db.family("users")?);
    /// # lavastore::testing::block_on(&db, async {
    /// users.put("7", "ada")?.await?;
    /// assert!(requests.get("7")?.await?.is_none(), "the default family is another");
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn family(&self, family: &Family) -> Requests {
        Requests { inner: self.inner.clone(), family: family.handle().clone() }
    }

    /// The same with other options for writes.
    ///
    /// ```
    /// # use lavastore::WriteOptions;
    /// # let db = lavastore::testing::store();
    /// let requests = db.requests(&Default::default())?;
    /// # lavastore::testing::block_on(&db, async {
    /// requests.put("seen/7", "yes")?.await?;
    /// requests.writing(&WriteOptions::durable()).put("paid/7", "yes")?.await?;
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn writing(&self, options: &WriteOptions) -> Requests {
        Requests { inner: Owned::new(self.inner.writing(options)), family: self.family.clone() }
    }

    /// The same, reading as of a snapshot: `get`, `multi_get` and `scan` see what it sees, whatever was written since. It shares the bound and the
    /// order of writes. A read fails with `InvalidArgument` if the snapshot is of another store.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("planet", "mars")?;
    /// let requests = db.requests(&Default::default())?;
    /// let before = requests.reading_at(&db.snapshot());
    /// db.put("planet", "venus")?;
    /// # lavastore::testing::block_on(&db, async {
    /// assert_eq!(before.get("planet")?.await?.as_deref(), Some(&b"mars"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn reading_at(&self, snapshot: &Snapshot) -> Requests {
        Requests { inner: Owned::new(self.inner.reading_at(snapshot.inner())), family: self.family.clone() }
    }

    /// Sets a key.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let requests = db.requests(&Default::default())?;
    /// # lavastore::testing::block_on(&db, async {
    /// requests.put("key", vec![7; 1000])?.await?;
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Busy`: as many are in flight as may be, or it may not wait and would have to; and what is known at once of those of
    /// [`Writer::put`](crate::Writer::put), of which the future tells the others. Nothing was written.
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<WriteRequest> {
        self.inner.put(self.family.inner(), key.into(), value.into())
    }

    /// Deletes a key.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let requests = db.requests(&Default::default())?;
    /// # lavastore::testing::block_on(&db, async {
    /// requests.delete("key")?.await?;
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Requests::put`].
    pub fn delete(&self, key: impl Into<Vec<u8>>) -> Result<WriteRequest> {
        self.inner.delete(self.family.inner(), key.into())
    }

    /// Writes a batch: all of it or nothing, whatever families it has to do with. A durable batch of nothing resolves when all that was
    /// visible before is durable.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let requests = db.requests(&Default::default())?;
    /// let mut batch = lavastore::WriteBatch::new();
    /// batch.put("account/1", "90");
    /// batch.put("account/2", "110");
    /// # lavastore::testing::block_on(&db, async {
    /// requests.write(batch)?.await?;
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Requests::put`], of any of its changes; `InvalidArgument` if a family of it is of another store.
    pub fn write(&self, batch: WriteBatch) -> Result<WriteRequest> {
        self.inner.write(batch.into_inner_for(&self.family)?)
    }

    /// Reads a key.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("key", "value")?;
    /// let requests = db.requests(&Default::default())?;
    /// # lavastore::testing::block_on(&db, async {
    /// assert_eq!(requests.get("key")?.await?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Busy`: as many are in flight as may be; and what is known at once of those of [`Reader::get`](crate::Reader::get), of which the
    /// future tells the others.
    pub fn get(&self, key: impl Into<Vec<u8>>) -> Result<Request<Option<Value>>> {
        self.inner.get(self.family.inner(), key.into())
    }

    /// Reads several keys, as of one moment; the answers are in the order of the keys. It counts as one request.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("b", "2")?;
    /// let requests = db.requests(&Default::default())?;
    /// # lavastore::testing::block_on(&db, async {
    /// let found = requests.multi_get(["a", "b"])?.await?;
    /// assert!(found[0].is_none() && found[1].is_some());
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Requests::get`].
    pub fn multi_get<K: Into<Vec<u8>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Request<Vec<Option<Value>>>> {
        let keys = keys.into_iter().map(Into::into).collect();
        self.inner.multi_get(self.family.inner(), keys)
    }

    /// Reads the first `limit` keys of a range with their values, as of one moment. The next page begins behind the last key of this one.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// for day in ["2024-01-30", "2024-01-31", "2024-02-01"] {
    ///     db.put(day, "")?;
    /// }
    /// let requests = db.requests(&Default::default())?;
    /// # lavastore::testing::block_on(&db, async {
    /// let page = requests.scan("2024-01".., 2)?.await?;
    /// assert_eq!(page[1].0, b"2024-01-31");
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Requests::get`].
    pub fn scan(&self, range: impl KeyRange, limit: usize) -> Result<Request<Vec<Entry>>> {
        let (lower_bound, upper_bound) = half_open(&range);
        let options = lavakv::ReadOptions { lower_bound, upper_bound, ..Default::default() };
        self.inner.scan(self.family.inner(), options, limit)
    }

    /// Writes all that is in memory to tables: what was visible when it was submitted is durable then, volatile writes included.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("key", "value")?;
    /// let requests = db.requests(&Default::default())?;
    /// # lavastore::testing::block_on(&db, async {
    /// requests.flush()?.await?;
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Busy`: as many are in flight as may be; `ReadOnly`.
    pub fn flush(&self) -> Result<Request<()>> {
        self.inner.flush()
    }

    /// A queue that takes requests with a token each, and gives their outcomes: for a loop of one's own.
    ///
    /// ```
    /// # use lavastore::Outcome;
    /// # let db = lavastore::testing::store();
    /// let requests = db.requests(&Default::default())?;
    /// let mut queue = requests.queue();
    /// queue.submit(requests.put("key", "value")?, 1);
    /// assert!(matches!(queue.wait(None), Some((1, Ok(Outcome::Done)))));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn queue(&self) -> RequestQueue {
        self.inner.queue()
    }

    /// Attempts writes again after one of them failed: see [`RequestOptions::stop_at_first_failure`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// use lavastore::RequestOptions;
    ///
    /// let requests = db.requests(&RequestOptions { stop_at_first_failure: true, ..Default::default() })?;
    /// // A write failed with `NoSpace`, later ones resolved with `Busy`, and the disk has room again.
    /// requests.resume();
    /// lavastore::testing::block_on(&db, requests.put("key", "value")?)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn resume(&self) {
        self.inner.resume();
    }

    /// How many requests are in flight, those of clones and families included.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let requests = db.requests(&Default::default())?;
    /// let key = requests.writing(&lavastore::WriteOptions::durable()).put("key", "value")?;
    /// assert_eq!(requests.in_flight(), 1, "it is visible, and not durable yet");
    /// # lavastore::testing::block_on(&db, key)?;
    /// assert_eq!(requests.in_flight(), 0);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
