use super::*;
use crate::check::{GroupToCheck, LogCheck, LogFindings};
use crate::durability::Durability;
use crate::groups::PreparedGroup;
use crate::history::History;
use crate::page::group_len_needed;
use crate::recover::{LogGroup, LoggedBatch, RecoveryMode, recover_lane};
use crate::store_model::{dir, options, path_of, store, uid_of};
use crate::tenant::{Spans, TenantId};
use crate::wal::{Wal, WalOptions};
use base::ErrorKind;
use io::sim::SimEnv;
use io::{Access, Env, Rng};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A lane that keeps records, and its appended batches.
struct Life {
    sim: SimEnv,
    rng: Rng,
    wal: Wal,
    groups: BTreeMap<u64, Arc<dyn InPlaceFile>>,
    batches: Vec<(LogAddress, Vec<u8>)>,
}

fn prepared(env: &Env, ltn: u64, len: u64) -> PreparedGroup {
    let file = env.fs.create_in_place(&path_of(ltn), len, Access::Direct).unwrap();
    env.fs.sync_dir(dir()).unwrap();
    PreparedGroup { ltn, uid: uid_of(ltn), file }
}

impl Life {
    fn new(seed: u64) -> Life {
        let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
        sim.set_block_len(512 << rng.below(4));
        sim.env().fs.create_dir_all(dir()).unwrap();
        sim.env().fs.sync_dir(std::path::Path::new("/")).unwrap();
        let options = WalOptions { lane: Lane::LOG, ..options() };
        let first = prepared(&sim.env(), 5, options.group_len);
        let groups = BTreeMap::from([(5, first.file.clone())]);
        let start = rng.below(1 << 40);
        let wal = Wal::start(&sim.env(), dir(), options, store(), start, first, History::default()).unwrap();
        Life { sim, rng, wal, groups, batches: Vec::new() }
    }

    fn add_group(&mut self, len: u64) {
        let ltn = self.groups.keys().next_back().unwrap() + 1 + self.rng.below(3);
        let group = prepared(&self.sim.env(), ltn, len);
        self.groups.insert(ltn, group.file.clone());
        self.wal.content().add_group(group).unwrap();
    }

    fn append(&mut self) {
        let len = [20, 500, 4000, 9000, 60_000][self.rng.below(5) as usize];
        let mut bytes = vec![0; 1 + self.rng.below(len) as usize];
        self.rng.fill(&mut bytes);
        let durability = if self.rng.one_in(2) { Durability::Durable } else { Durability::Buffered };
        let seq = 1 + self.batches.len() as u64;
        let (position, place) = loop {
            match self.wal.append_placed(TenantId(3), &[&bytes], (seq, seq), durability, 0) {
                Err(e) if e.kind() == ErrorKind::Busy => {
                    self.add_group(group_len_needed(bytes.len()).max(12 * PAGE as u64));
                }
                placed => break placed.unwrap(),
            }
        };
        self.batches.push((place, bytes));
        if durability == Durability::Durable && self.rng.one_in(2) {
            self.wal.syncer().sync(position).unwrap();
        }
    }

    fn group(&self, ltn: u64) -> ReadGroup<'_> {
        let file = &*self.groups[&ltn];
        ReadGroup { store: store(), lane: Lane::LOG, ltn, uid: uid_of(ltn), file }
    }

    /// Reads like a caller that does not know where the pages are.
    fn read(&self, place: LogAddress, len: usize) -> Result<Vec<u8>> {
        let mut in_memory = Vec::new();
        let in_file = self.wal.content().read_ring(place, len, &mut in_memory).unwrap_or(len);
        let mut out = Vec::new();
        if in_file > 0 {
            self.group(place.ltn).read(place, in_file, &mut out)?;
        }
        out.extend_from_slice(&in_memory);
        Ok(out)
    }

    /// Checks a random part of a random batch.
    fn check_one(&mut self) -> u32 {
        let (place, bytes) = &self.batches[self.rng.below(self.batches.len() as u64) as usize];
        let start = self.rng.below(bytes.len() as u64) as usize;
        let len = 1 + self.rng.below((bytes.len() - start) as u64) as usize;
        let at = place.at(start);
        assert!(self.read(at, len).unwrap() == bytes[start..start + len], "{len} bytes from {at:?}");
        at.pages(len)
    }
}

