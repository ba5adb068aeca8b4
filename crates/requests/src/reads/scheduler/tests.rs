use super::*;
use crate::resumable::ReadStep;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind};
use io::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use io::{Access, CreateOptions, ReadFile, Rng, SyncKind};
use std::path::Path;

/// The byte at an offset of a file.
fn byte(file: u64, offset: u64) -> u8 {
    (offset / 7 + offset * file) as u8
}

fn files(sim: &SimEnv, len: u64) -> Vec<Arc<dyn ReadFile>> {
    let env = sim.env();
    env.fs.create_dir_all(Path::new("/files")).unwrap();
    (0..3)
        .map(|number| {
            let path = Path::new("/files").join(format!("{number}"));
            let mut file = env.fs.create(&path, &CreateOptions::default()).unwrap();
            file.append(&(0..len).map(|offset| byte(number, offset)).collect::<Vec<_>>()).unwrap();
            file.sync(SyncKind::Full).unwrap();
            env.fs.open(&path, Access::Direct).unwrap()
        })
        .collect()
}

/// The resolved requests, in order: their numbers, and the number of failed reads of each.
type Resolved = Arc<Mutex<Vec<(u64, usize)>, rank::Noted>>;

/// A request with rounds of wants. It checks the delivered bytes.
struct Fake {
    number: u64,
    rounds: Vec<Vec<BlockRequest>>,
    /// The current round.
    asked: Option<Vec<BlockRequest>>,
    lacking: Vec<Extent>,
    failed: usize,
    needs_all: bool,
    resolved: Resolved,
}

impl ResumableRead for Fake {
    fn step(&mut self, _: bool) -> ReadStep {
        if !self.lacking.is_empty() {
            assert!(!self.needs_all);
            return ReadStep::Wants(Vec::new());
        }
        match self.rounds.pop() {
            None => ReadStep::Done,
            Some(wants) => {
                self.lacking = wants.iter().map(|want| want.extent).collect();
                self.asked = Some(wants.clone());
                ReadStep::Wants(wants)
            }
        }
    }

    fn deliver(&mut self, want: &BlockRequest, read: Result<Block>, _: FetchCost) {
        let nth = self.lacking.iter().position(|extent| *extent == want.extent).expect("wanted, and once");
        self.lacking.swap_remove(nth);
        match read {
            Err(_) => self.failed += 1,
            Ok(bytes) => {
                assert_eq!(bytes.len() as u64, want.extent.len);
                let is_it =
                    |(nth, found): (u64, &u8)| *found == byte(want.extent.file, want.extent.offset + nth);
                assert!((0..).zip(&bytes[..]).step_by(61).all(is_it), "{:?}", want.extent);
            }
        }
    }

    fn close_files(&mut self) {}

    fn forget(&mut self) {
        self.rounds.extend(self.asked.take());
        self.lacking.clear();
    }

    fn needs_all(&self) -> bool {
        self.needs_all
    }

    fn phase(&self) -> usize {
        0
    }

    fn resolve(self: Box<Self>) {
        lock(&self.resolved).push((self.number, self.failed));
    }
}

fn step(mut ticket: Ticket) -> Option<(Ticket, Vec<BlockRequest>)> {
    match ticket.read().step(false) {
        ReadStep::Wants(wants) => Some((ticket, wants)),
        ReadStep::Done => {
            ticket.resolve();
            None
        }
    }
}

struct Rig {
    sim: SimEnv,
    files: Vec<Arc<dyn ReadFile>>,
    queue: ReadQueue,
    scheduler: ReadScheduler,
    resolved: Resolved,
    made: u64,
    most: u64,
    most_reads: usize,
}

impl Rig {
    fn new(seed: u64, len: u64) -> Rig {
        let sim = SimEnv::new(seed);
        let (files, queue) = (files(&sim, len), ReadQueue::new(&sim.env()));
        let (scheduler, resolved) = (ReadScheduler::new(&Arc::default()), Arc::default());
        Rig { sim, files, queue, scheduler, resolved, made: 0, most: 0, most_reads: 0 }
    }

    fn want(&self, file: u64, offset: u64, len: u64) -> BlockRequest {
        let extent = Extent { file, offset, len };
        BlockRequest { file: self.files[file as usize].clone(), extent, role: BlockKind::Inline }
    }

