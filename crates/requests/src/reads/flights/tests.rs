use super::*;
use crate::resumable::ReadStep;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind};
use io::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use io::{Access, CreateOptions, ReadFile, Rng, SyncKind};
use std::path::Path;

/// What every byte of the files is.
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

/// What became of the requests: by number, what was told of each, and how often.
type Told = Arc<Mutex<Vec<(u64, usize)>, rank::Noted>>;

/// A request with rounds of wants. It checks what it is given.
struct Fake {
    number: u64,
    rounds: Vec<Vec<Want>>,
    /// The round that it is in.
    asked: Option<Vec<Want>>,
    lacking: Vec<Extent>,
    failed: usize,
    needs_all: bool,
    told: Told,
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

    fn deliver(&mut self, want: &Want, read: Result<Block>, _: FetchCost) {
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
        lock(&self.told).push((self.number, self.failed));
    }
}

fn step(mut ticket: Ticket) -> Option<(Ticket, Vec<Want>)> {
    match ticket.read.step(false) {
        ReadStep::Wants(wants) => Some((ticket, wants)),
        ReadStep::Done => {
            ticket.tell();
            None
        }
    }
}

struct Rig {
    sim: SimEnv,
    files: Vec<Arc<dyn ReadFile>>,
    queue: ReadQueue,
    flights: Flights,
    told: Told,
    made: u64,
    most: u64,
    most_flights: usize,
}

impl Rig {
    fn new(seed: u64, len: u64) -> Rig {
        let sim = SimEnv::new(seed);
        let (files, queue) = (files(&sim, len), ReadQueue::new(&sim.env()));
        let (flights, told) = (Flights::new(&Arc::default()), Arc::default());
        Rig { sim, files, queue, flights, told, made: 0, most: 0, most_flights: 0 }
    }

    fn want(&self, file: u64, offset: u64, len: u64) -> Want {
        let extent = Extent { file, offset, len };
        Want { file: self.files[file as usize].clone(), extent, role: Role::Inline }
    }

    /// A request with these rounds, the last one first.
    fn request(&mut self, rounds: Vec<Vec<Want>>, needs_all: bool) {
        self.ask(rounds, needs_all, false);
    }

    /// The same of a scan, which needs all that it wants.
    fn scan(&mut self, rounds: Vec<Vec<Want>>) {
        self.ask(rounds, true, true);
    }

    fn ask(&mut self, rounds: Vec<Vec<Want>>, needs_all: bool, is_scan: bool) {
        let (number, told) = (self.made, self.told.clone());
        let mut fake = Fake { number, rounds, asked: None, lacking: Vec::new(), failed: 0, needs_all, told };
        self.made += 1;
        let ReadStep::Wants(wants) = fake.step(false) else { panic!("it wants something") };
        let ticket = Ticket::new(Box::new(fake), &self.flights.charged);
        let ticket = if is_scan { ticket.of_scan(Box::new(())) } else { ticket };
        self.flights.add(ticket, wants);
    }

    /// Begins what there is room for, and one read is done.
    fn turn(&mut self) {
        let back = self.flights.admit(step);
        assert!(back.is_empty());
        self.flights.begin(&mut self.queue);
        assert!(self.queue.in_flight() <= FLYING_MAX);
        assert!(
            self.queue.in_flight() > 0 || self.flights.is_empty(),
            "somebody waits, and nothing is in flight"
        );
        self.most_flights = self.most_flights.max(self.flights.flights.len());
        self.most = self.most.max(self.flights.charged.all());
        for done in self.queue.complete(true) {
            self.flights.land(done.token, done.read);
        }
        let back = self.flights.go_on(step);
        assert!(back.is_empty());
    }

    /// To the end. Of each request how many of its reads failed.
    fn run(&mut self) -> Vec<usize> {
        while !self.flights.is_empty() {
            self.turn();
        }
        let mut told = std::mem::take(&mut *lock(&self.told));
        told.sort_unstable();
        assert!(told.iter().map(|(number, _)| *number).eq(0..self.made), "each is told once: {told:?}");
        assert_eq!(self.flights.charged.all(), 0);
        assert!(self.flights.flights.is_empty() && self.flights.wanted.is_empty());
        assert!(self.flights.lines.iter().all(Line::is_empty));
        assert!(self.flights.begun.flying.iter().all(|of| (of.flights, of.bytes) == (0, 0)));
        assert_eq!(self.flights.begun.of_scans, 0);
        told.into_iter().map(|(_, failed)| failed).collect()
    }
}

