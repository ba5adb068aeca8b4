//! Asynchronous scans compared with blocking iterators: the same pages and errors of the same
//! moment, and no more reads; while files are replaced, reads fail, and the store closes.

use crate::common::*;
use crate::reads_in_flight::{finish, go_on, requests};
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::{
    Db, ErrorKind, FamilyOptions, Options, ReadOptions, Request, Requests,
    sim::{FaultEffect, FaultPlan, OpKind, SimEnv},
};

const KEYS: u64 = 900;

type Page = Vec<(Vec<u8>, Vec<u8>)>;

fn options(cache_bytes: usize, open_files_max: usize) -> Options {
    let family = FamilyOptions { min_blob_size: 64, ..small_family() };
    Options { family, cache_bytes, open_files_max, ..small() }.expert(|expert| expert.async_threads = 2)
}

/// Short values, separated ones, and sometimes one with a file of its own.
fn value(i: u64, round: u64) -> Vec<u8> {
    let len = match (i + round) % 150 {
        0 => 40_000,
        n if n % 3 == 0 => 20,
        n => 100 + n as usize * 10,
    };
    let mut value = format!("{i:05}/{round:05}/").into_bytes();
    value.resize(value.len() + len, i as u8);
    value
}

fn change(db: &Db, model: &mut Model, rng: &mut Rng, count: u64) {
    for _ in 0..count {
        let i = rng.below(KEYS);
        match rng.below(40) {
            0 => {
                let (from, to) = (key(i), key(i + rng.below(30)));
                db.delete_range(&from, &to).unwrap();
                model.retain(|k, _| *k < from || to <= *k);
            }
            1..=6 => {
                db.delete(&key(i)).unwrap();
                model.remove(&key(i));
            }
            _ => {
                let value = value(i, rng.below(1000));
                db.put(&key(i), &value).unwrap();
                model.insert(key(i), value);
            }
        }
    }
}

/// A scan: its options and its limit.
#[derive(Clone)]
struct Asked {
    options: ReadOptions,
    limit: usize,
}

impl Asked {
    fn new(rng: &mut Rng) -> Asked {
        let mut border = |range| (!rng.one_in(3)).then(|| key(rng.below(range)));
        let (lower_bound, upper_bound) = (border(KEYS), border(KEYS * 4));
        let keys_only = rng.one_in(6);
        let options = ReadOptions { lower_bound, upper_bound, keys_only, ..ReadOptions::default() };
        Asked { options, limit: [0, 1, 7, 40, 300, 2000][rng.below(6) as usize] }
    }

    fn of(&self, model: &Model) -> Page {
        let inside = |k: &&Vec<u8>| {
            self.options.lower_bound.as_ref().is_none_or(|lower| lower <= k)
                && self.options.upper_bound.as_ref().is_none_or(|upper| *k < upper)
        };
        let value = |v: &Vec<u8>| if self.options.keys_only { Vec::new() } else { v.clone() };
        let inside = model.iter().filter(|(k, _)| inside(k)).take(self.limit);
        inside.map(|(k, v)| (k.clone(), value(v))).collect()
    }

    fn submit(&self, db: &Db, requests: &Requests) -> Request<Page> {
        requests.scan(db.default_column_family(), self.options.clone(), self.limit).unwrap()
    }

    /// Reads the same page by an iterator.
    fn wait(&self, db: &Db) -> Result<Page, lavastore_lavakv::Error> {
        let options = ReadOptions { expected_entries: self.limit, ..self.options.clone() };
        let mut iterator = db.iter(options)?;
        let mut page = Page::new();
        iterator.seek_to_first()?;
        while iterator.valid() && page.len() < self.limit {
            page.push((iterator.key().to_vec(), iterator.value()?.to_vec()));
            if page.len() < self.limit {
                iterator.next()?;
            }
        }
        Ok(page)
    }
}

