//! Asynchronous requests: futures and a completion queue.

use crate::handle::FamilyHandle;
use crate::range::{KeyRange, half_open};
use crate::{
    Entry, Family, Request, RequestOptions, RequestQueue, Result, Snapshot, Value, WriteBatch, WriteOptions,
    WriteRequest,
};
use lavakv::process::Owned;

/// Asynchronous interface of a store: one thread can have thousands of requests in flight. Made by
/// [`Db::requests`](crate::Db::requests).
///
/// Each call submits a request at once. It returns a future for any runtime ([`Request`],
/// [`WriteRequest`]), or passes to a [`RequestQueue`] for an event loop. Requests that memory can
/// answer are answered before the call returns. Dropping a future does not cancel its request.
///
/// * **Bounded.** [`RequestOptions::depth`] limits the requests in flight; the next one is refused
///   with `Busy` and has no effect.
/// * **Order.** Writes are applied in order of submission: a write that waits ([`WriteOptions`])
///   delays those behind it. Reads are not delayed and see the visible writes: await
///   [`WriteRequest::visible`] to read one's own write.
/// * **Shared.** Clones share the bound and the order, as do the results of [`Requests::family`],
///   [`Requests::writing`] and [`Requests::reading_at`]. A `Requests` keeps the store open; its
///   futures do not. Closing the store resolves all of them.
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
    family: FamilyHandle,
}

impl Requests {
    pub(crate) fn new(family: &FamilyHandle, options: &RequestOptions) -> Result<Requests> {
        Ok(Requests { inner: Owned::new(family.kv().requests(options)?), family: family.clone() })
    }

    pub(crate) fn inner(&self) -> &lavakv::Requests {
        &self.inner
    }

    pub(crate) fn handle(&self) -> &FamilyHandle {
        &self.family
    }

    /// Returns the interface for another family of the store; it shares the bound and the order of
    /// writes with this one. Write options and snapshot stay the same. The call cannot fail: a
    /// dropped family makes each read and write fail with `NotFound`, a family of another store
    /// with `InvalidArgument`. A batch names its families itself ([`Requests::write`]).
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

    /// Returns the interface with other write options, for example durable writes beside buffered
    /// ones. It shares the bound and the order of writes, so a durable write does not overtake
    /// earlier ones. Reads are not affected, and the call cannot fail.
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

    /// Returns the interface with reads as of a snapshot: `get`, `multi_get` and `scan` ignore
    /// later writes.
    ///
    /// Writes through the result go to the store as usual. The result keeps the snapshot alive, and
    /// shares the bound and the order of writes. The call cannot fail. Each read fails with
    /// `InvalidArgument` if the snapshot belongs to another store.
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

    /// Submits a put and returns at once, to keep many writes in flight on one thread;
    /// [`Db::put`](crate::Db::put) blocks instead. Writes apply in order of submission.
    ///
    /// The future resolves when the write has its durability (by default that of the store);
    /// [`WriteRequest::visible`] resolves when readers see it.
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
    /// * `Busy`: [`RequestOptions::depth`] is reached, or the options forbid a wait. Repeat it.
    /// * `InvalidArgument`: empty key in format 1. `TooLarge`: a key above 64 KiB, or a value above
    ///   1 GiB.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `NoSpace`: the limit or the volume is full. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`, `Io`, `Poisoned`: open the store for writing again.
    ///
    /// Nothing is written after an error of this call; only `Io` leaves that to the next open. The
    /// future reports later errors, such as `NoSpace` and `Io`. With
    /// [`RequestOptions::stop_at_first_failure`], writes behind a failed one fail with `Busy` until
    /// [`Requests::resume`].
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<WriteRequest> {
        self.inner.put(self.family.inner(), key.into(), value.into())
    }

