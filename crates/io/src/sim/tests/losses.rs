use super::*;

#[test]
fn synced_bytes_stay_and_appended_ones_may_go() {
    let sim = SimEnv::new(1);
    let mut file = settled(&sim, "/t", &[1; 6000]);
    file.append(&[2; 9000]).unwrap();
    file.flush().unwrap();
    let seen: Vec<Vec<u8>> = outcomes(&sim, "/t").into_iter().map(|o| o.expect("name is durable")).collect();
    assert!(seen.iter().all(|bytes| bytes.len() >= 6000 && bytes[..6000] == [1; 6000]));
    assert!(seen.iter().all(|bytes| bytes.len() <= 4 * PAGE), "up to the end of the page");
    assert!(seen.iter().any(|bytes| bytes.len() == 4 * PAGE && bytes[15_000..].iter().all(|&b| b == 0)));
    assert!(seen.iter().any(|bytes| bytes.len() == 6000), "all of it lost");
    assert!(seen.iter().any(|bytes| bytes.len() == 15_000 && bytes[6000..] == [2; 9000]), "all of it kept");
    assert!(seen.iter().any(|b| b.len() % SECTOR == 0 && (6001..15_000).contains(&b.len())), "length torn");
    let zeros_below_len = |b: &Vec<u8>| b.len() > 8000 && b[6000..].contains(&0);
    assert!(seen.iter().any(zeros_below_len), "the length landed, the data did not");
    // Whole sectors: the sector shared by the two appends has all of the second or none of it.
    assert!(seen.iter().all(|b| b[6000..b.len().min(6144)].windows(2).all(|w| w[0] == w[1])));
    let after_sync = {
        file.sync(SyncKind::Data).unwrap();
        outcomes(&sim, "/t")
    };
    assert_eq!(after_sync.len(), 1);
}

#[test]
fn new_blocks_may_show_bytes_of_other_files() {
    let sim = SimEnv::new(1);
    settled(&sim, "/other", &[9; 3 * PAGE]);
    let mut file = settled(&sim, "/t", b"");
    file.append(&[2; 8 * PAGE]).unwrap();
    file.flush().unwrap();
    let seen = outcomes(&sim, "/t");
    assert!(seen.iter().flatten().any(|bytes| bytes.contains(&9)));
}

#[test]
fn a_name_needs_a_sync_of_its_directory() {
    let sim = SimEnv::new(1);
    let mut file = written(&sim, "/t", b"data");
    file.sync(SyncKind::Full).unwrap();
    let seen = outcomes(&sim, "/t");
    assert_eq!(seen, [None, Some(b"data".to_vec())], "the file is synced, its name is not");
    sim.env().fs.sync_dir(p("/")).unwrap();
    assert_eq!(outcomes(&sim, "/t"), [Some(b"data".to_vec())]);
}

#[test]
fn a_durable_name_does_not_make_the_bytes_durable() {
    let sim = SimEnv::new(1);
    drop(written(&sim, "/t", b"data"));
    sim.env().fs.sync_dir(p("/")).unwrap();
    let seen = outcomes(&sim, "/t");
    assert!(seen.contains(&Some(Vec::new())) && seen.contains(&Some(b"data".to_vec())));
    assert!(!seen.contains(&None));
}

#[test]
fn renames_are_atomic_and_volatile() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    settled(&sim, "/CURRENT", b"old");
    settled(&sim, "/tmp", b"new");
    fs.rename(p("/tmp"), p("/CURRENT")).unwrap();
    let both = |sim: &SimEnv| (sim.read_file("/CURRENT").unwrap(), sim.read_file("/tmp").ok());
    let mut seen: Vec<_> = power_losses(&sim).map(|after| both(&after)).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, [(b"new".to_vec(), None), (b"old".to_vec(), Some(b"new".to_vec()))]);
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(outcomes(&sim, "/CURRENT"), [Some(b"new".to_vec())]);
}

