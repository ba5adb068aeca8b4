//! The output file of a table: frames one after another.

use crate::compress::Compressor;
use crate::frame::{self, BlockHandle, TRAILER_LEN};
use base::{Compression, Error, ErrorKind, Result, Uid, limits};
use cache::{Block, Cache, CacheKey, Segment};
use io::AppendFile;
use std::path::{Path, PathBuf};

/// An append-only file of frames.
pub(crate) struct Sink {
    file: Box<dyn AppendFile>,
    path: PathBuf,
    uid: Uid,
    /// Offset of the next frame.
    pub(crate) offset: u64,
    compression: Compression,
    compressor: Compressor,
    /// Codecs in use: bit `n` for codec `n`.
    pub(crate) codecs: u64,
}

impl Sink {
    pub(crate) fn new(file: Box<dyn AppendFile>, path: &Path, uid: Uid, compression: Compression) -> Sink {
        let offset = file.len();
        assert_eq!(offset, 0, "a table begins at the beginning of its file");
        let compressor = Compressor::default();
        Sink { file, path: path.to_owned(), uid, offset, compression, compressor, codecs: 0 }
    }

    pub(crate) fn blame(&self, e: Error) -> Error {
        e.at_file(&self.path)
    }

    /// Writes a data block, compressed if that is worthwhile. Overwrites `payload`.
    pub(crate) fn write_data(&mut self, payload: &mut Vec<u8>) -> Result<BlockHandle> {
        let (uid, offset, path) = (self.uid, self.offset, &self.path);
        check_len(payload.len()).map_err(|e| e.at_file(path))?;
        let compressed = self.compressor.compress(self.compression, payload).map_err(|e| e.at_file(path))?;
        let (frame, codec) = match compressed {
            Some(smaller) => (smaller, self.compression),
            None => (payload, Compression::None),
        };
        frame::seal(frame, 0, codec);
        frame::mask(frame, uid, offset);
        self.codecs |= 1 << codec as u8;
        self.file.append(frame).map_err(|e| e.at_file(&self.path))?;
        self.offset += frame.len() as u64;
        Ok(BlockHandle { offset, len: frame.len() as u64 })
    }

    /// Writes a block that is never compressed. Overwrites `payload`.
    pub(crate) fn write_plain(&mut self, payload: &mut Vec<u8>) -> Result<BlockHandle> {
        check_len(payload.len()).map_err(|e| self.blame(e))?;
        let offset = self.offset;
        frame::seal(payload, 0, Compression::None);
        frame::mask(payload, self.uid, offset);
        self.append(payload)?;
        Ok(BlockHandle { offset, len: payload.len() as u64 })
    }

    /// As [`Sink::write_plain`], but also inserts the block into the index segment of the cache
    /// `warm`, under that file number.
    pub(crate) fn write_warm(
        &mut self,
        payload: &mut Vec<u8>,
        warm: Option<(&Cache, u64)>,
    ) -> Result<BlockHandle> {
        let block = warm.map(|_| Block::from(payload.as_slice()));
        let handle = self.write_plain(payload)?;
        if let Some(((cache, file), block)) = warm.zip(block) {
            cache.insert(Segment::Index, CacheKey { file, offset: handle.offset }, &block);
        }
        Ok(handle)
    }

    /// Appends to `run` the sealed, unmasked frame of a data block, for [`Sink::write_run`].
    /// Returns its length.
    pub(crate) fn hold_data(&mut self, payload: &[u8], run: &mut Vec<u8>) -> Result<u64> {
        check_len(payload.len()).map_err(|e| self.blame(e))?;
        let start = run.len();
        let compressed = self.compressor.compress(self.compression, payload);
        let codec = match compressed.map_err(|e| e.at_file(&self.path))? {
            Some(smaller) => {
                run.extend_from_slice(smaller);
                self.compression
            }
            None => {
                run.extend_from_slice(payload);
                Compression::None
            }
        };
        self.codecs |= 1 << codec as u8;
        frame::seal(run, start, codec);
        Ok((run.len() - start) as u64)
    }

    /// Writes held frames, whose lengths are `lens`, and clears `run`. Returns the offset of the
    /// first.
    pub(crate) fn write_run(&mut self, run: &mut Vec<u8>, lens: impl Iterator<Item = u64>) -> Result<u64> {
        let first = self.offset;
        let mut at = 0;
        for len in lens {
            let end = at + len as usize;
            frame::mask(&mut run[at..end], self.uid, first + at as u64);
            at = end;
        }
        assert_eq!(at, run.len(), "frames fill their run");
        self.append(run)?;
        run.clear();
        Ok(first)
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes).map_err(|e| e.at_file(&self.path))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Passes all data to the file system, without making it durable.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|e| e.at_file(&self.path))
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        self.file.sync(io::SyncKind::Full).map_err(|e| e.at_file(&self.path))
    }
}

/// Returns the length of a frame with this payload length.
pub(crate) fn frame_len(payload_len: usize) -> u64 {
    (payload_len + TRAILER_LEN) as u64
}

fn check_len(len: usize) -> Result<()> {
    if len <= limits::BLOCK_LEN_MAX {
        return Ok(());
    }
    let why = format!(
        "a block of a new file has {len} bytes, over the limit of {} bytes: end the file earlier and begin \
         another",
        limits::BLOCK_LEN_MAX
    );
    Err(Error::new(ErrorKind::TooLarge, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::CreateOptions;
    use io::sim::SimEnv;

    #[test]
    fn a_block_that_readers_would_refuse_is_not_written() {
        let (env, path) = (SimEnv::new(1).env(), Path::new("a"));
        let file = env.fs.create(path, &CreateOptions::default()).unwrap();
        let mut sink = Sink::new(file, path, Uid::from_words(1, 1), Compression::None);
        let mut longest = vec![0; limits::BLOCK_LEN_MAX];
        sink.write_plain(&mut longest).unwrap();
        let end = sink.offset;
        let told = [
            sink.write_plain(&mut vec![0; limits::BLOCK_LEN_MAX + 1]),
            sink.write_data(&mut vec![0; limits::BLOCK_LEN_MAX + 1]),
        ];
        for e in told.map(Result::unwrap_err) {
            assert_eq!((e.kind(), e.file()), (ErrorKind::TooLarge, Some(path)), "{e}");
            assert!(e.message().ends_with("end the file earlier and begin another"), "{e}");
        }
        assert_eq!(sink.offset, end);
    }
}