    /// Submits a delete and returns at once; an absent key is no error.
    /// [`Db::delete`](crate::Db::delete) blocks instead. The delete applies in order of submission,
    /// and the future resolves when the delete has its durability. A full store accepts deletes.
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
    /// * `Busy`: [`RequestOptions::depth`] is reached, or the options forbid a wait. Repeat it.
    /// * `InvalidArgument`: empty key in format 1. `TooLarge`: the key is above 64 KiB.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `NoSpace`: the limit or the volume is full. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`, `Io`, `Poisoned`: open the store for writing again.
    ///
    /// Nothing is written after an error of this call; only `Io` leaves that to the next open. The
    /// future reports later errors, such as `NoSpace` and `Io`. With
    /// [`RequestOptions::stop_at_first_failure`], writes behind a failed one fail with `Busy` until
    /// [`Requests::resume`].
    pub fn delete(&self, key: impl Into<Vec<u8>>) -> Result<WriteRequest> {
        self.inner.delete(self.family.inner(), key.into())
    }

    /// Submits a merge operand and returns at once: see [`Db::merge`](crate::Db::merge), which blocks
    /// instead. It applies in order of submission, and the future resolves when the operand has its
    /// durability.
    ///
    /// ```
    /// use lavastore::{FamilyOptions, MergeChoice};
    /// # let db = lavastore::testing::store();
    /// let operator = Some(MergeChoice::counter());
    /// let options = FamilyOptions { merge_operator: operator, ..Default::default() };
    /// let visits = db.create_family("visits", &options)?;
    /// let requests = db.requests(&Default::default())?.family(&visits);
    /// # lavastore::testing::block_on(&db, async {
    /// requests.merge("home", 1i64.to_le_bytes())?.await?;
    /// # Ok::<(), lavastore::Error>(())
    /// # })?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Requests::put`]. The future: those of [`Db::merge`](crate::Db::merge).
    pub fn merge(&self, key: impl Into<Vec<u8>>, operand: impl Into<Vec<u8>>) -> Result<WriteRequest> {
        self.inner.merge(self.family.inner(), key.into(), operand.into())
    }

    /// Submits an atomic batch over any number of families, and returns at once: for changes that
    /// must appear together. It counts as one request, and as one write in the order of submission.
    /// [`Db::write`](crate::Db::write) blocks instead. A batch has at most 16 MiB + 128 KiB,
    /// without values above 4 MiB (by default).
    ///
    /// The future resolves when the batch has its durability; [`WriteRequest::visible`] resolves
    /// when readers see all of it. An empty durable batch resolves when all writes visible before
    /// it are durable.
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
    /// * `Busy`: [`RequestOptions::depth`] is reached, or the options forbid a wait. Repeat it.
    /// * `InvalidArgument`: a family of another store, or an empty key in format 1. `TooLarge`: a
    ///   key above 64 KiB, a value above 1 GiB, or the batch above its limit.
    /// * `NotFound`, `Unsupported`: a family was dropped, or this release lacks its policy.
    /// * `NoSpace`: the limit or the volume is full. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`, `Io`, `Poisoned`: open the store for writing again.
    ///
    /// Nothing is written after an error of this call; only `Io` leaves that to the next open. The
    /// future reports later errors, such as `NoSpace` and `Io`. With
    /// [`RequestOptions::stop_at_first_failure`], writes behind a failed one fail with `Busy` until
    /// [`Requests::resume`].
    pub fn write(&self, batch: WriteBatch) -> Result<WriteRequest> {
        self.inner.write(batch.into_inner_for(&self.family)?)
    }

    /// Submits a read of one key, as of now; an absent key gives `None`. Use
    /// [`Requests::multi_get`] for several keys as of one moment.
    ///
    /// It sees the writes that are visible at the call, or those of the snapshot. A read that
    /// memory and cache can answer is resolved on return; others read the device without blocking
    /// the caller. It does not wait for earlier submitted writes: await [`WriteRequest::visible`]
    /// first to read one's own write.
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
    /// * `Busy`: [`RequestOptions::depth`] requests are in flight. Wait for one and repeat.
    /// * `NotFound`: the family was dropped. Get another handle.
    /// * `InvalidArgument`: the snapshot belongs to another store. Use one of this store.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    ///
    /// The future reports later errors: `Corruption` (repair the store) and `Io` (repeat).
    pub fn get(&self, key: impl Into<Vec<u8>>) -> Result<Request<Option<Value>>> {
        self.inner.get(self.family.inner(), key.into())
    }