#[test]
fn whatever_is_wanted_comes_to_who_wants_it() {
    let mut failed = 0;
    for seed in 0..60 {
        let (mut rig, mut rng) = (Rig::new(seed, 1 << 20), Rng::new(seed));
        // Few places, so that many want the same.
        let places = [20, 190][rng.below(2) as usize];
        if rng.one_in(3) {
            let plan = FaultPlan::nth(rng.below(50), FaultEffect::Eio).kinds(&[OpKind::Read]);
            rig.sim.inject(if rng.one_in(2) { plan.sticky() } else { plan });
        }
        for _ in 0..rng.range(1, 80) {
            let rounds = rng.range(1, 4);
            let mut rounds: Vec<Vec<Want>> = (0..rounds)
                .map(|_| {
                    let mut wants: Vec<Want> = (0..rng.range(1, 12))
                        .map(|_| {
                            let len = [10, 4096, 60_000][rng.below(3) as usize];
                            rig.want(rng.below(3), rng.below(places) * 5000, len)
                        })
                        .collect();
                    wants.sort_unstable_by_key(|want| want.extent);
                    wants.dedup_by_key(|want| want.extent);
                    // In whatever order: those of several steps may come together.
                    if rng.one_in(2) {
                        wants.reverse();
                    }
                    wants
                })
                .collect();
            if rng.one_in(4) {
                // What one has read and lacks no more may be wanted again.
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

/// Thousands that want more than there is room for, in several rounds: they hold no more than they may, and all come to their end.
#[test]
fn buffers_are_bounded_however_many_wait() {
    let mut rig = Rig::new(1, 4 << 20);
    for n in 0..1500u64 {
        let round =
            |nth: u64| vec![rig.want((n + nth) % 3, (n * 3 + nth) * 997 % ((4 << 20) - 70_000), 64 << 10)];
        rig.request((0..3).map(round).collect(), true);
    }
    rig.run();
    assert!(rig.most > BYTES_MAX / 4, "{}", rig.most);
    // The oldest goes on in any case.
    assert!(rig.most <= BYTES_MAX + OLDEST_BYTES_MAX, "{}", rig.most);
    assert!(rig.most_flights <= BEGUN_MAX + 1, "{}", rig.most_flights);
}

/// Each of a few wants more than all may have: the oldest goes on, and then the next.
#[test]
fn the_oldest_comes_to_its_end_whatever_it_wants() {
    for needs_all in [false, true] {
        let mut rig = Rig::new(2, 24 << 20);
        for n in 0..4u64 {
            // 60 MB each, and one read that is longer than the oldest may have in flight.
            let mut wants: Vec<Want> =
                (0..60).map(|nth| rig.want(nth / 20, nth % 20 * (1 << 20) + n, 1 << 20)).collect();
            wants.push(rig.want(2, 20 << 20, (3 << 20) + n));
            let long = vec![rig.want(n % 3, n, 9 << 20)];
            rig.request(vec![long.clone(), wants, long], needs_all);
        }
        for n in 0..500u64 {
            rig.request(vec![vec![rig.want(n % 3, n * 40_000, 30_000)]], true);
        }
        rig.run();
        // What the oldest wants comes on top.
        assert!(rig.most <= BYTES_MAX + (90 << 20), "{}", rig.most);
    }
}

/// Several that want the same wait for one read; and neighbours of one request are one.
#[test]
fn what_many_want_is_read_once() {
    let mut rig = Rig::new(3, 1 << 20);
    let before = rig.sim.op_count();
    for _ in 0..100 {
        let wants = vec![rig.want(1, 8192, 4096), rig.want(1, 20_000, 100), rig.want(2, 0, 4096)];
        rig.request(vec![wants], true);
    }
    rig.run();
    assert_eq!(rig.sim.op_count() - before, 2, "two runs");
}

/// A run that fails is read part by part, so the error is that of the part.
#[test]
fn an_error_is_of_what_could_not_be_read() {
    let mut rig = Rig::new(4, 1 << 20);
    let parts = [0, 5000, 10_000].map(|offset| rig.want(0, offset, 4096));
    rig.request(vec![parts.to_vec()], false);
    for part in parts {
        rig.request(vec![vec![part]], true);
    }
    // The run, and then the part that is read first: all wait for the same three.
    rig.sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Read]));
    rig.turn();
    rig.sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Read]));
    let failed = rig.run();
    assert_eq!(failed[0], 1, "{failed:?}");
    assert_eq!(failed[1..].iter().sum::<usize>(), 1, "{failed:?}");
}

