//! Random histories of several logs with all changes that a store makes, compared with a map of
//! each log.
//!
//! Operations are applied while index files, cold files and checkpoints are being written, as real
//! files in memory. At any time the logs can be restored from disk: from the newest checkpoint, the
//! directories of the files in any order, and a replay of the unsealed groups. The replay may also
//! start earlier, run twice, or run out of order.

use super::*;
use crate::checkpoint::SavedLog;
use crate::cold::{ColdFile, ColdFileWriter, ColdHead};
use crate::disk::directory::{Block, Directory};
use crate::disk::indexed::FinishedFile;
use crate::disk::memory::{PATH, Stored, Written};
use crate::entry::Lsn;
use crate::index::Span;
use crate::index_file::{IndexFile, IndexFileWriter, IndexHead};
use base::{ErrorKind, Uid};
use std::collections::BTreeMap;
use std::path::Path;

const UID: Uid = Uid([7; 16]);
const BYTES: [u8; 2000] = [7; 2000];
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Expected contents of a log.
#[derive(Clone, Debug, Default)]
struct ModelLog {
    name: &'static str,
    trimmed_below: Lsn,
    last: Option<Lsn>,
    /// The highest trimmed LSN.
    trimmed_last: Option<Lsn>,
    metadata: Vec<u8>,
    /// Sequence number and length by LSN.
    records: BTreeMap<Lsn, (SeqNo, u32)>,
}

type Model = BTreeMap<LogId, ModelLog>;

fn apply(model: &mut Model, seq: SeqNo, op: &Op<'static>) {
    let id = op.log();
    match *op {
        Op::Create { name, .. } => drop(model.insert(id, ModelLog { name, ..ModelLog::default() })),
        Op::Delete { .. } => drop(model.remove(&id)),
        _ => {
            let Some(log) = model.get_mut(&id) else { return };
            match *op {
                Op::Append { lsn, bytes, .. } => {
                    log.last = log.last.max(Some(lsn));
                    if lsn >= log.trimmed_below {
                        log.records.insert(lsn, (seq, bytes.len() as u32));
                    } else {
                        log.trimmed_last = log.trimmed_last.max(Some(lsn));
                    }
                }
                Op::Trim { below, .. } => {
                    log.trimmed_below = log.trimmed_below.max(below);
                    let trimmed = log.records.range(..below).next_back().map(|(lsn, _)| *lsn);
                    log.trimmed_last = log.trimmed_last.max(trimmed);
                    log.records.retain(|lsn, _| *lsn >= below);
                }
                Op::TruncateAfter { lsn, .. } => {
                    log.records.retain(|there, _| *there <= lsn);
                    let last = log.records.keys().next_back().copied();
                    log.last = last.max(log.trimmed_last);
                }
                Op::SetMetadata { bytes, .. } => log.metadata = bytes.to_vec(),
                Op::Create { .. } | Op::Delete { .. } => {}
            }
        }
    }
}

