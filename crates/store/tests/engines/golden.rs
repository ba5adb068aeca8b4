//! A permanent manifest with two engines besides the key-value engine. `LAVASTORE_BLESS=1 cargo
//! test` rewrites it, which is only right together with a new version number in the header.

use crate::ledger::Change;
use crate::machine::{A, B, BOTH, DIR, Here};
use base::Uid;
use io::sim::SimEnv;
use lavastore_store::commit::Lane;
use lavastore_store::manifest::format::{Header, encode_record, read_record};
use lavastore_store::manifest::{
    Commit, Engine, EngineFile, Engines, Handle, LogGroupMeta, Manifest, ManifestState, Record,
    dump_manifest, replay,
};
use lavastore_store::names;
use lavastore_store::volumes::identity::Identity;
use lavastore_store::volumes::{FastTier, Volume};
use std::path::Path;
use wal::LogBegin;

#[path = "../../../io/tests/golden_files/mod.rs"]
mod golden_files;

const MANIFEST: &[u8] = include_bytes!("../golden/manifest-v1-engines.bin");
const LISTING: &str = include_str!("../golden/manifest-v1-engines.txt");
const SHARED: &[u8] = include_bytes!("../golden/manifest-v1-shared.bin");
const SHARED_LISTING: &str = include_str!("../golden/manifest-v1-shared.txt");
const BOUNDED: &[u8] = include_bytes!("../golden/manifest-v1-bounded.bin");
const BOUNDED_LISTING: &str = include_str!("../golden/manifest-v1-bounded.txt");
const SPEED: &[u8] = include_bytes!("../golden/manifest-v1-speed.bin");
const SPEED_LISTING: &str = include_str!("../golden/manifest-v1-speed.txt");
const BEGUN: &[u8] = include_bytes!("../golden/manifest-v1-log-begins.bin");
const BEGUN_LISTING: &str = include_str!("../golden/manifest-v1-log-begins.txt");
const LANES: &[u8] = include_bytes!("../golden/manifest-v1-lanes.bin");
const LANES_LISTING: &str = include_str!("../golden/manifest-v1-lanes.txt");

/// Makes a history under fixed identities: one session with both engines, and one with the first
/// alone, whose snapshot holds the steps of the other.
fn fixed() -> Vec<u8> {
    let sim = SimEnv::new(1);
    let manifest = BOTH.create(&sim).unwrap();
    let (a, b) = (Handle::<A>::of(&manifest).unwrap(), Handle::<B>::of(&manifest).unwrap());
    let file = |number, kind| EngineFile { number, kind, volume: Volume::DIRECTORY };
    let adds = |engine, number, kind| Record::AddEngineFile { engine, file: file(number, kind) };
    let group = LogGroupMeta {
        ltn: 1,
        file: 2,
        len: 1 << 20,
        uid: Some(Uid::from_words(5, 6)),
        ..Default::default()
    };
    manifest.commit_store(|_| Ok(vec![Record::AddLogGroup { group }]), |_| ()).unwrap();
    a.commit(Commit::own(vec![Change::Add(1, 10), Change::Add(2, 20)])).unwrap();
    b.commit(Commit { store: vec![adds(B::ID, 3, 0)], own: vec![Change::Add(1, 1), Change::Floor(400)] })
        .unwrap();
    b.commit(Commit { store: vec![adds(B::ID, 4, 1)], own: vec![Change::Remove(1), Change::Add(1, 2)] })
        .unwrap();
    drop((manifest, a, b));
    let alone = Here { a: true, b: false }.recover(&sim).unwrap();
    let a = Handle::<A>::of(&alone).unwrap();
    a.commit(Commit::own(vec![Change::Remove(2), Change::Floor(500)])).unwrap();
    a.commit(Commit { store: vec![adds(A::ID, 9, 0)], own: Vec::new() }).unwrap();
    let name = alone.live_manifest_files().pop().unwrap();
    relabelled(&sim.read_file(Path::new(DIR).join(name)).unwrap())
}

/// Makes a history with a second lane: one group is retained, one was retained and is free, one is
/// replayed. The snapshot of a second session merges the first two records into one.
fn lanes() -> Vec<u8> {
    let sim = SimEnv::new(2);
    let manifest = BOTH.create(&sim).unwrap();
    let group = |ltn: u64, lane: Lane| {
        let (file, uid) = (10 + ltn, Some(Uid::from_words(ltn, 7)));
        Record::AddLogGroup {
            group: LogGroupMeta { ltn, file, len: 1 << 20, uid, lane, ..Default::default() },
        }
    };
    let commit = |manifest: &Manifest, records: Vec<Record>| {
        manifest.commit_store(|_| Ok(records), |_| ()).unwrap();
    };
    commit(&manifest, vec![group(1, Lane::FIRST), group(2, Lane::LOG), group(3, Lane::LOG)]);
    commit(&manifest, vec![Record::SealLogGroup { ltn: 2, end_lpn: 300 }]);
    commit(&manifest, vec![Record::RetainLogGroup { ltn: 2, bytes: 200 }, group(4, Lane::LOG)]);
    commit(&manifest, vec![Record::RetainLogGroup { ltn: 3, bytes: 17 }]);
    drop(manifest);
    let manifest = BOTH.recover(&sim).unwrap();
    commit(&manifest, vec![Record::RemoveLogGroup { ltn: 3 }]);
    let name = manifest.live_manifest_files().pop().unwrap();
    relabelled(&sim.read_file(Path::new(DIR).join(name)).unwrap())
}

