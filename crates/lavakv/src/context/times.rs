//! Latencies of operations, durations of stalls, and sizes of compactions: live histograms, read
//! together as [`Histograms`].
//!
//! Gets, iterator moves, and writes without a device wait take less than a microsecond each, so
//! they are sampled ([`io::timing`]). The first 256 of a thread are timed, then one in 64, which
//! counts for 64. All other operations are timed each time, by timestamps that their callers have
//! anyway: durable writes, stalls, jobs, syncs of the log.

use super::event::StallCause;
use base::histogram::{Distribution, Histogram};
use io::Env;
use io::timing::Timing;

/// Shows the latencies and stalls of a store since it was opened, for percentiles on a dashboard.
///
/// [`crate::Statistics::histograms`] has them. An operation that did not run yet has an empty
/// distribution. Subtract an earlier read with [`Distribution::since`] for an interval. Frequent
/// operations (puts, deletes, batches, gets, streams, iterator moves) are sampled, so their counts
/// are estimates.
///
/// ```no_run
/// use lavastore_lavakv::Db;
/// let db = Db::open("/var/lib/example")?;
/// for (operation, times) in db.stats().histograms.operations {
///     println!("{operation}: {} of them, 99 % within {} ns", times.count(), times.quantile(0.99));
/// }
/// # Ok::<(), lavastore_lavakv::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histograms {
    /// Nanoseconds of each kind of operation:
    /// * `put`, `delete`, `write_batch`, `get`, `multi_get` (all keys of a call);
    /// * `put_stream` and `get_stream` (each piece, and the end of a written stream);
    /// * `seek`, `next` (iterator moves in both directions);
    /// * `flush`, `compaction`, `collection`, `log_append`, `log_sync`;
    /// * operations of a secondary engine (`record_append` and others, of logs).
    pub operations: Vec<(&'static str, Distribution)>,
    /// Nanoseconds of each stall of a writer, by cause: `memory`, `l0`, `levels`, `log`, `garbage`,
    /// `space`.
    pub waits: Vec<(&'static str, Distribution)>,
    /// Bytes read by each compaction (its *width*). Moves of files are not counted.
    pub compaction_width: Distribution,
    /// For each compaction, the number of consecutive levels due for compaction at its start (its
    /// *chain*): its own level, the one below, and so on.
    pub compaction_chain: Distribution,
}

impl Histograms {
    /// Returns the latencies of a kind of operation by its name in [`Histograms::operations`], in
    /// nanoseconds; `None` for an unknown name.
    ///
    /// ```no_run
    /// # let db = lavastore_lavakv::Db::open("/var/lib/example")?;
    /// assert!(db.stats().histograms.operation("get").is_some());
    /// # Ok::<(), lavastore_lavakv::Error>(())
    /// ```
    pub fn operation(&self, name: &str) -> Option<&Distribution> {
        self.operations.iter().find(|(of, _)| *of == name).map(|(_, times)| times)
    }

    /// Returns the durations of stalls with this cause, in nanoseconds, to see how long writers
    /// waited for it; always present in the histograms of a store.
    ///
    /// ```no_run
    /// # use lavastore_lavakv::StallCause;
    /// # let db = lavastore_lavakv::Db::open("/var/lib/example")?;
    /// assert!(db.stats().histograms.waits_for(StallCause::Memory).is_some());
    /// # Ok::<(), lavastore_lavakv::Error>(())
    /// ```
    pub fn waits_for(&self, cause: StallCause) -> Option<&Distribution> {
        self.waits.iter().find(|(of, _)| *of == cause.name()).map(|(_, times)| times)
    }
}

/// The live histograms.
#[derive(Debug)]
pub(crate) struct Times {
    pub put: Timing,
    pub delete: Timing,
    pub write_batch: Timing,
    pub put_stream: Timing,
    pub get_stream: Timing,
    pub get: Timing,
    pub multi_get: Timing,
    pub seek: Timing,
    pub next: Timing,
    pub flush: Timing,
    pub compaction: Timing,
    pub collection: Timing,
    pub compaction_width: Histogram,
    pub compaction_chain: Histogram,
    /// In the order of [`StallCause::ALL`].
    waits: [Histogram; StallCause::ALL.len()],
}

impl Times {
    pub fn new(env: &Env) -> Times {
        let (short, long) = (|| Timing::sampled(env), || Timing::each(env));
        Times {
            put: short(),
            delete: short(),
            write_batch: short(),
            put_stream: short(),
            get_stream: short(),
            get: short(),
            multi_get: long(),
            seek: short(),
            next: short(),
            flush: long(),
            compaction: long(),
            collection: long(),
            compaction_width: Histogram::rare(),
            compaction_chain: Histogram::rare(),
            waits: std::array::from_fn(|_| Histogram::rare()),
        }
    }

    /// Records a stall of a writer.
    pub fn waited(&self, cause: StallCause, ns: u64) {
        self.waits[cause as usize].record(ns);
    }

    /// Returns a snapshot.
    pub fn read(&self) -> Histograms {
        let operations = [
            ("put", &self.put),
            ("delete", &self.delete),
            ("write_batch", &self.write_batch),
            ("put_stream", &self.put_stream),
            ("get_stream", &self.get_stream),
            ("get", &self.get),
            ("multi_get", &self.multi_get),
            ("seek", &self.seek),
            ("next", &self.next),
            ("flush", &self.flush),
            ("compaction", &self.compaction),
            ("collection", &self.collection),
        ];
        let waits = StallCause::ALL.into_iter().zip(&self.waits);
        Histograms {
            operations: operations.into_iter().map(|(name, timing)| (name, timing.read())).collect(),
            waits: waits.map(|(cause, waits)| (cause.name(), waits.read())).collect(),
            compaction_width: self.compaction_width.read(),
            compaction_chain: self.compaction_chain.read(),
        }
    }
}
