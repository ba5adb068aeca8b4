//! Damage other than a crash: flipped, misplaced, missing and forged pages.

use super::*;
use crate::page::{BatchHeader, Form, FragmentKind, encode_fragment};
use crate::store_model::{Manifest, dir, owner, path_of};
use base::ErrorKind;
use io::Access;
use io::sim::SimEnv;

/// Returns a store that was closed cleanly after two lives, its manifest and its batches.
fn closed_store(lane: Lane, seed: u64) -> (SimEnv, Manifest, crate::store_model::Replayed) {
    let mut caller = Caller::on(lane, seed, STARTS[(seed % 2) as usize]);
    let life = |caller: &mut Caller, n: usize| {
        for i in 0..n {
            let len = [100, 3000, 900, 9000, 50][i % 5];
            caller.append(len, crate::durability::Durability::Durable).unwrap();
            if i % 3 == 0 {
                caller.sync(caller.wal.content().last_position().unwrap()).unwrap();
            }
        }
    };
    life(&mut caller, 30);
    let op = caller.sim.op_count();
    let kind = CrashKind::ProcessKill;
    let expected = caller.expectation(op, kind);
    let sim = caller.sim.crash(kind, seed);
    let (report, replayed) = rw(&sim, &expected);
    let kept = expected.check(&replayed);
    let mut caller = expected.resume(sim, &report, kept, seed);
    life(&mut caller, 30);
    caller.close().unwrap();
    let manifest = caller.manifests.last().unwrap().1.clone();
    assert!(manifest.groups.len() >= 4, "{manifest:?}");
    let all = caller.written.iter().map(|w| (w.seq, w.payload.clone())).collect();
    (caller.sim.fork(0), manifest, all)
}

/// Returns the places of all pages, in log order.
fn pages(sim: &SimEnv, manifest: &Manifest) -> Vec<(u64, u64, PageHeader)> {
    let mut places = Vec::new();
    for &ltn in manifest.groups.keys() {
        let bytes = sim.read_file(path_of(ltn)).unwrap();
        let mut at = 0;
        while at < bytes.len() {
            at += match page::read_closed(&bytes[at..], owner(ltn), ltn) {
                Verdict::Valid(header) => {
                    places.push((ltn, at as u64, header));
                    header.page_len()
                }
                _ => manifest.lane.unit(),
            };
        }
    }
    places
}

/// Recovery must refuse, with the file, or return everything. Returns true if it refuses.
fn refused_or_harmless(sim: &SimEnv, manifest: &Manifest, all: &crate::store_model::Replayed) -> bool {
    refusal(sim, manifest, all).is_some()
}

fn refusal(sim: &SimEnv, manifest: &Manifest, all: &crate::store_model::Replayed) -> Option<Error> {
    match recover_all(sim, manifest, RecoveryMode::ReadOnly) {
        Ok((_, replayed)) => {
            assert!(replayed == *all, "{} of {} batches and no word", replayed.len(), all.len());
            None
        }
        Err(e) => {
            assert!(e.is_corruption() && e.file().is_some() && e.offset().is_some(), "{e}");
            Some(e)
        }
    }
}

#[test]
fn flips_in_confirmed_pages_are_refused_where_they_are() {
    let mut rng = Rng::new(1);
    for (seed, lane) in (0..2).flat_map(|seed| Lane::ALL.map(|lane| (seed, lane))) {
        let (sim, manifest, all) = closed_store(lane, seed);
        assert!(!refused_or_harmless(&sim, &manifest, &all));
        let places = pages(&sim, &manifest);
        for (n, (ltn, offset, header)) in places.iter().enumerate() {
            let len = header.page_len() as u64;
            let spots = (0..page::HEADER_LEN as u64).step_by(4).chain((0..16).map(|_| rng.below(len)));
            for at in spots.collect::<Vec<_>>() {
                let bit = rng.below(8) as u32;
                sim.flip_bit(path_of(*ltn), offset + at, bit).unwrap();
                let refusal = refusal(&sim, &manifest, &all);
                let place = refusal.as_ref().and_then(|e| Some((e.file()?.to_owned(), e.offset()?)));
                // The last page, which only confirms the others, has no confirmation.
                let expected = (n + 1 < places.len()).then(|| (path_of(*ltn), *offset));
                assert_eq!(place, expected, "page {n} of group {ltn}, byte {at}");
                sim.flip_bit(path_of(*ltn), offset + at, bit).unwrap();
            }
        }
    }
}