/// Makes a history with a log that begins inside its oldest group: in an edit, and, in the second
/// session, in a snapshot.
fn begun() -> Vec<u8> {
    let sim = SimEnv::new(6);
    let manifest = BOTH.create(&sim).unwrap();
    let group = |ltn: u64| {
        let uid = Some(Uid::from_words(ltn, 9));
        Record::AddLogGroup {
            group: LogGroupMeta { ltn, file: 10 + ltn, len: 1 << 20, uid, ..Default::default() },
        }
    };
    let begin =
        |ltn, lpn, used| Record::BeginLogGroup { ltn, begin: LogBegin { first_lpn: 1000, lpn, used } };
    let commit = |manifest: &Manifest, records: Vec<Record>| {
        manifest.commit_store(|_| Ok(records), |_| ()).unwrap();
    };
    commit(&manifest, vec![group(1), group(2)]);
    commit(&manifest, vec![Record::RemoveLogGroup { ltn: 1 }, begin(2, 1000, 0)]);
    drop(manifest);
    let manifest = BOTH.recover(&sim).unwrap();
    commit(&manifest, vec![begin(2, 1044, 3999), group(3)]);
    let name = manifest.live_manifest_files().pop().unwrap();
    relabelled(&sim.read_file(Path::new(DIR).join(name)).unwrap())
}