#[test]
fn renames_between_directories_happen_in_both_or_neither() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    fs.create_dir_all(p("/a")).unwrap();
    fs.create_dir_all(p("/b")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    settled(&sim, "/a/x", b"x");
    drop(written(&sim, "/b/before", b""));
    fs.rename(p("/a/x"), p("/b/x")).unwrap();
    drop(written(&sim, "/a/after", b""));
    let names = |sim: &SimEnv| (sim.read_file("/a/x").is_ok(), sim.read_file("/b/x").is_ok());
    let mut seen: Vec<_> = power_losses(&sim).map(|after| names(&after)).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, [(false, true), (true, false)]);
    fs.sync_dir(p("/b")).unwrap();
    assert!(power_losses(&sim).all(|after| names(&after) == (false, true)), "one sync commits both halves");
}

#[test]
fn a_prefix_or_any_subset_of_directory_changes_survives() {
    let sim = SimEnv::new(1);
    for n in 0..3 {
        drop(written(&sim, &format!("/f{n}"), b""));
    }
    sim.env().fs.remove(p("/f0")).unwrap();
    let names = |after: SimEnv| after.files().iter().map(|(path, _)| path.display().to_string()).collect();
    let losses = |policy| (0..1_000).map(move |seed| (CrashKind::PowerLossWith(policy), seed));
    let all_of = |policy| -> Vec<String> {
        let mut seen: Vec<String> = losses(policy).map(|(kind, seed)| names(sim.crash(kind, seed))).collect();
        seen.sort();
        seen.dedup();
        seen
    };
    // Any combination of the other changes; a name that was made and removed may exist or not.
    let any = ["", "/f0", "/f0/f1", "/f0/f1/f2", "/f0/f2", "/f1", "/f1/f2", "/f2"];
    assert_eq!(all_of(Policy::Dropped), any);
    let in_order = ["", "/f0", "/f0/f1", "/f0/f1/f2", "/f1/f2"];
    assert_eq!(all_of(Policy::Prefix), in_order, "a device that writes in order");
}

/// Returns the results of a file over power losses under one policy.
fn outcomes_of(sim: &SimEnv, policy: Policy, path: &str) -> Vec<SimEnv> {
    let crashed = (0..200).map(|seed| sim.crash(CrashKind::PowerLossWith(policy), seed));
    crashed.filter(|after| after.read_file(path).is_ok()).collect()
}

#[test]
fn writes_tear_inside_a_sector_only_on_request() {
    let sim = SimEnv::new(1);
    let mut file = settled(&sim, "/t", &[1; 700]);
    file.append(&[2; 2000]).unwrap();
    file.flush().unwrap();
    let seen: Vec<Vec<u8>> =
        outcomes_of(&sim, Policy::TornBytes, "/t").iter().map(|s| s.read_file("/t").unwrap()).collect();
    assert!(seen.iter().all(|b| b.len() >= 700 && b[..700] == [1; 700]), "synced bytes stay");
    let first = |b: &Vec<u8>| b[700..].iter().take_while(|&&byte| byte == 2).count();
    let inside = seen.iter().filter(|b| b.len() > 700 && first(b) > 0 && (700 + first(b)) % SECTOR != 0);
    assert!(inside.count() > 5);
    let log = in_place(&sim, "/log", 1);
    log.write_at(&filled(1, 3), 0).unwrap();
    let seen: Vec<Vec<u8>> =
        outcomes_of(&sim, Policy::TornBytes, "/log").iter().map(|s| s.read_file("/log").unwrap()).collect();
    let mixed = |b: &&Vec<u8>| b.chunks(SECTOR).filter(|s| s.contains(&0) && s.contains(&3)).count() == 1;
    assert!(seen.iter().filter(mixed).count() > 5, "one sector of a write is torn");
    assert!(seen.iter().all(|b| b.chunks(SECTOR).filter(|s| s.contains(&0) && s.contains(&3)).count() <= 1));
}