#[test]
fn misplaced_stale_and_missing_pages_are_refused() {
    Lane::ALL.into_iter().for_each(misplaced_stale_and_missing);
}

fn misplaced_stale_and_missing(lane: Lane) {
    let (sim, manifest, all) = closed_store(lane, 1);
    let places = pages(&sim, &manifest);
    let page_at = |(ltn, offset, header): &(u64, u64, PageHeader)| {
        sim.read_file(path_of(*ltn)).unwrap()[*offset as usize..][..header.page_len()].to_vec()
    };
    let confirmed = &places[..places.len() - 1];
    let mut rng = Rng::new(2);
    for place in confirmed {
        let (ltn, offset, _) = place;
        let good = page_at(place);
        let other = &confirmed[rng.below(confirmed.len() as u64) as usize];
        for mut bad in [vec![0; PAGE], page_at(other), good.iter().map(|b| !b).collect()] {
            bad.resize(good.len(), 0);
            sim.overwrite(path_of(*ltn), *offset, &bad).unwrap();
            assert_eq!(refused_or_harmless(&sim, &manifest, &all), bad != good);
        }
        sim.overwrite(path_of(*ltn), *offset, &good).unwrap();
    }
    // Whole files: emptied, swapped, truncated. Only the last group itself proves the existence of
    // its pages.
    let ltns: Vec<u64> = manifest.groups.keys().copied().collect();
    for (i, &ltn) in ltns[..ltns.len() - 1].iter().enumerate() {
        let good = sim.read_file(path_of(ltn)).unwrap();
        let other = sim.read_file(path_of(ltns[i + 1])).unwrap();
        for bad in [vec![0; good.len()], other, good[..PAGE].to_vec(), Vec::new()] {
            sim.write_file(path_of(ltn), &bad).unwrap();
            assert!(refused_or_harmless(&sim, &manifest, &all), "group {ltn}");
        }
        sim.write_file(path_of(ltn), &good).unwrap();
    }
    assert!(!refused_or_harmless(&sim, &manifest, &all));
}

/// Only the watermark page confirms the last batch, which suffices.
#[test]
fn the_last_batch_is_confirmed_after_a_close() {
    let mut caller = Caller::new(4, 1);
    caller.put(100).unwrap();
    caller.close().unwrap();
    let manifest = caller.manifests.last().unwrap().1.clone();
    caller.sim.overwrite(path_of(1), 0, &[0; PAGE]).unwrap();
    let e = recover_all(&caller.sim, &manifest, RecoveryMode::ReadWrite).unwrap_err();
    assert_eq!((e.is_corruption(), e.offset()), (true, Some(0)));
}

#[test]
fn an_unverified_tail_is_measured() {
    let mut caller = Caller::new(4, 1);
    caller.put(100).unwrap();
    caller.put(9000).unwrap();
    let manifest = caller.manifests.last().unwrap().1.clone();
    let (report, _) = recover_all(&caller.sim, &manifest, RecoveryMode::ReadOnly).unwrap();
    assert_eq!(report.unverified_tail_bytes, 3 * PAGE as u64);
    assert_eq!(report.next_lpn, 5);
    assert_eq!(report.sealed, Some((1, 5)));
}

#[test]
fn damaged_staging_files_are_refused_or_have_no_effect() {
    let mut rng = Rng::new(8);
    let (sim, manifest, all) = closed_store(Lane::FIRST, 0);
    let staging = dir().join(STAGING_NAME);
    let held = sim.read_file(&staging).unwrap();
    for i in 0..60 {
        let mut bytes = held.clone();
        bytes.resize(rng.below(9 * PAGE as u64) as usize, 1);
        let n = bytes.len() as u64;
        for _ in 0..if n > 0 { i } else { 0 } {
            bytes[rng.below(n) as usize] = rng.next_u64() as u8;
        }
        sim.write_file(&staging, &bytes).unwrap();
        assert!(!refused_or_harmless(&sim, &manifest, &all));
    }
    sim.env().fs.remove(&staging).unwrap();
    assert!(!refused_or_harmless(&sim, &manifest, &all));
}

