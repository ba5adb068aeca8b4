//! The cold files that a copy writes: one, or several from the second copy of a record on ([`Company`]).
//!
//! A file is begun with the first record that goes to it, so none is empty. One that has a single log is finished with that log; the
//! others are open until the end. All of them are named by one edit, and none before; if the copy comes to nothing all are removed.

use crate::cold::{ColdFileWriter, ColdHead};
use crate::disk::indexed::FinishedFile;
use crate::entry::{Entry, LogId, Source};
use crate::foundation::{Foundation, NewFile};
use crate::index::Part;
use crate::manifest::{FileMeta, Role};
use crate::pick::Company;
use crate::seal::parts_of;
use base::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// See the module.
pub(super) struct Outputs {
    generation: u32,
    /// Of each company at most one file is open; with its place in `files`.
    open: BTreeMap<Company, (usize, ColdFileWriter)>,
    /// All that were begun, with what is in those that are finished.
    files: Vec<(NewFile, Option<FinishedFile>)>,
}

impl Outputs {
    /// Of a copy whose records are of this generation then.
    pub fn new(generation: u32) -> Outputs {
        Outputs { generation, open: BTreeMap::new(), files: Vec::new() }
    }

    /// How often records that come here were copied.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Adds a record. They come by log, and by LSN in a log.
    ///
    /// # Errors
    /// Those of making and writing a file.
    pub fn add(&mut self, store: &Foundation, company: Company, row: &Entry, bytes: &[u8]) -> Result<()> {
        if !self.open.contains_key(&company) {
            let (file, append) = store.new_file(Role::Cold { generation: self.generation })?;
            let head = ColdHead { number: file.meta.number, generation: self.generation };
            let writer = ColdFileWriter::new(append, &file.path, file.meta.uid, head);
            self.open.insert(company, (self.files.len(), writer));
            self.files.push((file, None));
        }
        let open = self.open.get_mut(&company);
        open.map_or(Ok(()), |(_, writer)| writer.add(row.log, row.lsn, row.seq, bytes).map(drop))
    }

    /// All of a log was added.
    ///
    /// # Errors
    /// Those of finishing a file.
    pub fn end_log(&mut self, company: Company) -> Result<()> {
        if company == Company::Own { self.finish(company) } else { Ok(()) }
    }

    fn finish(&mut self, company: Company) -> Result<()> {
        let Some((at, writer)) = self.open.remove(&company) else { return Ok(()) };
        let finished = writer.finish()?;
        if let Some((file, there)) = self.files.get_mut(at) {
            file.meta.len = finished.len;
            *there = Some(finished);
        }
        Ok(())
    }

    /// Finishes all files: their bytes are durable, their names are not yet.
    ///
    /// # Errors
    /// Those of finishing a file.
    pub fn finish_all(&mut self) -> Result<()> {
        [Company::Mixed, Company::Kept, Company::Own].into_iter().try_for_each(|company| self.finish(company))
    }

    /// Numbers and paths of all files so far.
    pub fn created(&self) -> Vec<(u64, PathBuf)> {
        self.files.iter().map(|(file, _)| (file.meta.number, file.path.clone())).collect()
    }

    /// What the manifest is told of them.
    pub fn metas(&self) -> Vec<FileMeta> {
        self.files.iter().map(|(file, _)| file.meta).collect()
    }

    /// What they have of each log. A log is in one of them.
    ///
    /// # Errors
    /// Those of [`Part::of`].
    pub fn parts(&self) -> Result<Vec<(LogId, Part)>> {
        let mut out = Vec::new();
        for (file, finished) in &self.files {
            if let Some(finished) = finished {
                out.extend(parts_of(Source::Cold(file.meta.number), &finished.directory)?);
            }
        }
        Ok(out)
    }

    /// Removes all of them, unless an edit names them.
    pub fn remove(self, store: &Foundation) {
        drop(self.open);
        let files: Vec<NewFile> = self.files.into_iter().map(|(file, _)| file).collect();
        store.remove_unnamed(&files);
    }
}
