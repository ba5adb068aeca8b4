//! Malformed records that an import passed: all are counted, the first of them are listed.

use crate::formats::lines::Malformed;
use crate::status::{Status, failure};
use crate::{Result, output};
use bench::report::{counted, human_count};
use std::path::Path;

/// Records that are listed.
const LINES_MAX: usize = 20;

/// Malformed records.
#[derive(Default)]
pub struct Skipped {
    count: u64,
    lines: Vec<String>,
}

impl Skipped {
    /// Counts one, and keeps its error if there is room.
    pub fn add(&mut self, file: &Path, malformed: &Malformed) {
        self.count += 1;
        if self.lines.len() < LINES_MAX {
            self.lines.push(format!("{}: {malformed}", file.display()));
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Lists them on standard error. An error if there are any: the import is not whole.
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
        let what = format!("the import is not whole: {} skipped", counted(self.count, "malformed record"));
        Err(failure(Status::NotWhole, what))
    }
}
