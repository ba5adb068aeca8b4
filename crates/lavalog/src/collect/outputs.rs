//! The cold files that a collection writes: one, or several from the second copy of a record on
//! ([`ColdClass`]).
//!
//! The first record of a class creates its file, so no file is empty. A file for a single log is
//! finished after that log; the others stay open until the end. One edit names all files. If the
//! collection fails, all files are removed.

use crate::cold::{ColdFileWriter, ColdHead};
use crate::disk::indexed::FinishedFile;
use crate::entry::{Entry, LogId, Source};
use crate::index::RecordsInFile;
use crate::manifest::{FileMeta, FileRole};
use crate::pick::ColdClass;
use crate::seal::parts_of;
use crate::store_handles::{NewFile, StoreHandles};
use base::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) struct Outputs {
    generation: u32,
    /// The open file of each class, with its index in `files`.
    open: BTreeMap<ColdClass, (usize, ColdFileWriter)>,
    /// All created files; for finished ones, with their contents.
    files: Vec<(NewFile, Option<FinishedFile>)>,
}

impl Outputs {
    /// Creates the outputs of a collection, whose records then have this generation.
    pub fn new(generation: u32) -> Outputs {
        Outputs { generation, open: BTreeMap::new(), files: Vec::new() }
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Adds a record, in ascending order of log and LSN.
    ///
    /// # Errors
    /// I/O errors.
    pub fn add(&mut self, store: &StoreHandles, company: ColdClass, row: &Entry, bytes: &[u8]) -> Result<()> {
        if !self.open.contains_key(&company) {
            let (file, append) = store.new_file(FileRole::Cold { generation: self.generation })?;
            let head = ColdHead { number: file.meta.number, generation: self.generation };
            let writer = ColdFileWriter::new(append, &file.path, file.meta.uid, head);
            self.open.insert(company, (self.files.len(), writer));
            self.files.push((file, None));
        }
        let open = self.open.get_mut(&company);
        open.map_or(Ok(()), |(_, writer)| writer.add(row.log, row.lsn, row.seq, bytes).map(drop))
    }

    /// Notes that all records of a log were added.
    ///
    /// # Errors
    /// Errors of finishing a file.
    pub fn end_log(&mut self, company: ColdClass) -> Result<()> {
        if company == ColdClass::Own { self.finish(company) } else { Ok(()) }
    }

    fn finish(&mut self, company: ColdClass) -> Result<()> {
        let Some((at, writer)) = self.open.remove(&company) else { return Ok(()) };
        let finished = writer.finish()?;
        if let Some((file, there)) = self.files.get_mut(at) {
            file.meta.len = finished.len;
            *there = Some(finished);
        }
        Ok(())
    }

    /// Finishes all files: their contents are durable, but not yet their directory entries.
    ///
    /// # Errors
    /// Errors of finishing a file.
    pub fn finish_all(&mut self) -> Result<()> {
        [ColdClass::Mixed, ColdClass::Kept, ColdClass::Own]
            .into_iter()
            .try_for_each(|company| self.finish(company))
    }

    /// Returns the numbers and paths of all files so far.
    pub fn created(&self) -> Vec<(u64, PathBuf)> {
        self.files.iter().map(|(file, _)| (file.meta.number, file.path.clone())).collect()
    }

    /// Returns the manifest entries of the files.
    pub fn metas(&self) -> Vec<FileMeta> {
        self.files.iter().map(|(file, _)| file.meta).collect()
    }

    /// Returns the parts of the files, one for each log. Every log is in a single file.
    ///
    /// # Errors
    /// The errors of [`RecordsInFile::of`].
    pub fn parts(&self) -> Result<Vec<(LogId, RecordsInFile)>> {
        let mut out = Vec::new();
        for (file, finished) in &self.files {
            if let Some(finished) = finished {
                out.extend(parts_of(Source::Cold(file.meta.number), &finished.directory)?);
            }
        }
        Ok(out)
    }

    /// Removes all files that no edit names.
    pub fn remove(self, store: &StoreHandles) {
        drop(self.open);
        let files: Vec<NewFile> = self.files.into_iter().map(|(file, _)| file).collect();
        store.remove_unnamed(&files);
    }
}