#[test]
fn any_part_of_a_batch_is_readable_by_its_position() {
    let (mut crossing, mut alone) = (0, 0);
    for seed in 0..12 {
        let mut life = Life::new(seed);
        life.append();
        for _ in 0..120 {
            match life.rng.below(20) {
                0 => drop(life.wal.deferred().write_out().unwrap()),
                1 => drop(life.wal.persist_watermark().unwrap()),
                2 if life.wal.content().groups_wanted() > 0 => life.add_group(12 * PAGE as u64),
                3 if life.wal.content().groups_wanted() == 0 => drop(life.wal.roll().unwrap()),
                _ => life.append(),
            }
            for _ in 0..6 {
                let counter = if life.check_one() > 1 { &mut crossing } else { &mut alone };
                *counter += 1;
            }
        }
    }
    assert!(crossing > 1000 && alone > 1000, "{crossing} {alone}");
}

/// Recovery and a scan of a single group return the same places as the append.
#[test]
fn recovery_and_scans_return_the_appended_positions() {
    for seed in 0..6 {
        let mut life = Life::new(seed);
        (0..100).for_each(|_| life.append());
        life.wal.close().unwrap();
        let mut found = Vec::new();
        let mut take = |batch: &LoggedBatch<'_>| {
            assert_eq!((batch.tenant, batch.first_seq), (TenantId(3), found.len() as u64 + 1));
            found.push((batch.place, batch.bytes.to_vec()));
            Ok(())
        };
        let group = |(&ltn, file): (&u64, &Arc<dyn InPlaceFile>)| LogGroup {
            ltn,
            uid: Some(uid_of(ltn)),
            file: file.clone(),
            sealed_end: None,
            begin: None,
        };
        let groups: Vec<LogGroup> = life.groups.iter().map(group).collect();
        let (env, of) = (life.sim.env(), (store(), Lane::LOG));
        recover_lane(&env, dir(), of, &groups, RecoveryMode::ReadOnly, &mut take).unwrap();
        assert!(found == life.batches);
        let mut scanned = Vec::new();
        for group in life.wal.content().groups() {
            let file = life.groups[&group.ltn].clone();
            let (ltn, uid, filled) = (group.ltn, Some(uid_of(group.ltn)), group.filled);
            let mut check = LogCheck::of_lane(
                store(),
                Lane::LOG,
                vec![GroupToCheck { ltn, uid, file, begins: 0, filled }],
            );
            let mut findings = LogFindings::default();
            let mut take = |batch: &LoggedBatch<'_>| scanned.push((batch.place, batch.bytes.to_vec()));
            while check.step(&mut findings, &mut take) {}
            assert!(findings.errors.is_empty(), "{findings:?}");
        }
        assert!(scanned == life.batches);
    }
}

/// A wrong page costs only the bytes in it.
#[test]
fn a_damaged_page_is_reported_by_file_and_offset() {
    let mut life = Life::new(3);
    while life.batches.len() < 40 {
        life.append();
    }
    life.wal.persist_watermark().unwrap();
    let longest = life.batches.iter().max_by_key(|(_, bytes)| bytes.len()).cloned();
    let (place, bytes) = longest.unwrap();
    let pages = place.pages(bytes.len());
    assert!(pages > 3);
    let path = path_of(place.ltn);
    let file = life.sim.read_file(&path).unwrap();
    let hit = place.offset() as usize + PAGE;
    for (what, at, with) in [
        ("a bit", hit + 200, vec![file[hit + 200] ^ 1]),
        ("another page of the group", hit, file[hit + PAGE..hit + 2 * PAGE].to_vec()),
        ("nothing", hit, vec![0; PAGE]),
    ] {
        let mut damaged = file.clone();
        damaged[at..at + with.len()].copy_from_slice(&with);
        life.sim.write_file(&path, &damaged).unwrap();
        let group = life.group(place.ltn);
        let mut out = vec![9];
        let e = group.read(place, bytes.len(), &mut out).unwrap_err();
        assert_eq!(
            (e.kind(), e.file(), e.offset()),
            (ErrorKind::Corruption, Some(&*path), Some(hit as u64)),
            "{what}"
        );
        assert_eq!(out, [9], "{what}: nothing is appended");
        let room = PAGE - usize::from(place.pos);
        group.read(place, room, &mut out).unwrap();
        assert!(out[1..] == bytes[..room], "{what}");
    }
    // A group of another identity, lane or store does not match.
    life.sim.write_file(&path, &file).unwrap();
    let group = life.group(place.ltn);
    for other in [
        ReadGroup { uid: uid_of(99), ..group },
        ReadGroup { lane: Lane::FIRST, ..group },
        ReadGroup { store: uid_of(1), ..group },
        ReadGroup { ltn: place.ltn + 1, ..group },
    ] {
        assert_eq!(other.read(place, 1, &mut Vec::new()).unwrap_err().kind(), ErrorKind::Corruption);
    }
    // There is nothing behind the appended batches either.
    let end = LogAddress { block: (file.len() / BLOCK_LEN_MIN) as u32 - 8, pos: 4000, ..place };
    assert_eq!(group.read(end, 90, &mut Vec::new()).unwrap_err().kind(), ErrorKind::Corruption);
    let behind = LogAddress { block: (file.len() / BLOCK_LEN_MIN) as u32 + 8, ..place };
    let e = group.read(behind, 90, &mut Vec::new()).unwrap_err();
    assert!(e.is_corruption() && e.message().contains("ends before byte") && e.file().is_some(), "{e}");
    group.read(place, bytes.len(), &mut Vec::new()).unwrap();
}

