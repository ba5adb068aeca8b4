//! What may be collected, as it comes, changes and goes; and what of it was last found to be most worth it.
//!
//! Whoever looks for work asks, and far more often than anything changes. So the answer is kept until it does, and what has changed is
//! told by the ledger, file by file.

use crate::catalog::Catalog;
use crate::entry::Source;
use crate::pick::{Candidates, FileFacts, Pick, PickOptions, pick};

/// Files whose counts are looked at while nobody else looks at any log.
const FILES_AT_ONCE: usize = 1024;

/// So many answers are kept.
const ANSWERS_MAX: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ToCollect {
    files: Candidates,
    /// What was found by which options since something last changed. Where room is short several are tried one after another.
    answers: Vec<(PickOptions, Option<Pick>)>,
}

impl ToCollect {
    /// A file has come.
    pub fn add(&mut self, file: FileFacts) {
        self.files.set(file);
        self.answers.clear();
    }

    /// A file has gone, or cannot be read.
    pub fn remove(&mut self, source: Source) {
        self.files.remove(source);
        self.answers.clear();
    }

    /// What is most worth collecting.
    pub fn pick(&mut self, options: &PickOptions) -> Option<Pick> {
        if let Some((_, pick)) = self.answers.iter().find(|(of, _)| of == options) {
            return pick.clone();
        }
        let pick = pick(&mut self.files, options);
        self.answers.drain(..(self.answers.len() + 1).saturating_sub(ANSWERS_MAX));
        self.answers.push((*options, pick.clone()));
        pick
    }

    /// Takes note of what has died since this was last called. The lock is held for a bounded number of files each time.
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