#[test]
fn sectors_of_a_torn_write_may_be_unreadable_until_rewritten() {
    let sim = SimEnv::new(1);
    let mut file = settled(&sim, "/t", &[1; 700]);
    file.append(&[2; 3 * PAGE]).unwrap();
    file.flush().unwrap();
    let log = in_place(&sim, "/log", 2);
    log.write_at(&filled(1, 3), 0).unwrap();
    let (mut bad_ends, mut bad_logs) = (0, 0);
    for after in outcomes_of(&sim, Policy::Unreadable, "/t") {
        let fs = after.env().fs;
        let mut buf = vec![0; 700];
        fs.open(p("/t"), Access::Buffered).unwrap().read_at(&mut buf, 0).expect("synced bytes are readable");
        bad_ends += usize::from(fs.read_all(p("/t"), 1 << 20).is_err());
        let log = fs.open_in_place(p("/log"), Access::Direct).unwrap();
        let mut page = vec![0; PAGE];
        log.read_at(&mut page, PAGE as u64).expect("nobody wrote there");
        if let Err(e) = log.read_at(&mut page, 0) {
            bad_logs += 1;
            assert!(crate::is_unreadable(&e), "{e}");
            let again =
                after.crash(CrashKind::PowerLoss, 1).env().fs.open_in_place(p("/log"), Access::Direct);
            assert!(again.unwrap().read_at(&mut page, 0).is_err(), "another crash does not mend it");
            log.write_at(&filled(1, 4), 0).unwrap();
            log.read_at(&mut page, 0).unwrap();
            assert_eq!(page, [4; PAGE]);
        }
    }
    assert!(bad_ends > 20 && bad_logs > 20, "{bad_ends} {bad_logs}");
}

#[test]
fn removals_need_a_directory_sync_to_be_durable() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    settled(&sim, "/t", b"x");
    fs.remove(p("/t")).unwrap();
    assert_eq!(outcomes(&sim, "/t"), [None, Some(b"x".to_vec())]);
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(outcomes(&sim, "/t"), [None]);
    fs.create_dir_all(p("/d")).unwrap();
    settled(&sim, "/d/t", b"y");
    assert_eq!(outcomes(&sim, "/d/t"), [None, Some(b"y".to_vec())], "the parent of /d was not synced");
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(outcomes(&sim, "/d/t"), [Some(b"y".to_vec())]);
}

#[test]
fn a_fresh_in_place_file_holds_durable_zeros() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    fs.create_in_place(p("/log"), 2 * PAGE as u64, Access::Direct).unwrap();
    assert_eq!(outcomes(&sim, "/log"), [None, Some(vec![0; 2 * PAGE])]);
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(outcomes(&sim, "/log"), [Some(vec![0; 2 * PAGE])]);
}

#[test]
fn plain_writes_tear_at_sectors() {
    let sim = SimEnv::new(1);
    let file = in_place(&sim, "/log", 2);
    file.write_at(&filled(2, 1), 0).unwrap();
    let seen: Vec<Vec<u8>> = outcomes(&sim, "/log").into_iter().flatten().collect();
    assert!(seen.contains(&vec![0; 2 * PAGE]) && seen.contains(&vec![1; 2 * PAGE]));
    assert!(seen.iter().any(|b| b.contains(&0) && b.contains(&1)), "torn");
    assert!(seen.iter().all(|b| b.chunks(SECTOR).all(|s| s.iter().all(|&x| x == s[0]))), "never in a sector");
    file.sync_data().unwrap();
    assert_eq!(outcomes(&sim, "/log"), [Some(vec![1; 2 * PAGE])]);
}

