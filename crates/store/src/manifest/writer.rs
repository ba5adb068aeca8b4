//! The writer of a manifest: its file, and the copy if the store's format has one.
//!
//! Both files get the same bytes. Records count when both are synced. They also count when one is
//! synced and the volume has no space for the other; then no record follows in either.

use super::format::{self, encode_record};
use crate::format::Feature;
use crate::names;
use base::{Error, ErrorKind, Result, Uid};
use io::{AppendFile, CreateOptions, Env, SyncKind};
use std::path::Path;

/// The writer: see the module.
pub(super) struct Writer {
    /// The original first. Between two calls all have the same length.
    files: Vec<Box<dyn AppendFile>>,
    pub uid: Uid,
    /// File number, which is in the name.
    pub number: u64,
    /// The names of the files.
    pub names: Vec<String>,
    /// All files hold all records, and `CURRENT` and its copy name them.
    pub is_whole: bool,
}

/// The state of the files after an append that found no space.
pub(super) struct Refused {
    pub error: Error,
    /// Number of files that hold all of the records.
    whole: usize,
    /// Every other file ends inside the first record, so that none of the records is ever read
    /// there.
    is_torn: bool,
}

impl Refused {
    /// Returns true if none of the records is ever read.
    pub(super) fn is_gone(&self) -> bool {
        self.whole == 0 && self.is_torn
    }
}

/// Returns the file names of a manifest with this header.
pub(super) fn file_names(header: &format::Header) -> Vec<String> {
    let copy = header.format.allows(Feature::ManifestCopies).then(|| names::manifest_copy(header.number));
    [names::manifest(header.number)].into_iter().chain(copy).collect()
}

impl Writer {
    /// Creates the files, with a snapshot in pieces of this edit number, and syncs them. Their
    /// names are not durable yet.
    pub(super) fn create(
        env: &Env,
        dir: &Path,
        header: &format::Header,
        (edit, pieces): (u64, &[&[u8]]),
    ) -> Result<Writer> {
        let names = file_names(header);
        let create = |name: &String| env.fs.create(&dir.join(name), &CreateOptions::default());
        let files = names.iter().map(create).collect::<Result<Vec<_>>>()?;
        let mut writer = Writer { files, uid: header.manifest, number: header.number, names, is_whole: true };
        writer.append_all(&header.encode())?;
        for piece in pieces {
            let record = encode_record(writer.uid, writer.len(), edit, edit, piece);
            writer.append_all(&record)?;
        }
        writer.files.iter_mut().try_for_each(|file| file.sync(SyncKind::Full))?;
        Ok(writer)
    }

    /// Returns the number of files.
    pub(super) fn copies(&self) -> u64 {
        self.files.len() as u64
    }

    /// Returns the length of the manifest, bytes.
    pub(super) fn len(&self) -> u64 {
        self.files.first().map_or(0, |file| file.len())
    }

    /// Appends records, each an edit and its payload, to one file after the other. A refusal for
    /// want of space leaves the later files as they were.
    ///
    /// # Errors
    /// File system errors; a refusal for want of room is the inner result.
    pub(super) fn append<'a>(
        &mut self,
        env: &Env,
        dir: &Path,
        durable: u64,
        edits: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Result<Result<(), Refused>> {
        let (start, mut records, mut first_end) = (self.len(), Vec::new(), 0);
        for (edit, payload) in edits {
            let record = encode_record(self.uid, start + records.len() as u64, edit, durable, payload);
            records.extend_from_slice(&record);
            first_end = if first_end == 0 { start + records.len() as u64 } else { first_end };
        }
        for nth in 0..self.files.len() {
            let file = &mut self.files[nth];
            match file.append(&records).and_then(|()| file.flush()) {
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    let len = env.fs.metadata(&dir.join(&self.names[nth])).map(|file| file.len);
                    let is_torn = len.is_ok_and(|len| len < first_end);
                    return Ok(Err(Refused { error, whole: nth, is_torn }));
                }
                outcome => outcome?,
            }
        }
        Ok(Ok(()))
    }

    /// Makes refused records durable in the files that hold all of them. Returns false if there are
    /// none.
    ///
    /// # Errors
    /// Errors of the syncs.
    pub(super) fn sync_whole(&mut self, refused: &Refused) -> Result<bool> {
        self.is_whole = false;
        self.files.truncate(refused.whole);
        self.sync()?;
        Ok(refused.whole > 0)
    }

    fn append_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.files.iter_mut().try_for_each(|file| file.append(bytes))
    }

    /// Allocates space for `bytes` more in all files. A refusal leaves them as they were.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.files.iter_mut().try_for_each(|file| file.reserve(file.len() + bytes))
    }

    /// Makes all records durable: in all files, or in those with space, if there is one.
    pub(super) fn sync(&mut self) -> Result<()> {
        let (mut synced, mut refused) = (0, None);
        for file in &mut self.files {
            match file.sync(SyncKind::Data) {
                Err(e) if e.kind() == ErrorKind::NoSpace => refused = Some(e),
                outcome => outcome.map(|()| synced += 1)?,
            }
        }
        self.is_whole &= refused.is_none();
        match refused {
            Some(e) if synced == 0 => Err(e),
            _ => Ok(()),
        }
    }
}
