//! Logged changes that cannot be replayed, although every page and record has a valid checksum.
//! They are lost, and the report names them; everything else is saved.

use base::{Error, ErrorKind, Result, SeqNo, Uid, ValueKind};
use io::sim::{CrashKind, SimEnv};
use lavakv::repairing::{Change, DEFAULT_FAMILY, TENANT, decode, header};
use lavakv::{Db, FamilyOptions, MergeChoice, Options, multi_engine};
use lavastore_repair::{RepairOptions, repair_in};
use std::path::Path;
use store::commit::{Durability, Log};
use store::manifest::Engines;
use store::repair::{GroupSelection, open_lane};
use table::SegmentReference;
use wal::{Lane, TenantId};

const DIR: &str = "/store";

fn options() -> Options {
    Options { memtable_bytes: 64 << 10, memory_bytes: 256 << 10, ..Options::default() }
        .expert(|expert| expert.log_group_bytes = 128 << 10)
}

/// Appends a change to the log, bypassing the engine.
fn log(log: &Log, seq: SeqNo, kind: ValueKind, key: &[u8], value: &[u8]) {
    let mut body = Vec::new();
    Change { kind, family: DEFAULT_FAMILY, key, value }.encode_into(&mut body);
    log.put(TENANT, &[&header(seq, 1), &body], (seq, seq), Durability::Buffered).unwrap();
}

/// Returns the logged reference to the value of a key.
fn logged_reference(sim: &SimEnv, key: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    let lane = open_lane(&sim.env(), Path::new(DIR), (Lane::FIRST, GroupSelection::All), None, None).unwrap();
    lane.replay(TENANT, &mut |_, _, payload| {
        for change in decode(payload)?.2 {
            let change = change?;
            if change.key == key {
                found = change.value.to_vec();
            }
        }
        Ok(())
    })
    .unwrap();
    assert!(!found.is_empty());
    found
}

#[test]
fn dangling_changes_are_reported_and_the_rest_is_saved() {
    let sim = SimEnv::new(1);
    let mut replay = |_: TenantId, _: SeqNo, _: &[u8]| -> Result<()> { Ok(()) };
    let (db, (manifest, shared)) =
        multi_engine::open(sim.env(), Path::new(DIR), options(), Engines::default(), &mut replay).unwrap();
    db.put(b"in-table", b"1").unwrap();
    db.flush().unwrap();
    db.put(b"large", &[7; 100_000]).unwrap();
    db.sync().unwrap();
    let reference = logged_reference(&sim, b"large");
    log(&shared, 3, ValueKind::Merge, b"merged", b"1");
    let (raw_len, stored_len) = (100_000, 100_200);
    let missing =
        SegmentReference { file: 900, uid: Uid::from_words(9, 9), raw_len, stored_len, checksum: 1 };
    log(&shared, 4, ValueKind::PlacedReference, b"missing", &missing.encode());
    log(&shared, 5, ValueKind::PlacedReference, b"other", &reference);
    log(&shared, 6, ValueKind::Value, b"behind", b"2");
    let sim = {
        let after = sim.crash(CrashKind::ProcessKill, 1);
        drop((db, manifest, shared));
        after
    };

    let env = sim.env();
    let options = RepairOptions { options: options(), ..RepairOptions::default() };
    let report = repair_in(&env, DIR, &env, "/repaired", &options).unwrap();
    let keys: Vec<_> = report.lost.iter().map(|lost| lost.from.clone().unwrap()).collect();
    assert_eq!(keys, [&b"missing"[..], b"other"]);
    let reasons: Vec<_> = report.damaged.iter().map(|damage| damage.why.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "a large value file (segment) that the log refers to is missing, or its header is damaged",
            "a large value file (segment) holds the value of another key",
        ]
    );
    let repaired = Db::open_in(env, "/repaired", options.options).unwrap();
    let get = |key: &str| -> std::result::Result<Option<usize>, Error> {
        Ok(repaired.get(key.as_bytes())?.map(|value| value.len()))
    };
    let found = ["in-table", "large", "missing", "other", "behind"].map(|key| get(key).unwrap());
    assert_eq!(found, [Some(1), Some(100_000), None, None, Some(1)]);
    // The stored options had no merge operator, so the new store waits for the right one.
    assert_eq!(get("merged").unwrap_err().kind(), ErrorKind::Unsupported);
    let family = repaired.default_column_family().clone();
    let merge_operator = Some(MergeChoice::append(b","));
    let right = FamilyOptions { merge_operator, ..family.options() };
    repaired.set_family_options(&family, right).unwrap();
    assert_eq!(get("merged").unwrap(), Some(1));
}