#[test]
fn a_durable_write_covers_itself_alone() {
    let sim = SimEnv::new(1);
    let file = in_place(&sim, "/log", 3);
    file.write_at(&filled(2, 1), 0).unwrap();
    file.write_durable(&filled(2, 2), PAGE as u64).unwrap();
    let seen: Vec<Vec<u8>> = outcomes(&sim, "/log").into_iter().flatten().collect();
    assert!(
        seen.iter().all(|b| b[PAGE..] == [2; 2 * PAGE]),
        "never lost, never overwritten by the older one"
    );
    assert!(seen.iter().any(|b| b[..PAGE] == [0; PAGE]) && seen.iter().any(|b| b[..PAGE] == [1; PAGE]));
}

#[test]
fn newer_writes_may_land_without_older_ones() {
    let sim = SimEnv::new(1);
    let file = in_place(&sim, "/log", 2);
    file.write_at(&filled(1, 1), 0).unwrap();
    file.write_at(&filled(1, 2), PAGE as u64).unwrap();
    file.write_at(&filled(1, 3), 0).unwrap();
    let firsts: Vec<_> = outcomes(&sim, "/log").iter().flatten().map(|b| (b[0], b[PAGE])).collect();
    for first in [0, 1, 3] {
        for second in [0, 2] {
            assert!(firsts.contains(&(first, second)), "{first} with {second}");
        }
    }
}

#[test]
fn an_interrupted_durable_write_may_be_torn() {
    let sim = SimEnv::new(1);
    let file = in_place(&sim, "/log", 2);
    let op = sim.op_count();
    file.write_durable(&filled(2, 1), 0).unwrap();
    let record = sim.record();
    let mut sums: Vec<usize> = (0..300)
        .map(|seed| record.crash_at(op, CrashKind::PowerLoss, seed).read_file("/log").unwrap())
        .map(|bytes| bytes.iter().map(|&b| usize::from(b)).sum())
        .collect();
    sums.sort_unstable();
    sums.dedup();
    assert!(sums.len() > 8 && sums[0] == 0 && sums[sums.len() - 1] == 2 * PAGE);
    assert!((0..50).all(|seed| {
        let after = record.crash_at(op + 1, CrashKind::PowerLoss, seed);
        after.read_file("/log").unwrap() == [1; 2 * PAGE]
    }));
}

#[test]
fn a_scratch_file_survives_a_kill_but_not_power_loss() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    let map = fs.create_scratch(p("/map"), 2 * PAGE).unwrap();
    fs.sync_dir(p("/")).unwrap();
    for round in 1..=3 {
        map.write(100, &[round; 2 * PAGE - 100]).unwrap();
    }
    let content = sim.read_file("/map").unwrap();
    assert_eq!((&content[2 * PAGE - 4..], map.len()), (&[3; 4][..], 2 * PAGE));
    let killed = sim.crash(CrashKind::ProcessKill, 0);
    assert_eq!(killed.read_file("/map").unwrap(), sim.read_file("/map").unwrap());
    let sectors: Vec<u8> =
        outcomes(&sim, "/map").iter().flatten().filter_map(|b| b.get(1000).copied()).collect();
    assert!((0..=3).all(|version| sectors.contains(&version)), "old, new and in between");
    let mixed =
        |b: &Vec<u8>| b.chunks(SECTOR).skip(1).any(|s| s[0] == 1) && b.chunks(SECTOR).any(|s| s[100] == 3);
    assert!(outcomes(&sim, "/map").iter().flatten().any(mixed));
    // After the kill it is still only in the page cache.
    assert!(outcomes(&killed, "/map").len() > 10);
}

#[test]
fn a_recreated_scratch_file_is_zero_or_its_old_contents() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    drop(settled(&sim, "/map", &[5; PAGE]));
    let map = fs.create_scratch(p("/map"), PAGE).unwrap();
    assert_eq!(sim.read_file("/map").unwrap(), [0; PAGE]);
    map.write(0, &[6; SECTOR]).unwrap();
    let firsts: Vec<u8> = outcomes(&sim, "/map").iter().flatten().map(|b| b[0]).collect();
    assert!([0, 5, 6].iter().all(|version| firsts.contains(version)));
}

