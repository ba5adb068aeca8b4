//! The pipeline: copies a batch of records while the next batches are being read, and the following
//! keys are judged.
//!
//! ```text
//! judged      |======= window n =======|-- window n + 1, judged while reads are waited for --
//! read                 |= batch =|= batch =|= batch =|      on their way, at most HELD_BYTES_MAX begun
//! copied      |= batch =|                                   in key order, one in a step
//! written     (the file has what it is given written behind)
//! ```
//!
//! The job keeps the device busy as long as there are live records, whatever its thread does. The
//! reads of the next batches start before one is judged or copied, in one queue ([`io::ReadQueue`])
//! that runs between the steps. The job's thread waits for reads only if it has nothing else to do.
//!
//! * **Order.** Batches are copied in the order in which they were planned, which is key order,
//!   whichever is read first. A batch has its own window, which is immutable once it is judged.
//! * **Bounded.** Held records take at most [`HELD_BYTES_MAX`] and a batch; with a value log file
//!   among the inputs, twice that and a batch that is four times as long. There are at most two
//!   windows, of half the size of a single one, so that both take no more memory.
//! * **Ownership.** The queue owns the buffers until they are read, and the job owns the queue. A
//!   job that fails or is dropped waits for reads in flight when it drops the queue, before its
//!   files. A failed read is reported when its batch is next; the job installs nothing then.
//! * **Pace.** If foreground reads are active, the queue waits for each batch in pieces, as without
//!   a pipeline ([`io::ReadQueue::submit_all`]).
//! * **The first batch** of a job is read synchronously: read costs are learned from synchronous
//!   reads ([`io::ReadCosts`]).
//!
//! Without a pipeline (`GcOptions::pipelined` off, or no queue) the same steps alternate: a window
//! is judged, then its batches are read and copied one by one.

use super::copy::{Batch, CopyStats, Grouping, is_scattered};
use super::window::Window;
use crate::pick::GcOptions;
use base::Result;
use io::ReadQueue;
use std::collections::VecDeque;
use std::sync::Arc;
use table::Vsst;

/// Maximum bytes that one batch reads, gaps included, without a pipeline.
const ALONE_BYTES_MAX: u64 = 4 << 20;
/// The same with a pipeline; `HELD_BYTES_MAX` bounds the bytes in flight before the next batch
/// starts.
const AHEAD_BYTES_MAX: u64 = 2 << 20;
const HELD_BYTES_MAX: u64 = 4 << 20;
/// Factor on the length of a batch with value log files, whose chosen records then lie that much
/// closer. Two such batches are held.
const SCATTERED_TIMES: u64 = 4;

/// The pipeline of a job: see the module.
#[derive(Default)]
pub(crate) struct Pipeline {
    /// Read queue; `None`: each batch is read synchronously.
    queue: Option<ReadQueue>,
    grouping: Grouping,
    /// Maximum bytes in flight before the next batch starts.
    held_bytes_max: u64,
    /// The judged window being planned, with the first entry left to plan.
    planning: Option<(Arc<Window>, usize)>,
    /// The judged window after that one.
    next: Option<Arc<Window>>,
    /// Batches that are read or being read, and not copied, in key order.
    batches: VecDeque<Batch>,
    /// Number of the next read.
    number: u64,
    held_bytes: u64,
    /// Recycled batch for the next plan.
    spare: Option<Batch>,
    spare_window: Option<Window>,
    pub(crate) stats: CopyStats,
}

impl Pipeline {
    /// Returns the pipeline of a job with these options over these inputs, with a queue if there is
    /// one.
    pub(crate) fn new(options: &GcOptions, inputs: &[Arc<Vsst>], queue: Option<ReadQueue>) -> Pipeline {
        let times = if inputs.iter().any(|input| is_scattered(input)) { SCATTERED_TIMES } else { 1 };
        let read_bytes_max = if queue.is_some() { AHEAD_BYTES_MAX } else { ALONE_BYTES_MAX };
        let grouping = Grouping {
            batch_bytes: options.step_bytes.max(1).saturating_mul(times),
            read_bytes_max: read_bytes_max * times,
            gap_bytes: options.gap_bytes,
            lazy_read: options.lazy_read,
        };
        let held_bytes_max = HELD_BYTES_MAX * times.div_ceil(2);
        Pipeline { queue, grouping, held_bytes_max, ..Pipeline::default() }
    }

    /// Returns the maximum number of keys, and bytes of keys, in a window.
    pub(crate) fn window_max(&self, options: &GcOptions) -> (usize, usize) {
        let windows = if self.is_one() { 2 } else { 1 };
        ((options.window_keys / windows).max(1), (options.window_key_bytes / windows).max(1))
    }

    /// Returns true if work may be done ahead.
    pub(crate) fn is_one(&self) -> bool {
        self.queue.is_some()
    }