/// A logged operation: sequence number, operation, group.
type Logged = (SeqNo, Op<'static>, u64);

enum File {
    Index(IndexFile),
    Cold(ColdFile),
}

impl File {
    fn block(&self, log: LogId, block: Block) -> Vec<Entry> {
        match self {
            File::Index(file) => file.block(log, block),
            File::Cold(file) => file.block(log, block),
        }
        .unwrap()
    }
}

/// An index file and a checkpoint being written, log by log.
struct Building {
    ltn: u64,
    todo: Vec<LogId>,
    entries: Vec<Entry>,
    checkpoint: Checkpoint,
}

/// A cold file being written.
struct Collecting {
    inputs: Vec<Source>,
    logs: Vec<LogId>,
    todo: Vec<LogId>,
    entries: Vec<Entry>,
}

#[derive(Clone, Default)]
struct Checkpoint {
    next_id: LogId,
    logs: Vec<SavedLog>,
    /// The last sealed group.
    retained: u64,
}

struct World {
    rng: io::Rng,
    logs: Logs,
    model: Model,
    history: Vec<Logged>,
    seq: SeqNo,
    ltn: u64,
    files: BTreeMap<Source, (File, Directory)>,
    checkpoint: Checkpoint,
    building: Option<Building>,
    collecting: Option<Collecting>,
    cold: u64,
    /// Whether all records have the same length: then byte counts are exact, not only record
    /// counts.
    one_length: bool,
    counts: Counts,
}

/// Events of a history. Without them the test proves nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    installed: u64,
    relocated: u64,
    restarts: u64,
    died_on_the_way: u64,
    blocks: u64,
    /// Operations that left trimmed records in the index for later removal.
    cut_later: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = io::Rng::new(seed);
        let one_length = rng.one_in(2);
        World {
            rng,
            logs: Logs::new(),
            model: Model::new(),
            history: Vec::new(),
            seq: 0,
            ltn: 1,
            files: BTreeMap::new(),
            checkpoint: Checkpoint::default(),
            building: None,
            collecting: None,
            cold: 0,
            one_length,
            counts: Counts::default(),
        }
    }

    fn any_log(&mut self) -> Option<LogId> {
        let n = self.rng.below(self.model.len().max(1) as u64) as usize;
        self.model.keys().nth(n).copied()
    }

    /// Draws a valid operation.
    fn draw(&mut self) -> Option<Op<'static>> {
        if self.rng.one_in(40) || self.model.is_empty() {
            let name = NAMES[self.rng.below(3) as usize];
            let is_free = self.model.values().all(|log| log.name != name);
            assert_eq!(self.logs.registry().check_create(name).is_ok(), is_free);
            return is_free.then_some(Op::Create { log: self.logs.registry().next_id(), name });
        }
        let log = self.any_log()?;
        let (trimmed, last) = {
            let log = &self.model[&log];
            (log.trimmed_below, log.last.unwrap_or(0).max(log.trimmed_below))
        };
        let within = trimmed + self.rng.below(last - trimmed + 2);
        Some(match self.rng.below(500) {
            0 => Op::Delete { log },
            1 | 2 => Op::Trim { log, below: trimmed + self.rng.below((last - trimmed) / 2 + 2) },
            3 => Op::Trim { log, below: within },
            4 => Op::TruncateAfter { log, lsn: within },
            5 => Op::TruncateAfter { log, lsn: last.saturating_sub(self.rng.below(5)) },
            6 => Op::SetMetadata { log, bytes: &BYTES[..self.rng.below(50) as usize] },
            choice => {
                // Usually the next LSN; sometimes a later one, or one that is missing, trimmed or
                // present.
                let lsn = match choice {
                    7 => last + 1 + self.rng.below(10),
                    8..10 => within.saturating_sub(self.rng.below(3)),
                    _ => last + 1,
                };
                let records = &self.model[&log].records;
                match self.logs.get(log)?.admit(lsn) {
                    Ok(there) => assert_eq!(there.is_some(), records.contains_key(&lsn)),
                    Err(e) => assert!(e.kind() == ErrorKind::Trimmed && lsn < trimmed),
                }
                let len = if self.one_length { 100 } else { self.rng.below(2000) as usize };
                Op::Append { log, lsn, bytes: &BYTES[..len] }
            }
        })
    }

    fn step(&mut self) {
        match self.rng.below(400) {
            0..6 => self.ltn += 1,
            6..30 => self.build(),
            30..60 => self.collect(),
            60..62 => self.restart(),
            62..66 => {
                let logs = std::mem::take(&mut self.logs);
                self.check(&logs, true);
                self.logs = logs;
            }
            _ => {
                // A run of operations on one log, to fill blocks.
                for _ in 0..1 + self.rng.below(12) {
                    let Some(op) = self.draw() else { continue };
                    self.seq += 1;
                    let place = GroupPosition { ltn: self.ltn, at: 10 * self.seq };
                    self.logs.apply(self.seq, &op, place).unwrap();
                    apply(&mut self.model, self.seq, &op);
                    self.counts.cut_later += u64::from(self.logs.has_to_cut());
                    if self.rng.one_in(2) {
                        self.logs.cut_some();
                    }
                    self.history.push((self.seq, op, self.ltn));
                }
            }
        }
    }

    /// Performs one step of writing an index file and its checkpoint.
    fn build(&mut self) {
        let Some(mut building) = self.building.take() else {
            let ltn = self.checkpoint.retained + 1;
            if ltn < self.ltn {
                let next_id = self.logs.registry().next_id();
                let mut todo: Vec<LogId> = self.logs.registry().iter().map(Log::id).collect();
                todo.sort_unstable_by(|a, b| b.cmp(a));
                let checkpoint = Checkpoint { next_id, logs: Vec::new(), retained: ltn };
                self.building = Some(Building { ltn, todo, entries: Vec::new(), checkpoint });
            }
            return;
        };
        if let Some(id) = building.todo.pop() {
            if let Some(log) = self.logs.get(id) {
                building.checkpoint.logs.push(log.save());
                building.entries.extend(log.live().index().recent_in(id, building.ltn));
            }
            self.building = Some(building);
            return;
        }
        let written = Written::default();
        let head = IndexHead { number: 9, ltn: building.ltn, group: UID, filled: 1, seqs: (1, self.seq) };
        let mut writer = IndexFileWriter::new(written.boxed(), Path::new(PATH), UID, head);
        building.entries.iter().for_each(|entry| writer.add(entry).unwrap());
        let FinishedFile { directory, .. } = writer.finish().unwrap();
        let (file, found) = IndexFile::open(Stored::new(written.take()), 9, UID).unwrap();
        assert_eq!(found, directory);
        let source = Source::Group(building.ltn);
        let (before, was_cut) = (self.logs.ledger().usage(source).live, !self.logs.has_to_cut());
        install(&mut self.logs, building.ltn, parts(source, &directory));
        let records = directory.size().records;
        let live = self.logs.ledger().usage(source).live;
        // Trimmed records that were still in the index are gone now.
        assert!(live.records <= before.records);
        assert!(!was_cut || live.records == before.records);
        self.counts.died_on_the_way += records - live.records;
        self.counts.installed += 1;
        self.files.insert(source, (File::Index(file), directory));
        self.checkpoint = building.checkpoint;
        let replay_from = self.history.iter().find(|(_, _, ltn)| *ltn > building.ltn);
        let replay_from = replay_from.map_or(self.seq + 1, |(seq, _, _)| *seq);
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.logs.forget_truncations(replay_from, from, 2);
        }
    }

    /// Performs one step of a collection.
    fn collect(&mut self) {
        let Some(mut collecting) = self.collecting.take() else {
            let sources: Vec<Source> = self.files.keys().copied().collect();
            if !sources.is_empty() {
                let draw = |rng: &mut io::Rng| sources[rng.below(sources.len() as u64) as usize];
                let mut inputs: Vec<Source> =
                    (0..1 + self.rng.below(3)).map(|_| draw(&mut self.rng)).collect();
                inputs.sort();
                inputs.dedup();
                let directories = inputs.iter().map(|input| &self.files[input].1);
                let mut logs: Vec<LogId> = directories.flat_map(|d| d.logs.iter().map(|l| l.log)).collect();
                logs.sort_unstable_by(|a, b| b.cmp(a));
                logs.dedup();
                let todo = logs.clone();
                self.collecting = Some(Collecting { inputs, logs, todo, entries: Vec::new() });
            }
            return;
        };
        if let Some(id) = collecting.todo.pop() {
            let mut of_log = Vec::new();
            for part in self.logs.get(id).iter().flat_map(|log| log.live().index().parts()) {
                if collecting.inputs.contains(&part.source()) {
                    let (file, directory) = &self.files[&part.source()];
                    let blocks = &directory.log(id).unwrap().blocks;
                    let rows = blocks.iter().flat_map(|block| file.block(id, *block));
                    of_log.extend(rows.filter(|row| part.set().contains(row.lsn)));
                }
            }
            of_log.sort_unstable_by_key(|entry| entry.lsn);
            collecting.entries.append(&mut of_log);
            self.collecting = Some(collecting);
            return;
        }
        self.cold += 1;
        let (written, head) = (Written::default(), ColdHead { number: self.cold, generation: 1 });
        let mut writer = ColdFileWriter::new(written.boxed(), Path::new(PATH), UID, head);
        for Entry { log, lsn, seq, len, .. } in &collecting.entries {
            writer.add(*log, *lsn, *seq, &BYTES[..*len as usize]).unwrap();
        }
        let FinishedFile { directory, .. } = writer.finish().unwrap();
        let (file, _) = ColdFile::open(Stored::new(written.take()), self.cold, UID).unwrap();
        let source = Source::Cold(self.cold);
        let was = |logs: &Logs| logs.ledger().iter().map(|(_, usage)| usage.live.records).sum::<u64>();
        let (before, was_cut) = (was(&self.logs), !self.logs.has_to_cut());
        let mut to: BTreeMap<LogId, RecordsInFile> = parts(source, &directory).into_iter().collect();
        for log in collecting.logs {
            let rows = collecting.inputs.iter().map(|input| (*input, self.files[input].1.log(log)));
            let from = rows.filter_map(|(input, rows)| Some((input, rows?.low().unwrap()))).collect();
            self.logs.relocate([Moved { log, from, to: to.remove(&log) }]);
        }
        self.logs.forget(&collecting.inputs);
        let after = was(&self.logs);
        assert!(after == before || !was_cut && after < before, "what lives is moved, and nothing else");
        let live = self.logs.ledger().usage(source).live.records;
        self.counts.died_on_the_way += directory.size().records - live;
        self.counts.relocated += 1;
        collecting.inputs.iter().for_each(|input| drop(self.files.remove(input)));
        self.files.insert(source, (File::Cold(file), directory));
    }

    /// Restores the logs from disk. `history` has the operations to replay.
    fn restored(&mut self, history: &[Logged]) -> Logs {
        let mut logs = Logs::new();
        let checkpoint = self.checkpoint.clone();
        logs.reach_id(checkpoint.next_id);
        checkpoint.logs.into_iter().for_each(|log| logs.restore(log).unwrap());
        let mut sources: Vec<Source> = self.files.keys().copied().collect();
        shuffle(&mut self.rng, &mut sources);
        for source in sources {
            for (log, part) in parts(source, &self.files[&source].1) {
                let is_there = logs.load(log, part);
                assert_eq!(is_there, logs.get(log).is_some());
            }
        }
        for (seq, op, ltn) in history {
            logs.apply(*seq, op, GroupPosition { ltn: *ltn, at: 10 * seq }).unwrap();
        }
        logs
    }

    fn restart(&mut self) {
        self.counts.restarts += 1;
        let retained = self.checkpoint.retained;
        let from = |ltn: u64, history: &[Logged]| -> Vec<Logged> {
            history.iter().filter(|(_, _, group)| *group > ltn).copied().collect()
        };
        let needed = from(retained, &self.history);
        let exact = self.restored(&needed);
        self.check(&exact, true);
        // Replay more than necessary; twice; and out of order.
        let earlier = from(self.rng.below(retained + 1), &self.history);
        let logs = self.restored(&earlier);
        self.check(&logs, false);
        let logs = self.restored(&[&needed[..], &needed[..]].concat());
        self.check(&logs, false);
        let mixed = out_of_order(&mut self.rng, needed);
        let logs = self.restored(&mixed);
        self.check(&logs, false);
        self.logs = exact;
        (self.building, self.collecting) = (None, None);
    }

    /// Compares logs with the model. `exactly`: their replay was a realistic one, so the highest
    /// LSNs must match.
    fn check(&mut self, logs: &Logs, exactly: bool) {
        assert_eq!(logs.registry().len(), self.model.len());
        assert_eq!(
            logs.registry().next_id(),
            self.history.iter().map(|(_, op, _)| op.log() + 1).max().unwrap_or(0)
        );
        let (mut live, mut spans) = (BTreeMap::<Source, Size>::new(), Vec::new());
        for (id, wanted) in &self.model.clone() {
            let log = logs.registry().named(wanted.name).unwrap();
            assert_eq!(log.id(), *id);
            assert_eq!(
                (log.live().trimmed_below(), log.live().first()),
                (wanted.trimmed_below, first(wanted))
            );
            // After a restart a log may have forgotten its trimmed records.
            let is_forgotten = wanted.records.is_empty() && log.last() < wanted.last;
            assert!(
                !exactly || log.last() == wanted.last || self.counts.restarts > 0 && is_forgotten,
                "{:?} {:?}",
                log.last(),
                wanted.last
            );
            assert_eq!(log.metadata().map_or(&[][..], |bytes| bytes), wanted.metadata);
            spans.clear();
            log.live().index().spans(*id, wanted.trimmed_below, usize::MAX, &mut spans);
            let found = self.resolve(*id, &spans, &mut live);
            assert_eq!(found, wanted.records);
            let low = self.rng.below(wanted.last.unwrap_or(0) + 10);
            let (high, limit) = (low + self.rng.below(200), 1 + self.rng.below(30) as usize);
            assert_eq!(log.live().gaps(low, high, limit), gaps(wanted, low, high, limit));
            for lsn in [low, high] {
                assert_eq!(log.find(lsn).is_ok(), wanted.records.contains_key(&lsn));
            }
        }
        let mut logs = logs.clone();
        while logs.cut_some() {}
        for (source, usage) in logs.ledger().iter() {
            let live = live.remove(&source).unwrap_or_default();
            assert_eq!(usage.live.records, live.records, "{source:?}");
            assert!(usage.live.records <= usage.written.records);
            assert!(!self.one_length || usage.live.bytes == live.bytes, "{source:?}");
            assert!(usage.live.records > 0 || usage.live.bytes == 0, "what is dead has no bytes");
        }
        assert!(live.is_empty(), "{live:?}");
    }

    /// Reads the records of spans.
    fn resolve(
        &mut self,
        id: LogId,
        spans: &[Span],
        live: &mut BTreeMap<Source, Size>,
    ) -> BTreeMap<Lsn, (SeqNo, u32)> {
        let mut out = BTreeMap::new();
        let mut next = 0;
        for span in spans {
            assert!(span.first >= next && span.last >= span.first, "{spans:?}");
            next = span.last + 1;
            let (source, entries) = match span.found {
                RecordLocation::Record(source, entry) => {
                    assert_eq!((span.first, span.last, entry.at), (entry.lsn, entry.lsn, 10 * entry.seq));
                    (source, vec![entry])
                }
                RecordLocation::Block(source, block) => {
                    self.counts.blocks += 1;
                    let mut rows = self.files[&source].0.block(id, block);
                    rows.retain(|row| (span.first..=span.last).contains(&row.lsn));
                    (source, rows)
                }
            };
            assert_eq!(entries.len() as u64, span.last - span.first + 1);
            for entry in entries {
                out.insert(entry.lsn, (entry.seq, entry.len));
                *live.entry(source).or_default() += Size::one(entry.len);
            }
        }
        out
    }
}