/// Runs random operations. Returns the order of the pages.
fn life(seed: u64) -> Vec<usize> {
    let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
    let cache_bytes = [0, 8 << 10, 1 << 20][rng.below(3) as usize];
    let options = options(cache_bytes, [16, 1000][rng.below(2) as usize]);
    let db = Db::open_in(sim.env(), DIR, options).unwrap();
    let (requests, mut model, mut order) = (requests(&db), Model::new(), Vec::new());
    let mut asked: Vec<(usize, Page, Request<Page>)> = Vec::new();
    for turn in 0..120 {
        match rng.below(12) {
            0..=2 => change(&db, &mut model, &mut rng, 120),
            3 => db.flush().unwrap(),
            4 => db.compact_range(db.default_column_family(), None, None).unwrap(),
            5..=8 => {
                // Reads at this moment, whenever they are answered.
                let here = requests.reading_at(&db.snapshot());
                for nth in 0..rng.below(12) {
                    let one = Asked::new(&mut rng);
                    let page = one.of(&model);
                    asked.push((turn * 100 + nth as usize, page, one.submit(&db, &here)));
                }
                // Drops some futures.
                if rng.one_in(4) {
                    asked.truncate(asked.len() / 2);
                }
            }
            _ => {
                let steps = rng.below(80);
                go_on(&db, steps);
                asked.retain_mut(|(number, expected, request)| match request.take() {
                    Some(page) => {
                        assert!(page.unwrap() == *expected, "seed {seed}, turn {turn}");
                        order.push(*number);
                        false
                    }
                    None => true,
                });
            }
        }
    }
    finish(&db, &requests);
    for (_, expected, mut request) in asked {
        assert!(request.take().expect("no more is in flight").unwrap() == expected, "seed {seed}");
    }
    let stats = db.stats();
    assert_eq!((stats.requests, stats.requests_in_flight), (stats.requests_completed, 0));
    assert!(stats.scan_waits > 0, "none had to wait for a read");
    db.close().unwrap();
    order
}

#[test]
fn asynchronous_scans_see_the_state_at_submission() {
    let mut answered = 0;
    for seed in 0..12 {
        answered += life(seed).len();
    }
    assert!(answered > 600, "{answered}");
    assert_eq!(life(3), life(3), "a function of the seed");
}

/// A store with tables and value files without cached data, and its contents.
fn store(seed: u64) -> (SimEnv, Model) {
    let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
    let db = Db::open_in(sim.env(), DIR, options(0, 1000)).unwrap();
    let mut model = Model::new();
    change(&db, &mut model, &mut rng, 2500);
    db.flush().unwrap();
    settle(&db);
    change(&db, &mut model, &mut rng, 300);
    db.flush().unwrap();
    db.close().unwrap();
    (sim, model)
}

/// Single pages, each by a store with a cold cache: a scan needs no more device reads than an
/// iterator, and no more bytes.
#[test]
fn a_page_takes_no_more_reads_than_an_iterator() {
    let (sim, model) = store(1);
    let (mut made, mut expected) = (0, 0);
    for seed in 0..60 {
        let one = Asked::new(&mut Rng::new(seed));
        let reads = |by: &dyn Fn(&Db) -> Page| {
            let machine = sim.fork(seed);
            let db = Db::open_in(machine.env(), DIR, options(8 << 20, 1000)).unwrap();
            settle(&db);
            let (count, before) = (|| machine.count_ops(Some(OpKind::Read), "sst"), machine.trace().len());
            let reads = count();
            assert!(by(&db) == one.of(&model), "seed {seed}");
            let made = (count() - reads, machine.trace().split_off(before));
            db.close().unwrap();
            made
        };
        let ((by_request, trace), (by_iterator, other)) = (
            reads(&|db| db.block_on(one.submit(db, &requests(db))).unwrap()),
            reads(&|db| one.wait(db).unwrap()),
        );
        assert!(
            by_request <= by_iterator,
            "seed {seed}: {by_request}, {by_iterator}\n{trace}\nby an iterator\n{other}"
        );
        (made, expected) = (made + by_request, expected + by_iterator);
    }
    assert!(made * 2 > expected && made > 500, "{made}, {expected}");
}

