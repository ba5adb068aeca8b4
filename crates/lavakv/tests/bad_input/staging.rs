//! The staging file of the log, which keeps buffered writes for the next process. Whatever the file
//! system does to it, the process survives, and no acknowledged data is lost with it.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{Db, Durability, ErrorKind, Options};

fn buffered() -> Options {
    Options { durability: Durability::Buffered, ..small() }
}

/// A store into a mapping of a truncated file would end the process by a signal. So would one on a
/// file system that has shut down, or has no room to copy a shared block.
#[test]
fn a_truncated_staging_file_does_not_kill_the_process() {
    let dir = TempDir::new("staging");
    let mut model = Model::new();
    let db = Db::open_with(dir.path(), buffered()).unwrap();
    fill(&db, &mut model, 0..200, 0);
    std::fs::write(dir.path().join("STAGING"), b"").unwrap();
    fill(&db, &mut model, 100..300, 1);
    assert!(contents(&db) == model);
    db.close().unwrap();
    assert!(contents(&Db::open_with(dir.path(), buffered()).unwrap()) == model);
}

/// A full copy-on-write file system refuses even writes to allocated space.
#[test]
fn a_refused_write_leaves_nothing_and_stops_nothing() {
    let sim = SimEnv::new(7);
    let db = Db::open_in(env(&sim), DIR, buffered()).unwrap();
    let mut model = Model::new();
    let writes = [OpKind::ScratchWrite, OpKind::WriteAt];
    let mut refused = 0;
    for round in 0..40 {
        fill(&db, &mut model, round..round + 20, round);
        for i in 1000..1004 {
            sim.clear_faults();
            sim.inject(FaultPlan::nth((round + i) % 3, FaultEffect::NoSpace).kinds(&writes));
            match db.put(&key(i), &value(i, round)) {
                Ok(()) => drop(model.insert(key(i), value(i, round))),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                    refused += 1;
                }
            }
        }
        assert!(contents(&db) == model, "reads go on, and what was refused is not seen");
        sim.clear_faults();
        let killed = sim.crash(CrashKind::ProcessKill, round);
        assert!(contents(&Db::open_in(env(&killed), DIR, small()).unwrap()) == model, "round {round}");
    }
    assert!(refused > 40, "{refused}");
}
