use super::*;

/// The fault lasts for its duration from the first failed call, and does not begin before.
#[test]
fn a_lasting_fault_ends_after_its_duration() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    env.clock.sleep_ns(5_000_000_000);
    sim.inject(
        FaultPlan::nth(1, FaultEffect::NoDescriptor).kinds(&[OpKind::Create]).lasting_ns(1_000_000_000),
    );
    let create = |n: u32| {
        env.clock.sleep_ns(300_000_000);
        env.fs.create(format!("/{n}").as_ref(), &CreateOptions::default()).is_ok()
    };
    let made: Vec<bool> = (0..8).map(create).collect();
    assert_eq!(made, [true, false, false, false, false, true, true, true]);
}

#[test]
fn the_kth_matching_operation_fails() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    sim.inject(FaultPlan::nth(1, FaultEffect::Eio).kinds(&[OpKind::Rename, OpKind::Remove]).path("b"));
    settled(&sim, "/a", b"");
    fs.rename(p("/a"), p("/b")).unwrap();
    fs.link(p("/b"), p("/b2")).unwrap();
    assert_eq!(fs.remove(p("/b2")).unwrap_err().kind(), ErrorKind::Io);
    assert!(fs.exists(p("/b2")).unwrap(), "nothing happened");
    fs.remove(p("/b2")).expect("only once");
    assert_eq!(sim.faults_fired(), 1);
    sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).sticky());
    for _ in 0..3 {
        assert_eq!(fs.list(p("/")).unwrap_err().kind(), ErrorKind::NoSpace);
    }
    sim.clear_faults();
    fs.list(p("/")).unwrap();
    assert!(sim.trace().contains("Remove /b2 -> i/o error\n"), "{}", sim.trace());
}

#[test]
fn without_a_descriptor_nothing_is_opened_and_nothing_is_lost() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    let mut file = fs.create(p("/t"), &CreateOptions::default()).unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::NoDescriptor));
    file.append(b"abc").unwrap();
    file.sync(SyncKind::Full).expect("the file is open");
    assert!(fs.sync_dir(p("/")).unwrap_err().lacks_descriptor());
    fs.sync_dir(p("/")).unwrap();
    let after = sim.crash(CrashKind::PowerLoss, 1);
    assert_eq!(after.read_file("/t").unwrap(), b"abc");
}

#[test]
fn failed_appends_leave_a_part() {
    let mut lens: Vec<usize> = (0..60)
        .map(|seed| {
            let sim = SimEnv::new(seed);
            let effect = if seed % 2 == 0 { FaultEffect::Short } else { FaultEffect::Eio };
            sim.inject(FaultPlan::nth(0, effect).kinds(&OpKind::WRITES));
            let mut file = sim.env().fs.create(p("/t"), &CreateOptions::default()).unwrap();
            file.append(&[1; 1000]).unwrap();
            assert_eq!(file.flush().unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(file.sync(SyncKind::Data).unwrap_err().kind(), ErrorKind::Poisoned);
            let len = sim.read_file("/t").unwrap().len();
            assert!(seed % 2 == 1 || (1..1000).contains(&len), "a short write is short");
            len
        })
        .collect();
    lens.sort_unstable();
    lens.dedup();
    assert!(lens.len() > 20 && lens.contains(&0) && lens.contains(&1000));
}

/// Returns all possible contents of the media after the failed sync of two pages.
fn after_failed_sync(then_sync_again: bool) -> Vec<(bool, Vec<u8>)> {
    let mut seen: Vec<(bool, Vec<u8>)> = (0..80)
        .flat_map(|seed| {
            let sim = SimEnv::new(seed);
            let file = in_place(&sim, "/log", 2);
            file.write_at(&filled(1, 1), 0).unwrap();
            file.write_at(&filled(1, 1), PAGE as u64).unwrap();
            sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&OpKind::SYNCS));
            assert_eq!(file.sync_data().unwrap_err().kind(), ErrorKind::Io);
            if then_sync_again {
                file.sync_data().expect("the pages count as clean");
            }
            let sees_new = sim.read_file("/log").unwrap() == [1; 2 * PAGE];
            outcomes(&sim, "/log").into_iter().flatten().map(move |bytes| (sees_new, bytes))
        })
        .collect();
    seen.sort();
    seen.dedup();
    seen
}

#[test]
fn a_failed_sync_keeps_or_loses_bytes_and_is_not_retried() {
    for again in [false, true] {
        let seen = after_failed_sync(again);
        assert!(seen.contains(&(true, vec![1; 2 * PAGE])), "kept");
        assert!(seen.contains(&(true, vec![0; 2 * PAGE])), "lost, though processes see it");
        assert!(seen.contains(&(false, vec![0; 2 * PAGE])), "lost, and processes see that");
        assert!(seen.iter().any(|(_, b)| b[..PAGE] == [0; PAGE] && b[PAGE..] == [1; PAGE]));
    }
}

#[test]
fn rewriting_after_a_failed_sync_makes_bytes_durable() {
    for seed in 0..40 {
        let sim = SimEnv::new(seed);
        let file = in_place(&sim, "/log", 2);
        file.write_at(&filled(2, 1), 0).unwrap();
        sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::SyncData]));
        file.sync_data().unwrap_err();
        file.write_at(&filled(1, 2), 0).unwrap();
        file.sync_data().unwrap();
        for bytes in outcomes(&sim, "/log").into_iter().flatten() {
            assert_eq!(bytes[..PAGE], [2; PAGE]);
        }
    }
}

