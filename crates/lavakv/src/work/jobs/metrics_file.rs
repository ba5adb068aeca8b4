//! The metrics file: the output of `Db::metrics`, for other processes.
//!
//! Counters belong to a process, so only the process with the open store can report them. With
//! `metrics_file` it writes them every few seconds. It writes a new file under another name and
//! renames it over the old one, so a reader always sees a complete page. Nothing is synced, because
//! the numbers are worthless after a power failure.
//!
//! A metrics page lists the store's directory. That is fast in most stores, but takes a quarter of
//! a second with a hundred thousand files. The mutex is held for at most a thousand names at a
//! time. So the pause is at least [`PAUSE_TIMES`] the duration of the last page. Failed writes
//! (full disk, missing directory) are counted and retried with the next page; the store is not
//! affected.
//!
//! In the store's directory the file counts as a file of the store. Under a limit a page is written
//! only if it fits beside the reserve of the jobs that free space. The same holds for the next
//! page, while the previous one still exists. The space meter enforces the limit itself.
//!
//! A close removes the file. The file of a killed process stays; its age reveals that.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
use crate::context::Context;
use crate::plan::in_progress::InProgressSet;
use base::{ErrorKind, Result};
use io::{Access, CreateOptions, FileSystem};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use store::volumes::pages;

/// Interval between pages, nanoseconds.
const PAUSE_NS: u64 = 5_000_000_000;
/// Minimum pause, as a multiple of the duration of the last page.
const PAUSE_TIMES: u64 = 50;

/// Returns the temporary path and the final path.
fn paths(context: &Context) -> Option<(PathBuf, PathBuf)> {
    let file = context.dir.join(context.options.metrics_file.as_ref()?);
    let mut name = file.file_name()?.to_owned();
    name.push(".tmp");
    Some((file.with_file_name(name), file))
}

/// Returns whether the next page is due.
pub(super) fn is_due(jobs: &Jobs, set: &InProgressSet) -> bool {
    jobs.context.options.metrics_file.is_some() && set.metrics.is_due(jobs.context.now_ns())
}

/// Claims the write of a page.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet) -> ClaimedJob {
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

/// Removes the file at close.
pub(crate) fn remove(context: &Context) {
    if let Some((partial, file)) = paths(context) {
        // Errors are ignored: nothing depends on the files, and they may not exist.
        let _ = context.env.fs.remove(&partial);
        let _ = context.env.fs.remove(&file);
    }
}

/// Returns the additional space for a page in place of `file`: for itself, and for the next page
/// minus the replaced one.
fn room_bytes(fs: &dyn FileSystem, file: &Path, len: u64) -> u64 {
    let new = pages(len);
    // Without a previous file, no space is freed.
    let before = fs.metadata(file).map_or(0, |before| pages(before.len));
    new.saturating_add(new.saturating_sub(before))
}

/// A job that writes one page.
struct MetricsJob {
    jobs: Arc<Jobs>,
    /// Dropped last.
    _claim: Claim,
}

impl MetricsJob {
    /// Writes a page. Returns false if it does not fit.
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
            // The first error is the one to report.
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
