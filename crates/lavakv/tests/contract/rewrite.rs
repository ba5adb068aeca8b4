//! A full store is rewritten in parts.

use crate::common::*;
use crate::overwrites::bytes;
use lavastore_lavakv::sim::SimEnv;
use lavastore_lavakv::{CompactRequest, Db, Env, ErrorKind, Options, SpaceLimit};
use std::path::Path;

const LEN: usize = 1000;

/// Fills a store with default options to its limit, and rewrites all of it.
fn rewrites(env: Env, dir: &Path, limit: u64) {
    let options = Options { space_limit: Some(SpaceLimit::Bytes(limit)), ..Options::default() };
    let db = Db::open_in(env.clone(), dir, options).unwrap();
    let full = (0..).find(|&n| match db.put(&key(n), &bytes(n, 0, LEN)) {
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
            true
        }
        Ok(()) => false,
    });
    let count = full.unwrap();
    settle(&db);
    let occupied = || env.fs.list(dir).unwrap().iter().map(|file| file.allocated).sum::<u64>();
    let mut rewritten = 0;
    let request = CompactRequest { rewrite: true, cancel: None };
    let done = db.compact_range_with(db.default_column_family(), (None, None), request, &mut |progress| {
        rewritten = progress.rewritten_tables;
        assert!(occupied() <= limit, "{} of {limit}", occupied());
    });
    done.unwrap_or_else(|e| {
        panic!("limit {limit}, {count} keys, {rewritten} tables: {e}\n{}", db.describe())
    });
    assert!(rewritten > 0);
    settle(&db);
    assert!(occupied() <= limit);
    for n in 0..count {
        assert_eq!(db.get(&key(n)).unwrap().as_deref(), Some(&bytes(n, 0, LEN)[..]), "key {n}");
    }
    // The store remains usable and is as full as before.
    assert!(db.delete(&key(0)).is_ok());
}

#[test]
fn a_full_store_of_8_mib_can_be_rewritten() {
    rewrites(env(&SimEnv::new(8)), Path::new(DIR), 8 << 20);
}

#[test]
#[ignore = "a minute: every night"]
fn a_full_store_of_64_or_256_mib_can_be_rewritten() {
    rewrites(env(&SimEnv::new(64)), Path::new(DIR), 64 << 20);
    let tmp = TempDir::new("rewrite-256");
    rewrites(Env::kernel(), &tmp.join("store"), 256 << 20);
}