/// Hundreds at once, more than may run concurrently: all complete, and only those that need
/// unreadable data fail.
#[test]
fn a_failed_read_fails_only_the_requests_that_need_it() {
    let (sim, model) = store(2);
    let (mut failed, mut answered) = (0, 0);
    for seed in 0..40 {
        let machine = sim.fork(seed);
        let mut rng = Rng::new(seed);
        let cache_bytes = if seed % 2 == 0 { 0 } else { 1 << 20 };
        let db = Db::open_in(machine.env(), DIR, options(cache_bytes, 1000)).unwrap();
        let requests = requests(&db);
        let effect = [FaultEffect::Eio, FaultEffect::FlippedRead][seed as usize % 2];
        let plan = FaultPlan::nth(rng.below(200), effect).kinds(&[OpKind::Read]);
        machine.inject(if seed % 5 == 0 { plan.sticky() } else { plan });
        let asked: Vec<Asked> = (0..150).map(|_| Asked::new(&mut rng)).collect();
        let mut scans: Vec<Request<Page>> = asked.iter().map(|one| one.submit(&db, &requests)).collect();
        finish(&db, &requests);
        for (one, scan) in asked.iter().zip(&mut scans) {
            match scan.take().expect("each is told") {
                Err(e) => {
                    assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Corruption), "{e}");
                    failed += 1;
                }
                Ok(page) => {
                    assert!(page == one.of(&model));
                    answered += 1;
                }
            }
        }
        // The device failed; the failure leaves no trace.
        machine.clear_faults();
        for one in &asked[..20] {
            assert!(db.block_on(one.submit(&db, &requests)).unwrap() == one.of(&model));
        }
        db.close().unwrap();
    }
    assert!(failed > 60 && answered > 2500, "{failed} failed, {answered} answered");
}

#[test]
fn a_close_completes_every_request_in_flight() {
    let (sim, model) = store(3);
    let (mut closed, mut answered) = (0, 0);
    for seed in 0..30 {
        let machine = sim.fork(seed);
        let mut rng = Rng::new(seed);
        let db = Db::open_in(machine.env(), DIR, options(0, 16)).unwrap();
        let requests = requests(&db);
        let asked: Vec<Asked> = (0..120).map(|_| Asked::new(&mut rng)).collect();
        let scans: Vec<Request<Page>> = asked.iter().map(|one| one.submit(&db, &requests)).collect();
        let steps = rng.below(2500);
        go_on(&db, steps);
        db.close().unwrap();
        assert_eq!(requests.in_flight(), 0);
        for (one, mut scan) in asked.iter().zip(scans) {
            match scan.take().expect("each is told") {
                Ok(page) => {
                    assert!(page == one.of(&model));
                    answered += 1;
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
                    closed += 1;
                }
            }
        }
        drop(requests);
        // No request keeps it open.
        Db::open_in(machine.env(), DIR, options(0, 16)).unwrap().close().unwrap();
    }
    assert!(closed > 300 && answered > 300, "{closed} closed, {answered} answered");
}

/// Damage is reported with the same error as by an iterator, at the same entry.
#[test]
fn asynchronous_scans_report_damage_like_an_iterator() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(5);
    let mut told = [0, 0];
    for (nth, name) in [files_like(&sim, ".ksst"), files_like(&sim, ".vsst")].concat().iter().enumerate() {
        let len = sim.read_file(path(name)).unwrap().len() as u64;
        for round in 0..4 {
            let damaged = sim.fork(round);
            let mut rng = Rng::new(nth as u64 * 100 + round);
            // Also in the footer and close to it.
            let at = if round < 1 { len - 1 - rng.below(300) } else { rng.below(len) };
            damaged.flip_bit(path(name), at, rng.below(8) as u32).unwrap();
            // In a separate store each, so that neither profits from the other's reads.
            let open = |seed| Db::open_in(damaged.fork(seed).env(), DIR, options(64 << 10, 1000));
            let (Ok(one), Ok(other)) = (open(1), open(2)) else { continue };
            let requests = requests(&one);
            let asked: Vec<Asked> = (0..25).map(|_| Asked::new(&mut rng)).collect();
            let scans: Vec<Request<Page>> = asked.iter().map(|ask| ask.submit(&one, &requests)).collect();
            for (ask, scan) in asked.iter().zip(scans) {
                match (one.block_on(scan), ask.wait(&other)) {
                    (Ok(page), Ok(alone)) => assert!(page == alone && page == ask.of(&model)),
                    (Err(e), Err(alone)) => {
                        assert_eq!(e.to_string(), alone.to_string());
                        told[usize::from(name.ends_with(".vsst"))] += 1;
                    }
                    (page, alone) => panic!(
                        "flip at {at} of {name}: {:?}, alone {:?}",
                        page.map(|p| p.len()),
                        alone.map(|p| p.len())
                    ),
                }
            }
        }
    }
    assert!(told.iter().all(|&n| n > 10), "damage was met in tables and in value files: {told:?}");
}
