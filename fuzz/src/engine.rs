//! What only the engine decodes: batches in the log, options in the manifest; and whole directories.

use crate::script::{self, Patch, patches};
use crate::seal::{Region, regions, seal};
use base::codec::{Reader, put_u16, put_varint};
use base::{Result, Uid};
use io::sim::{CrashKind, SimEnv};
use io::{Env, PAGE};
use lavakv::{Db, FamilyOptions, Options, ReadOptions, WriteBatch};
use std::path::Path;
use std::sync::OnceLock;
use version::names::{self, FileKind};
use version::{Edit, LogGroupMeta, Manifest, Record, State, StoreRecord};
use wal::page::{self, BatchHeader, Form, FragmentKind, Owner, PageHeader};

const DIR: &str = "/store";
/// Steps of an iterator; nothing here holds so many entries.
const STEPS_MAX: usize = 200_000;
/// Background steps after which the engine counts as busy with nothing.
const BACKGROUND_STEPS_MAX: usize = 20_000;

fn options() -> Options {
    let family = FamilyOptions::default().expert(|expert| {
        expert.file_bytes = 16 << 10;
        expert.level_base_bytes = 64 << 10;
    });
    Options {
        memtable_bytes: 32 << 10,
        memory_bytes: 96 << 10,
        cache_bytes: 64 << 10,
        family,
        ..Default::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 64 << 10;
        expert.wal_bytes_max = 512 << 10;
    })
}

/// Opens the store and does a little of everything with it. Errors are fine.
fn use_store(env: &Env) -> Result<()> {
    let _ = read_all(&Db::open_read_only_in(env.clone(), DIR, options())?);
    let db = Db::open_in(env.clone(), DIR, options())?;
    let _ = read_all(&db);
    let _ = db.put(b"new", b"value");
    let _ = db.delete_range(b"k", b"key5");
    let _ = db.flush();
    let _ = db.compact_range(db.default_column_family(), None, None);
    for _ in 0..BACKGROUND_STEPS_MAX {
        if !db.run_background_step() {
            break;
        }
    }
    let _ = (db.verify(), db.space(), db.stats(), db.describe());
    let _ = db.close();
    // What was written on the ground of what was believed is still readable, or refused.
    let _ = read_all(&Db::open_in(env.clone(), DIR, options())?);
    Ok(())
}

fn read_all(db: &Db) -> Result<()> {
    for name in db.column_families() {
        let Some(family) = db.column_family(&name) else { continue };
        for key in [&b"key00007"[..], b"key00053", b"large", b"key5", b"", b"new", &[0xff; 9]] {
            let _ = db.get_cf(&family, key);
        }
        let mut iter = db.iter_cf(&family, ReadOptions::default())?;
        let mut steps = 0;
        let mut moved = iter.seek_to_first();
        while moved.is_ok() && iter.valid() {
            steps += 1;
            assert!(steps < STEPS_MAX, "an iterator that does not end");
            let _ = (iter.key(), iter.value());
            moved = iter.next();
        }
        moved = iter.seek_for_prev(b"key5");
        while moved.is_ok() && iter.valid() {
            steps += 1;
            assert!(steps < 2 * STEPS_MAX, "an iterator that does not end");
            moved = iter.prev();
        }
    }
    let _ = db.verify()?;
    Ok(())
}

// Batches.

const STORE: Uid = Uid([3; 16]);
const OWNER: Owner = Owner { store: STORE, group: Some(Uid([4; 16])) };
const LTN: u64 = 1;
const LOG_FILE: u64 = 5;
const GROUP_LEN: usize = 40 * PAGE;

/// A store that has nothing but two families and one log group.
fn empty_store(family_options: &[u8], group: &[u8]) -> Result<SimEnv> {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let family =
        |id, name: &str| Record::CreateFamily { id, name: name.into(), options: family_options.to_vec() };
    let len = group.len() as u64;
    let group_meta = LogGroupMeta { ltn: LTN, file: LOG_FILE, len, uid: OWNER.group, ..Default::default() };
    let edit = Edit(vec![
        family(0, "default"),
        family(1, "other"),
        Record::Store(StoreRecord::NextFileNumber(LOG_FILE + 1)),
        Record::Store(StoreRecord::AddLogGroup { group: group_meta }),
    ]);
    let state = State::empty(STORE, 1).apply(&edit)?;
    Manifest::create_with(&env, Path::new(DIR), state)?;
    sim.write_file(Path::new(DIR).join(names::log(LOG_FILE)), group)?;
    Ok(sim)
}

