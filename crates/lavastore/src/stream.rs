//! Streams into and out of single values.

use crate::Result;
use lavakv::process::Owned;
use std::io::{Read, Seek, SeekFrom, Write};

/// Writes one value of up to 1 GiB piece by piece, in constant memory; made by [`Db::put_stream`](crate::Db::put_stream).
///
/// The value exists once [`ValueWriter::finish`] has returned; dropped before, it leaves nothing behind. A value of up
/// to 256 KiB is held in memory and written like any other; a longer one goes into a file of its own.
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
    // Dropped last: it may be what keeps the store open.
    _db: Owned<lavakv::Db>,
}

impl ValueWriter {
    pub(crate) fn new(inner: lavakv::ValueWriter, db: &lavakv::Db) -> ValueWriter {
        ValueWriter { inner: Owned::new(inner), _db: Owned::new(db.clone()) }
    }

    /// Bytes written so far.
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

    /// True if nothing was written yet.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.put_stream("key")?.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Appends bytes of the value: what `write_all` of [`Write`] does, with the engine's errors.
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
    /// `TooLarge` beyond 1 GiB; `NoSpace` and others of writing. After an error the value cannot be finished.
    pub fn append(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.inner.append(data.as_ref())
    }

    /// Ends the value and commits it, as one put.
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
    /// Those of a put, and of any `append` before. Nothing is left behind then, unless the error says that the store is
    /// poisoned.
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

/// Reads one value from front to back, or from anywhere ([`Seek`]), in constant memory if it is large; made by
/// [`Db::get_stream`](crate::Db::get_stream).
///
/// It reads the value that was visible when it was made, whatever happens to the key afterwards. Every byte is verified
/// before it is returned.
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
    // Dropped last: it may be what keeps the store open.
    _db: Owned<lavakv::Db>,
}

impl ValueReader {
    pub(crate) fn new(inner: lavakv::ValueReader, db: &lavakv::Db) -> ValueReader {
        ValueReader { inner: Owned::new(inner), _db: Owned::new(db.clone()) }
    }

    /// Bytes of the value.
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

    /// True if the value has no bytes.
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

    /// The bytes from `offset` on, at most `len`; fewer where the value ends before. Does not move the stream.
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
    /// `Corruption` naming file and offset; those of reading.
    pub fn read_range(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.inner.read_range(offset, len)
    }

    /// Fills `buf` as far as the value goes; returns the number of bytes, 0 at its end. What `read` of [`Read`] does, with
    /// the engine's errors.
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
    /// `Corruption` naming file and offset; those of reading.
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
