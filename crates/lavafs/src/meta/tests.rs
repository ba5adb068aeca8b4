use super::*;

fn meta(ops: &[Op]) -> Meta {
    let mut meta = Meta::new(10_000);
    for op in ops {
        meta.apply(op).unwrap_or_else(|e| panic!("{op}: {e}"));
    }
    meta
}

fn file(ino: Ino, size: u64, extents: &[Extent]) -> Op {
    Op::File(FileRecord { ino, size, closed: true, extents: extents.to_vec() })
}

fn link(dir: &str, name: &str, ino: Ino) -> Op {
    Op::Link { dir: dir.into(), name: name.into(), ino }
}

fn unlink(dir: &str, name: &str) -> Op {
    Op::Unlink { dir: dir.into(), name: name.into() }
}

fn rename(from: (&str, &str), to: (&str, &str)) -> Op {
    let own = |s: &str| s.to_owned();
    Op::Rename { from_dir: own(from.0), from: own(from.1), to_dir: own(to.0), to: own(to.1) }
}

fn make_dir(dir: &str) -> Op {
    Op::MakeDir { dir: dir.into() }
}

/// Checks that a dump rebuilds the same state, including its counts.
fn check_dump(meta: &Meta) {
    let mut ops = Vec::new();
    meta.dump(|op| ops.push(op.clone()));
    let mut again = Meta::new(meta.geometry);
    let mut len = 0;
    for op in &ops {
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        len += bytes.len() as u64;
        again.apply(op).unwrap();
    }
    assert_eq!(&again, meta);
    assert!(len <= meta.dump_len(), "a dump of {len} bytes, estimated at {}", meta.dump_len());
}

#[test]
fn a_file_is_freed_with_its_last_name() {
    let e = [Extent::new(40, 4)];
    let mut m = meta(&[file(1, 5000, &e), make_dir("d"), link("", "a", 1), link("d", "b", 1)]);
    check_dump(&m);
    assert_eq!(
        (
            m.directories().look_up("", "a"),
            m.directories().look_up("d", "b"),
            m.nodes().get(1).unwrap().links
        ),
        (Some(1), Some(1), 2)
    );
    assert_eq!(m.apply(&unlink("", "a")).unwrap(), Freed::default());
    assert_eq!(m.apply(&unlink("d", "b")).unwrap(), Freed { extents: e.to_vec(), gone: Some(1) });
    assert_eq!((m.nodes().blocks(), m.nodes().count(), m.nodes().next_ino()), (0, 0, 2));
    check_dump(&m);
}

#[test]
fn a_rename_replaces_and_frees() {
    let (a, b) = ([Extent::new(40, 4)], [Extent::new(50, 4)]);
    let mut m = meta(&[file(1, 1, &a), file(2, 1, &b), link("", "a", 1), link("", "b", 2), link("", "c", 1)]);
    assert_eq!(m.apply(&rename(("", "a"), ("", "c"))).unwrap(), Freed::default());
    assert_eq!(m.directories().look_up("", "a"), Some(1), "two names of one file stay");
    assert_eq!(m.apply(&rename(("", "a"), ("", "b"))).unwrap().gone, Some(2));
    assert_eq!((m.directories().look_up("", "a"), m.directories().look_up("", "b")), (None, Some(1)));
    check_dump(&m);
}

#[test]
fn directories_are_prefixes() {
    let mut m = meta(&[make_dir("a"), make_dir("a/b"), make_dir("ab"), file(1, 0, &[]), link("a/b", "x", 1)]);
    assert!(m.apply(&Op::RemoveDir { dir: "a".into() }).is_err(), "not empty");
    assert!(m.apply(&make_dir("c/d")).is_err(), "no parent");
    assert!(m.apply(&Op::RenameDir { from: "a".into(), to: "a/c".into() }).is_err(), "into itself");
    m.apply(&Op::RenameDir { from: "a".into(), to: "c".into() }).unwrap();
    assert_eq!(
        (m.directories().look_up("c/b", "x"), m.directories().has("a/b"), m.directories().has("ab")),
        (Some(1), false, true)
    );
    check_dump(&m);
    assert!(m.apply(&link("", "ab", 1)).is_err(), "a directory has that name");
    assert!(m.apply(&make_dir("c/b/x")).is_err(), "a file has that name");
    m.apply(&Op::RemoveDir { dir: "ab".into() }).unwrap();
    check_dump(&m);
}