/// A log group with these batches, each (first sequence, sequence span, payload), as far as they fit.
fn log_of(batches: &[(u64, u32, &[u8])]) -> Vec<u8> {
    let mut group = vec![0; GROUP_LEN];
    let mut pages: Vec<(Vec<u8>, usize)> = Vec::new();
    for &(first_seq, seq_span, payload) in batches {
        let batch =
            BatchHeader { tenant: wal::TenantId::FIRST, first_seq, seq_span, len: payload.len() as u32 };
        let mut left = payload;
        while !left.is_empty() {
            let full = pages.last().is_none_or(|(_, used)| used + page::ROOM_LEN_MIN > PAGE);
            if full {
                pages.push((vec![0; PAGE], page::HEADER_LEN));
            }
            let lpn = pages.len() as u64;
            let Some((bytes, used)) = pages.last_mut() else { break };
            let begins = left.len() == payload.len();
            let header_len =
                if begins { page::FIRST_FRAGMENT_HEADER_LEN } else { page::NEXT_FRAGMENT_HEADER_LEN };
            let n = left.len().min(PAGE - *used - header_len);
            let kind = match (begins, n == left.len()) {
                (true, true) => FragmentKind::Full,
                (true, false) => FragmentKind::First,
                (false, false) => FragmentKind::Middle,
                (false, true) => FragmentKind::Last,
            };
            let end = *used + header_len + n;
            bytes[*used + header_len..end].copy_from_slice(&left[..n]);
            page::encode_fragment(&mut bytes[*used..end], kind, batch, OWNER, lpn, *used);
            *used = end;
            left = &left[n..];
        }
    }
    let mut prev_used = 0;
    for (i, (bytes, used)) in pages.iter().enumerate().take(GROUP_LEN / PAGE) {
        let lpn = i as u64 + 1;
        let header = PageHeader {
            form: Form::Closed,
            used: 0,
            prev_used,
            owner: OWNER,
            ltn: LTN,
            lpn,
            first_lpn: 1,
            durable_end: 0,
            prev_ltn: 0,
            prev_end: 0,
            witness_edit: 1,
            stream: None,
        };
        let mut page = [0; PAGE];
        page.copy_from_slice(bytes);
        header.encode_open(&mut page);
        page::close(&mut page, *used as u16, 0, OWNER, lpn);
        group[i * PAGE..][..PAGE].copy_from_slice(&page);
        prev_used = *used as u16;
    }
    group
}

/// Encoded family options, as a store has them in its manifest.
fn valid_family_options() -> &'static [u8] {
    static VALID: OnceLock<Vec<u8>> = OnceLock::new();
    VALID.get_or_init(|| {
        let sim = SimEnv::new(1);
        Db::open_in(sim.env(), DIR, options()).and_then(Db::close).expect("a new store");
        let manifest = Manifest::recover(&sim.env(), Path::new(DIR), true).expect("a new store");
        manifest.state().families.values().next().expect("the default family").options.clone()
    })
}

/// Batches in a log under valid checksums: each a length (u16) and as many bytes, all that are left for 0xffff.
pub fn write_batch(data: &[u8]) {
    let mut r = Reader::new(data);
    let mut batches = Vec::new();
    while let Ok(len) = r.u16() {
        let left = r.rest().len();
        let len = if len == u16::MAX { left } else { usize::from(len).min(left) };
        let payload = r.take(len).unwrap_or_default();
        let mut head = Reader::new(payload);
        let (first_seq, count) = (head.u64().unwrap_or(0), head.u32().unwrap_or(0));
        batches.push((first_seq, count.saturating_sub(1), payload));
    }
    let sim = empty_store(valid_family_options(), &log_of(&batches)).expect("memory takes every write");
    let _ = use_store(&sim.env());
}

