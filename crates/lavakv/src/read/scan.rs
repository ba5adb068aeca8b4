//! One page of a scan whose device reads the caller performs. It reads the first entries within
//! bounds, with their values, by steps that never wait for a read.
//!
//! The scan advances by *windows*. The entries of a window are gathered first: the merged cursors
//! advance in memory. Where bytes are missing, all waiting cursors request them
//! ([`lsm::MergingIterator::take_wanted`]) and the step stops. The next step continues there and
//! repeats no lookup. Then the separated values of the window are looked up together as in point
//! reads, so that their reads form one batch. The entries and bytes of a window are bounded as in a
//! blocking scan (`read::prefetch`). Its data is released at its end. A step ends with its window,
//! so that other requests get their turn.
//!
//! Errors are reported in order. An error of reading keys follows the values of the entries before
//! it. An error of reading a value is reported at its entry, after a second read of it alone, as in
//! a blocking scan.
//!
//! A step opens the tables that it reaches, so it needs a thread that may block. In a family with a
//! merge operator it also reads keys itself.

use crate::read::fetch;
use crate::read::iterator::{listed, view};
use crate::read::options::ReadOptions;
use crate::read::pending::Progress;
use crate::read::prefetch::batch::Values;
use crate::read::prefetch::{BYTES_MAX, WINDOW_MAX};
use crate::read::read_path::pin;
use crate::tree::Tree;
use crate::tree::family::{Family, ReadState};
use crate::tree::open_iterators::IteratorGuard;
use base::{Error, Result, SeqNo, ValueKind};
use cache::Block;
use lsm::{ReferenceResolver, VisibleIterator};
use std::sync::Arc;
use table::runs::{GAP_UNKNOWN, RUN_LEN_MAX, WantedExtent, join};
use table::{BlockRequest, FetchCost, FetchedBlocks, Reference, Source, Stopped};

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// The way to the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Seek,
    Next,
    /// The last move had to wait for data.
    Resume,
    /// The view is already there: the last window had no room for the entry.
    Stay,
}

/// A value to be read: the index of its entry in the page, which holds the reference.
struct Separated {
    nth: usize,
    seq: SeqNo,
    kind: ValueKind,
    tried: Tried,
}

/// Number of failed reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    Never,
    /// It is read once more, after the others of its window.
    Once,
    Again,
}

/// The view of a scan that has begun.
struct View {
    entries: VisibleIterator,
    next: Move,
    read_state: Arc<ReadState>,
    /// The entry in the space ledger, which lists the pinned files.
    _reading: IteratorGuard,
}

/// The window in progress.
#[derive(Default)]
struct ScanWindow {
    /// True if all its entries are in the page.
    is_gathered: bool,
    entries: usize,
    bytes: u64,
    /// Values to be read, in the order of the entries.
    left: Vec<Separated>,
    /// The error that follows its entries; of unreadable values, the first.
    failed: Option<(usize, Error)>,
}

/// One page of a scan, driven by steps: see the module.
pub(crate) struct PendingScan {
    view: Option<View>,
    window: ScanWindow,
    page: Vec<Entry>,
    limit: usize,
    /// True if there are no more entries.
    has_ended: bool,
    /// Reads that values need, and the data handed over.
    values: FetchedBlocks,
    options: ReadOptions,
    snapshot: Option<SeqNo>,
    family: Arc<Family>,
    tree: Arc<Tree>,
}

impl PendingScan {
    /// Creates a scan of the first `limit` entries at the snapshot of `options`, or at the moment
    /// of the first step.
    ///
    /// # Errors
    /// `InvalidArgument` if the snapshot is of another store.
    pub fn new(
        tree: &Arc<Tree>,
        family: &Arc<Family>,
        options: ReadOptions,
        limit: usize,
    ) -> Result<PendingScan> {
        let snapshot = tree.sequence_of(options.snapshot.as_ref())?;
        Ok(PendingScan {
            view: None,
            window: ScanWindow::default(),
            page: Vec::new(),
            limit,
            has_ended: false,
            values: FetchedBlocks::default(),
            options,
            snapshot,
            family: family.clone(),
            tree: tree.clone(),
        })
    }