#[test]
fn pages_of_a_later_format_are_not_treated_as_torn() {
    let (sim, manifest, _) = closed_store(Lane::FIRST, 0);
    let (ltn, offset, header) = pages(&sim, &manifest)[0];
    let mut page = [0; PAGE];
    page.copy_from_slice(&sim.read_file(path_of(ltn)).unwrap()[..PAGE]);
    page[8] = 9;
    page::close(&mut page, header.used, header.durable_end, header.owner, header.lpn);
    sim.overwrite(path_of(ltn), offset, &page).unwrap();
    let e = recover_all(&sim, &manifest, RecoveryMode::ReadWrite).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
}

/// Pages with valid checksums and absurd contents, in files and in staging.
#[test]
fn forged_pages_never_panic_recovery() {
    let mut rng = Rng::new(77);
    for round in 0..400 {
        let sim = SimEnv::new(round);
        let env = sim.env();
        env.fs.create_dir_all(dir()).unwrap();
        let mut manifest = Manifest::default();
        for ltn in [1, 2, 4] {
            let bytes: Vec<u8> = (0..6).flat_map(|i| forged(&mut rng, ltn, i, true)).collect();
            env.fs.create_in_place(&path_of(ltn), bytes.len() as u64, Access::Direct).unwrap();
            sim.overwrite(path_of(ltn), 0, &bytes).unwrap();
            let sealed = [None, None, Some(rng.below(9)), Some(u64::MAX)][rng.below(4) as usize];
            manifest.groups.insert(ltn, sealed);
        }
        let staging: Vec<u8> = (0..6).flat_map(|i| forged(&mut rng, 1 + i % 4, i, false)).collect();
        sim.write_file(dir().join(STAGING_NAME), &staging).unwrap();
        for mode in [RecoveryMode::ReadOnly, RecoveryMode::ReadWrite] {
            let groups = crate::store_model::groups(&sim, &manifest);
            let recovered =
                recover(&env, dir(), crate::store_model::store(), &groups, mode, &mut |_, _, _| Ok(()));
            if let Err(e) = recovered {
                assert!(matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{e}");
            }
        }
        for ltn in [1, 2, 4] {
            let file = env.fs.open_in_place(&path_of(ltn), Access::Direct).unwrap();
            let mut text = String::new();
            crate::dump_group(&*file, &mut text).unwrap();
        }
    }
}

fn forged(rng: &mut Rng, ltn: u64, i: u64, closed: bool) -> [u8; PAGE] {
    let odd = |rng: &mut Rng, usual: u64| match rng.below(12) {
        0 => rng.next_u64(),
        1 => rng.below(30),
        2 => u64::MAX,
        _ => usual,
    };
    let lpn = odd(rng, 10 * ltn + i).min(page::LPN_LIMIT);
    let header = PageHeader {
        form: Form::Open,
        used: 0,
        prev_used: if i == 0 { 0 } else { rng.next_u64() as u16 },
        owner: owner(ltn),
        ltn: odd(rng, ltn),
        lpn,
        first_lpn: odd(rng, 10 * ltn),
        durable_end: rng.below(2) * rng.below(lpn.saturating_add(1)),
        prev_ltn: odd(rng, ltn - 1),
        prev_end: rng.below(20),
        witness_edit: rng.next_u64(),
        stream: [None, Some(page::Stream::default())][rng.below(2) as usize],
    };
    let mut page = [0; PAGE];
    header.encode_open(&mut page);
    let mut pos = page::HEADER_LEN;
    for _ in 0..rng.below(5) {
        let kinds = [FragmentKind::Full, FragmentKind::First, FragmentKind::Middle, FragmentKind::Last];
        let kind = kinds[rng.below(4) as usize];
        let end = pos + kind.header_len() + rng.below(600) as usize;
        let len = odd(rng, (end - pos - kind.header_len()) as u64) as u32;
        let batch = BatchHeader {
            tenant: TenantId(rng.below(3) as u8 / 2),
            first_seq: odd(rng, 5),
            seq_span: rng.next_u64() as u32,
            len,
        };
        encode_fragment(&mut page[pos..end], kind, batch, header.owner, lpn, pos);
        pos = end;
    }
    if closed {
        page::close(&mut page, pos as u16, header.durable_end.min(lpn), header.owner, lpn);
    }
    page
}