#[test]
fn blocks_are_added_trimmed_and_punched() {
    let mut m = meta(&[file(1, 0, &[]), link("", "a", 1)]);
    m.apply(&Op::Extend { ino: 1, extents: vec![Extent::new(40, 4)] }).unwrap();
    m.apply(&Op::Extend { ino: 1, extents: vec![Extent::new(44, 4), Extent::new(60, 2)] }).unwrap();
    assert_eq!(m.nodes().get(1).unwrap().extents.as_slice(), [Extent::new(40, 8), Extent::new(60, 2)]);
    m.apply(&Op::Size { ino: 1, size: 5 * 4096 + 1, closed: false }).unwrap();
    assert_eq!(m.nodes().get(1).unwrap().readable(), 10 * 4096);
    check_dump(&m);
    assert!(m.apply(&Op::Trim { ino: 1, blocks: 5 }).is_err(), "below the size");
    assert_eq!(m.apply(&Op::Trim { ino: 1, blocks: 9 }).unwrap().extents, [Extent::new(61, 1)]);
    assert_eq!(m.apply(&Op::Punch { ino: 1, block: 1, blocks: 3 }).unwrap().extents, [Extent::new(41, 3)]);
    assert_eq!(m.apply(&Op::Punch { ino: 1, block: 0, blocks: 3 }).unwrap().extents, [Extent::new(40, 1)]);
    assert_eq!(
        m.nodes().get(1).unwrap().extents.as_slice(),
        [Extent::hole(4), Extent::new(44, 4), Extent::new(60, 1)]
    );
    assert_eq!(m.nodes().blocks(), 5);
    assert!(m.apply(&Op::Punch { ino: 1, block: 8, blocks: 2 }).is_err());
    check_dump(&m);
}

#[test]
fn a_refused_operation_changes_nothing() {
    let e = [Extent::new(40, 4)];
    let m = meta(&[file(1, 5, &e), link("", "a", 1), make_dir("d")]);
    let refused = [
        file(1, 0, &[]),
        file(2, 5000, &[]),
        file(u64::MAX, 0, &[]),
        file(2, 0, &[Extent::new(9_999, 2)]),
        link("", "a", 1),
        link("x", "a", 1),
        link("", "b", 9),
        unlink("", "b"),
        rename(("", "b"), ("", "c")),
        rename(("", "a"), ("x", "c")),
        rename(("", "a"), ("", "d")),
        make_dir(""),
        make_dir("d"),
        make_dir("a"),
        Op::RemoveDir { dir: "".into() },
        Op::RenameDir { from: "d".into(), to: "a".into() },
        Op::Extend { ino: 3, extents: e.to_vec() },
        Op::Extend { ino: 1, extents: vec![Extent::new(0, 1)] },
        Op::Extend { ino: 1, extents: vec![Extent::new(40, 9_999)] },
        Op::Size { ino: 1, size: 4 * 4096 + 1, closed: true },
        Op::Trim { ino: 1, blocks: 0 },
        Op::NextIno { ino: u64::MAX },
    ];
    for op in refused {
        let mut after = m.clone();
        assert!(after.apply(&op).unwrap_err().is_corruption(), "{op}");
        assert_eq!(after, m, "{op}");
    }
}

#[test]
fn a_file_takes_little_memory() {
    assert!(size_of::<(Ino, Node)>() <= 40 && size_of::<(Box<str>, Ino)>() <= 24);
}