#[test]
fn a_failed_sync_of_a_directory_loses_names_for_ever() {
    let mut seen: Vec<usize> = (0..60)
        .map(|seed| {
            let sim = SimEnv::new(seed);
            let fs = sim.env().fs;
            (0..3).for_each(|n| drop(written(&sim, &format!("/f{n}"), b"")));
            sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::SyncDir]));
            fs.sync_dir(p("/")).unwrap_err();
            assert_eq!(fs.list(p("/")).unwrap().len(), 3, "still visible");
            fs.sync_dir(p("/")).unwrap();
            let mut left: Vec<usize> = power_losses(&sim).map(|after| after.files().len()).collect();
            left.dedup();
            assert_eq!(left.len(), 1, "decided at the failure");
            left[0]
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
fn a_failed_durable_write_is_not_durable() {
    let mut seen: Vec<Vec<u8>> = (0..40)
        .flat_map(|seed| {
            let sim = SimEnv::new(seed);
            let file = in_place(&sim, "/log", 2);
            sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::WriteDurable]));
            file.write_durable(&filled(2, 1), 0).unwrap_err();
            outcomes(&sim, "/log").into_iter().flatten()
        })
        .collect();
    seen.sort();
    seen.dedup();
    assert!(seen.contains(&vec![0; 2 * PAGE]) && seen.contains(&vec![1; 2 * PAGE]) && seen.len() > 10);
}

#[test]
fn lost_and_misdirected_writes_report_success() {
    let sim = SimEnv::new(3);
    let file = in_place(&sim, "/log", 8);
    sim.inject(FaultPlan::nth(0, FaultEffect::Lost).kinds(&[OpKind::WriteDurable]));
    sim.inject(FaultPlan::nth(1, FaultEffect::Misdirected).kinds(&[OpKind::WriteDurable]));
    file.write_durable(&filled(1, 1), 0).unwrap();
    assert_eq!(sim.read_file("/log").unwrap(), [0; 8 * PAGE]);
    file.write_durable(&filled(1, 2), 0).unwrap();
    let bytes = sim.read_file("/log").unwrap();
    assert_eq!(bytes[..PAGE], [0; PAGE]);
    assert_eq!(bytes.iter().filter(|&&b| b == 2).count(), PAGE);

    let mut table = settled(&sim, "/t", &[1; 2000]);
    sim.inject(FaultPlan::nth(0, FaultEffect::Misdirected).kinds(&[OpKind::Append]));
    table.append(&[2; 600]).unwrap();
    table.sync(SyncKind::Full).unwrap();
    let bytes = sim.read_file("/t").unwrap();
    assert_eq!((bytes.len(), &bytes[2000..]), (2600, &[0; 600][..]));
    assert_eq!(bytes.iter().filter(|&&b| b == 2).count(), 600);

    sim.inject(FaultPlan::nth(0, FaultEffect::Lost).kinds(&[OpKind::Sync]));
    table.append(&[3; 600]).unwrap();
    table.sync(SyncKind::Full).unwrap();
    assert!(outcomes(&sim, "/t").iter().flatten().any(|bytes| bytes.len() == 2600), "the sync did nothing");
}

#[test]
fn injected_read_faults_fail_or_flip_bits() {
    let sim = SimEnv::new(3);
    settled(&sim, "/t", &[0; 100]);
    let file = sim.env().fs.open(p("/t"), Access::Direct).unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::Short).kinds(&[OpKind::Read]));
    sim.inject(FaultPlan::nth(1, FaultEffect::FlippedRead).kinds(&[OpKind::Read]));
    let mut buf = [0; 100];
    assert_eq!(file.read_at(&mut buf, 0).unwrap_err().kind(), ErrorKind::Io);
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!(buf.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!(buf, [0; 100]);
}

#[test]
fn files_can_be_damaged() {
    let sim = SimEnv::new(3);
    settled(&sim, "/a", &[1; 5000]);
    settled(&sim, "/b", &[2; 300]);
    let older = sim.fork(0);
    sim.flip_bit("/a", 4999, 1).unwrap();
    assert_eq!(sim.read_file("/a").unwrap()[4998..], [1, 3]);
    assert_eq!(sim.flip_bit("/a", 5000, 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    sim.restore_block(&older, "/a", 4000, 1000).unwrap();
    assert_eq!(sim.state_hash(), older.state_hash());
    sim.overwrite("/a", 10, b"zz").unwrap();
    sim.copy_block(("/b", 0), ("/a", 512), 200).unwrap();
    let bytes = sim.read_file("/a").unwrap();
    assert_eq!((&bytes[9..13], bytes[512], bytes[711], bytes[712]), (&[1, b'z', b'z', 1][..], 2, 2, 1));
    sim.swap_files("/a", "/b").unwrap();
    assert_eq!(sim.read_file("/a").unwrap(), [2; 300]);
    sim.set_file_len("/a", 7).unwrap();
    assert_eq!(outcomes(&sim, "/a"), [Some(vec![2; 7])], "on the media too");
    sim.erase("/b").unwrap();
    assert_eq!(outcomes(&sim, "/b"), [None]);
    sim.write_file("/c", b"new").unwrap();
    assert_eq!(outcomes(&sim, "/c"), [Some(b"new".to_vec())]);
    assert_eq!(older.files().len(), 2, "a fork is its own");
}

#[test]
fn an_unsupported_call_changes_nothing() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    let path = Path::new("/file");
    drop(fs.create(path, &CreateOptions::default()).unwrap());
    sim.inject(FaultPlan::nth(0, FaultEffect::Unsupported).kinds(&[OpKind::Link]));
    let e = fs.link(path, Path::new("/other")).unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::Unsupported, Some(Path::new("/other"))));
    assert!(!fs.exists(Path::new("/other")).unwrap());
    fs.link(path, Path::new("/other")).unwrap();
}
