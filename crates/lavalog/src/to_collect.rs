//! The collectable files, and a cache of the last choices.
//!
//! The scheduler asks for work far more often than anything changes. So choices are cached until a
//! file changes; the ledger reports the changed files.

use crate::catalog::Catalog;
use crate::entry::Source;
use crate::pick::{Candidates, FileFacts, Pick, PickOptions, pick};

/// Maximum number of changed files fetched under one hold of the catalog lock.
const FILES_AT_ONCE: usize = 1024;

/// Maximum number of cached choices.
const ANSWERS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct ToCollect {
    files: Candidates,
    /// Choices since the last change, with their parameters. When space is short, several
    /// thresholds are tried.
    answers: Vec<(PickOptions, Option<Pick>)>,
}

impl ToCollect {
    pub fn add(&mut self, file: FileFacts) {
        self.files.set(file);
        self.answers.clear();
    }

    /// Removes a file that is gone or unreadable.
    pub fn remove(&mut self, source: Source) {
        self.files.remove(source);
        self.answers.clear();
    }

    /// Returns the most worthwhile collection.
    pub fn pick(&mut self, options: &PickOptions) -> Option<Pick> {
        if let Some((_, pick)) = self.answers.iter().find(|(of, _)| of == options) {
            return pick.clone();
        }
        let pick = pick(&mut self.files, options);
        self.answers.drain(..(self.answers.len() + 1).saturating_sub(ANSWERS_MAX));
        self.answers.push((*options, pick.clone()));
        pick
    }

    /// Fetches the files with new garbage from the catalog, holding its lock for a bounded number
    /// of files at a time.
    pub fn update(&mut self, catalog: &Catalog) {
        loop {
            let changed = catalog.take_changed(FILES_AT_ONCE);
            for (source, usage) in &changed {
                self.files.set_live(*source, usage.live);
                self.answers.clear();
            }
            if changed.len() < FILES_AT_ONCE {
                return;
            }
        }
    }
}
