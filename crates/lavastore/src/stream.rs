//! Streaming writes and reads of single values.

use crate::Result;
use lavakv::process::Owned;
use std::io::{Read, Seek, SeekFrom, Write};

/// Writes a value of up to 1 GiB in pieces, in constant memory, where the value is not in memory as
/// a whole; [`Db::put_stream`](crate::Db::put_stream) returns it. For a value in memory use
/// [`Db::put`](crate::Db::put).
///
/// The value appears when [`ValueWriter::finish`] returns. A drop or a crash before that leaves the
/// former value and no trace of the pieces. A value of up to 256 KiB stays in memory until
/// `finish`; a longer one uses disk space from then on.
///
/// Each piece may wait for space or for background work, at most
/// [`WriteOptions::wait_at_most`](field@crate::WriteOptions::wait_at_most). After an error the
/// value cannot be finished. The writer keeps the store open. Errors of [`Write`] contain the error
/// of the store.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("lavastore-writer-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("film.mkv");
/// # std::fs::write(&path, b"frames")?;
/// # let db = lavastore::testing::store();
/// let mut value = db.put_stream("film")?;
/// std::io::copy(&mut std::fs::File::open(path)?, &mut value)?;
/// value.finish()?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the value exists once it is finished"]
pub struct ValueWriter {
    inner: Owned<lavakv::ValueWriter>,
    // Dropped last: this may be the handle that keeps the store open.
    _db: Owned<lavakv::Db>,
}

impl ValueWriter {
    pub(crate) fn new(inner: lavakv::ValueWriter, db: &lavakv::Db) -> ValueWriter {
        ValueWriter { inner: Owned::new(inner), _db: Owned::new(db.clone()) }
    }

    /// Returns the number of bytes accepted so far, for progress and for the limit of 1 GiB. Memory
    /// holds at most 256 KiB of them; the rest uses disk space. None of them is visible or durable
    /// before [`ValueWriter::finish`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut value = db.put_stream("key")?;
    /// value.append(b"1234")?;
    /// assert_eq!(value.len(), 4);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    /// Returns true if no byte has been written yet; finishing then stores an empty value, and a
    /// drop keeps the former one.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.put_stream("key")?.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Appends bytes to the value; use it instead of `write_all` of [`Write`] where the program
    /// matches on the kind of an error. A value has at most 1 GiB.
    ///
    /// The call accepts all bytes or fails. It may wait for space or background work; the write
    /// options of the stream bound that wait for each piece. The bytes may stay in memory until
    /// more follow, and are not visible before [`ValueWriter::finish`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let mut value = db.put_stream("key")?;
    /// value.append(b"begin")?;
    /// value.append(b", end")?;
    /// value.finish()?;
    /// assert_eq!(db.get("key")?.as_deref(), Some(&b"begin, end"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `TooLarge`: the value would exceed 1 GiB. Split it over several keys.
    /// * `NoSpace`: the limit or the volume is full. Make room and start anew.
    /// * `Busy`: the piece would wait longer than the options allow. Start anew later.
    /// * `Closed`, `Forked`, `Io`, `Poisoned`: the store cannot be written. Open it again.
    ///
    /// After an error the value cannot be finished, and each call returns the same error: drop the
    /// writer. The former value stays.
    pub fn append(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.inner.append(data.as_ref())
    }

    /// Ends the value and commits it like one put, with the durability of the options.
    ///
    /// On return readers see the whole value. A durable one waits for the device; a buffered one
    /// may be lost with the power until [`Db::sync`](crate::Db::sync). To give the value up, drop
    /// the writer instead. An empty value is allowed.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// let value = db.put_stream("key")?;
    /// value.finish()?;
    /// assert_eq!(db.get("key")?.as_deref(), Some(&b""[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NoSpace`: the limit or the volume is full. Delete data or raise the limit.
    /// * `Busy`: the wait would exceed the bound of the options. Repeat later.
    /// * `NotFound`, `Unsupported`: the family was dropped, or this release lacks its policy.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    /// * `Io`, `Poisoned`: the device failed. Close and reopen the store.
    /// * The error of an earlier [`ValueWriter::append`].
    ///
    /// The former value stays, except that after `Io` the next open decides. To repeat, write the
    /// value anew.
    pub fn finish(self) -> Result<()> {
        self._db.check_process()?;
        Owned::into_inner(self.inner).finish()
    }
}