    /// A request with these rounds, the last one first.
    fn request(&mut self, rounds: Vec<Vec<BlockRequest>>, needs_all: bool) {
        self.ask(rounds, needs_all, false);
    }

    /// As `request`, for a scan, which needs all that it wants.
    fn scan(&mut self, rounds: Vec<Vec<BlockRequest>>) {
        self.ask(rounds, true, true);
    }

    fn ask(&mut self, rounds: Vec<Vec<BlockRequest>>, needs_all: bool, is_scan: bool) {
        let (number, resolved) = (self.made, self.resolved.clone());
        let mut fake =
            Fake { number, rounds, asked: None, lacking: Vec::new(), failed: 0, needs_all, resolved };
        self.made += 1;
        let ReadStep::Wants(wants) = fake.step(false) else { panic!("it wants something") };
        let ticket = Ticket::new(Box::new(fake), &self.scheduler.buffers);
        let ticket = if is_scan { ticket.of_scan(Box::new(())) } else { ticket };
        self.scheduler.add(ticket, wants);
    }

    /// A turn of the driver in which one read completes.
    fn turn(&mut self) {
        let blocked = self.scheduler.admit(step);
        assert!(blocked.is_empty());
        self.scheduler.dispatch(&mut self.queue);
        assert!(self.queue.in_flight() <= DEVICE_READS_MAX);
        assert!(
            self.queue.in_flight() > 0 || self.scheduler.is_empty(),
            "a request waits, and nothing is in flight"
        );
        self.most_reads = self.most_reads.max(self.scheduler.reads.len());
        self.most = self.most.max(self.scheduler.buffers.all());
        for done in self.queue.complete(true) {
            self.scheduler.complete(done.token, done.read);
        }
        let blocked = self.scheduler.resume(step);
        assert!(blocked.is_empty());
    }

    /// Runs to the end. Returns the number of failed reads of each request.
    fn run(&mut self) -> Vec<usize> {
        while !self.scheduler.is_empty() {
            self.turn();
        }
        let mut resolved = std::mem::take(&mut *lock(&self.resolved));
        resolved.sort_unstable();
        assert!(
            resolved.iter().map(|(number, _)| *number).eq(0..self.made),
            "each is resolved once: {resolved:?}"
        );
        assert_eq!(self.scheduler.buffers.all(), 0);
        assert!(self.scheduler.reads.is_empty() && self.scheduler.by_extent.is_empty());
        assert!(self.scheduler.queued.iter().all(QueuedReads::is_empty));
        assert!(self.scheduler.load.at_device.iter().all(|of| (of.reads, of.bytes) == (0, 0)));
        assert_eq!(self.scheduler.load.of_scans, 0);
        resolved.into_iter().map(|(_, failed)| failed).collect()
    }
}

#[test]
fn each_read_is_delivered_to_its_requests() {
    let mut failed = 0;
    for seed in 0..30 {
        let (mut rig, mut rng) = (Rig::new(seed, 1 << 20), Rng::new(seed));
        // Few places, so that many want the same.
        let places = [20, 190][rng.below(2) as usize];
        if rng.one_in(3) {
            let plan = FaultPlan::nth(rng.below(50), FaultEffect::Eio).kinds(&[OpKind::Read]);
            rig.sim.inject(if rng.one_in(2) { plan.sticky() } else { plan });
        }
        for _ in 0..rng.range(1, 80) {
            let rounds = rng.range(1, 4);
            let mut rounds: Vec<Vec<BlockRequest>> = (0..rounds)
                .map(|_| {
                    let mut wants: Vec<BlockRequest> = (0..rng.range(1, 12))
                        .map(|_| {
                            let len = [10, 4096, 60_000][rng.below(3) as usize];
                            rig.want(rng.below(3), rng.below(places) * 5000, len)
                        })
                        .collect();
                    wants.sort_unstable_by_key(|want| want.extent);
                    wants.dedup_by_key(|want| want.extent);
                    // In any order: wants of several steps may come together.
                    if rng.one_in(2) {
                        wants.reverse();
                    }
                    wants
                })
                .collect();
            if rng.one_in(4) {
                // A request may want delivered bytes again.
                rounds.push(rounds[0].clone());
            }
            match rng.below(4) {
                0 => rig.scan(rounds),
                n => rig.request(rounds, n == 1),
            }
            for _ in 0..rng.below(6) {
                rig.turn();
            }
        }
        failed += rig.run().iter().filter(|failed| **failed > 0).count();
    }
    assert!(failed > 20, "{failed}");
}

