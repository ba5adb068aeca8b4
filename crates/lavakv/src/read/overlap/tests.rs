use super::*;
use io::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use io::{Access, CreateOptions, ReadFile, SyncKind};
use std::path::Path;
use std::sync::Arc;
use table::{Extent, Source};

const FILE_LEN: usize = 64 << 10;

fn content(number: u64) -> Vec<u8> {
    (0..FILE_LEN).map(|at| (at as u64 * 31 + number) as u8).collect()
}

fn files(sim: &SimEnv) -> Vec<Arc<dyn ReadFile>> {
    let fs = sim.env().fs;
    fs.create_dir_all(Path::new("/files")).unwrap();
    let file = |number: u64| {
        let path = Path::new("/files").join(number.to_string());
        let mut file = fs.create(&path, &CreateOptions::default()).unwrap();
        file.append(&content(number)).unwrap();
        file.sync(SyncKind::Data).unwrap();
        drop(file);
        fs.open(&path, Access::Buffered).unwrap()
    };
    (0..3).map(file).collect()
}

fn wants(files: &[Arc<dyn ReadFile>], role: Role, count: u64) -> Vec<Want> {
    let want = |nth: u64| {
        let extent = Extent { file: nth * 3 / count, offset: nth * 997 % 60_000, len: 100 + nth };
        Want { file: files[extent.file as usize].clone(), extent, role }
    };
    let mut wants: Vec<Want> = (0..count).map(want).collect();
    wants.sort_unstable_by_key(|want| want.extent);
    wants
}

/// How many of the wants have their bytes, and how many an error; none is handed over twice.
fn read_all(sim: &SimEnv, files: &[Arc<dyn ReadFile>]) -> (usize, usize) {
    let mut fetched = Fetched::default();
    let mut reads = Overlap::new(ReadQueue::new(&sim.env()));
    let (first, second) = (wants(files, Role::Inline, 40), wants(files, Role::Record, 70));
    reads.begin(&first);
    let (mut came, mut failed, mut was_amid) = (Vec::new(), 0, false);
    loop {
        let landed = reads.land(&mut fetched);
        if landed.is_empty() {
            break;
        }
        // More is wanted as soon as something is there, while the rest is in flight.
        if came.is_empty() {
            was_amid = landed.len() < first.len();
            reads.begin(&second[50..]);
        }
        for want in landed {
            let Extent { file, offset, len } = want.extent;
            match fetched.bytes(&want.file, want.extent, want.role) {
                Ok(bytes) => assert_eq!(bytes[..], content(file)[offset as usize..][..len as usize]),
                Err(_) => failed += 1,
            }
            came.push(want.extent);
        }
    }
    assert!(was_amid, "what is read first is told first");
    assert_eq!(came.len(), 60, "each is handed over");
    (came.len() - failed, failed)
}

#[test]
fn what_is_wanted_later_is_read_beside_the_rest() {
    for seed in 0..20 {
        let sim = SimEnv::new(seed);
        assert_eq!(read_all(&sim, &files(&sim)), (60, 0));
    }
}

#[test]
fn a_read_that_fails_takes_nothing_else_with_it() {
    for nth in 0..5 {
        let sim = SimEnv::new(nth);
        let files = files(&sim);
        sim.inject(FaultPlan::nth(nth, FaultEffect::Eio).kinds(&[OpKind::Read]));
        // Once is met by the read that is made again.
        assert_eq!(read_all(&sim, &files), (60, 0), "the {nth}th read");
        sim.inject(FaultPlan::nth(nth, FaultEffect::Eio).kinds(&[OpKind::Read]).sticky());
        let (_, failed) = read_all(&sim, &files);
        assert!(failed > 0, "from the {nth}th read on");
    }
}

#[test]
fn a_queue_is_worth_it_where_some_are_ahead_of_others() {
    let sim = SimEnv::new(1);
    let files = files(&sim);
    let (blocks, records) = (wants(&files, Role::References, 40), wants(&files, Role::Record, 40));
    assert!(!is_worth_it(&blocks) && !is_worth_it(&records), "one round, then another");
    assert!(is_worth_it(&[&blocks[..10], &records[..30]].concat()));
    assert!(!is_worth_it(&[&blocks[..3], &records[..3]].concat()), "too few");
}