fn parts(source: Source, directory: &Directory) -> Vec<(LogId, RecordsInFile)> {
    directory.logs.iter().map(|rows| (rows.log, RecordsInFile::of(source, rows).unwrap())).collect()
}

fn first(log: &ModelLog) -> Option<Lsn> {
    log.records.keys().next().copied()
}

fn gaps(log: &ModelLog, low: Lsn, high: Lsn, limit: usize) -> Vec<(Lsn, Lsn)> {
    let mut out: Vec<(Lsn, Lsn)> = Vec::new();
    for lsn in (low.max(log.trimmed_below)..=high).filter(|lsn| !log.records.contains_key(lsn)) {
        match out.last_mut() {
            Some((_, last)) if *last + 1 == lsn => *last = lsn,
            _ => out.push((lsn, lsn)),
        }
    }
    out.truncate(limit);
    out
}

fn shuffle<T>(rng: &mut io::Rng, all: &mut [T]) {
    (1..all.len()).rev().for_each(|i| all.swap(i, rng.below(i as u64 + 1) as usize));
}

/// Returns the history with the operations of each log reordered, after its creation.
fn out_of_order(rng: &mut io::Rng, mut history: Vec<Logged>) -> Vec<Logged> {
    let mut of_log: BTreeMap<LogId, Vec<usize>> = BTreeMap::new();
    for (at, (_, op, _)) in history.iter().enumerate() {
        if !matches!(op, Op::Create { .. } | Op::Delete { .. }) {
            of_log.entry(op.log()).or_default().push(at);
        }
    }
    for places in of_log.into_values() {
        let mut order = places.clone();
        shuffle(rng, &mut order);
        let moved: Vec<Logged> = order.iter().map(|at| history[*at]).collect();
        places.into_iter().zip(moved).for_each(|(at, logged)| history[at] = logged);
    }
    history
}

#[test]
fn logs_agree_with_a_model_after_any_replay() {
    agree_with_a_model(20);
}

#[test]
#[ignore = "minutes: every night"]
fn many_histories_agree_with_a_model() {
    agree_with_a_model(1_000);
}

fn agree_with_a_model(seeds: u64) {
    let mut counts = Counts::default();
    for seed in 0..seeds {
        let mut world = World::new(seed);
        for _ in 0..1500 {
            world.step();
        }
        world.restart();
        let Counts { installed, relocated, restarts, died_on_the_way, blocks, cut_later } = world.counts;
        counts.installed += installed;
        counts.relocated += relocated;
        counts.restarts += restarts;
        counts.died_on_the_way += died_on_the_way;
        counts.blocks += blocks;
        counts.cut_later += cut_later;
    }
    let Counts { installed, relocated, restarts, died_on_the_way, blocks, cut_later } = counts;
    let least =
        [installed, relocated, restarts, died_on_the_way, blocks, cut_later].into_iter().min().unwrap();
    assert!(least > 3 * seeds, "nothing is shown by {counts:?}");
}
