//! Cancelled long calls leave no files.

use crate::model::options;
use base::{ErrorKind, Result};
use io::Cancel;
use io::sim::SimEnv;
use lavalog::{Durability, LogStore, Options, RepairOptions};
use std::path::Path;
use std::time::Duration;

const DIR: &str = "/logs";
const COPY: &str = "/copy";

fn filled(sim: &SimEnv) -> LogStore {
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    for name in ["a", "b"] {
        let log = store.create_log(name).unwrap();
        for lsn in 1..=300 {
            log.append(lsn, &[lsn as u8; 700], Durability::Buffered).unwrap();
        }
    }
    store.wait_idle().unwrap();
    store
}

/// Repeats a call with later and later deadlines until it completes.
fn at_every_moment(step_ns: u64, call: impl Fn(&SimEnv, &LogStore, &Cancel) -> Result<()>) {
    for nth in 0..10_000 {
        let sim = SimEnv::new(1);
        let store = filled(&sim);
        let cancel = Cancel::with_deadline(&sim.env(), Duration::from_nanos(nth * step_ns));
        let done = call(&sim, &store, &cancel);
        let Err(e) = done else {
            assert!(nth > 3, "the call came to its end at once");
            return;
        };
        assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
        assert!(!sim.env().fs.exists(Path::new(COPY)).unwrap(), "{:?}", sim.env().fs.list(Path::new(COPY)));
        call(&sim, &store, &Cancel::new()).unwrap();
    }
    panic!("the call never came to its end");
}

#[test]
fn a_cancelled_checkpoint_leaves_no_files() {
    at_every_moment(20_000, |_, store, cancel| store.checkpoint_unless(Path::new(COPY), Some(cancel)));
}

#[test]
fn a_cancelled_verification_ends() {
    at_every_moment(100_000, |_, store, cancel| {
        let report = store.verify_unless(Some(cancel))?;
        assert!(report.is_sound());
        Ok(())
    });
}

#[test]
fn nothing_is_left_of_a_cancelled_repair() {
    at_every_moment(100_000, |sim, store, cancel| {
        store.clone().close().unwrap();
        let repair = RepairOptions {
            options: Options { create_if_missing: true, ..options() },
            cancel: Some(cancel.clone()),
            ..RepairOptions::default()
        };
        let (env, from, into) = (sim.env(), Path::new(DIR), Path::new(COPY));
        let report = LogStore::repair(&env, from, &env, into, &repair)?;
        assert!(report.is_lossless(), "{report:?}");
        Ok(())
    });
}
