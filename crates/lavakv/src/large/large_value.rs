//! Streams into and out of single values.

use crate::context::options::Durability;
use crate::engine::Engine;
use crate::large::segments::{self, Draft};
use crate::read::fetch::Content;
use crate::tree::family::Family;
use crate::write::batch::Change;
use crate::write::write_path::{Payload, WriteOp};
use base::{Error, ErrorKind, Result, ValueKind};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;
use table::segment::CHUNK_LEN;

/// Writes one value of up to 1 GiB piece by piece, in constant memory; made by [`crate::Db::put_stream`].
///
/// The value exists once [`ValueWriter::finish`] has returned; dropped before, it leaves nothing behind. A value of up
/// to 256 KiB is held in memory and written like any other; a longer one goes into a file of its own.
///
/// ```no_run
/// use std::io::Write;
/// # let db = lavastore_lavakv::Db::open("/tmp/example")?;
/// let film = std::fs::File::open("film.mkv")?;
/// let mut value = db.put_stream(db.default_column_family(), b"film", Default::default())?;
/// std::io::copy(&mut &film, &mut value)?;
/// value.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueWriter {
    engine: Arc<Engine>,
    family: Arc<Family>,
    key: Vec<u8>,
    durability: Durability,
    /// The beginning of a value that may turn out to be short.
    held: Vec<u8>,
    draft: Option<Draft>,
    len: u64,
    failed: Option<Error>,
}

impl ValueWriter {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        family: &Arc<Family>,
        key: &[u8],
        durability: Durability,
    ) -> Result<ValueWriter> {
        segments::validate(key, 0)?;
        engine.health.check()?;
        Ok(ValueWriter {
            engine: engine.clone(),
            family: family.clone(),
            key: key.to_vec(),
            durability,
            held: Vec::new(),
            draft: None,
            len: 0,
            failed: None,
        })
    }

    /// Bytes written so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes of the value: what `write_all` of [`Write`] does, with the engine's errors.
    ///
    /// # Errors
    /// `TooLarge` beyond 1 GiB; `NoSpace` and others of writing. After an error the value cannot be finished.
    pub fn append(&mut self, data: &[u8]) -> Result<()> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        self.try_append(data).inspect_err(|e| self.failed = Some(e.clone()))
    }

    fn try_append(&mut self, data: &[u8]) -> Result<()> {
        let len = self.len.saturating_add(data.len() as u64);
        segments::validate(&self.key, len)?;
        self.len = len;
        if self.draft.is_none() && self.held.len() + data.len() <= self.held_max() {
            self.held.extend_from_slice(data);
            return Ok(());
        }
        if self.draft.is_none() {
            let mut draft = Draft::begin(&self.engine, &self.family, &self.key, 0)?;
            draft.append(&std::mem::take(&mut self.held))?;
            self.draft = Some(draft);
        }
        self.draft.as_mut().expect("begun above").append(data)
    }

    /// The longest value that is not worth a file.
    fn held_max(&self) -> usize {
        CHUNK_LEN.min(segments::threshold(&self.engine) - 1)
    }

    /// Ends the value and commits it, as one put.
    ///
    /// # Errors
    /// Those of a put, and of any `append` before. Nothing is left behind then, unless the error says that the store is
    /// poisoned.
    pub fn finish(mut self) -> Result<()> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let change = |kind, value| Change { kind, family: self.family.id, key: &self.key, value };
        match self.draft.take() {
            None => {
                let payload = Payload::One(&self.family, change(ValueKind::Value, &self.held));
                WriteOp::new(&self.engine, payload, self.durability).run()
            }
            Some(mut draft) => {
                let reference = draft.finish()?.encode();
                let payload = Payload::One(&self.family, change(ValueKind::SegmentReference, &reference));
                WriteOp::with_drafts(&self.engine, payload, self.durability, vec![draft]).run()
            }
        }
    }
}

impl Write for ValueWriter {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.append(data).map_err(into_io)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn into_io(e: Error) -> std::io::Error {
    let kind = match e.kind() {
        ErrorKind::NoSpace => std::io::ErrorKind::StorageFull,
        ErrorKind::TooLarge => std::io::ErrorKind::FileTooLarge,
        ErrorKind::InvalidArgument => std::io::ErrorKind::InvalidInput,
        ErrorKind::Corruption => std::io::ErrorKind::InvalidData,
        _ => std::io::ErrorKind::Other,
    };
    std::io::Error::new(kind, e)
}

/// Reads one value from front to back, or from anywhere ([`Seek`]), in constant memory if it is large; made by
/// [`crate::Db::get_stream`].
///
/// It reads the value that was visible when it was made, whatever happens to the key afterwards. Every byte is verified
/// before it is returned.
pub struct ValueReader {
    content: Content,
    at: u64,
    /// Verified bytes of the value, and which of its bytes they are.
    run: Vec<u8>,
    covers: Range<u64>,
    // Dropped last: the store stays locked while its files are read.
    _engine: Arc<Engine>,
}

impl ValueReader {
    pub(crate) fn new(engine: &Arc<Engine>, content: Content) -> ValueReader {
        ValueReader { content, at: 0, run: Vec::new(), covers: 0..0, _engine: engine.clone() }
    }

    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        match &self.content {
            Content::Bytes(value) => value.len() as u64,
            Content::Segment(segment) => segment.raw_len(),
        }
    }

    /// True if the value has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `offset` on, at most `len`; fewer where the value ends before. Does not move the stream.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn read_range(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        range_of(&self.content, offset, len)
    }

    /// Fills `buf` as far as the value goes; returns the number of bytes, 0 at its end. What `read` of [`Read`] does, with
    /// the engine's errors.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn read_some(&mut self, buf: &mut [u8]) -> Result<usize> {
        let left = usize::try_from(self.len().saturating_sub(self.at)).unwrap_or(usize::MAX);
        if left == 0 || buf.is_empty() {
            return Ok(0);
        }
        let bytes: &[u8] = match &self.content {
            Content::Bytes(value) => value.get(self.at as usize..).unwrap_or_default(),
            Content::Segment(segment) => {
                if !self.covers.contains(&self.at) {
                    self.covers = 0..0;
                    self.covers = segment.read_run(self.at, segment.raw_len(), &mut self.run)?;
                }
                self.run.get((self.at - self.covers.start) as usize..).unwrap_or_default()
            }
        };
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

/// The bytes of a value from `offset` on, at most `len`.
pub(crate) fn range_of(content: &Content, offset: u64, len: usize) -> Result<Vec<u8>> {
    match content {
        Content::Bytes(value) => {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
            let to = from.saturating_add(len).min(value.len());
            Ok(value.get(from..to).unwrap_or_default().to_vec())
        }
        Content::Segment(segment) => {
            let from = offset.min(segment.raw_len());
            let mut bytes = vec![0; (segment.raw_len() - from).min(len as u64) as usize];
            segment.read_range(from, &mut bytes)?;
            Ok(bytes)
        }
    }
}

impl Read for ValueReader {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.read_some(buf).map_err(into_io)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let target = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::End(n) => self.len().checked_add_signed(n),
            SeekFrom::Current(n) => self.at.checked_add_signed(n),
        };
        let before = || into_io(Error::invalid("seek to before the beginning of a value"));
        self.at = target.ok_or_else(before)?;
        Ok(self.at)
    }
}

impl std::fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueReader({} of {} bytes)", self.at, self.len())
    }
}

impl std::fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueWriter({} bytes)", self.len)
    }
}
