//! The file of metrics: what `Db::metrics` tells, kept where other processes find it.
//!
//! Counters are those of a process, so only the process that has the store open can tell them. With `metrics_file` it writes
//! them out every few seconds, whole: to another name beside, which then takes the place of the file, so that whoever reads it
//! sees one moment and never a part. Nothing is synced: after a loss of power the numbers are of no use.
//!
//! A page of metrics lists the store's directory, which is short work in most stores and not in those of a hundred thousand
//! files: a quarter of a second, though under no lock for longer than a thousand names take. So the pause is at least
//! [`PAUSE_TIMES`] what the last one took. Where the file cannot be written (a full disk, a directory that is gone) that is
//! counted, and tried again with the next page: the store is not concerned.
//!
//! In the store's directory it counts with the store's files. Under a limit a page is written only where it fits beside what
//! the jobs that free space need, and the page after it, too, while the one before is there; the limit itself is the
//! meter's to keep.
//!
//! A close removes the file. That of a process which was killed stays, and its age tells.

use super::claim::Claim;
use super::{Claimed, Jobs};
use crate::context::Context;
use crate::plan::in_progress::InProgressSet;
use base::{ErrorKind, Result};
use io::{Access, CreateOptions, FileSystem};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use store::volumes::pages;

/// From one page to the next, nanoseconds.
const PAUSE_NS: u64 = 5_000_000_000;
/// The pause after a page that took long is so many times that long.
const PAUSE_TIMES: u64 = 50;

/// Where it is, and where it is written first.
fn paths(context: &Context) -> Option<(PathBuf, PathBuf)> {
    let file = context.dir.join(context.options.metrics_file.as_ref()?);
    let mut name = file.file_name()?.to_owned();
    name.push(".tmp");
    Some((file.with_file_name(name), file))
}

/// True if it is time to write it.
pub(super) fn is_due(jobs: &Jobs, set: &InProgressSet) -> bool {
    jobs.context.options.metrics_file.is_some() && set.metrics.is_due(jobs.context.now_ns())
}

/// Claims the writing of a page.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet) -> Claimed {
    set.metrics.begin();
    let jobs = jobs.clone();
    let (context, begun_ns) = (jobs.context.clone(), jobs.context.now_ns());
    let claim = Claim::new(&jobs, move |set| {
        let now_ns = context.now_ns();
        let pause_ns = now_ns.saturating_sub(begun_ns).saturating_mul(PAUSE_TIMES).max(PAUSE_NS);
        set.metrics.end(now_ns, pause_ns);
    });
    Box::new(move || Box::new(MetricsJob { jobs, _claim: claim }))
}

/// Removes the file, when the store is closed.
pub(crate) fn remove(context: &Context) {
    if let Some((partial, file)) = paths(context) {
        // Nothing depends on them, and there may be none.
        let _ = context.env.fs.remove(&partial);
        let _ = context.env.fs.remove(&file);
    }
}

/// What a page in the place of `file` needs besides what is there: itself, and the page after it, for which the one before
/// makes room.
fn room_bytes(fs: &dyn FileSystem, file: &Path, len: u64) -> u64 {
    let new = pages(len);
    // Where it is not seen, as on the first time, there is nothing that makes room.
    let before = fs.metadata(file).map_or(0, |before| pages(before.len));
    new.saturating_add(new.saturating_sub(before))
}

/// The writing of one page.
struct MetricsJob {
    jobs: Arc<Jobs>,
    /// Dropped last.
    _claim: Claim,
}

impl MetricsJob {
    /// False: there is no room for it.
    fn write(&self) -> Result<bool> {
        let context = &self.jobs.context;
        let Some((partial, file)) = paths(context) else { return Ok(true) };
        let text = (self.jobs.metrics)(&self.jobs)?;
        let fs = &context.env.fs;
        match fs.remove(&partial) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let inside = file.parent() == Some(&context.dir);
        if inside && !self.jobs.space.grants.fits_file(room_bytes(&**fs, &file, text.len() as u64)) {
            return Ok(false);
        }
        let options = CreateOptions { access: Access::Buffered, ..CreateOptions::default() };
        let mut page = fs.create(&partial, &options)?;
        let written = page.append(text.as_bytes()).and_then(|()| page.flush());
        drop(page);
        let renamed = written.and_then(|()| fs.rename(&partial, &file));
        if renamed.is_err() {
            // The first error is the one to count.
            let _ = fs.remove(&partial);
        }
        renamed.map(|()| true)
    }
}

impl Job for MetricsJob {
    fn class(&self) -> JobClass {
        JobClass::Metrics
    }

    fn step(&mut self) -> Result<Progress> {
        if !self.write().unwrap_or(false) {
            self.jobs.context.stats.metrics_write_errors.add(1);
        }
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {}
}