#[test]
fn golden_manifest_of_a_log_begun_inside_a_group_is_unchanged() {
    let bytes = begun();
    let now = [
        ("manifest-v1-log-begins.bin", bytes.clone(), BEGUN),
        ("manifest-v1-log-begins.txt", listing(&bytes).into_bytes(), BEGUN_LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    let state = replay(BEGUN, &Engines::default()).unwrap().state;
    state.verify().unwrap();
    let begins: Vec<_> = state.log_groups.chain(Lane::FIRST).map(|group| (group.ltn, group.begin)).collect();
    let begin = LogBegin { first_lpn: 1000, lpn: 1044, used: 3999 };
    assert_eq!(begins, [(2, Some(begin)), (3, None)]);
    // Invalid beginnings: before the group, or with more bytes than a page holds.
    for body in [[2, 7, 6, 1].as_slice(), &[2, 7, 8, 0x80, 0x80, 4]] {
        let e = state.after(&[&[35, body.len() as u8], body].concat()).unwrap_err();
        assert!(e.is_corruption() && e.message().contains("begins where it cannot"), "{e}");
    }
}

/// Returns the same records under fixed identities.
fn relabelled(bytes: &[u8]) -> Vec<u8> {
    let header = Header::decode(bytes).unwrap();
    let fixed = Header {
        store: Uid::from_words(1, 2),
        manifest: Uid::from_words(3, 4),
        number: header.number,
        pieces: 1,
        format: header.format,
    };
    let mut out = fixed.encode();
    while out.len() < bytes.len() {
        let record = read_record(header.manifest, bytes, out.len()).unwrap();
        let offset = out.len() as u64;
        out.extend(encode_record(fixed.manifest, offset, record.edit, record.durable, record.payload));
    }
    out
}

fn listing(bytes: &[u8]) -> String {
    let all = Engines::of::<A>().with::<B>();
    let mut text = String::new();
    for engines in [Engines::default(), Engines::of::<A>(), all] {
        let described = replay(bytes, &engines).unwrap().state.describe();
        text += &format!("{engines:?}\n{}\n\n{described}\n", dump_manifest(bytes, &engines).join("\n"));
    }
    text
}

#[test]
fn golden_manifest_of_several_engines_is_unchanged() {
    let bytes = fixed();
    let now = [
        ("manifest-v1-engines.bin", bytes.clone(), MANIFEST),
        ("manifest-v1-engines.txt", listing(&bytes).into_bytes(), LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
}

#[test]
fn golden_manifest_of_two_lanes_is_unchanged() {
    let bytes = lanes();
    let now = [
        ("manifest-v1-lanes.bin", bytes.clone(), LANES),
        ("manifest-v1-lanes.txt", listing(&bytes).into_bytes(), LANES_LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    let state = replay(LANES, &Engines::default()).unwrap().state;
    state.verify().unwrap();
    let kept: Vec<_> =
        state.log_groups.retained(Lane::LOG).map(|g| (g.ltn, g.retained_bytes, g.sealed_end)).collect();
    assert_eq!(kept, [(2, Some(200), Some(300))]);
    let replayed = |lane| state.log_groups.chain(lane).map(|group| group.ltn).collect::<Vec<u64>>();
    assert_eq!((replayed(Lane::FIRST), replayed(Lane::LOG)), (vec![1], vec![4]));
}

/// Makes a history with a group whose file has a second name, and, in the second session, with a
/// group that another store wrote.
fn shared() -> Vec<u8> {
    let sim = SimEnv::new(3);
    let manifest = BOTH.create(&sim).unwrap();
    let (uid, lane) = (Some(Uid::from_words(8, 7)), Lane::LOG);
    let group = |ltn| LogGroupMeta { ltn, file: 10 + ltn, len: 1 << 20, uid, lane, ..Default::default() };
    let commit = |manifest: &Manifest, records: Vec<Record>| {
        manifest.commit_store(|_| Ok(records), |_| ()).unwrap();
    };
    commit(&manifest, vec![Record::AddLogGroup { group: group(1) }]);
    commit(&manifest, vec![Record::RetainLogGroup { ltn: 1, bytes: 200 }]);
    commit(&manifest, vec![Record::ShareLogGroup { ltn: 1 }]);
    drop(manifest);
    let manifest = BOTH.recover(&sim).unwrap();
    let (retained_bytes, store) = (Some(300), Some(Uid::from_words(9, 9)));
    let copied = LogGroupMeta { retained_bytes, store, shared: true, ..group(2) };
    commit(&manifest, vec![Record::AddLogGroup { group: copied }]);
    let name = manifest.live_manifest_files().pop().unwrap();
    relabelled(&sim.read_file(Path::new(DIR).join(name)).unwrap())
}

#[test]
fn golden_manifest_of_a_copied_store_is_unchanged() {
    let bytes = shared();
    let now = [
        ("manifest-v1-shared.bin", bytes.clone(), SHARED),
        ("manifest-v1-shared.txt", listing(&bytes).into_bytes(), SHARED_LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    let state = replay(SHARED, &Engines::default()).unwrap().state;
    state.verify().unwrap();
    let groups: Vec<_> = state.log_groups.retained(Lane::LOG).map(|g| (g.ltn, g.shared, g.store)).collect();
    assert_eq!(groups, [(1, true, None), (2, true, Some(Uid::from_words(9, 9)))]);
}

/// Makes a history of space ceilings: none, a limit, a lower one. The snapshot of the second
/// session has the last.
fn bounded() -> Vec<u8> {
    let sim = SimEnv::new(4);
    let manifest = BOTH.create(&sim).unwrap();
    let commit = |manifest: &Manifest, bytes: u64| {
        manifest.commit_store(|_| Ok(vec![Record::SpaceCeiling { bytes }]), |_| ()).unwrap();
    };
    [0, 5 << 30].into_iter().for_each(|bytes| commit(&manifest, bytes));
    drop(manifest);
    let manifest = BOTH.recover(&sim).unwrap();
    commit(&manifest, 4 << 30);
    let name = manifest.live_manifest_files().pop().unwrap();
    relabelled(&sim.read_file(Path::new(DIR).join(name)).unwrap())
}

#[test]
fn golden_manifest_of_a_store_with_a_limit_is_unchanged() {
    let bytes = bounded();
    let now = [
        ("manifest-v1-bounded.bin", bytes.clone(), BOUNDED),
        ("manifest-v1-bounded.txt", listing(&bytes).into_bytes(), BOUNDED_LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    let state = replay(BOUNDED, &Engines::default()).unwrap().state;
    state.verify().unwrap();
    assert_eq!(state.space_ceiling, Some(4 << 30));
}

/// Makes a history of a fast tier: a group that moves to it, and one that begins on it in another
/// session.
fn speed() -> Vec<u8> {
    let sim = SimEnv::new(5);
    let manifest = BOTH.create(&sim).unwrap();
    let group = |ltn| {
        let volume = if ltn == 1 { Volume::DIRECTORY } else { Volume::FAST };
        let uid = Some(Uid::from_words(ltn, 6));
        LogGroupMeta { ltn, file: ltn + 10, len: 1 << 20, uid, volume, ..Default::default() }
    };
    let of = |epoch| {
        let (disk, session) = (Uid::from_words(7, 7), Uid::from_words(8, epoch));
        Record::FastTier { disk: Some(FastTier { disk, epoch, session, place: "/fast".into() }) }
    };
    let commit = |manifest: &Manifest, records: Vec<Record>| {
        manifest.commit_store(|_| Ok(records), |_| ()).unwrap();
    };
    commit(&manifest, vec![Record::AddLogGroup { group: group(1) }]);
    commit(&manifest, vec![of(1)]);
    commit(&manifest, vec![of(2), Record::AddLogGroup { group: group(2) }]);
    drop(manifest);
    let (capacity, state) = (sim.env(), format!("{DIR}/no-speed"));
    let env = lavastore_store::fast_tier::joined(&capacity, Path::new(DIR), &capacity, Path::new(&state));
    assert_eq!(
        Manifest::recover(&env, Path::new(DIR), false, &Engines::default()).unwrap_err().kind(),
        base::ErrorKind::NotFound
    );
    let name = format!("{DIR}/{}", lavastore_store::names::manifest(1));
    relabelled(&sim.read_file(name).unwrap())
}

#[test]
fn golden_manifest_of_a_store_with_two_disks_is_unchanged() {
    let bytes = speed();
    let now = [
        ("manifest-v1-speed.bin", bytes.clone(), SPEED),
        ("manifest-v1-speed.txt", listing(&bytes).into_bytes(), SPEED_LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    let state = replay(SPEED, &Engines::default()).unwrap().state;
    state.verify().unwrap();
    let disk = state.speed.as_ref().unwrap();
    assert_eq!((disk.epoch, disk.session, &*disk.place), (2, Uid::from_words(8, 2), "/fast"));
    assert!(state.log_groups.values().all(|group| group.volume == Volume::FAST));
    let again =
        ManifestState::from_snapshot(state.uid, state.edit_number, &state.snapshot(), &Engines::default())
            .unwrap();
    assert_eq!(again.speed, state.speed);
    let back = state.after(&[32, 1, 0]).unwrap();
    assert!(back.speed.is_none() && back.log_groups.values().all(|group| group.volume == Volume::DIRECTORY));
}

const IDENTITY: &[u8] = include_bytes!("../golden/speed-v1.bin");

/// The identity of a fast tier: any damaged bit is detected, and no truncated slot is accepted.
#[test]
fn golden_identity_slot_is_unchanged() {
    let uid = |n| Uid::from_words(n, n);
    let identity =
        Identity { store: uid(1), disk: uid(2), epoch: 3, session: uid(4), previous: uid(5), moving: true };
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &[("speed-v1.bin", identity.encode(), IDENTITY)]);
    assert_eq!(Identity::decode(IDENTITY).unwrap(), identity);
    for bit in 0..IDENTITY.len() * 8 {
        let mut bytes = IDENTITY.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Identity::decode(&bytes).unwrap_err().is_corruption(), "bit {bit}");
    }
    (0..IDENTITY.len())
        .for_each(|len| assert!(Identity::decode(&IDENTITY[..len]).unwrap_err().is_corruption()));
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = IDENTITY[..92].to_vec();
        change(&mut bytes);
        let sum = base::checksum::stored(&bytes, identity.disk, 0);
        bytes.extend_from_slice(&sum.to_le_bytes());
        Identity::decode(&bytes).unwrap_err().kind()
    };
    assert_eq!(sealed(&|bytes| bytes[8] = 2), base::ErrorKind::Unsupported);
    for at in [8, 12, 88] {
        assert_eq!(sealed(&|bytes| bytes[at] = if at == 8 { 0 } else { 2 }), base::ErrorKind::Corruption);
    }
}

/// Only a retained group may be shared with another store, because only that is never written
/// again.
#[test]
fn a_group_that_is_replayed_is_not_shared() {
    let group = LogGroupMeta { ltn: 1, file: 2, len: 9, lane: Lane::LOG, shared: true, ..Default::default() };
    let mut edit = Vec::new();
    Record::AddLogGroup { group }.encode_into(&mut edit);
    let state = replay(SHARED, &Engines::default()).unwrap().state;
    let e = state.after(&edit).unwrap_err();
    assert!(e.is_corruption() && e.message().contains("but not retained"), "{e}");
}

#[test]
fn the_golden_manifest_of_engines_is_read() {
    assert_eq!(listing(MANIFEST), LISTING);
    let state = replay(MANIFEST, &Engines::of::<A>()).unwrap().state;
    state.verify().unwrap();
    let b = state.engines.away().next().unwrap();
    assert_eq!((b.id, b.name, b.floor, b.files.len()), (B::ID, "ledger", 400, 2));
    let listed: Vec<String> = state.engines.files().map(|(_, _, name)| name.to_string()).collect();
    assert_eq!(listed, ["000000000009.e3-0", "000000000003.e7-0", "000000000004.e7-1"]);
    assert!(listed.iter().all(|name| {
        names::parse(name).is_some_and(|kind| state.engines.is_of_away(kind) == name.contains("e7"))
    }));
}
