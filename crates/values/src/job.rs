//! The garbage collection job (skeleton of the interface).

use crate::outputs::{OutputVsst, Outputs};
use crate::pick::{Gc, GcOptions};
use base::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;
use version::{TableSource, Version, VsstClass, VsstMeta, VsstSource};

/// The world around a job, lent to it for a step.
pub trait GcWorld {
    /// Opens tables.
    fn tables(&self) -> &dyn TableSource;
    /// Opens vSSTs.
    fn vssts(&self) -> &dyn VsstSource;
    /// Begins an output, whose records have this alignment and class.
    fn create(&mut self, alignment: u32, class: VsstClass) -> Result<OutputVsst>;
}

/// What was found in one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The file.
    pub file: u64,
    /// Bytes of the records that were judged.
    pub judged_bytes: u64,
    /// Bytes of those that are garbage.
    pub garbage_bytes: u64,
}

/// What a job came to.
#[derive(Clone, Debug)]
pub enum GcOutcome {
    /// The outputs, finished and synced, in key order, take the place of the inputs. None: nothing was live.
    Replace {
        /// The files replaced.
        inputs: Vec<u64>,
        /// The files that take over.
        outputs: Vec<VsstMeta>,
    },
    /// There was too little garbage. The outputs begun (see [`GcJob::created`]) are to be removed.
    Abandoned {
        /// What was found, input by input.
        measured: Vec<Measured>,
    },
}

/// What a step came to.
#[derive(Debug)]
pub enum GcStep {
    /// There is more to do.
    More,
    /// The job is done.
    Done(GcOutcome),
}

/// Counts of a job so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcStats {
    /// Keys of the inputs that were judged.
    pub keys: u64,
    /// Those that are live.
    pub live_keys: u64,
    /// Bytes of the records judged.
    pub judged_bytes: u64,
    /// Bytes of the live ones.
    pub live_bytes: u64,
    /// Keys looked up in tables one by one.
    pub point_lookups: u64,
    /// References passed in merge joins.
    pub joined_references: u64,
    /// Requests that read records.
    pub record_reads: u64,
    /// Bytes of these, gaps included.
    pub record_read_bytes: u64,
}

/// A garbage collection in progress. See the module.
pub struct GcJob {
    gc: Gc,
    _version: Arc<Version>,
    _options: GcOptions,
    outputs: Outputs,
    stats: GcStats,
}

impl GcJob {
    /// A job for `gc`, which was picked from `version`. Nothing is read yet.
    pub fn new(gc: Gc, version: Arc<Version>, options: GcOptions) -> Self {
        GcJob {
            gc,
            _version: version,
            _options: options,
            outputs: Outputs::default(),
            stats: GcStats::default(),
        }
    }

    /// Does a bounded amount of work.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, for a record that fails its checksum: nothing damaged is copied. Those of
    /// tables, vSSTs and outputs. After an error every further step returns the same.
    ///
    /// # Panics
    /// If the job is done already.
    pub fn step(&mut self, _world: &mut dyn GcWorld) -> Result<GcStep> {
        Err(Error::new(ErrorKind::Unsupported, "garbage is not collected yet"))
    }

    /// What it collects.
    pub fn gc(&self) -> &Gc {
        &self.gc
    }

    /// Every file begun so far, finished or not: number and path.
    pub fn created(&self) -> &[(u64, PathBuf)] {
        self.outputs.created()
    }

    /// Counts so far.
    pub fn stats(&self) -> &GcStats {
        &self.stats
    }

    /// Bytes read since the last call: what a rate limiter is charged after each step.
    pub fn take_read_bytes(&mut self) -> u64 {
        0
    }

    /// Bytes written since the last call (estimated for the file that is open).
    pub fn take_written_bytes(&mut self) -> u64 {
        self.outputs.take_written_bytes()
    }
}
