//! Checkpoints of an open store at the request of another process.

use crate::common::*;
use lavastore_lavakv::{
    CheckpointRequest, Db, Error, ErrorKind, Options, Result, request_checkpoint, sim::SimEnv,
};
use std::path::Path;
use std::time::Duration;

const TAKE_WITHIN: Duration = Duration::from_secs(10);

/// Requests a checkpoint of the simulated store; `meanwhile` runs at each check of the client.
fn ask(sim: &SimEnv, target: &str, meanwhile: &mut dyn FnMut(CheckpointRequest)) -> Result<()> {
    request_checkpoint(&env(sim), Path::new(DIR), Path::new(target), TAKE_WITHIN, meanwhile)
}

fn requests_dir(sim: &SimEnv) -> bool {
    env(sim).fs.exists(&Path::new(DIR).join("REQUESTS")).unwrap()
}

#[test]
fn a_requested_checkpoint_has_all_that_was_written_before() {
    for seed in 1..=40 {
        let sim = SimEnv::new(seed);
        let (db, mut model) = (open(&sim), Model::new());
        fill(&db, &mut model, 0..500, 0);
        let before = model.clone();
        let mut n = 0;
        ask(&sim, "/copy", &mut |_| {
            // Writes continue.
            fill(&db, &mut model, 1000 + n..1001 + n, 1);
            n += 1;
            (0..8).for_each(|_| {
                db.run_background_step();
            });
        })
        .unwrap();
        assert!(!requests_dir(&sim));
        let copy = contents(&Db::open_in(env(&sim), "/copy", small()).unwrap());
        // A prefix of the writes, with at least those before the request.
        let after = copy.len() - before.len();
        assert!(before.iter().all(|(key, value)| copy.get(key) == Some(value)), "seed {seed}");
        let written: Vec<_> = model.range(key(1000)..).map(|(key, _)| key.clone()).collect();
        let copied: Vec<_> = copy.range(key(1000)..).map(|(key, _)| key.clone()).collect();
        assert_eq!(copied, written[..after], "seed {seed}");
        settle(&db);
        assert!(contents(&db) == model);
    }
}

/// Returns the outcome of a request while the store's background steps run.
fn served(sim: &SimEnv, db: &Db, target: &str) -> Result<()> {
    ask(sim, target, &mut |_| {
        (0..8).for_each(|_| {
            db.run_background_step();
        })
    })
}

#[test]
fn a_checkpoint_request_into_a_nonempty_directory_is_refused() {
    let sim = SimEnv::new(50);
    let db = open(&sim);
    db.put(b"k", b"v").unwrap();
    db.checkpoint("/copy").unwrap();
    let e: Error = served(&sim, &db, "/copy").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::AlreadyExists);
    assert!(
        e.message().contains("the directory of the checkpoint is not empty: name a new or empty one"),
        "{e}"
    );
    served(&sim, &db, "/other").unwrap();
    // The store continues.
    db.put(b"k", b"w").unwrap();
    settle(&db);
}

#[test]
fn a_store_that_serves_no_requests_takes_none() {
    let sim = SimEnv::new(51);
    let options = small().expert(|expert| expert.checkpoint_requests = false);
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    assert_eq!(served(&sim, &db, "/copy").unwrap_err().kind(), ErrorKind::Locked);
    assert!(!env(&sim).fs.exists(Path::new("/copy")).unwrap());
}

#[test]
fn the_close_of_the_store_ends_the_wait() {
    let sim = SimEnv::new(52);
    let mut db = Some(open(&sim));
    db.as_ref().unwrap().put(b"k", b"v").unwrap();
    let e = ask(&sim, "/copy", &mut |_| drop(db.take())).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Closed);
    assert!(!requests_dir(&sim));
    // The next process can open the store.
    assert_eq!(contents(&open(&sim)).len(), 1);
}

/// A close at each moment of a request: the copy is whole, or there is none.
#[test]
fn a_close_leaves_a_whole_copy_or_none() {
    let (mut whole, mut none) = (0, 0);
    for steps in 0..120 {
        let sim = SimEnv::new(70 + steps % 7);
        let (db, mut model) = (open(&sim), Model::new());
        fill(&db, &mut model, 0..300, 0);
        let (mut db, mut left) = (Some(db), steps * steps);
        let asked = ask(&sim, "/copy", &mut |_| {
            for _ in 0..8 {
                if left == 0 {
                    db.take().into_iter().for_each(|db| db.close().unwrap());
                    return;
                }
                left -= 1;
                db.as_ref().unwrap().run_background_step();
            }
        });
        drop(db);
        match asked {
            Ok(()) => {
                assert!(contents(&Db::open_in(env(&sim), "/copy", small()).unwrap()) == model);
                whole += 1;
            }
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::Cancelled), "{steps}: {e}");
                assert!(!env(&sim).fs.exists(Path::new("/copy")).unwrap(), "{steps} steps");
                none += 1;
            }
        }
        assert!(!requests_dir(&sim), "{steps} steps");
        assert!(contents(&open(&sim)) == model);
    }
    assert!(whole > 0 && none > 0, "{whole} whole, {none} refused");
}

#[test]
fn a_checkpoint_request_without_space_is_refused() {
    for seed in 60..70 {
        let sim = SimEnv::new(seed);
        let (db, mut model) = (open(&sim), Model::new());
        fill(&db, &mut model, 0..300, 0);
        let used = sim.used();
        sim.set_capacity(Some(used + 3 * 4096));
        let outcome = served(&sim, &db, "/copy");
        sim.set_capacity(None);
        if let Err(e) = outcome {
            assert!(matches!(e.kind(), ErrorKind::NoSpace | ErrorKind::Closed), "{e}");
        }
        served(&sim, &db, "/later").unwrap();
        assert!(contents(&Db::open_in(env(&sim), "/later", small()).unwrap()) == model);
    }
}

/// With real threads: two concurrent requests beside a writer, and a close beside a request.
#[test]
fn two_requests_at_once_are_both_served() {
    let tmp = TempDir::new("requests");
    let dir = tmp.join("store");
    let db = Db::open_with(&dir, Options { background_threads: 1, ..small() }).unwrap();
    let mut model = Model::new();
    fill(&db, &mut model, 0..500, 0);
    let kernel = lavastore_lavakv::Env::kernel();
    std::thread::scope(|s| {
        let asks = ["one", "two"].map(|name| {
            let (kernel, dir, target) = (kernel.clone(), dir.clone(), tmp.join(name));
            s.spawn(move || request_checkpoint(&kernel, &dir, &target, TAKE_WITHIN, &mut |_| {}))
        });
        for asked in asks {
            asked.join().unwrap().unwrap();
        }
    });
    for name in ["one", "two"] {
        assert!(contents(&Db::open_with(tmp.join(name), small()).unwrap()) == model);
    }
    assert!(!dir.join("REQUESTS").exists());
    let asked = std::thread::spawn({
        let (dir, target) = (dir.clone(), tmp.join("three"));
        move || request_checkpoint(&kernel, &dir, &target, TAKE_WITHIN, &mut |_| {})
    });
    std::thread::sleep(Duration::from_millis(300));
    drop(db);
    // Completed before the close, or refused by it.
    if let Err(e) = asked.join().unwrap() {
        assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
    }
}