    /// Runs without device reads, to the end of a window at most, on a thread that may open files.
    /// Returns the reads it needs, all of which must be handed over before the next step. Without
    /// any, the next step may follow at once.
    pub fn step(&mut self) -> Progress<Result<Vec<Entry>>> {
        match self.advance() {
            Ok(false) => Progress::Wants(Vec::new()),
            Err(Stopped::Wanting) => {
                self.tree.context.stats.scan_waits.add(1);
                Progress::Wants(self.take_wanted())
            }
            Ok(true) => {
                let hidden = self.view.as_ref().map_or(0, |view| view.entries.hidden_entries());
                self.family.demand.passed(hidden);
                Progress::Done(Ok(std::mem::take(&mut self.page)))
            }
            Err(Stopped::Failed(e)) => Progress::Done(Err(e)),
        }
    }

    /// Runs to the end of the window. Returns true if it was the last.
    fn advance(&mut self) -> Result<bool, Stopped> {
        if !self.window.is_gathered {
            self.gather()?;
            self.window.is_gathered = true;
        }
        self.read_values()?;
        let window = std::mem::take(&mut self.window);
        self.values.clear();
        window.failed.map_or(Ok(self.has_ended), |(_, e)| Err(e.into()))
    }

    fn begin(&mut self) -> Result<()> {
        let tree = &self.tree;
        let (read_state, seq) = pin(tree, &self.family, self.snapshot);
        let reading = listed(tree, &self.family, &self.options.name, (&read_state, seq));
        // A fold reads ahead of the entry shown, so it cannot wait for data: its reads block.
        let folds = read_state.options.merge_operator.is_some();
        let resolver: Option<Arc<dyn ReferenceResolver>> = match folds {
            true => Some(Arc::new(Values {
                tree: tree.clone(),
                read_state: read_state.clone(),
                fill_cache: self.options.fill_cache,
                demand: self.family.demand.clone(),
            })),
            false => None,
        };
        let entries = view((tree, &self.family), (&read_state, seq), &self.options, resolver, !folds)?;
        self.view = Some(View { entries, next: Move::Seek, read_state, _reading: reading });
        Ok(())
    }

    /// Moves the entries of the window into the page until a read is missing.
    fn gather(&mut self) -> Result<(), Stopped> {
        if self.view.is_none() {
            self.begin()?;
        }
        loop {
            let Some(view) = &mut self.view else { return Ok(()) };
            let moved = match view.next {
                Move::Seek => view.entries.seek_to_first(),
                Move::Next => view.entries.next(),
                Move::Resume => view.entries.resume(),
                Move::Stay => Ok(()),
            };
            view.next = Move::Next;
            if let Err(e) = moved {
                if e.is_waiting() {
                    view.next = Move::Resume;
                    return Err(Stopped::Wanting);
                }
                self.has_ended = true;
                self.window.failed = Some((usize::MAX, e));
                return Ok(());
            }
            if !view.entries.valid() || self.page.len() >= self.limit {
                self.has_ended = true;
                return Ok(());
            }
            if !self.window.takes(&view.entries, self.page.len()) {
                view.next = Move::Stay;
                return Ok(());
            }
            self.page.push((view.entries.key().to_vec(), view.entries.value().to_vec()));
            if self.page.len() >= self.limit {
                self.has_ended = true;
                return Ok(());
            }
        }
    }

    /// Reads the values of the window.
    fn read_values(&mut self) -> Result<(), Stopped> {
        loop {
            if self.read_each() {
                return Err(Stopped::Wanting);
            }
            if self.window.left.is_empty() {
                return Ok(());
            }
            // The second attempt uses none of the data of the first.
            self.values.clear();
            self.window.left.iter_mut().for_each(|separated| separated.tried = Tried::Again);
        }
    }