#[test]
fn endless_scratch_writes_take_bounded_memory() {
    let sim = SimEnv::new(1);
    let map = sim.env().fs.create_scratch(p("/map"), 4 * PAGE).unwrap();
    sim.env().fs.sync_dir(p("/")).unwrap();
    for round in 0..5000u32 {
        map.write((round as usize % 32) * SECTOR, &round.to_le_bytes()).unwrap();
    }
    let world = sim.0.lock();
    assert!(world.disk.files.values().all(|file| file.pending.len() <= 600));
    drop(world);
    let seen = outcomes(&sim, "/map");
    let version = |b: &Vec<u8>| u32::from_le_bytes(b.get(..4)?.try_into().ok()?).into();
    let versions: Vec<u32> = seen.iter().flatten().filter_map(version).collect();
    assert!(versions.contains(&0) && versions.contains(&4992), "the oldest and the newest");
}

#[test]
fn a_kill_keeps_flushed_bytes() {
    let sim = SimEnv::new(1);
    let mut file = written(&sim, "/t", &[1; 1000]);
    file.append(&[2; 1000]).unwrap();
    let killed = sim.crash(CrashKind::ProcessKill, 3);
    assert_eq!(killed.read_file("/t").unwrap(), [1; 1000], "not the buffer");
    assert!(outcomes(&killed, "/t").contains(&None), "a later loss of power may still take it");
    let op = sim.op_count();
    file.flush().unwrap();
    let lens: Vec<usize> = (0..60)
        .map(|seed| sim.record().crash_at(op, CrashKind::ProcessKill, seed).read_file("/t").unwrap().len())
        .collect();
    assert!(lens.iter().any(|&len| len > 1000 && len < 2000), "a write under way leaves a prefix");
    assert!(lens.contains(&PAGE), "or is not cut to its length yet");
}

#[test]
fn an_interrupted_creation_leaves_a_short_file() {
    let sim = SimEnv::new(1);
    let op = sim.op_count();
    in_place(&sim, "/log", 8);
    let record = sim.record();
    let mut seen: Vec<Option<usize>> = (0..100)
        .map(|seed| record.crash_at(op, CrashKind::ProcessKill, seed).read_file("/log").ok().map(|b| b.len()))
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(
        seen.contains(&None) && seen.contains(&Some(8 * PAGE)) && seen.contains(&Some(0)) && seen.len() > 5
    );
}

#[test]
fn an_interrupted_truncation_may_leave_an_empty_file() {
    let sim = SimEnv::new(1);
    drop(settled(&sim, "/map", &[5; PAGE]));
    let op = sim.op_count();
    sim.env().fs.create_scratch(p("/map"), 2 * PAGE).unwrap();
    let record = sim.record();
    let mut lens: Vec<usize> = (0..60)
        .map(|seed| record.crash_at(op, CrashKind::ProcessKill, seed).read_file("/map").unwrap().len())
        .collect();
    lens.sort_unstable();
    lens.dedup();
    assert_eq!(lens, [0, PAGE, 2 * PAGE], "cut, untouched, done");
}

#[test]
fn a_punched_hole_may_or_may_not_survive_a_crash() {
    let sim = SimEnv::new(1);
    drop(settled(&sim, "/t", &[5; 2 * PAGE]));
    sim.env().fs.punch_hole(p("/t"), 0, PAGE as u64).unwrap();
    let seen: Vec<Vec<u8>> = outcomes(&sim, "/t").into_iter().flatten().collect();
    assert!(seen.iter().any(|b| b[..PAGE] == [0; PAGE]) && seen.contains(&vec![5; 2 * PAGE]));
    assert!(seen.iter().all(|b| b.len() == 2 * PAGE && b[PAGE..] == [5; PAGE]));
}