impl Write for ValueWriter {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.inner.write(data)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// Reads a large value in pieces, sequentially or at any position ([`Seek`]), where it should not
/// be in memory as a whole; [`Db::get_stream`](crate::Db::get_stream) returns it. For one piece use
/// [`Db::get_range`](crate::Db::get_range).
///
/// The reader shows the value of its creation, even if the key is overwritten or deleted later.
/// Memory is constant for a value in its own file; a smaller one is in memory as a whole. Every
/// byte is verified before it is returned. Reads block on the device. The reader keeps the store
/// open and the value on disk: drop it early. Errors of [`Read`] contain the error of the store.
///
/// ```
/// use std::io::Read;
/// # let db = lavastore::testing::store();
/// db.put("film", "frames")?;
/// let mut film = db.get_stream("film")?.expect("was just put");
/// let mut text = String::new();
/// film.read_to_string(&mut text)?;
/// assert_eq!(text, "frames");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it reads nothing until it is asked"]
pub struct ValueReader {
    inner: Owned<lavakv::ValueReader>,
    // Dropped last: this may be the handle that keeps the store open.
    _db: Owned<lavakv::Db>,
}

impl ValueReader {
    pub(crate) fn new(inner: lavakv::ValueReader, db: &lavakv::Db) -> ValueReader {
        ValueReader { inner: Owned::new(inner), _db: Owned::new(db.clone()) }
    }

    /// Returns the length of the value in bytes, without a read, to reserve space or to find its
    /// end. It is that of the version that the reader shows, and 0 for an empty value.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("film", "frames")?;
    /// assert_eq!(db.get_stream("film")?.map(|film| film.len()), Some(6));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    /// Returns true if the value has no bytes, without a read. An absent key gives no reader at
    /// all: `get_stream` returns `None`.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("film", "")?;
    /// assert!(db.get_stream("film")?.is_some_and(|film| film.is_empty()));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Returns at most `len` bytes from byte `offset` on, for reads at random positions or from
    /// several threads; the stream position does not move.
    ///
    /// The result is shorter if the value ends earlier, and empty at or behind its end. It is in
    /// memory as a whole. For sequential pieces use [`ValueReader::read_some`]; without a reader
    /// use [`Db::get_range`](crate::Db::get_range).
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("film", "frames")?;
    /// let film = db.get_stream("film")?.expect("was just put");
    /// assert_eq!(film.read_range(4, 100)?, b"es");
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: damaged bytes, with file and offset. Other ranges may be readable; restore
    ///   or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused the read. Repeat the call.
    /// * `Closed`, `Forked`: the reader is of no use any more. Open the store again.
    pub fn read_range(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.inner.read_range(offset, len)
    }

    /// Reads the next bytes into `buf` and advances; use it instead of `read` of [`Read`] where the
    /// program matches on the kind of an error.
    ///
    /// The call may block on the device; sequential calls read larger pieces at once. Returns the
    /// number of bytes, which may be less than `buf` holds, and 0 only at the end or for an empty
    /// `buf`.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("film", "frames")?;
    /// let mut film = db.get_stream("film")?.expect("was just put");
    /// let mut buf = [0; 4];
    /// assert_eq!(film.read_some(&mut buf)?, 4);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: damaged bytes, with file and offset. Other ranges may be readable; restore
    ///   or [repair](crate::Db::repair) the store.
    /// * `Io`: the system refused the read. Repeat the call.
    /// * `Closed`, `Forked`: the reader is of no use any more. Open the store again.
    ///
    /// After an error the position is unchanged.
    pub fn read_some(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.inner.read_some(buf)
    }
}

impl Read for ValueReader {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.inner.read(buf)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.inner.seek(to)
    }
}