    /// Advances the lookup of each value. Returns true if any waits for data.
    fn read_each(&mut self) -> bool {
        let PendingScan { view: Some(view), window, page, values, tree, .. } = self else { return false };
        let (version, fill_cache) = (&view.read_state.version, self.options.fill_cache);
        let (mut waits, failed) = (false, &mut window.failed);
        window.left.retain_mut(|separated| {
            let Separated { nth, seq, kind, tried } = separated;
            let Some((key, value)) = page.get_mut(*nth) else { return false };
            if *tried == Tried::Once {
                return true;
            }
            // A repeated lookup counts again, so its counts are undone.
            let before = *values.counters();
            let found = fetch::content(tree, version, (key, *seq, *kind), value, fill_cache, values);
            let found = match found {
                Err(Stopped::Wanting) => {
                    (*values.counters(), waits) = (before, true);
                    return true;
                }
                Err(Stopped::Failed(e)) => Err(e),
                Ok(content) => content.into_bytes(),
            };
            match found {
                Ok(bytes) => *value = bytes.to_vec(),
                Err(_) if *tried == Tried::Never => {
                    *tried = Tried::Once;
                    return true;
                }
                Err(e) if failed.as_ref().is_none_or(|(first, _)| *nth < *first) => *failed = Some((*nth, e)),
                Err(_) => {}
            }
            false
        });
        waits
    }

    fn take_wanted(&mut self) -> Vec<BlockRequest> {
        let mut wants = match &mut self.view {
            Some(view) if !self.window.is_gathered => view.entries.inner_mut().take_wanted(),
            _ => self.values.take_wanted(),
        };
        wants.sort_unstable_by_key(|want| want.extent);
        wants.dedup_by_key(|want| want.extent);
        if self.window.is_gathered {
            let records = wants.iter().filter(|want| want.role == table::BlockKind::Record);
            let bytes: u64 = records.clone().map(|want| want.extent.len).sum();
            let runs = join(records.map(WantedExtent::from));
            let request_bytes = self.tree.context.pace().costs().gap_bytes.unwrap_or(GAP_UNKNOWN);
            self.family.demand.scanned(runs.len() as u64, bytes.div_ceil(RUN_LEN_MAX), request_bytes);
        }
        wants
    }

    /// Hands over the bytes of a read, or the reason of its failure.
    pub fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, cost: FetchCost) {
        match &mut self.view {
            Some(view) if !self.window.is_gathered => {
                let merged = view.entries.inner_mut();
                merged.give(&want.extent, &mut |fetched| fetched.deliver(want, read.clone(), cost));
            }
            _ => self.values.deliver(want, read, cost),
        }
    }

    /// Closes the files opened by lookups: see [`FetchedBlocks::close_files`].
    pub fn close_files(&mut self) {
        self.values.close_files();
    }

    /// Returns the bytes of handed-over data that the scan holds.
    pub fn held_bytes(&mut self) -> u64 {
        let view = self.view.as_mut().map_or(0, |view| view.entries.inner_mut().held_bytes());
        view + self.values.held_bytes()
    }
}

impl ScanWindow {
    /// Adds the view's current entry with index `nth`, if the window has room for it.
    fn takes(&mut self, view: &VisibleIterator, nth: usize) -> bool {
        let (seq, kind, value) = (view.seq(), view.value_kind(), view.value());
        let is_separated = matches!(kind, ValueKind::Reference | ValueKind::PlacedReference);
        // A scan of keys alone reads no values.
        let is_separated = is_separated && !value.is_empty();
        let bytes = match kind {
            ValueKind::Reference => {
                Reference::decode(value).map_or(0, |reference| reference.raw_len.max(reference.stored_len))
            }
            _ => value.len() as u64,
        };
        if self.entries >= WINDOW_MAX || self.entries > 0 && self.bytes.saturating_add(bytes) > BYTES_MAX {
            return false;
        }
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if is_separated {
            self.left.push(Separated { nth, seq, kind, tried: Tried::Never });
        }
        true
    }
}

impl Drop for PendingScan {
    fn drop(&mut self) {
        let stats = &self.tree.context.stats;
        let counters = *self.values.counters();
        stats.iter_values_read.add(counters.value_reads);
        stats.iter_value_reads.add(counters.device_reads);
        stats.iter_value_bytes.add(counters.device_read_bytes);
        self.view = None;
        self.tree.was_let_go();
    }
}
