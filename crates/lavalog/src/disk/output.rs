//! Writing a file: frames, then the directory and the footer.

use super::SUM_LEN;
use super::footer::{FOOTER_LEN, FileKind, Footer};
use base::codec::put_u32;
use base::{Error, Result, Uid, checksum};
use io::{AppendFile, SyncKind};
use std::path::{Path, PathBuf};

/// An append-only file of frames. If dropped unfinished, it has no footer and cannot be opened.
pub(crate) struct Output {
    file: Box<dyn AppendFile>,
    path: PathBuf,
    uid: Uid,
    /// The first failure, after which the contents of the file are unknown.
    failed: Option<Error>,
}

impl Output {
    pub(crate) fn new(file: Box<dyn AppendFile>, path: &Path, uid: Uid) -> Output {
        assert!(file.is_empty(), "a file of logs begins at the beginning of its file");
        Output { file, path: path.to_owned(), uid, failed: None }
    }

    /// Returns the offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.file.len()
    }

    /// Writes a frame. Returns its length.
    pub(crate) fn frame(&mut self, pieces: &[&[u8]]) -> Result<u64> {
        let begin = self.offset();
        let sum = checksum::checksum_of(pieces) ^ checksum::mask(self.uid, begin);
        pieces.iter().try_for_each(|piece| self.append(piece))?;
        let mut tail = Vec::with_capacity(SUM_LEN);
        put_u32(&mut tail, sum);
        self.append(&tail)?;
        Ok(self.offset() - begin)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        self.file.append(bytes).map_err(|e| {
            let e = e.at_file(&self.path);
            self.failed = Some(e.clone());
            e
        })
    }

    /// Adds the file to an error.
    pub(crate) fn blame(&self, e: Error) -> Error {
        e.at_file(&self.path)
    }

    /// Writes the directory and the footer and syncs the file; the caller syncs the parent
    /// directory. Returns the length of the file.
    pub(crate) fn finish(mut self, kind: FileKind, directory: &[u8], rows: u64) -> Result<u64> {
        let directory_offset = self.offset();
        let directory_len = self.frame(&[directory])?;
        let file_len = self.offset() + FOOTER_LEN as u64;
        let footer = Footer { kind, uid: self.uid, file_len, directory_offset, directory_len, rows };
        self.append(&footer.encode())?;
        self.file.sync(SyncKind::Full).map_err(|e| e.at_file(&self.path))?;
        Ok(file_len)
    }
}
