//! Malformed records skipped by an import: all are counted, the first ones are listed.

use crate::formats::lines::Malformed;
use crate::status::{Status, failure};
use crate::{Result, output};
use bench::report::{counted, human_count};
use std::path::Path;

/// Maximum number of listed records.
const LINES_MAX: usize = 20;

/// Skipped malformed records.
#[derive(Default)]
pub struct Skipped {
    count: u64,
    lines: Vec<String>,
}

impl Skipped {
    /// Counts a record, and keeps its error while there is room.
    pub fn add(&mut self, file: &Path, malformed: &Malformed) {
        self.count += 1;
        if self.lines.len() < LINES_MAX {
            self.lines.push(format!("{}: {malformed}", file.display()));
        }
    }

    /// Returns their number.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Lists them on standard error. Fails if there are any, since the import is incomplete.
    pub fn told(&self) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        for line in &self.lines {
            output::tell(&format!("skipped {}", output::one_line(line)));
        }
        let more = self.count - self.lines.len() as u64;
        if more > 0 {
            output::tell(&format!("skipped {} more", human_count(more)));
        }
        let what = format!(
            "the import is incomplete: {} skipped; all other records are in the store: correct these and import them",
            counted(self.count, "malformed record")
        );
        Err(failure(Status::NotWhole, what))
    }
}
