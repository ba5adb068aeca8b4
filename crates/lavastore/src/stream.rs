//! Streaming writes and reads of single values.

use crate::Result;
use lavakv::process::Owned;
use std::io::{Read, Seek, SeekFrom, Write};

/// Writes a value of up to 1 GiB piece by piece, in constant memory; made by
/// [`Db::put_stream`](crate::Db::put_stream).
///
/// The value exists once [`ValueWriter::finish`] has returned; dropping the writer earlier leaves
/// nothing behind. A value of up to 256 KiB is held in memory and written like any other; a longer
/// one goes into its own file.
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

    /// Returns the number of bytes written so far.
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

    /// Returns true if nothing has been written yet.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// assert!(db.put_stream("key")?.is_empty());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Appends bytes to the value, like `write_all` of [`Write`] but with the engine's errors.
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
    /// `TooLarge` beyond 1 GiB; `NoSpace` and other errors of writing. The value cannot be finished
    /// after an error.
    pub fn append(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.inner.append(data.as_ref())
    }

    /// Ends the value and commits it like one put.
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
    /// The errors of a put and of any earlier `append`. Nothing is left behind then, unless the
    /// store is poisoned.
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

/// Reads a value sequentially or at any position ([`Seek`]), in constant memory if it is large;
/// made by [`Db::get_stream`](crate::Db::get_stream).
///
/// The reader sees the value that was visible when it was made, even if the key changes later.
/// Every byte is verified before it is returned.
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

    /// Returns the length of the value in bytes.
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

    /// Returns true if the value is empty.
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

    /// Returns at most `len` bytes from `offset` on; fewer if the value ends earlier. The stream
    /// position does not move.
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
    /// `Corruption`, with the file and the offset; errors of reading.
    pub fn read_range(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.inner.read_range(offset, len)
    }

    /// Fills `buf` as far as the value goes, like `read` of [`Read`] but with the engine's errors.
    /// Returns the number of bytes, 0 at the end of the value.
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
    /// `Corruption`, with the file and the offset; errors of reading.
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