/// Thousands of requests that want more than the bound, in several rounds: buffers stay within it,
/// and all requests finish.
#[test]
fn buffers_are_bounded_for_any_number_of_requests() {
    let mut rig = Rig::new(1, 4 << 20);
    for n in 0..1500u64 {
        let round =
            |nth: u64| vec![rig.want((n + nth) % 3, (n * 3 + nth) * 997 % ((4 << 20) - 70_000), 64 << 10)];
        rig.request((0..3).map(round).collect(), true);
    }
    rig.run();
    assert!(rig.most > BUFFER_BYTES_MAX / 4, "{}", rig.most);
    // The oldest continues in any case.
    assert!(rig.most <= BUFFER_BYTES_MAX + OLDEST_BYTES_MAX, "{}", rig.most);
    assert!(rig.most_reads <= ADMITTED_READS_MAX + 1, "{}", rig.most_reads);
}

/// Each of a few requests wants more than the bound: the oldest finishes, and then the next.
#[test]
fn the_oldest_request_finishes_beyond_the_buffer_bound() {
    for needs_all in [false, true] {
        let mut rig = Rig::new(2, 24 << 20);
        for n in 0..4u64 {
            // 60 MB each, and one read that is longer than the oldest may have in flight.
            let mut wants: Vec<BlockRequest> =
                (0..60).map(|nth| rig.want(nth / 20, nth % 20 * (1 << 20) + n, 1 << 20)).collect();
            wants.push(rig.want(2, 20 << 20, (3 << 20) + n));
            let long = vec![rig.want(n % 3, n, 9 << 20)];
            rig.request(vec![long.clone(), wants, long], needs_all);
        }
        for n in 0..500u64 {
            rig.request(vec![vec![rig.want(n % 3, n * 40_000, 30_000)]], true);
        }
        rig.run();
        // The wants of the oldest come on top.
        assert!(rig.most <= BUFFER_BYTES_MAX + (90 << 20), "{}", rig.most);
    }
}

/// Requests that want the same bytes wait for one read, and neighbors of one request are one read.
#[test]
fn shared_blocks_are_read_once() {
    let mut rig = Rig::new(3, 1 << 20);
    let before = rig.sim.op_count();
    for _ in 0..100 {
        let wants = vec![rig.want(1, 8192, 4096), rig.want(1, 20_000, 100), rig.want(2, 0, 4096)];
        rig.request(vec![wants], true);
    }
    rig.run();
    assert_eq!(rig.sim.op_count() - before, 2, "two runs");
}

/// A failed read is split into its parts, so the error is that of a part.
#[test]
fn an_error_reaches_the_failed_part_only() {
    let mut rig = Rig::new(4, 1 << 20);
    let parts = [0, 5000, 10_000].map(|offset| rig.want(0, offset, 4096));
    rig.request(vec![parts.to_vec()], false);
    for part in parts {
        rig.request(vec![vec![part]], true);
    }
    // The joined read fails, and then the part that is read first: all requests wait for the same
    // three.
    rig.sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Read]));
    rig.turn();
    rig.sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Read]));
    let failed = rig.run();
    assert_eq!(failed[0], 1, "{failed:?}");
    assert_eq!(failed[1..].iter().sum::<usize>(), 1, "{failed:?}");
}

/// A request whose step panicked is gone; its device reads still serve the requests that joined.
#[test]
fn a_read_outlives_the_request_that_began_it() {
    let mut rig = Rig::new(5, 1 << 20);
    let want = rig.want(0, 0, 100);
    for _ in 0..2 {
        rig.request(vec![vec![want.clone()]], true);
    }
    drop(rig.scheduler.waiting.pop_first());
    while !rig.scheduler.is_empty() {
        rig.turn();
    }
    assert_eq!(*lock(&rig.resolved), [(1, 0)]);
    assert_eq!(rig.scheduler.buffers.all(), 0);
    // A device read without a charge completes as well.
    let e = Error::new(ErrorKind::Io, "of an unknown device read");
    rig.scheduler.complete(99, Err(e));
}

