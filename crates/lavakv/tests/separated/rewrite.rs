//! `compact_range` with `rewrite`: data in the last level takes the present options, including its
//! values.

use crate::common::*;
use crate::*;
use lavastore_lavakv::{CompactProgress, CompactRequest, Compression, ReadOptions};

const LEN: usize = 1000;
const KEYS: u64 = 400;
const ANEW: CompactRequest = CompactRequest { rewrite: true, cancel: None };

fn options(compression: Compression, min_blob_size: usize) -> Options {
    Options { family: FamilyOptions { compression, ..apart_family(min_blob_size) }, ..apart(min_blob_size) }
}

fn reopened(sim: &SimEnv, options: Options) -> Db {
    Db::open_in(env(sim), DIR, options).unwrap()
}

/// A store of compressible, uncompressed values in the last level.
fn plain(sim: &SimEnv, model: &mut Model) {
    let db = reopened(sim, options(Compression::None, 200));
    fill_long(&db, model, 0..KEYS, 0, LEN);
    compact(&db);
    settle(&db);
    db.close().unwrap();
}

fn rewrite(db: &Db, (start, end): (Option<&[u8]>, Option<&[u8]>)) -> Vec<CompactProgress> {
    let mut told = Vec::new();
    let tell = &mut |progress: &CompactProgress| told.push(progress.clone());
    db.compact_range_with(db.default_column_family(), (start, end), ANEW, tell).unwrap();
    told
}

fn bytes_of(sim: &SimEnv, kind: &str) -> u64 {
    files(sim).iter().filter(|(name, _)| name.ends_with(kind)).map(|(_, len)| len).sum()
}

#[test]
fn rewrite_applies_the_current_compression() {
    let (sim, mut model) = (SimEnv::new(1), Model::new());
    plain(&sim, &mut model);
    let db = reopened(&sim, options(Compression::Lz4, 200));
    let (before, read) = (bytes_of(&sim, ".vsst"), db.stats().compaction_bytes_read);
    compact(&db);
    settle(&db);
    assert_eq!((bytes_of(&sim, ".vsst"), db.stats().compaction_bytes_read), (before, read), "nothing to do");
    let told = rewrite(&db, (None, None));
    settle(&db);
    let after = bytes_of(&sim, ".vsst");
    assert!(after < before / 2, "{before} B of values, {after} afterwards: {}", db.describe());
    reads_back(&db, &model);
    nothing_left_over(&db, &sim);
    assert!(db.verify().unwrap().errors.is_empty());
    // A job for each table, each with a progress report.
    assert!(told.len() > 3, "{told:?}");
    assert_eq!((told[0].rewritten_tables, &told[0].rewritten_to), (0, &None));
    for (before, now) in told.iter().zip(&told[1..]) {
        assert_eq!(now.rewritten_tables, before.rewritten_tables + 1);
        assert_eq!(now.remaining_tables, before.remaining_tables.saturating_sub(1));
        assert!(now.rewritten_to > before.rewritten_to || now.remaining_tables == 0, "{before:?} {now:?}");
    }
    assert_eq!(told.last().unwrap().remaining_bytes, 0);
}

#[test]
fn rewrite_applies_the_current_separation_threshold() {
    let (sim, mut model) = (SimEnv::new(2), Model::new());
    plain(&sim, &mut model);
    let db = reopened(&sim, options(Compression::None, 4000));
    rewrite(&db, (None, None));
    settle(&db);
    assert_eq!(bytes_of(&sim, ".vsst"), 0, "{}", db.describe());
    reads_back(&db, &model);
    db.close().unwrap();
    let db = reopened(&sim, options(Compression::None, 200));
    rewrite(&db, (None, None));
    settle(&db);
    assert!(bytes_of(&sim, ".vsst") > KEYS * LEN as u64 * 9 / 10, "{}", db.describe());
    reads_back(&db, &model);
    nothing_left_over(&db, &sim);
}

/// Half of it, then the process dies, and another one continues after the last report: each table
/// is written once.
#[test]
fn rewrite_resumes_where_the_last_call_stopped() {
    let (sim, mut model) = (SimEnv::new(3), Model::new());
    plain(&sim, &mut model);
    let db = reopened(&sim, options(Compression::Lz4, 200));
    let whole = bytes_of(&sim, ".vsst");
    let told = rewrite(&db, (None, Some(&key(KEYS / 2))));
    let last = told.iter().rev().find_map(|progress| progress.rewritten_to.clone());
    let last = last.expect("some of it was told");
    assert!(last >= key(KEYS / 3), "{last:?}");
    db.close().unwrap();
    let db = reopened(&sim, options(Compression::Lz4, 200));
    let before = db.stats().compaction_bytes_written;
    rewrite(&db, (Some(&last), None));
    let again = db.stats().compaction_bytes_written - before;
    settle(&db);
    assert!(bytes_of(&sim, ".vsst") < whole / 2, "{}", db.describe());
    let all = bytes_of(&sim, ".vsst") + bytes_of(&sim, ".ksst");
    assert!(again < all * 3 / 4, "{again} bytes written of {all}");
    reads_back(&db, &model);
}

/// The versions of a snapshot are rewritten too, and readable.
#[test]
fn snapshots_are_stable_across_a_rewrite() {
    let (sim, mut model) = (SimEnv::new(4), Model::new());
    plain(&sim, &mut model);
    let db = reopened(&sim, options(Compression::Lz4, 200));
    let (snapshot, then) = (db.snapshot(), model.clone());
    fill_long(&db, &mut model, (0..KEYS).step_by(3), 1, LEN);
    rewrite(&db, (None, None));
    settle(&db);
    reads_back(&db, &model);
    let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    let seen: Model = db.iter(options).unwrap().entries().map(Result::unwrap).collect();
    assert!(seen == then);
    settle(&db);
    nothing_left_over(&db, &sim);
}

/// Values are spread over as many files as there were flushes: a rewrite leaves some garbage in
/// each. It is collected before more accumulates, so that the store never reaches twice its data.
#[test]
fn garbage_of_a_rewrite_is_collected_during_it() {
    let (sim, mut model) = (SimEnv::new(5), Model::new());
    let db = reopened(&sim, options(Compression::None, 200));
    let mut rng = Rng::new(5);
    for round in 0..8 {
        let keys: Vec<u64> = (0..KEYS).filter(|_| round == 0 || rng.one_in(2)).collect();
        fill_long(&db, &mut model, keys.into_iter(), round, LEN);
        db.flush().unwrap();
    }
    compact(&db);
    settle(&db);
    let data = bytes_of(&sim, ".vsst");
    let mut peak = 0;
    let tell = &mut |_: &CompactProgress| peak = peak.max(bytes_of(&sim, ".vsst"));
    db.compact_range_with(db.default_column_family(), (None, None), ANEW, tell).unwrap();
    assert!(peak < data * 17 / 10, "{data} bytes of values, {peak} on the way");
    settle(&db);
    reads_back(&db, &model);
    nothing_left_over(&db, &sim);
}