    /// Submits a read of several keys as of one moment; the answers are in the order of the keys.
    ///
    /// The call counts as one request, and its device reads run in parallel. An error of one key is
    /// the error of the request; [`Db::multi_get`](crate::Db::multi_get) reports errors per key.
    /// All values are in memory at once: split a very long list. For adjacent keys use
    /// [`Requests::scan`].
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
    /// * `Busy`: [`RequestOptions::depth`] requests are in flight. Wait for one and repeat.
    /// * `NotFound`: the family was dropped. Get another handle.
    /// * `InvalidArgument`: the snapshot belongs to another store. Use one of this store.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    ///
    /// The future reports later errors: `Corruption` (repair the store) and `Io` (repeat).
    pub fn multi_get<K: Into<Vec<u8>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Request<Vec<Option<Value>>>> {
        let keys = keys.into_iter().map(Into::into).collect();
        self.inner.multi_get(self.family.inner(), keys)
    }

    /// Submits a read of the first `limit` keys of a range with their values, as of one moment
    /// between submission and answer: for pages of a long list.
    ///
    /// [`Db::range`](crate::Db::range) blocks, and needs no pages. Fewer entries mean that the
    /// range has no more; an empty range gives an empty page. The next page begins behind the last
    /// key, and sees a newer moment unless [`Requests::reading_at`] fixes it. The whole page is in
    /// memory: `limit` bounds its entries, not its bytes.
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
    /// * `Busy`: [`RequestOptions::depth`] requests are in flight. Wait for one and repeat.
    /// * `NotFound`: the family was dropped. Get another handle.
    /// * `InvalidArgument`: the snapshot belongs to another store. Use one of this store.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    ///
    /// The future reports later errors: `Corruption` (repair the store) and `Io` (repeat).
    pub fn scan(&self, range: impl KeyRange, limit: usize) -> Result<Request<Vec<Entry>>> {
        let (lower_bound, upper_bound) = half_open(&range);
        let options = lavakv::ReadOptions { lower_bound, upper_bound, ..Default::default() };
        self.inner.scan(self.family.inner(), options, limit)
    }

    /// Submits a flush of all memtables to tables, for example before a backup or to make volatile
    /// writes durable. All writes visible at submission, also volatile ones, are durable when it
    /// resolves.
    ///
    /// [`Db::flush`](crate::Db::flush) blocks instead. The cost is a device write of up to all
    /// buffered data; other requests continue. To make buffered writes durable, an empty durable
    /// batch ([`Requests::write`]) costs less.
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
    /// * `Busy`: [`RequestOptions::depth`] requests are in flight. Wait for one and repeat.
    /// * `NoSpace`: there is no room to begin a log. Make room and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    ///
    /// The future reports later errors, such as `NoSpace` and `Io`.
    pub fn flush(&self) -> Result<Request<()>> {
        self.inner.flush()
    }

    /// Returns a completion queue for event loops without futures: it takes requests with tokens
    /// and returns their outcomes. Each loop makes its own; [`Request`] is for futures.
    /// [`RequestOptions::depth`] bounds its requests too. The call cannot fail; the queue is empty.
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

    /// Lets writes proceed again after a failure stopped them, where
    /// [`RequestOptions::stop_at_first_failure`] is set: later writes fail with `Busy` until then,
    /// unwritten.
    ///
    /// Call it after the cause is gone, and submit the refused writes again. It concerns clones and
    /// other families too, since they share the order of writes. Without a stop it does nothing.
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

    /// Returns the number of requests in flight, including those of clones and of other families,
    /// to compare it with [`RequestOptions::depth`]. A durable write counts until it is durable.
    /// Requests that ended no longer count, even if their future was not awaited.
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
