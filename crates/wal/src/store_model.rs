//! Test model of a store around a log: a manifest that is durable at once, distinguishable batches,
//! and the rules that a recovered log must keep.

use crate::durability::Durability;
use crate::groups::PreparedGroup;
use crate::history::{History, LogBegin};
use crate::lane::Lane;
use crate::page::group_len_needed;
use crate::page::{self, Owner, PageHeader};
use crate::recover::{LogGroup, LoggedBatch, RecoveryMode, RecoveryReport, recover_lane};
use crate::tenant::TenantId;
use crate::wal::{Position, UnrecordedBegin, Wal, WalOptions};
use base::{ErrorKind, Result, Uid};
use io::sim::{CrashKind, SimEnv};
use io::{Access, PAGE, Rng};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) const STORE: [u64; 2] = [7, 11];

pub(crate) fn store() -> Uid {
    Uid::from_words(STORE[0], STORE[1])
}

/// Returns the identity of a group; here no file is given to the log twice.
pub(crate) fn uid_of(ltn: u64) -> Uid {
    Uid::from_words(ltn, 0x6964)
}

/// Returns the owner of the pages of a group.
pub(crate) fn owner(ltn: u64) -> Owner {
    Owner { store: store(), group: Some(uid_of(ltn)) }
}

pub(crate) fn dir() -> &'static Path {
    Path::new("/log")
}

pub(crate) fn path_of(ltn: u64) -> PathBuf {
    dir().join(format!("{ltn:012}.log"))
}

/// The groups, each with the end that a recovery gave it, and the number for the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Manifest {
    /// The lane of the log.
    pub lane: Lane,
    pub groups: BTreeMap<u64, Option<u64>>,
    /// The group in which the log begins, and the place.
    pub begin: Option<(u64, LogBegin)>,
    pub next_ltn: u64,
}

impl Manifest {
    /// Returns a manifest with one group.
    pub fn of_one(ltn: u64) -> Manifest {
        Manifest { groups: [(ltn, None)].into(), next_ltn: ltn + 1, ..Manifest::default() }
    }

    fn remove(&mut self, ltn: u64) {
        self.groups.remove(&ltn);
        self.begin.take_if(|(begins, _)| *begins == ltn);
    }
}

/// An appended batch, and the operations from which on it must survive a crash of each kind.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub seq: u64,
    pub payload: Vec<u8>,
    pub position: Option<Position>,
    pub begun_op: u64,
    pub buffered_op: Option<u64>,
    pub durable_op: Option<u64>,
}

/// A store without tables: its log, and a model of its contents.
pub(crate) struct Caller {
    pub sim: SimEnv,
    pub wal: Wal,
    options: WalOptions,
    pub group_pages: u64,
    pub rng: Rng,
    /// Every version of the manifest, from the operation at which it was durable.
    pub manifests: Vec<(u64, Manifest)>,
    pub written: Vec<Written>,
    /// Floors: batches below need not be recovered, from the operation on.
    pub floors: Vec<(u64, u64)>,
    pub next_seq: u64,
    /// The tenants that append. They share one sequence, and one floor.
    pub tenants: u8,
}

/// Most tenants of any test.
const TENANTS_MAX: u8 = 4;

/// Returns the same floor for all tenants.
pub(crate) fn floors_of_all(floor: u64) -> Vec<(TenantId, u64)> {
    (0..TENANTS_MAX).map(|tenant| (TenantId(tenant), floor)).collect()
}

/// Returns the tenant of a batch, which the payload names in the free highest byte of its sequence.
pub(crate) fn tenant_of(payload: &[u8]) -> TenantId {
    TenantId(payload[7])
}

pub(crate) fn options() -> WalOptions {
    WalOptions {
        lane: Lane::FIRST,
        group_len: 12 * PAGE as u64,
        tail_buffer_len: 5 * PAGE,
        write_len_min: 2 * PAGE,
        write_len_max: 3 * PAGE,
        spares: 1,
        ..WalOptions::default()
    }
}