/// Rows of batches: sound ones, a key over the limit, a sequence twice.
pub fn write_batch_seeds() -> Vec<Vec<u8>> {
    let entry = |out: &mut Vec<u8>, kind: u8, family: u8, key: &[u8], value: Option<&[u8]>| {
        out.extend_from_slice(&[kind, family]);
        base::codec::put_bytes(out, key);
        if let Some(value) = value {
            base::codec::put_bytes(out, value);
        }
    };
    let batch = |first_seq: u64, keys: &[&[u8]]| {
        let mut out = [&first_seq.to_le_bytes()[..], &(keys.len() as u32 * 3).to_le_bytes()].concat();
        for (i, key) in keys.iter().enumerate() {
            entry(&mut out, 1, (i % 2) as u8, key, Some(&[b'v'; 100]));
            entry(&mut out, [0, 3][i % 2], 0, key, None);
            entry(&mut out, 5, 1, b"a", Some(b"f"));
        }
        out
    };
    let row = |batches: &[Vec<u8>]| {
        let mut out = Vec::new();
        for batch in batches {
            put_u16(&mut out, batch.len().min(usize::from(u16::MAX)) as u16);
            out.extend_from_slice(batch);
        }
        out
    };
    let (small, more) = (batch(1, &[b"key1", b"key2"]), batch(7, &[b"key3", b"key5", b"key7"]));
    let long = batch(1, &[&vec![b'k'; 70_000]]);
    vec![
        row(&[small.clone(), more.clone()]),
        row(&[more, small.clone()]),
        row(&[small.clone(), small]),
        row(&[long]),
    ]
}

/// Options of the families of a store.
pub fn family_options(data: &[u8]) {
    let sim = empty_store(data, &[0; 2 * PAGE]).expect("memory takes every write");
    let _ = use_store(&sim.env());
    let Ok(db) = Db::open_in(sim.env(), DIR, options()) else { return };
    if let Some(family) = db.column_family("other") {
        for i in 0..300u32 {
            let _ = db.put_cf(&family, format!("key{i:05}").as_bytes(), &[b'v'; 200]);
        }
        let _ = db.flush();
        let _ = db.compact_range(&family, None, None);
        let _ = read_all(&db);
    }
}

/// Default options, and each number at its limits.
pub fn family_options_seeds() -> Vec<Vec<u8>> {
    let valid = valid_family_options().to_vec();
    let mut r = Reader::new(&valid[2..]);
    let mut numbers = Vec::new();
    while let Ok(n) = r.varint() {
        numbers.push(n);
    }
    let with = |i: usize, n: u64| {
        let mut out = valid[..2].to_vec();
        numbers.iter().enumerate().for_each(|(j, &own)| put_varint(&mut out, if i == j { n } else { own }));
        out
    };
    let limits = [(0, 512), (0, 1 << 20), (1, 0), (1, 64), (2, 4096), (4, 2), (4, 1000), (5, 2), (6, 1)];
    std::iter::once(valid.clone()).chain(limits.map(|(i, n)| with(i, n))).collect()
}

// Directories.

/// A file of a store at rest.
struct Stored {
    name: String,
    bytes: Vec<u8>,
    regions: Vec<Region>,
}

/// A store of two families with tables at two levels, files of values, range tombstones and a log; closed, or killed.
fn build_store(killed: bool) -> SimEnv {
    let sim = SimEnv::new(2);
    let db = Db::open_in(sim.env(), DIR, options()).expect("a new store");
    let other = db.create_column_family("other", FamilyOptions::default()).expect("a new family");
    let write = |round: u64, keys: std::ops::Range<u64>| -> Result<()> {
        for i in keys {
            let mut batch = WriteBatch::new();
            // Every tenth value goes to a vSST.
            let value = format!("{round}/{i}/").repeat(if i % 10 == 3 { 100 } else { 6 });
            batch.put(format!("key{i:05}").as_bytes(), value.as_bytes());
            batch.put_cf(&other, format!("key{i:05}").as_bytes(), b"short");
            if i % 5 == 0 {
                batch.delete(format!("key{:05}", i / 2).as_bytes());
            }
            db.write(&batch)?;
        }
        // Longer than a quarter of a log group: a file of its own.
        db.put(b"large", &vec![round as u8; 20 << 10])?;
        db.delete_range(b"key00010", b"key00020")
    };
    let done = (|| {
        write(1, 0..120)?;
        db.flush()?;
        db.compact_range(db.default_column_family(), None, None)?;
        write(2, 50..150)?;
        db.flush()?;
        write(3, 100..160)
    })();
    done.expect("memory takes every write");
    if killed {
        let after = sim.crash(CrashKind::ProcessKill, 1);
        drop(other);
        return after;
    }
    drop(other);
    db.close().expect("memory takes every write");
    sim.fork(1)
}

