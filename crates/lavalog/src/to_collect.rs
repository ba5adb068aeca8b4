//! What may be collected, as it comes, changes and goes; and what of it was last found to be most worth it.
//!
//! Whoever looks for work asks, and far more often than anything changes. So the answer is kept until it does, and what has changed is
//! told by the ledger, file by file.

use crate::entry::Source;
use crate::logs::Logs;
use crate::pick::{Candidates, FileFacts, Pick, PickOptions, pick};
use base::sync::{RwLock, rank, write};

/// Files whose counts are looked at while nobody else looks at any log.
const FILES_AT_ONCE: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ToCollect {
    files: Candidates,
    /// And by which options; `None`: something has changed since.
    answer: Option<(PickOptions, Option<Pick>)>,
}

impl ToCollect {
    /// A file has come.
    pub fn add(&mut self, file: FileFacts) {
        self.files.set(file);
        self.answer = None;
    }

    /// A file has gone, or cannot be read.
    pub fn remove(&mut self, source: Source) {
        self.files.remove(source);
        self.answer = None;
    }

    /// What is most worth collecting.
    pub fn pick(&mut self, options: &PickOptions) -> Option<Pick> {
        if self.answer.as_ref().is_none_or(|(of, _)| of != options) {
            self.answer = Some((*options, pick(&mut self.files, options)));
        }
        self.answer.as_ref().and_then(|(_, pick)| pick.clone())
    }

    /// Takes note of what has died since this was last called. The lock is held for a bounded number of files each time.
    pub fn update(&mut self, logs: &RwLock<Logs, rank::Records>) {
        loop {
            let changed = write(logs).take_changed(FILES_AT_ONCE);
            for (source, usage) in &changed {
                self.files.set_live(*source, usage.live);
                self.answer = None;
            }
            if changed.len() < FILES_AT_ONCE {
                return;
            }
        }
    }
}