    /// Returns true if no reads are in flight, and no judged entries are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.planning.is_none() && self.next.is_none()
    }

    /// Returns true if another window may be filled and judged now.
    pub(crate) fn may_judge(&self) -> bool {
        if !self.is_one() {
            return self.is_empty();
        }
        // Only the first batches can belong to an older window than the one being planned.
        let oldest = self.batches.front().map(|batch| &batch.window);
        let planned = self.planning.as_ref().map(|(window, _)| window);
        let is_one = oldest.zip(planned).is_none_or(|(a, b)| Arc::ptr_eq(a, b));
        let newest = self.batches.back().map(|batch| &batch.window);
        self.next.is_none() && is_one && oldest.zip(newest).is_none_or(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Takes a judged window, and returns one to fill.
    pub(crate) fn take(&mut self, judged: Window) -> Window {
        debug_assert!(self.next.is_none(), "a window is judged too early");
        self.next = Some(Arc::new(judged));
        self.turn();
        self.spare_window.take().unwrap_or_default()
    }

    /// Turns to the next window if there is nothing left to plan.
    fn turn(&mut self) {
        if self.planning.is_none() {
            self.planning = self.next.take().map(|window| (window, 0));
        }
    }

    /// Starts reading as many batches as may be held.
    ///
    /// # Errors
    /// The errors of a batch that is read synchronously.
    pub(crate) fn fill(&mut self, inputs: &[Arc<Vsst>]) -> Result<()> {
        self.look(false);
        loop {
            let has_room = match self.is_one() {
                true => self.batches.is_empty() || self.held_bytes < self.held_bytes_max,
                false => self.batches.is_empty(),
            };
            if !has_room {
                return Ok(());
            }
            let Some(batch) = self.plan(inputs) else { return Ok(()) };
            // A synchronous batch is complete; further batches wait until it is copied.
            if !self.read(batch, inputs)? {
                return Ok(());
            }
        }
    }

    /// Plans the next batch; `None` if there is nothing to plan.
    fn plan(&mut self, inputs: &[Arc<Vsst>]) -> Option<Batch> {
        let mut batch = self.spare.take().unwrap_or_default();
        loop {
            let Some((window, from)) = &mut self.planning else {
                self.spare = Some(batch);
                return None;
            };
            *from += batch.plan(window, *from..window.len(), inputs, self.grouping);
            if *from >= window.len() {
                self.planning = None;
                self.turn();
            }
            if !batch.is_empty() {
                return Some(batch);
            }
            let window = batch.clear();
            self.keep(window);
        }
    }

    /// Reads a batch, or starts to. Returns true if its reads run in the background.
    fn read(&mut self, mut batch: Batch, inputs: &[Arc<Vsst>]) -> Result<bool> {
        let reads = batch.reads() as u64;
        self.stats.reads += reads;
        self.stats.read_bytes += batch.read_bytes;
        self.held_bytes += batch.read_bytes;
        self.stats.held_bytes_max = self.stats.held_bytes_max.max(self.held_bytes);
        let is_first = self.stats.reads == reads;
        let goes_on = match self.queue.as_mut().filter(|_| !is_first) {
            None => {
                batch.read(inputs)?;
                false
            }
            Some(queue) => {
                let goes_on = queue.submit_all(&batch.begin(inputs, self.number), self.number);
                self.number += reads;
                goes_on
            }
        };
        self.batches.push_back(batch);
        // Submits the reads to the device now, not at the first wait for them.
        self.look(false);
        if goes_on {
            self.stats.reads_ahead += reads;
        }
        Ok(goes_on || is_first)
    }

    /// Takes finished reads; with `wait` waits until there is one.
    fn look(&mut self, wait: bool) {
        let Some(queue) = &mut self.queue else { return };
        for done in queue.complete(wait) {
            let _ = self.batches.iter_mut().any(|batch| batch.land(done.token, &done.read));
        }
    }

    /// Returns true if the next batch can be copied without waiting.
    pub(crate) fn has_landed(&self) -> bool {
        self.batches.front().is_some_and(Batch::has_landed)
    }

    /// Returns the next batch, and waits for its reads.
    ///
    /// # Errors
    /// The error of the first of its reads that failed.
    pub(crate) fn next(&mut self) -> Result<Option<Batch>> {
        while !self.batches.is_empty() && !self.has_landed() {
            let is_on_its_way = self.queue.as_ref().is_some_and(|queue| queue.in_flight() > 0);
            assert!(is_on_its_way, "a batch waits for reads that were never begun");
            self.look(true);
        }
        let Some(mut batch) = self.batches.pop_front() else { return Ok(None) };
        batch.check()?;
        Ok(Some(batch))
    }

    /// Takes back a batch after a step of copying. An incomplete batch is the next one again.
    pub(crate) fn copied(&mut self, mut batch: Batch) {
        if !batch.is_copied() {
            self.batches.push_front(batch);
            return;
        }
        self.held_bytes -= batch.read_bytes;
        let window = batch.clear();
        self.keep(window);
        self.spare = Some(batch);
    }

    /// Recycles the memory of a window that is no longer in use.
    fn keep(&mut self, window: Arc<Window>) {
        if let Ok(mut window) = Arc::try_unwrap(window) {
            window.clear();
            self.spare_window = Some(window);
        }
    }

    /// Drops everything, and waits for reads in flight.
    pub(crate) fn end(&mut self) {
        *self = Pipeline { stats: self.stats, ..Pipeline::default() };
    }
}
