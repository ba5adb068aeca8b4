//! Two disks as one file system.

use base::ErrorKind;
use io::sim::{OpKind, SimEnv};
use io::{Access, AlignedBuf, CreateOptions, FileSystem, PAGE};
use std::path::{Path, PathBuf};
use store::volumes::TwoDisks;

fn two(capacity: &SimEnv, speed: &SimEnv) -> TwoDisks {
    let made = |sim: &SimEnv, dir: &str| sim.env().fs.create_dir_all(Path::new(dir)).unwrap();
    made(capacity, "/store");
    made(speed, "/fast");
    TwoDisks::new(capacity.env().fs, Path::new("/store"), speed.env().fs, Path::new("/fast"))
}

fn make(fs: &dyn FileSystem, path: &str) {
    let mut file = fs.create(Path::new(path), &CreateOptions::default()).unwrap();
    file.append(b"x").unwrap();
    file.flush().unwrap();
}

fn listed(fs: &dyn FileSystem, dir: &str) -> Vec<String> {
    fs.list(Path::new(dir)).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// The name of a file decides its disk. The directory lists the files of both disks, and other
/// directories are on the first disk.
#[test]
fn each_kind_of_file_has_its_disk() {
    let (capacity, speed) = (SimEnv::new(1), SimEnv::new(2));
    let fs = two(&capacity, &speed);
    let log = ["SPEED", "SPEED-LOCK", "STAGING", "STAGING-1", "000000000004.log"];
    let others = [
        "CURRENT",
        "LOCK",
        "MANIFEST-000000000001",
        "000000000002.ksst",
        "000000000003.room",
        "note",
        "4.log",
    ];
    log.iter().chain(&others).for_each(|name| make(&fs, &format!("/store/{name}")));
    assert_eq!(speed.env().fs.list(Path::new("/fast")).unwrap().len(), log.len());
    assert_eq!(capacity.env().fs.list(Path::new("/store")).unwrap().len(), others.len());
    let mut all: Vec<&str> = log.into_iter().chain(others).collect();
    all.sort_unstable();
    assert_eq!(listed(&fs, "/store"), all);
    for name in all {
        let path = PathBuf::from(format!("/store/{name}"));
        assert!(fs.exists(&path).unwrap() && fs.read_all(&path, 9).unwrap() == b"x", "{name}");
        assert_eq!(fs.metadata(&path).unwrap().len, fs.scan_extent_tail(&path).unwrap());
        fs.open(&path, Access::Buffered).unwrap();
        fs.remove(&path).unwrap();
    }
    assert!(listed(&fs, "/store").is_empty());
    fs.create_dir_all(Path::new("/copy")).unwrap();
    make(&fs, "/copy/000000000004.log");
    assert_eq!(listed(&*capacity.env().fs, "/copy"), ["000000000004.log"]);
    assert!(fs.disks(Path::new("/copy")).is_none() && fs.disks(Path::new("/store")).is_some());
}

/// Log files on the disk of the directory are hidden once the other disk has its identity, and
/// visible before that.
#[test]
fn a_new_fast_tier_directory_hides_no_files() {
    let (capacity, speed) = (SimEnv::new(1), SimEnv::new(2));
    let fs = two(&capacity, &speed);
    make(&*capacity.env().fs, "/store/000000000001.log");
    make(&fs, "/store/000000000002.log");
    assert_eq!(listed(&fs, "/store"), ["000000000001.log"]);
    make(&fs, "/store/SPEED");
    assert_eq!(listed(&fs, "/store"), ["000000000002.log", "SPEED"]);
}

#[test]
fn renames_stay_on_one_disk_and_syncs_cover_both() {
    let (capacity, speed) = (SimEnv::new(1), SimEnv::new(2));
    let fs = two(&capacity, &speed);
    let file =
        fs.create_in_place_unzeroed(Path::new("/store/000000000001.log"), 4096, Access::Direct).unwrap();
    file.write_durable(&AlignedBuf::zeroed(PAGE), 0).unwrap();
    let name = |name: &str| PathBuf::from(format!("/store/{name}"));
    fs.open_in_place(&name("000000000001.log"), Access::Direct).unwrap();
    fs.create_in_place(&name("000000000005.log"), 4096, Access::Direct).unwrap();
    fs.create_scratch(&name("STAGING"), 4096).unwrap();
    for result in [
        fs.link(&name("000000000001.log"), Path::new("/000000000001.log")),
        fs.rename(&name("000000000001.log"), &name("CURRENT")),
    ] {
        let e = result.unwrap_err();
        assert_eq!((e.kind(), e.file()), (ErrorKind::Unsupported, Some(Path::new("/fast/000000000001.log"))));
    }
    fs.rename(&name("000000000001.log"), &name("000000000002.log")).unwrap();
    fs.link(&name("000000000002.log"), &name("000000000003.log")).unwrap();
    make(&fs, "/store/CURRENT.tmp");
    fs.rename(&name("CURRENT.tmp"), &name("CURRENT")).unwrap();
    fs.sync_dir(Path::new("/store")).unwrap();
    for (sim, dir) in [(&capacity, "/store"), (&speed, "/fast")] {
        assert_eq!(sim.count_ops(Some(OpKind::SyncDir), dir), 1, "{dir}");
    }
    fs.sync_dir(Path::new("/")).unwrap();
    assert_eq!(speed.count_ops(Some(OpKind::SyncDir), ""), 1);
    let lock = fs.lock(&name("SPEED-LOCK"), "somebody").unwrap();
    assert!(fs.lock_to_read(&name("SPEED-LOCK")).is_err());
    drop(lock);
    assert_eq!(fs.space(Path::new("/store")).unwrap(), capacity.env().fs.space(Path::new("/store")).unwrap());
    let _ = fs.punch_hole(&name("000000000005.log"), 0, 4096);
    fs.create_dir_all(Path::new("/other")).unwrap();
    fs.remove_dir(Path::new("/other")).unwrap();
}