/// A request that is gone, since its step panicked, takes nothing with it that others wait for.
#[test]
fn who_waits_for_the_read_of_one_that_is_gone_is_told() {
    let mut rig = Rig::new(5, 1 << 20);
    let want = rig.want(0, 0, 100);
    for _ in 0..2 {
        rig.request(vec![vec![want.clone()]], true);
    }
    drop(rig.flights.waiting.pop_first());
    while !rig.flights.is_empty() {
        rig.turn();
    }
    assert_eq!(*lock(&rig.told), [(1, 0)]);
    assert_eq!(rig.flights.charged.all(), 0);
    // It is charged to nobody, and is read all the same.
    let e = Error::new(ErrorKind::Io, "of a flight that is not known");
    rig.flights.land(99, Err(e));
}

/// One that wants much, a wave after another, lets those in between that came later.
#[test]
fn who_wants_much_does_not_keep_others_waiting() {
    let mut rig = Rig::new(6, 5 << 20);
    let wave = |nth: u64| (0..256).map(|n| rig.want(nth % 3, n * 17_000, 100)).collect();
    // Too far apart to be read together.
    let waves: Vec<Vec<Want>> = (0..40).map(wave).collect();
    rig.request(waves, false);
    for n in 0..10 {
        rig.request(vec![vec![rig.want(n % 3, n * 7 + 3, 4)]], true);
    }
    let mut turns = 0;
    while lock(&rig.told).len() < 10 {
        rig.turn();
        turns += 1;
    }
    assert!(turns < 1000, "they waited for {turns} reads");
    rig.run();
}

/// Where what scans want is for more than all may have in flight, a get that comes later meets no more than what scans may have at the device, in each of its
/// rounds. So it is with one that wants what a scan waits for.
#[test]
fn a_get_behind_many_scans_is_served_soon() {
    for seed in 0..20 {
        let mut rig = Rig::new(100 + seed, 5 << 20);
        // Too far apart to be read together, and of each scan its own.
        let wave = |nth: u64| (0..300).map(|n| rig.want(n % 3, n * 17_000 + nth * 101, 100)).collect();
        let scans: Vec<Vec<Vec<Want>>> =
            (0..64).map(|n| (0..3).map(|nth| wave(n * 2 + nth * 130)).collect()).collect();
        let wanted_by_last = scans[63][2][250].clone();
        scans.into_iter().for_each(|rounds| rig.scan(rounds));
        (0..10 + seed).for_each(|_| rig.turn());
        let rounds = (0..3).map(|n| vec![rig.want(n, 3 + n * 50_000, 4)]).collect();
        rig.request(rounds, true);
        rig.request(vec![vec![wanted_by_last]], true);
        let mut turns = 0;
        while lock(&rig.told).iter().filter(|(number, _)| *number >= 64).count() < 2 {
            rig.turn();
            turns += 1;
        }
        // One read of those in flight is done in a turn, whichever: a few times as many as there are.
        assert!(turns < SCANS_FLYING_MAX * 3 * 4, "seed {seed}: they waited for {turns} reads");
        let scans = lock(&rig.told).iter().filter(|(number, _)| *number < 64).count();
        assert!(scans < 32, "seed {seed}: most scans were served before");
        rig.run();
    }
}

/// Bytes that scans hold are not in the way of point reads, and both come to their end beside each other.
#[test]
fn scans_that_hold_all_they_may_leave_gets_their_bytes() {
    let mut rig = Rig::new(7, 24 << 20);
    for n in 0..64u64 {
        // A round of one that holds much while it waits for little.
        let much: Vec<Want> = (0..8).map(|nth| rig.want(n % 3, (nth * 60 + n) * 40_000, 20_000)).collect();
        rig.scan(vec![much.clone(), much]);
    }
    (0..200).for_each(|_| rig.turn());
    for n in 0..40u64 {
        rig.request(vec![vec![rig.want(n % 3, n * 40_000 + 30_000, 300_000)]], true);
    }
    let mut turns = 0;
    while lock(&rig.told).iter().filter(|(number, _)| *number >= 64).count() < 40 {
        rig.turn();
        turns += 1;
    }
    assert!(turns < 400, "they waited for {turns} reads");
    rig.run();
    assert!(rig.most <= BYTES_MAX + OLDEST_BYTES_MAX, "{}", rig.most);
}

/// However many gets come, scans come to their end.
#[test]
fn gets_that_never_end_let_scans_in_between() {
    let mut rig = Rig::new(8, 5 << 20);
    for n in 0..8u64 {
        rig.scan((0..3).map(|nth| vec![rig.want(n % 3, n * 100_000 + nth * 17_000, 100)]).collect());
    }
    let (mut made, mut turns) = (0u64, 0);
    while lock(&rig.told).iter().filter(|(number, _)| *number < 8).count() < 8 {
        while rig.flights.flights.len() < BEGUN_MAX {
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