/// A request that wants much, wave after wave, lets later requests in between.
#[test]
fn a_large_request_does_not_delay_small_ones() {
    let mut rig = Rig::new(6, 5 << 20);
    let wave = |nth: u64| (0..256).map(|n| rig.want(nth % 3, n * 17_000, 100)).collect();
    // Too far apart to be read together.
    let waves: Vec<Vec<BlockRequest>> = (0..40).map(wave).collect();
    rig.request(waves, false);
    for n in 0..10 {
        rig.request(vec![vec![rig.want(n % 3, n * 7 + 3, 4)]], true);
    }
    let mut turns = 0;
    while lock(&rig.resolved).len() < 10 {
        rig.turn();
        turns += 1;
    }
    assert!(turns < 1000, "they waited for {turns} reads");
    rig.run();
}

/// Scans want more than the bound on reads in flight. In each of its rounds a later get waits
/// behind at most the scans' share of the device. So does a get that joins a queued read of a scan.
#[test]
fn a_get_behind_many_scans_is_served_soon() {
    for seed in 0..6 {
        let mut rig = Rig::new(100 + seed, 5 << 20);
        // Too far apart to be read together, and of each scan its own.
        let wave = |nth: u64| (0..300).map(|n| rig.want(n % 3, n * 17_000 + nth * 101, 100)).collect();
        let scans: Vec<Vec<Vec<BlockRequest>>> =
            (0..64).map(|n| (0..3).map(|nth| wave(n * 2 + nth * 130)).collect()).collect();
        let wanted_by_last = scans[63][2][250].clone();
        scans.into_iter().for_each(|rounds| rig.scan(rounds));
        (0..10 + seed).for_each(|_| rig.turn());
        let rounds = (0..3).map(|n| vec![rig.want(n, 3 + n * 50_000, 4)]).collect();
        rig.request(rounds, true);
        rig.request(vec![vec![wanted_by_last]], true);
        let mut turns = 0;
        while lock(&rig.resolved).iter().filter(|(number, _)| *number >= 64).count() < 2 {
            rig.turn();
            turns += 1;
        }
        // A turn completes any one of the reads in flight: a few times as many turns as reads.
        assert!(turns < SCAN_READS_MAX * 3 * 4, "seed {seed}: they waited for {turns} reads");
        let scans = lock(&rig.resolved).iter().filter(|(number, _)| *number < 64).count();
        assert!(scans < 32, "seed {seed}: most scans were served before");
        rig.run();
    }
}

/// Buffers of scans do not block point reads, and both finish beside each other.
#[test]
fn scans_leave_half_of_the_buffers_to_gets() {
    let mut rig = Rig::new(7, 24 << 20);
    for n in 0..64u64 {
        // A round of a scan that holds much while it waits for little.
        let much: Vec<BlockRequest> =
            (0..8).map(|nth| rig.want(n % 3, (nth * 60 + n) * 40_000, 20_000)).collect();
        rig.scan(vec![much.clone(), much]);
    }
    (0..200).for_each(|_| rig.turn());
    for n in 0..40u64 {
        rig.request(vec![vec![rig.want(n % 3, n * 40_000 + 30_000, 300_000)]], true);
    }
    let mut turns = 0;
    while lock(&rig.resolved).iter().filter(|(number, _)| *number >= 64).count() < 40 {
        rig.turn();
        turns += 1;
    }
    assert!(turns < 400, "they waited for {turns} reads");
    rig.run();
    assert!(rig.most <= BUFFER_BYTES_MAX + OLDEST_BYTES_MAX, "{}", rig.most);
}

/// Scans finish beside an endless stream of gets.
#[test]
fn an_endless_stream_of_gets_lets_scans_finish() {
    let mut rig = Rig::new(8, 5 << 20);
    for n in 0..8u64 {
        rig.scan((0..3).map(|nth| vec![rig.want(n % 3, n * 100_000 + nth * 17_000, 100)]).collect());
    }
    let (mut made, mut turns) = (0u64, 0);
    while lock(&rig.resolved).iter().filter(|(number, _)| *number < 8).count() < 8 {
        while rig.scheduler.reads.len() < ADMITTED_READS_MAX {
            let at = made * 7919 % (5 << 20) / 64 * 64;
            rig.request(vec![vec![rig.want(made % 3, at.min((5 << 20) - 64), 4)]], true);
            made += 1;
        }
        rig.turn();
        turns += 1;
    }
    assert!(turns < 8000, "they waited for {turns} reads");
    rig.run();
}