/// Options of a log whose pages stay for a second, or until the tail buffer is full. For some seeds
/// they stay only until they justify a write, once there was a durable batch.
pub(crate) fn keeping_pages(seed: u64) -> WalOptions {
    let durable_wait_ns_max = if seed % 4 == 2 { 0 } else { 10_000_000 };
    WalOptions {
        tail_buffer_len: 24 * PAGE,
        buffered_age_ns: 1_000_000_000,
        durable_wait_ns_max,
        ..options()
    }
}

/// Returns a block length for a seed.
pub(crate) fn any_block_len(seed: u64) -> usize {
    512 << (seed % 4)
}

pub(crate) fn payload(rng: &mut Rng, seq: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.max(8)];
    rng.fill(&mut bytes);
    bytes[..8].copy_from_slice(&seq.to_le_bytes());
    bytes
}

impl Caller {
    pub fn new(seed: u64, start: u64) -> Caller {
        Caller::on(Lane::FIRST, seed, start)
    }

    /// Returns a store with the log in this lane, on a device with some block length.
    pub fn on(lane: Lane, seed: u64, start: u64) -> Caller {
        let sim = SimEnv::new(seed);
        sim.set_block_len(any_block_len(seed));
        sim.env().fs.create_dir_all(dir()).unwrap();
        sim.env().fs.sync_dir(Path::new("/")).unwrap();
        Caller::with(WalOptions { lane, ..options() }, sim, seed, start)
    }

    /// Returns a store with a log that keeps pages in its tail buffer.
    pub fn that_keeps_pages(seed: u64, start: u64) -> Caller {
        let sim = SimEnv::new(seed);
        sim.env().fs.create_dir_all(dir()).unwrap();
        sim.env().fs.sync_dir(Path::new("/")).unwrap();
        Caller::with(keeping_pages(seed), sim, seed, start)
    }

    /// Returns a store with the given options.
    pub fn with(options: WalOptions, sim: SimEnv, seed: u64, start: u64) -> Caller {
        let manifest = Manifest { lane: options.lane, next_ltn: start.max(1), ..Manifest::default() };
        Caller::begin(sim, seed, manifest, start, History::default(), options, Vec::new(), start)
    }

    #[allow(clippy::too_many_arguments)]
    fn begin(
        sim: SimEnv,
        seed: u64,
        mut manifest: Manifest,
        next_lpn: u64,
        history: History,
        options: WalOptions,
        written: Vec<Written>,
        next_seq: u64,
    ) -> Caller {
        let env = sim.env();
        let ltn = manifest.next_ltn;
        manifest.next_ltn += 1;
        let file = env.fs.create_in_place(&path_of(ltn), options.group_len, Access::Direct).unwrap();
        env.fs.sync_dir(dir()).unwrap();
        manifest.groups.insert(ltn, None);
        let at = sim.op_count();
        let first = PreparedGroup { ltn, uid: uid_of(ltn), file };
        let group_pages = options.group_len / PAGE as u64;
        let wal = Wal::start(&env, dir(), options.clone(), store(), next_lpn, first, history).unwrap();
        Caller {
            sim,
            wal,
            options,
            group_pages,
            rng: Rng::new(seed),
            manifests: vec![(at, manifest)],
            written,
            floors: vec![(0, 0)],
            next_seq,
            tenants: 1,
        }
    }

    fn manifest(&self) -> Manifest {
        self.manifests.last().unwrap().1.clone()
    }

    fn commit(&mut self, manifest: Manifest) {
        self.manifests.push((self.sim.op_count(), manifest));
    }

    pub fn add_group(&mut self, pages: u64) -> Result<()> {
        let mut manifest = self.manifest();
        let ltn = manifest.next_ltn;
        manifest.next_ltn += 1;
        let env = self.sim.env();
        let file = env.fs.create_in_place(&path_of(ltn), pages * PAGE as u64, Access::Direct)?;
        env.fs.sync_dir(dir())?;
        manifest.groups.insert(ltn, None);
        self.commit(manifest);
        self.wal.content().add_group(PreparedGroup { ltn, uid: uid_of(ltn), file })
    }

