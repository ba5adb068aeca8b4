use super::*;
use crate::groups::Groups;
use crate::record::encode;
use io::sim::SimEnv;
use openraft::testing::log_id;
use openraft::{BasicNode, Entry, EntryPayload, Membership, SnapshotMeta, StoredMembership, Vote};
use std::collections::{BTreeMap, BTreeSet};

openraft::declare_raft_types!(Types: D = String, R = (), SnapshotData = SnapshotFile);

fn uid() -> Uid {
    Uid::from_words(0x0102_0304_0506_0708, 0x1112_1314_1516_1718)
}

fn snapshots(machine: &SimEnv) -> Snapshots {
    let dir = SnapshotDir::open(&machine.env(), Path::new("/snapshots")).unwrap();
    dir.of(7, Groups::default().enter("group").unwrap())
}

fn writer(snapshots: &Snapshots, meta: &[u8]) -> Writer {
    let (part, file) = snapshots.create().unwrap();
    Writer::begin(file, part, uid(), meta).unwrap()
}

fn members() -> StoredMembership<u64, BasicNode> {
    let nodes = BTreeMap::from([(1, BasicNode::new("one:1")), (2, BasicNode::new("two:2"))]);
    StoredMembership::new(Some(log_id(1, 1, 3)), Membership::new(vec![BTreeSet::from([1, 2])], nodes))
}

#[allow(clippy::disallowed_methods, reason = "reads and writes what is checked in")]
fn golden(name: &str, now: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, now).unwrap();
    }
    let stored = std::fs::read(&path).unwrap();
    assert!(stored == now, "{name}: the format has changed");
    stored
}

/// Reads a whole snapshot into one list.
fn read_all(mut frames: Frames) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = vec![(b"meta".to_vec(), frames.meta()?)];
    while frames.entries(&mut |key, value| found.push((key.to_vec(), value.to_vec())))? {}
    Ok(found)
}

/// Every later release must read the files of a published release, and write them byte for byte
/// until the version is raised.
#[test]
fn snapshots_of_version_1() {
    let machine = SimEnv::new(1);
    let snapshots = snapshots(&machine);
    let meta: SnapshotMeta<u64, BasicNode> = SnapshotMeta {
        last_log_id: Some(log_id(2, 1, 500)),
        last_membership: members(),
        snapshot_id: "77".to_owned(),
    };
    let meta = encode(&meta).unwrap();
    let mut writer = writer(&snapshots, &meta);
    // Two frames of entries: an empty value, and one that fills the rest of a frame.
    let entries: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"\x01".to_vec(), Vec::new()),
        (b"a".to_vec(), b"value".to_vec()),
        (b"long".to_vec(), vec![7; FRAME_BYTES]),
        (vec![0xff; 300], b"last".to_vec()),
    ];
    entries.iter().for_each(|(key, value)| writer.add(key, value).unwrap());
    let part = writer.finish().unwrap();
    let now = machine.env().fs.read_all(&part.path, 1 << 20).unwrap();
    let stored = golden("snapshot-v1.bin", &now);
    let (copy, mut file) = snapshots.create().unwrap();
    file.append(&stored).unwrap();
    file.sync(SyncKind::Full).unwrap();
    let mut expected = vec![(b"meta".to_vec(), meta)];
    expected.extend(entries);
    assert_eq!(read_all(snapshots.frames(&copy).unwrap()).unwrap(), expected);
}

/// The log contents of openraft: an entry of each kind, and the vote.
#[test]
fn records_of_version_1() {
    let entry = |index, payload| Entry::<Types> { log_id: log_id(3, 2, index), payload };
    let records = [
        encode(&entry(0, EntryPayload::Blank)).unwrap(),
        encode(&entry(1 << 40, EntryPayload::Normal("a request".to_owned()))).unwrap(),
        encode(&entry(2, EntryPayload::Membership(members().membership().clone()))).unwrap(),
        encode(&Some(Vote::<u64>::new_committed(3, 2))).unwrap(),
    ];
    let mut now = Vec::new();
    records.iter().for_each(|record| put_bytes(&mut now, record));
    let stored = golden("records-v1.bin", &now);
    let mut reader = Reader::new(&stored);
    let mut next = || reader.bytes().unwrap().to_vec();
    let normal = [next(), next()].map(|bytes| crate::record::decode::<Entry<Types>>(&bytes).unwrap());
    assert!(matches!(&normal[1].payload, EntryPayload::Normal(request) if request == "a request"));
    assert_eq!(normal[1].log_id, log_id(3, 2, 1 << 40));
    let membership: Entry<Types> = crate::record::decode(&next()).unwrap();
    assert!(
        matches!(&membership.payload, EntryPayload::Membership(found) if found == members().membership())
    );
    assert_eq!(crate::record::decode::<Option<Vote<u64>>>(&next()).unwrap(), Some(Vote::new_committed(3, 2)));
}

/// Valid frames in an order or number that no writer produces.
#[test]
fn valid_frames_in_invalid_order_are_refused() {
    let snapshots = snapshots(&SimEnv::new(1));
    let told = |write: &dyn Fn(&mut Writer)| {
        let mut writer = writer(&snapshots, b"meta");
        write(&mut writer);
        let part = writer.finish().unwrap();
        let path = part.path.clone();
        let told = snapshots.frames(&part).and_then(read_all).unwrap_err();
        assert!(told.kind() == ErrorKind::Corruption && told.file() == Some(&path), "{told}");
        told.to_string()
    };
    assert!(told(&|writer| writer.count += 1).contains("its last frame is not a valid end frame"));
    assert!(
        told(&|writer| writer.frame(9, b"").unwrap()).contains("its last frame is not a valid end frame")
    );
    assert!(told(&|writer| writer.frame(END, &0u64.to_le_bytes()).unwrap()).contains("its last frame"));
    assert!(told(&|writer| writer.frame(ENTRIES, &[5, 1]).unwrap()).contains("corruption"));
    let (part, mut file) = snapshots.create().unwrap();
    file.append(&uid().0).unwrap();
    let mut writer = Writer { file, part, uid: uid(), entries: Vec::new(), count: 0 };
    writer.add(b"key", b"value").unwrap();
    let part = writer.finish().unwrap();
    let told = snapshots.frames(&part).and_then(read_all).unwrap_err();
    assert!(told.to_string().contains("its first frame is not the metadata frame"), "{told}");
}

/// Parts have unique names and leave nothing behind, neither after an abandoned write nor after a
/// crash.
#[test]
fn snapshot_part_files_are_unique_and_removed() {
    let machine = SimEnv::new(1);
    let fs = machine.env().fs;
    let names = || -> Vec<String> {
        fs.list(Path::new("/snapshots")).unwrap().into_iter().map(|entry| entry.name).collect()
    };
    let of = snapshots(&machine);
    let (first, second) = (of.build(b"1").unwrap(), of.build(b"2").unwrap());
    assert_eq!(names().len(), 2);
    assert!(of.commit(&first.finish().unwrap(), |_| Ok(true)).unwrap());
    assert!(!of.commit(&second.finish().unwrap(), |present| Ok(present != b"1")).unwrap());
    assert_eq!(names(), ["7.snapshot"]);
    drop(of.receive().unwrap());
    assert_eq!(names(), ["7.snapshot"]);
    std::mem::forget(of.build(b"3").unwrap());
    assert_eq!(names().len(), 2);
    of.clean().unwrap();
    assert_eq!(names(), ["7.snapshot"]);
    assert_eq!(of.checked().unwrap().map(|(meta, _)| meta), Some(b"1".to_vec()));
}
