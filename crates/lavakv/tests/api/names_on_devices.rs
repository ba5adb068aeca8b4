//! LavaFS knows the files of a store only by name: which kinds it puts on the fast device of a
//! volume with two.

use io::sim::SimEnv;
use io::{CreateOptions, FileSystem, SyncKind};
use lavafs::geometry::SECOND;
use lavafs::{Devices, FormatOptions, MountOptions, format_on, mount_on};
use std::collections::BTreeSet;
use std::path::PathBuf;
use store::names::FileKind;

/// The next kind of file. This fails to compile if a kind is missing.
fn next(kind: FileKind) -> Option<FileKind> {
    Some(match kind {
        FileKind::Ksst(n) => FileKind::FastKsst(n),
        FileKind::FastKsst(n) => FileKind::Vsst(n),
        FileKind::Vsst(n) => FileKind::FastVsst(n),
        FileKind::FastVsst(n) => FileKind::Log(n),
        FileKind::Log(n) => FileKind::Tail(n),
        FileKind::Tail(n) => FileKind::Engine { engine: 3, kind: 1, number: n },
        FileKind::Engine { number, .. } => FileKind::Manifest(number),
        FileKind::Manifest(number) => FileKind::ManifestCopy(number),
        FileKind::ManifestCopy(_) => FileKind::Current,
        FileKind::Current => FileKind::CurrentTemp,
        FileKind::CurrentTemp => FileKind::CurrentCopy,
        FileKind::CurrentCopy => FileKind::CurrentCopyTemp,
        FileKind::CurrentCopyTemp => FileKind::Unfinished,
        FileKind::Unfinished => FileKind::Lock,
        FileKind::Lock => FileKind::Staging,
        FileKind::Staging => FileKind::LaneStaging(1),
        FileKind::LaneStaging(_) => FileKind::StagingTemp(0),
        FileKind::StagingTemp(_) => FileKind::Room(7),
        FileKind::Room(_) => FileKind::FastTier,
        FileKind::FastTier => FileKind::FastLock,
        FileKind::FastLock => return None,
    })
}

/// True for files of the capacity tier that are written in small pieces and waited for.
fn is_small_and_waited_for(kind: FileKind) -> bool {
    kind.is_manifest() || kind.is_current() || kind.is_temporary() || kind == FileKind::Lock
}

#[test]
fn fast_tier_file_kinds_go_to_the_speed_device() {
    let sim = SimEnv::new(1);
    let device = |name| sim.device(name, 16 << 20).unwrap();
    let devices = || Devices::two(device("/speed"), device("/capacity"));
    format_on(&sim.env(), &devices(), &FormatOptions::default()).unwrap();
    let fs = mount_on(&sim.env(), devices(), MountOptions::default()).unwrap();
    fs.create_dir_all("/db".as_ref()).unwrap();
    let mut seen = BTreeSet::new();
    for kind in std::iter::successors(Some(FileKind::Ksst(7)), |kind| next(*kind)) {
        let path = PathBuf::from(format!("/db/{kind}"));
        let mut file = fs.create(&path, &CreateOptions::default()).unwrap();
        file.append(b"something").unwrap();
        file.sync(SyncKind::Full).unwrap();
        let extents = fs.extents(&path).unwrap();
        assert!(!extents.is_empty());
        let is_on_speed = extents.iter().all(|extent| extent.start < SECOND);
        let should = kind.is_on_fast_tier() || is_small_and_waited_for(kind);
        assert_eq!(is_on_speed, should, "{kind}");
        seen.insert(kind);
    }
    assert_eq!(seen.len(), 21, "each kind once");
}