#[test]
fn a_group_is_closed_before_it_is_full() {
    let mut life = Life::new(8);
    assert!(!life.wal.roll().unwrap(), "there is nothing in it");
    life.append();
    assert_eq!(life.wal.roll().unwrap_err().kind(), ErrorKind::Busy);
    life.add_group(12 * PAGE as u64);
    assert!(life.wal.roll().unwrap());
    assert!(!life.wal.roll().unwrap(), "the next one is empty");
    let floors = [(TenantId(3), 2)];
    assert!(life.wal.content().release_groups_below(&floors).is_empty(), "its successor has no page yet");
    life.wal.persist_watermark().unwrap();
    let released = life.wal.content().release_groups_below(&floors);
    let (ltn, spans) = (released[0].ltn, released[0].seqs.clone());
    let mut expected = Spans::default();
    expected.add(TenantId(3), 1, 1);
    assert_eq!((released.len(), ltn, spans), (1, 5, expected));
    let (place, bytes) = &life.batches[0];
    let last = place.at(bytes.len() - 1);
    let used = last.offset() + u64::from(last.pos) + 1;
    let block = life.groups[&5].block_len() as u64;
    assert_eq!(released[0].filled, used.next_multiple_of(block));
}

/// A file that is unreadable behind some offset, which was being written when the power failed.
#[derive(Debug)]
struct Torn {
    file: Arc<dyn InPlaceFile>,
    end: u64,
}

impl InPlaceFile for Torn {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn block_len(&self) -> usize {
        self.file.block_len()
    }

    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_at(data, offset)
    }

    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_durable(data, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if offset + buf.len() as u64 > self.end {
            return Err(Error::new(ErrorKind::Io, "a sector that cannot be read"));
        }
        self.file.read_at(buf, offset)
    }

    fn path(&self) -> &std::path::Path {
        self.file.path()
    }
}

/// The last page of a batch may be short, and an unreadable block behind it does not cost the
/// batch.
#[test]
fn a_batch_before_an_unreadable_block_is_read() {
    let mut short = 0;
    for seed in 0..12 {
        let mut life = Life::new(seed);
        (0..60).for_each(|_| life.append());
        life.wal.close().unwrap();
        for (place, bytes) in &life.batches {
            let file = life.groups[&place.ltn].clone();
            let most = place.offset() + u64::from(place.pages(bytes.len())) * PAGE as u64;
            let ends = (place.offset()..=most).step_by(file.block_len()).skip(1);
            let reads = ends.map(|end| {
                let torn = Torn { file: file.clone(), end };
                let (mut out, group) = (Vec::new(), life.group(place.ltn));
                let read = ReadGroup { file: &torn, ..group }.read(*place, bytes.len(), &mut out);
                assert!(if read.is_ok() { out == *bytes } else { out.is_empty() });
                assert!(read.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::Io), "{read:?}");
                read.is_ok()
            });
            let reads: Vec<bool> = reads.collect();
            assert!(reads.is_sorted(), "{reads:?}");
            assert!(most > file.len() || reads.last() == Some(&true), "{reads:?}");
            short += u32::from(reads.iter().filter(|read| **read).count() > 1);
        }
    }
    assert!(short > 100, "{short}");
}
