//! A manifest that is written: its file, and the copy of it where the format of the store has one.
//!
//! Both get the same bytes, and none of them counts before both are synced.

use super::format::{self, encode_record};
use crate::format::Feature;
use crate::names;
use base::{Result, Uid};
use io::{AppendFile, CreateOptions, Env, SyncKind};
use std::path::Path;

/// See the module.
pub(super) struct Writer {
    /// The original first. The length of all is the same between two calls.
    files: Vec<Box<dyn AppendFile>>,
    pub uid: Uid,
    /// The number in its name.
    pub number: u64,
    /// The names of the files.
    pub names: Vec<String>,
}

/// The names of the files of a manifest whose header this is.
pub(super) fn file_names(header: &format::Header) -> Vec<String> {
    let copy = header.format.allows(Feature::ManifestCopies).then(|| names::manifest_copy(header.number));
    [names::manifest(header.number)].into_iter().chain(copy).collect()
}

impl Writer {
    /// Makes the files, with a snapshot in pieces that has this edit number, and syncs them. Their names are not durable yet.
    pub(super) fn create(
        env: &Env,
        dir: &Path,
        header: &format::Header,
        (edit, pieces): (u64, &[&[u8]]),
    ) -> Result<Writer> {
        let names = file_names(header);
        let create = |name: &String| env.fs.create(&dir.join(name), &CreateOptions::default());
        let files = names.iter().map(create).collect::<Result<Vec<_>>>()?;
        let mut writer = Writer { files, uid: header.manifest, number: header.number, names };
        writer.append_all(&header.encode())?;
        for piece in pieces {
            writer.append(edit, edit, piece)?;
        }
        writer.files.iter_mut().try_for_each(|file| file.sync(SyncKind::Full))?;
        Ok(writer)
    }

    /// How many files hold it.
    pub(super) fn copies(&self) -> u64 {
        self.files.len() as u64
    }

    /// Its length, bytes.
    pub(super) fn len(&self) -> u64 {
        self.files.first().map_or(0, |file| file.len())
    }

    /// Appends a record.
    pub(super) fn append(&mut self, edit: u64, durable: u64, payload: &[u8]) -> Result<()> {
        let record = encode_record(self.uid, self.len(), edit, durable, payload);
        self.append_all(&record)
    }

    fn append_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.files.iter_mut().try_for_each(|file| file.append(bytes))
    }

    /// Takes room for so many bytes in all files, if there are several: a volume that is full must not have got a record into one of them.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<()> {
        match self.files.len() {
            0 | 1 => Ok(()),
            _ => self.files.iter_mut().try_for_each(|file| file.reserve(file.len() + bytes)),
        }
    }

    /// Hands what was appended to the file system.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.files.iter_mut().try_for_each(|file| file.flush())
    }

    /// Makes what was appended durable, in all files.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.files.iter_mut().try_for_each(|file| file.sync(SyncKind::Data))
    }
}
