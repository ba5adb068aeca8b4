//! Files that are not what the manifest states, each sound in itself.

use super::*;
use crate::{Db, Options};
use base::ErrorKind;
use io::sim::SimEnv;
use table::ReadCounters;
use version::{FileMeta, VsstMeta};

/// A store with one table and one vSST.
fn store(sim: &SimEnv) -> (Db, Arc<FileMeta>, Arc<VsstMeta>) {
    let db = Db::open_in(sim.env(), "/store", Options::default()).unwrap();
    db.put(b"long", &[7; 4000]).unwrap();
    db.flush().unwrap();
    let version = db.default_column_family().0.read_state().version.clone();
    let table = version.files(0)[0].clone();
    let vsst = version.vssts.values().next().unwrap().clone();
    (db, table, vsst)
}

#[test]
fn files_that_are_not_what_the_manifest_states() {
    let sim = SimEnv::new(1);
    let (db, table, vsst) = store(&sim);
    let jobs = &db.engine().jobs;
    let of_table = FileCheck::open(jobs, &DataFile::Table(table.clone())).unwrap();
    let of_vsst = FileCheck::open(jobs, &DataFile::Vsst(vsst.clone())).unwrap();
    of_table.fits(jobs, &DataFile::Table(table.clone())).unwrap();
    of_vsst.fits(jobs, &DataFile::Vsst(vsst.clone())).unwrap();
    let differs = "length or entries differ from the manifest";
    let kind = "the file is of another kind than the manifest says";
    let longer = Arc::new(FileMeta { len: table.len + 1, ..FileMeta::clone(&table) });
    let fewer = Arc::new(VsstMeta { entries: vsst.entries - 1, ..VsstMeta::clone(&vsst) });
    let list = jobs.files.tables.dependencies(&table).unwrap();
    let twice = list.iter().map(|d| version::Dependency { count: 2 * d.count, ..*d }).collect::<Vec<_>>();
    let more = Arc::new(FileMeta { uses: twice.into(), ..FileMeta::clone(&table) });
    let uses = "what the table references is not what the manifest says that it does; run `lava repair`";
    for (check, stated, told) in [
        (&of_table, DataFile::Table(longer), differs),
        (&of_table, DataFile::Table(more), uses),
        (&of_vsst, DataFile::Vsst(fewer), differs),
        (&of_table, DataFile::Vsst(vsst.clone()), kind),
        (&of_vsst, DataFile::Table(table.clone()), kind),
    ] {
        let e = check.fits(jobs, &stated).unwrap_err();
        assert!(e.is_corruption() && e.message() == told, "{e}");
    }
    // No number is used twice: one of the two references is wrong.
    let as_vsst = VsstMeta { number: table.number, ..VsstMeta::clone(&vsst) };
    let e = jobs.files.tables.vsst(&as_vsst).map(drop).unwrap_err();
    assert!(e.is_corruption() && e.file().is_some(), "{e}");
    assert!(e.message().starts_with("the file is referred to as files of two kinds"), "{e}");
}

#[test]
fn entries_and_records_that_are_not_what_leads_to_them() {
    let sim = SimEnv::new(2);
    let (db, ..) = store(&sim);
    let engine = db.engine();
    let version = db.default_column_family().0.read_state().version.clone();
    let entry = (&b"merged"[..], 1, ValueKind::Merge);
    let found =
        crate::read::fetch::content(&engine.tree, &version, entry, b"", true, &mut ReadCounters::default());
    let e = found.map(drop).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
    assert!(e.message().ends_with("use a newer release"), "{e}");
}
