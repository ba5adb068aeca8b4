//! The pipeline: while a batch of records is copied those behind it are being read, and the keys behind these are judged.
//!
//! ```text
//! judged      |======= window n =======|-- window n + 1, judged while reads are waited for --
//! read                 |= batch =|= batch =|= batch =|      on their way, at most HELD_BYTES_MAX begun
//! copied      |= batch =|                                   in key order, one in a step
//! written     (the file has what it is given written behind)
//! ```
//!
//! So the device has reads of this job as long as there are live records, whoever's turn it is: those of the next batches are begun before one is judged or
//! copied, in one queue ([`io::ReadQueue`]) that goes on with them between the steps. What is left for the job's thread is waited for only where nothing
//! else can be done.
//!
//! * **Order.** Batches are copied in the order in which they were planned, which is that of keys, whichever is read first. A batch has its own
//!   window, which nobody changes any more once it is judged.
//! * **Bounded.** What is held of records is at most [`HELD_BYTES_MAX`] and a batch; where an input is in order of arrival, twice that and a batch that is four times as long. There are two windows at most, of half the size that one has
//!   without a pipeline, so that both take no more memory.
//! * **Whose it is.** The queue owns the buffers until they are read, the job the queue: a job that fails or is given up waits for what is on its way when it lets go
//!   of it, before its files. A read that fails is told when its batch is the next; nothing of the job is installed then.
//! * **Pace.** Where somebody reads in the foreground the queue waits for each batch in pieces, as without a pipeline ([`io::ReadQueue::submit_all`]).
//! * **The first batch** of a job is waited for: what reads cost is learnt from reads that somebody waits for ([`io::ReadCosts`]).
//!
//! Without a pipeline (`GcOptions::pipelined` off, or no queue) the same steps go by turns: a window is judged, then batch for batch read and copied.

use super::copy::{Batch, CopyStats, Grouping, is_scattered};
use super::window::Window;
use crate::pick::GcOptions;
use base::Result;
use io::ReadQueue;
use std::collections::VecDeque;
use std::sync::Arc;
use table::Vsst;

/// The most bytes that one batch reads, gaps included, where batches are read one by one.
const ALONE_BYTES_MAX: u64 = 4 << 20;
/// The same where several are on their way, and how much is begun at most before the next one is.
const AHEAD_BYTES_MAX: u64 = 2 << 20;
const HELD_BYTES_MAX: u64 = 4 << 20;
/// Where records are in order of arrival a batch is so many times as long: what is taken of a file at once lies so much closer. And two of them are held.
const SCATTERED_TIMES: u64 = 4;

/// See the module.
#[derive(Default)]
pub(crate) struct Pipeline {
    /// `None`: each batch is waited for.
    queue: Option<ReadQueue>,
    grouping: Grouping,
    /// The most that is begun before the next batch is.
    held_bytes_max: u64,
    /// Judged, and from which entry on it is to be planned.
    planning: Option<(Arc<Window>, usize)>,
    /// Judged as well, and behind that one.
    next: Option<Arc<Window>>,
    /// Those that are read and not copied, in the order of their keys.
    batches: VecDeque<Batch>,
    /// The number of the next read.
    number: u64,
    held_bytes: u64,
    /// For the next that is planned.
    spare: Option<Batch>,
    spare_window: Option<Window>,
    pub(crate) stats: CopyStats,
}

impl Pipeline {
    /// Of a job of these options over these inputs, with a queue if there is one.
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

    /// How many keys, and bytes of them, a window may have.
    pub(crate) fn window_max(&self, options: &GcOptions) -> (usize, usize) {
        let windows = if self.is_one() { 2 } else { 1 };
        ((options.window_keys / windows).max(1), (options.window_key_bytes / windows).max(1))
    }

    /// True if something may be done ahead.
    pub(crate) fn is_one(&self) -> bool {
        self.queue.is_some()
    }

    /// True if nothing is read, and nothing that was judged is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.planning.is_none() && self.next.is_none()
    }

    /// True if another window may be filled and judged now.
    pub(crate) fn may_judge(&self) -> bool {
        if !self.is_one() {
            return self.is_empty();
        }
        // Of the batches only the first ones can be of an older window than the one that is planned.
        let oldest = self.batches.front().map(|batch| &batch.window);
        let planned = self.planning.as_ref().map(|(window, _)| window);
        let is_one = oldest.zip(planned).is_none_or(|(a, b)| Arc::ptr_eq(a, b));
        let newest = self.batches.back().map(|batch| &batch.window);
        self.next.is_none() && is_one && oldest.zip(newest).is_none_or(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Takes a window that is judged, and gives one to be filled.
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

    /// Begins to read as many batches as may be held.
    ///
    /// # Errors
    /// Of a batch that was waited for.
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
            // Who was to be waited for was; the others wait until that is copied.
            if !self.read(batch, inputs)? {
                return Ok(());
            }
        }
    }

    /// The next batch; `None` if there is nothing to plan.
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

    /// Reads a batch, or begins to. True if its reads go on by themselves.
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
        // They go to the device now, and not when somebody waits for them.
        self.look(false);
        if goes_on {
            self.stats.reads_ahead += reads;
        }
        Ok(goes_on || is_first)
    }

    /// Takes what has been read; with `wait` waits until something is.
    fn look(&mut self, wait: bool) {
        let Some(queue) = &mut self.queue else { return };
        for done in queue.complete(wait) {
            let _ = self.batches.iter_mut().any(|batch| batch.land(done.token, &done.read));
        }
    }

    /// True if the next batch can be copied without waiting.
    pub(crate) fn has_landed(&self) -> bool {
        self.batches.front().is_some_and(Batch::has_landed)
    }

    /// The next batch, which is waited for.
    ///
    /// # Errors
    /// Of the first of its reads that failed.
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

    /// As much of a batch was copied as is in one step: all, or it is the next again.
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

    /// Keeps the memory of a window that nobody uses any more.
    fn keep(&mut self, window: Arc<Window>) {
        if let Ok(mut window) = Arc::try_unwrap(window) {
            window.clear();
            self.spare_window = Some(window);
        }
    }

    /// Lets go of all, and waits for what is on its way.
    pub(crate) fn end(&mut self) {
        *self = Pipeline { stats: self.stats, ..Pipeline::default() };
    }
}