fn stores() -> &'static [Vec<Stored>] {
    static STORES: OnceLock<Vec<Vec<Stored>>> = OnceLock::new();
    STORES.get_or_init(|| {
        let listing = |killed| {
            let sim = build_store(killed);
            let stored = |path: std::path::PathBuf| {
                let name = path.file_name()?.to_str()?.to_owned();
                let kind = names::parse(&name).filter(|&kind| kind != FileKind::Lock)?;
                let bytes = sim.read_file(&path).ok()?;
                let regions = regions(kind, &bytes);
                Some(Stored { name, bytes, regions })
            };
            sim.files().into_iter().filter_map(|(path, _)| stored(path)).collect()
        };
        vec![listing(false), listing(true)]
    })
}

/// Damage that is not the change of bytes in a region.
fn coarse(patch: &Patch, files: &mut Vec<(String, Vec<u8>)>, at: usize) {
    let len = files[at].1.len();
    let place = (len * usize::from(patch.offset)) >> 16;
    let unaligned = usize::from(patch.value % 64);
    match patch.op % 8 {
        0 => files[at].1.truncate(place),
        1 => files[at].1.truncate(len.saturating_sub(1 + unaligned)),
        2 => files[at].1.resize(len + 1 + place.min(9000), patch.value as u8),
        3 => drop(files.remove(at)),
        4 => {
            let other = usize::from(patch.region) % files.len();
            files[at].1 = files[other].1.clone();
        }
        5 => {
            let number = script::BOUNDARIES[usize::from(patch.value) % script::BOUNDARIES.len()];
            let kinds =
                [names::ksst(number), names::log(number), names::manifest(number), names::vsst(number)];
            let copy = files[at].1.clone();
            files.push((kinds[usize::from(patch.region % 4)].clone(), copy));
        }
        // Without a new checksum.
        _ => patch.apply(&mut files[at].1[place..]),
    }
}

/// A script of damage to a whole store. The first byte chooses the store; most damage is under valid checksums.
pub fn directory(data: &[u8]) {
    let (&first, script) = data.split_first().unwrap_or((&0, &[]));
    let store = &stores()[usize::from(first) % stores().len()];
    let mut files: Vec<(String, Vec<u8>)> = store.iter().map(|f| (f.name.clone(), f.bytes.clone())).collect();
    for patch in patches(script) {
        if files.is_empty() {
            break;
        }
        let at = usize::from(patch.part) % files.len();
        let stored = store.iter().find(|f| f.name == files[at].0);
        let regions = stored.map_or(&[][..], |f| &f.regions);
        match patch.region_of(regions.len()).map(|i| &regions[i]) {
            Some(region) if patch.op < 224 => {
                let bytes = &mut files[at].1;
                if let Some(part) = bytes.get_mut(region.start..region.start + region.len) {
                    patch.apply(part);
                    seal(bytes, region);
                }
            }
            _ => coarse(&patch, &mut files, at),
        }
    }
    let sim = SimEnv::new(3);
    sim.env().fs.create_dir_all(Path::new(DIR)).expect("an empty volume");
    for (name, bytes) in &files {
        sim.write_file(Path::new(DIR).join(name), bytes).expect("memory takes every write");
    }
    let _ = use_store(&sim.env());
}

/// Random scripts for both stores.
pub fn directory_seeds() -> Vec<Vec<u8>> {
    script::seeds().into_iter().enumerate().map(|(i, s)| [&[(i % 2) as u8][..], &s].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_sound_stores() {
        for store in stores() {
            for file in store {
                let mut sealed = file.bytes.clone();
                file.regions.iter().for_each(|region| seal(&mut sealed, region));
                assert!(sealed == file.bytes, "{}", file.name);
            }
            let kinds = |suffix: &str| store.iter().filter(|f| f.name.contains(suffix)).count();
            assert!(kinds("ksst") >= 2 && kinds("log") >= 1 && kinds("MANIFEST") == 1 && kinds("vsst") >= 4);
        }
        let sim = empty_store(valid_family_options(), &log_of(&[])).unwrap();
        use_store(&sim.env()).unwrap();
        let seed = write_batch_seeds().swap_remove(0);
        let payload = &seed[2..2 + usize::from(u16::from_le_bytes([seed[0], seed[1]]))];
        let sim = empty_store(valid_family_options(), &log_of(&[(1, 5, payload)])).unwrap();
        let db = Db::open_in(sim.env(), DIR, options()).unwrap();
        assert!(db.get_cf(&db.column_family("default").unwrap(), b"key2").unwrap().is_none());
    }
}
