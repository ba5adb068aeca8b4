use super::*;
use crate::{Db, FamilyOptions, Options};
use io::sim::SimEnv;
use std::cell::Cell;
use std::sync::Arc;
use version::{FileMeta, ReferenceTotals, UseSums};

thread_local! {
    /// Number of lists read to compute the sums, on this thread.
    pub(super) static LISTS: Cell<u64> = const { Cell::new(0) };
}

fn options() -> Options {
    let family = FamilyOptions { min_blob_size: 200, ..FamilyOptions::default() }.expert(|expert| {
        expert.file_bytes = 8 << 10;
        expert.level_base_bytes = 16 << 10;
        expert.vsst_bytes = 32 << 10;
    });
    Options { memtable_bytes: 64 << 10, memory_bytes: 512 << 10, family, ..Options::default() }
}

/// Returns a store with overwrites, compactions and collections.
fn filled(sim: &SimEnv) -> Db {
    let db = Db::open_in(sim.env(), "/store", options()).unwrap();
    let mut rng = io::Rng::new(7);
    for i in 0..4000u64 {
        let key = format!("key{:05}", rng.below(600));
        db.put(key.as_bytes(), &vec![i as u8; 300]).unwrap();
        if i % 100 == 0 {
            while db.run_background_step() {}
        }
    }
    db.flush().unwrap();
    while db.run_background_step() {}
    db
}

fn version_of(db: &Db) -> Arc<Version> {
    db.default_column_family().0.read_state().version.clone()
}

#[test]
fn verification_sums_the_references_of_tables() {
    let sim = SimEnv::new(1);
    let db = filled(&sim);
    let version = version_of(&db);
    let stats = db.stats();
    assert!(stats.compactions > stats.compaction_moves && version.references.len() > 3);
    assert!(version.levels.iter().flatten().all(|f| f.uses.sums().names == 0 || f.uses.list().is_none()));
    let errors = db.verify().unwrap().errors;
    assert!(errors.is_empty(), "{errors:?}");
    // Wrong sums, which no edit can produce.
    let jobs = &db.engine().jobs;
    let (name, totals) = version.references.iter().next().map(|(name, totals)| (name, *totals)).unwrap();
    for wrong in [ReferenceTotals { count: totals.count + 1, ..totals }, ReferenceTotals::default()] {
        let mut version = Version::clone(&version);
        version.references.insert(name, wrong);
        let e = of_family(jobs, "default", &version, NotedTables::default()).unwrap();
        assert!(e.is_corruption() && e.message().contains(&format!("to value file (vSST) {name} ")), "{e}");
        assert!(e.message().starts_with("column family \"default\": "), "{e}");
    }
    assert!(of_family(jobs, "default", &version, NotedTables::default()).is_none());
    db.close().unwrap();
}

/// A list is read once, with its table. At the end only lists of newer tables are read, or all of a
/// family if a table was deleted.
#[test]
fn a_list_is_read_with_its_table() {
    let sim = SimEnv::new(4);
    let db = filled(&sim);
    let jobs = &db.engine().jobs;
    let read = |between: &dyn Fn()| {
        let mut report = crate::VerifyReport::default();
        let mut walk = crate::work::verify::walk::Walk::noting(jobs);
        while walk.step(jobs, &mut report).is_some() {}
        between();
        LISTS.set(0);
        let errors = check(jobs, walk.noted());
        assert!(errors.is_empty() && report.errors.is_empty(), "{errors:?} {report:?}");
        LISTS.get()
    };
    let users = || version_of(&db).levels.iter().flatten().filter(|f| f.uses.sums().names > 0).count() as u64;
    assert!(users() > 3);
    assert_eq!(read(&|| {}), 0);
    let flushed = || {
        db.put(b"key00001", &[3; 300]).unwrap();
        db.flush().unwrap();
    };
    assert_eq!(read(&flushed), 1, "the table of the flush");
    assert_eq!(read(&|| db.compact_range(db.default_column_family(), None, None).unwrap()), users());
    // Noted lists are compared with the sums in the same way as lists read at the end.
    let version = version_of(&db);
    let mut noted = Noted::default();
    for file in version.levels.iter().flatten() {
        let mut list = jobs.files.tables.dependencies(file).unwrap();
        list.iter_mut().for_each(|d| d.count += 1);
        noted.add(0, file.number, &list);
    }
    assert!(check(jobs, noted)[0].message().contains("differ from the manifest"));
    db.close().unwrap();
}

/// The references of a table are compared with the manifest before an edit uses them. A wrong edit
/// would be refused, which stops the store.
#[test]
fn a_reference_list_that_differs_from_the_manifest_is_damage() {
    let sim = SimEnv::new(3);
    let db = filled(&sim);
    let version = version_of(&db);
    let table = version.levels.iter().flatten().find(|f| f.uses.sums().names > 1).unwrap();
    let jobs = &db.engine().jobs;
    let list = jobs.files.tables.dependencies(table).unwrap();
    assert_eq!(UseSums::of(&list), *table.uses.sums());
    let mut wrong = list.clone();
    wrong[0].stored_bytes += 1;
    let wrong =
        FileMeta { uses: version::TableReferences::from(wrong).without_list(), ..FileMeta::clone(table) };
    let e = jobs.files.tables.dependencies(&wrong).unwrap_err();
    let is_there = e.file().is_some_and(|file| file.ends_with(table.kind().to_string()));
    assert!(e.is_corruption() && is_there, "{e}");
    // A job encounters the damage.
    jobs.job_failed(e, &[table.number]);
    assert_eq!(db.damaged_files().len(), 1);
    db.put(b"key", b"value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
}

/// Sums are recovered with the store, and so is the damage of a table.
#[test]
fn an_unreadable_table_keeps_its_sums() {
    let sim = SimEnv::new(2);
    let db = filled(&sim);
    let before = version_of(&db);
    db.close().unwrap();
    let tables = before.levels.iter().flatten();
    let table = tables.max_by_key(|f| f.uses.sums().names).unwrap();
    let path = format!("/store/{}", table.kind());
    let bytes = sim.read_file(&path).unwrap();
    sim.write_file(&path, &bytes[..bytes.len() - 1]).unwrap();
    let db = Db::open_in(sim.env(), "/store", options()).unwrap();
    let after = version_of(&db);
    assert_eq!(after.references, before.references);
    let errors = db.verify().unwrap().errors;
    assert!(
        errors.iter().all(|e| e.file().is_some_and(|file| file.ends_with(table.kind().to_string()))),
        "{errors:?}"
    );
    assert!(!errors.is_empty());
    // Files that the damaged table may reference are kept.
    let quarantine = &db.engine().files.tables.quarantine;
    let kept = after.vssts.keys().filter(|n| quarantine.is_uncollected(*n)).count();
    assert!(kept as u64 >= 1, "{}", after.describe());
    let jobs = &db.engine().jobs;
    assert!(differs(jobs, &after, NotedTables::default()).is_none(), "what is missing may be in the table");
    let (name, _) = after.references.iter().find(|(_, totals)| totals.tables > 1).unwrap();
    let mut fewer = Version::clone(&after);
    fewer.references.insert(name, ReferenceTotals::default());
    assert!(differs(jobs, &fewer, NotedTables::default()).is_some(), "fewer than other tables have");
    db.close().unwrap();
}
