//! Opens a table by reading the end of the file at once.

use crate::file::{BlockKind, Shared, TableFile};
use crate::footer::{FOOTER_LEN, FileKind, Footer};
use crate::frame::BlockHandle;
use crate::source::{Extent, Source, Stop};
use base::{Error, Result, Uid};
use cache::{Block, Cache};
use io::ReadFile;
use std::sync::Arc;

/// Number of bytes at the end of a file that an open reads first.
pub(crate) const TAIL_LEN: u64 = 8 << 10;

/// The end of a file.
pub(crate) struct Tail {
    pub(crate) file: TableFile,
    /// Length of the file, in bytes.
    pub(crate) len: u64,
    /// Place of the meta index.
    pub(crate) meta: BlockHandle,
    bytes: Block,
    start: u64,
}

impl Tail {
    /// Reads the end of the file, and decodes its footer.
    pub(crate) fn open<S: Source>(
        kind: FileKind,
        file: Arc<dyn ReadFile>,
        number: u64,
        uid: Uid,
        cache: Arc<Cache>,
        source: &mut S,
    ) -> Result<Tail, S::Stop> {
        let path = file.path().to_owned();
        let len = file.len()?;
        let cut = || {
            let why = format!(
                "the file has {len} bytes, fewer than the footer of a {} ({FOOTER_LEN} bytes), so it was \
                 cut off and none of its keys or values is readable",
                kind.name()
            );
            Error::corruption(why).at_file(&path).at_offset(0)
        };
        let frames_end = len.checked_sub(FOOTER_LEN as u64).ok_or_else(cut)?;
        let start = len.saturating_sub(TAIL_LEN);
        let extent = Extent { file: number, offset: start, len: len - start };
        let bytes = source.bytes(&file, extent, BlockKind::Tail);
        let bytes = bytes.map_err(|stop| stop.map(|e| e.at_file(&path).at_offset(start)))?;
        let footer = bytes.last_chunk::<FOOTER_LEN>().ok_or_else(cut)?;
        let footer = Footer::decode_as(kind, footer, uid, len).map_err(|e| e.at_file(&path))?;
        let file = TableFile { file, uid, number, frames_end, cache: Shared(cache) };
        Ok(Tail { file, len, meta: footer.meta, bytes, start })
    }

    /// Returns the tail of a file whose meta index was found without its footer; nothing is read
    /// ahead.
    pub(crate) fn found(
        file: Arc<dyn ReadFile>,
        number: u64,
        uid: Uid,
        cache: Arc<Cache>,
        meta: BlockHandle,
        frames_end: u64,
    ) -> Tail {
        let len = frames_end + FOOTER_LEN as u64;
        let file = TableFile { file, uid, number, frames_end, cache: Shared(cache) };
        Tail { file, len, meta, bytes: Vec::new().into(), start: frames_end }
    }

    /// Returns a block, from the tail if possible.
    pub(crate) fn read<S: Source>(&self, handle: BlockHandle, source: &mut S) -> Result<Block, S::Stop> {
        let from = handle.offset.checked_sub(self.start).and_then(|n| usize::try_from(n).ok());
        let to = from.zip(usize::try_from(handle.len).ok()).and_then(|(from, len)| from.checked_add(len));
        match from.zip(to).and_then(|(from, to)| self.bytes.get(from..to)) {
            Some(frame) if handle.end() <= self.file.frames_end => {
                Ok(self.file.decode(frame, handle.offset)?)
            }
            _ => self.file.read(handle, BlockKind::Tail, source),
        }
    }
}