    /// Appends a batch of a random payload, adding groups as the log asks for them.
    pub fn append(&mut self, len: usize, durability: Durability) -> Result<Position> {
        let seq = self.next_seq;
        self.next_seq += 1 + self.rng.below(3);
        let mut bytes = payload(&mut self.rng, seq, len);
        if self.tenants > 1 {
            bytes[7] = self.rng.below(self.tenants.into()) as u8;
        }
        let tenant = tenant_of(&bytes);
        let cut = self.rng.below(bytes.len() as u64 + 1) as usize;
        self.written.push(Written {
            seq,
            payload: bytes.clone(),
            position: None,
            begun_op: self.sim.op_count(),
            buffered_op: None,
            durable_op: None,
        });
        let (a, b) = bytes.split_at(cut);
        loop {
            match self.wal.append(tenant, &[a, b"", b], seq, self.next_seq - 1, durability, seq) {
                Err(e) if e.kind() == ErrorKind::Busy => {
                    let pages = (group_len_needed(bytes.len()) / PAGE as u64).max(self.group_pages);
                    self.add_group(pages)?;
                }
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    // Nothing was appended: the next batch takes the same sequences.
                    self.written.pop();
                    self.next_seq = seq;
                    return Err(e);
                }
                outcome => {
                    let position = outcome?;
                    let written = self.written.last_mut().unwrap();
                    written.position = Some(position);
                    written.buffered_op = (durability == Durability::Buffered).then(|| self.sim.op_count());
                    return Ok(position);
                }
            }
        }
    }

    /// Records that everything up to a position is acknowledged as durable.
    fn acknowledged(&mut self, position: Position) {
        let op = self.sim.op_count();
        for w in self.written.iter_mut().filter(|w| w.position.is_some_and(|p| p <= position)) {
            w.durable_op.get_or_insert(op);
            w.buffered_op.get_or_insert(op);
        }
    }

    pub fn sync(&mut self, position: Position) -> Result<()> {
        self.wal.syncer().sync(position)?;
        self.acknowledged(position);
        Ok(())
    }

    pub fn put(&mut self, len: usize) -> Result<Position> {
        let position = self.append(len, Durability::Durable)?;
        self.sync(position)?;
        Ok(position)
    }

    pub fn persist_watermark(&mut self) -> Result<bool> {
        let done = self.wal.persist_watermark()?;
        if let Some(position) = self.wal.content().last_position() {
            self.acknowledged(position);
        }
        Ok(done)
    }

    pub fn close(&mut self) -> Result<()> {
        self.wal.close()?;
        if let Some(position) = self.wal.content().last_position() {
            self.acknowledged(position);
        }
        Ok(())
    }

    /// Flushes everything below a sequence, and removes the groups that are then unneeded.
    pub fn flush_below(&mut self, floor: u64) {
        self.floors.push((self.sim.op_count(), floor));
        if let Some(overtaken) = self.wal.deferred().overtaken(&floors_of_all(floor)) {
            return self.skip_to(&overtaken);
        }
        let released = self.wal.content().release_below(&floors_of_all(floor));
        let mut manifest = self.manifest();
        for ltn in &released {
            assert_eq!(manifest.groups.keys().next(), Some(ltn), "oldest first");
            manifest.remove(*ltn);
        }
        self.commit(manifest);
        for ltn in released {
            self.sim.env().fs.remove(&path_of(ltn)).unwrap();
        }
    }

    /// Records the new beginning of the log in one edit, skips the pages before it, and removes the
    /// files.
    fn skip_to(&mut self, overtaken: &UnrecordedBegin) {
        let mut manifest = self.manifest();
        overtaken.released.iter().for_each(|ltn| manifest.remove(*ltn));
        assert_eq!(manifest.groups.keys().next(), Some(&overtaken.ltn), "it begins in the oldest");
        manifest.begin = Some((overtaken.ltn, overtaken.begin));
        // The edit takes an operation, and is not durable before it.
        self.sim.env().fs.sync_dir(dir()).unwrap();
        self.commit(manifest);
        self.wal.deferred().skip_to(overtaken).unwrap();
        for ltn in &overtaken.released {
            self.sim.env().fs.remove(&path_of(*ltn)).unwrap();
        }
    }

    /// Does one random step of a busy store.
    pub fn step(&mut self) -> Result<()> {
        let durability = if self.rng.one_in(2) { Durability::Durable } else { Durability::Buffered };
        let len = match self.rng.below(12) {
            0 => self.rng.range(3000, 9000),
            1 => self.rng.range(9000, 60_000),
            2..=4 => self.rng.range(500, 3000),
            _ => self.rng.range(8, 300),
        };
        match self.rng.below(24) {
            0 => self.wal.deferred().write_out().map(drop),
            1 => self.persist_watermark().map(drop),
            2 if self.wal.content().groups_wanted() > 0 => self.add_group(self.group_pages),
            3 => match self.wal.content().last_position() {
                Some(position) => self.sync(position),
                None => Ok(()),
            },
            4 if self.written.len() > 6 => {
                let floor = self.written[self.rng.below(self.written.len() as u64) as usize].seq;
                let floor = self.floors.last().map_or(0, |f| f.1).max(floor);
                self.flush_below(floor);
                Ok(())
            }
            _ => {
                let position = self.append(len as usize, durability)?;
                match durability {
                    Durability::Durable if self.rng.below(3) > 0 => self.sync(position),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Returns the manifest and the expectations for a crash at an operation.
    pub fn expectation(&self, op: u64, kind: CrashKind) -> Expectation {
        let version = self.manifests.iter().rev().find(|(at, _)| *at <= op);
        let passed = |at: Option<u64>| at.is_some_and(|at| at <= op);
        let begun: Vec<Written> = self.written.iter().filter(|w| w.begun_op <= op).cloned().collect();
        let durable = begun.iter().rposition(|w| passed(w.durable_op)).map_or(0, |i| i + 1);
        let buffered = begun.iter().rposition(|w| passed(w.buffered_op)).map_or(0, |i| i + 1);
        Expectation {
            options: self.options.clone(),
            manifest: version.map(|(_, m)| m.clone()).unwrap_or_default(),
            next_seq: begun.last().map_or(self.next_seq, |w| w.seq + 4),
            // Acknowledgment is by prefix, so the last required batch determines the number.
            required: if kind == CrashKind::ProcessKill { buffered } else { durable },
            durable,
            floor: self.floors.iter().rev().find(|(at, _)| *at <= op).map_or(0, |f| f.1),
            begun,
        }
    }
}

/// Expected result of a recovery after a crash.
#[derive(Clone)]
pub(crate) struct Expectation {
    /// Options of the store that continues.
    pub options: WalOptions,
    pub manifest: Manifest,
    pub begun: Vec<Written>,
    /// At least this many of `begun` are required.
    pub required: usize,
    /// How many of them survive any crash.
    pub durable: usize,
    pub floor: u64,
    pub next_seq: u64,
}

pub(crate) fn groups(sim: &SimEnv, manifest: &Manifest) -> Vec<LogGroup> {
    let env = sim.env();
    let open = |ltn| env.fs.open_in_place(&path_of(ltn), Access::Direct).unwrap();
    let begin = |ltn| manifest.begin.filter(|(begins, _)| *begins == ltn).map(|(_, begin)| begin);
    let group = |(&ltn, &sealed_end): (&u64, &Option<u64>)| LogGroup {
        ltn,
        uid: Some(uid_of(ltn)),
        file: open(ltn),
        sealed_end,
        begin: begin(ltn),
    };
    manifest.groups.iter().map(group).collect()
}

/// Recovered batches.
pub(crate) type Replayed = Vec<(u64, Vec<u8>)>;

/// Changes a closed page of a group, and gives it a valid checksum.
pub(crate) fn forge(sim: &SimEnv, ltn: u64, index: u64, change: impl FnOnce(&mut [u8])) {
    let all = sim.read_file(path_of(ltn)).unwrap();
    let at = index * PAGE as u64;
    let mut bytes = all[at as usize..][..PAGE].to_vec();
    change(&mut bytes);
    let PageHeader { used, durable_end, owner, lpn, .. } = page::peek(&bytes).expect("a page stands there");
    page::close(&mut bytes, used, durable_end, owner, lpn);
    sim.overwrite(path_of(ltn), at, &bytes).unwrap();
}

pub(crate) fn recover_all(
    sim: &SimEnv,
    manifest: &Manifest,
    mode: RecoveryMode,
) -> Result<(RecoveryReport, Replayed)> {
    let mut replayed = Vec::new();
    let mut take = |batch: &LoggedBatch<'_>| {
        assert_eq!(batch.tenant, tenant_of(batch.bytes), "whose batch {} is", batch.first_seq);
        replayed.push((batch.first_seq, batch.bytes.to_vec()));
        Ok(())
    };
    let of = (store(), manifest.lane);
    let report = recover_lane(&sim.env(), dir(), of, &groups(sim, manifest), mode, &mut take)?;
    Ok((report, replayed))
}

impl Expectation {
    /// Checks the recovered batches against the model, and returns how many of `begun` they are.
    pub fn check(&self, replayed: &Replayed) -> usize {
        let first = replayed.first().map_or(u64::MAX, |r| r.0);
        let from = self.begun.partition_point(|w| w.seq < first.max(self.floor));
        let skipped = replayed.iter().filter(|r| r.0 < self.floor).count();
        if !replayed.is_empty() && skipped == 0 {
            let whole = first <= self.floor || from == 0 || self.begun[from - 1].seq < self.floor;
            assert!(whole, "a gap at the front: {first} comes first, the floor is {}", self.floor);
        }
        let replayed = &replayed[skipped..];
        let end = match replayed.is_empty() {
            true => self.begun.partition_point(|w| w.seq < self.floor).min(self.begun.len()),
            false => from + replayed.len(),
        };
        for (w, (seq, bytes)) in self.begun[end - replayed.len()..].iter().zip(replayed) {
            assert_eq!(w.seq, *seq, "order");
            assert!(w.payload == *bytes, "payload of {seq}");
        }
        assert!(end >= self.required, "{end} batches came back, {} were promised", self.required);
        end
    }

    /// Continues after a recovery as a store does: one edit seals and discards, then a new group.
    pub fn resume(&self, sim: SimEnv, report: &RecoveryReport, kept: usize, seed: u64) -> Caller {
        let mut manifest = self.manifest.clone();
        if let Some((ltn, end)) = report.sealed {
            manifest.groups.insert(ltn, Some(end));
        }
        for ltn in &report.discarded {
            manifest.remove(*ltn);
        }
        let written: Vec<Written> = self.begun[..kept]
            .iter()
            .map(|w| Written {
                position: None,
                begun_op: 0,
                buffered_op: Some(0),
                durable_op: Some(0),
                ..w.clone()
            })
            .collect();
        let history = report.history.clone();
        let next_lpn = report.next_lpn;
        let before = (sim.op_count(), manifest.clone());
        // Groups that are no longer, or not yet, in the manifest.
        let listed: Vec<PathBuf> = manifest.groups.keys().map(|&ltn| path_of(ltn)).collect();
        let files = sim.files().into_iter().map(|(path, _)| path);
        for path in files.filter(|p| p.extension().is_some_and(|e| e == "log") && !listed.contains(p)) {
            sim.env().fs.remove(&path).unwrap();
        }
        let options = WalOptions { lane: manifest.lane, ..self.options.clone() };
        let mut caller =
            Caller::begin(sim, seed, manifest, next_lpn, history, options, written, self.next_seq);
        caller.manifests.insert(0, before);
        caller.floors = vec![(0, self.floor)];
        caller
    }
}
