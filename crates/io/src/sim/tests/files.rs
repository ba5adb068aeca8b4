use super::*;
use crate::ReadRequest;

#[test]
fn appended_bytes_are_visible_after_a_flush() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    let options = CreateOptions { write_buffer_len: PAGE, ..CreateOptions::default() };
    let mut file = fs.create(p("/t"), &options).unwrap();
    assert!(file.is_empty());
    file.append(&[1; 5000]).unwrap();
    assert_eq!(file.len(), 5000);
    // One buffer was handed over, the rest is not visible yet.
    assert_eq!(fs.metadata(p("/t")).unwrap().len, 4096);
    file.flush().unwrap();
    file.append(&[2; 10]).unwrap();
    file.sync(SyncKind::Data).unwrap();
    let reader = fs.open(p("t"), Access::Direct).unwrap();
    assert_eq!(reader.len().unwrap(), 5010);
    let (mut a, mut b) = ([0; 4], [0; 2]);
    let mut batch = [ReadRequest { offset: 4998, buf: &mut a }, ReadRequest { offset: 0, buf: &mut b }];
    reader.read_batch(&mut batch).unwrap();
    assert_eq!((a, b), ([1, 1, 2, 2], [1, 1]));
    let past = reader.read_at(&mut [0; 20], 5000).unwrap_err();
    assert_eq!((past.kind(), past.offset(), past.file()), (ErrorKind::Corruption, Some(5000), Some(p("t"))));
    assert!(reader.read_at(&mut [0; 20], u64::MAX).is_err());
    assert_eq!(fs.create(p("/t"), &options).err().unwrap().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs.read_all(p("/t"), 100).unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(sim.count_ops(Some(OpKind::Append), "/t"), 3);
}

#[test]
fn a_buffer_dropped_is_not_written() {
    let sim = SimEnv::new(1);
    let mut file = written(&sim, "/t", b"seen");
    file.append(b"unseen").unwrap();
    drop(file);
    assert_eq!(sim.read_file("/t").unwrap(), b"seen");
}

#[test]
fn in_place_files_are_zeroed_and_overwritten() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    let file = in_place(&sim, "/log", 4);
    assert_eq!(file.len(), 4 * PAGE as u64);
    assert_eq!(fs.metadata(p("/log")).unwrap().allocated, 4 * PAGE as u64);
    file.write_at(&filled(2, 7), PAGE as u64).unwrap();
    file.write_durable(&filled(1, 8), 0).unwrap();
    file.sync_data().unwrap();
    drop(file);
    let file = fs.open_in_place(p("/log"), Access::Buffered).unwrap();
    let mut bytes = vec![9; 4 * PAGE];
    file.read_at(&mut bytes, 0).unwrap();
    let expected: Vec<u8> = [8, 7, 7, 0].iter().flat_map(|&b| [b; PAGE]).collect();
    assert_eq!(bytes, expected);
    settled(&sim, "/odd", b"x");
    let odd = fs.open_in_place(p("/odd"), Access::Direct).unwrap();
    assert!(odd.is_empty(), "bytes behind the last whole page are no part of it");
}

#[test]
#[should_panic(expected = "not in whole blocks")]
fn in_place_writes_are_whole_blocks() {
    let sim = SimEnv::new(1);
    let file = in_place(&sim, "/log", 1);
    assert_eq!(file.block_len(), 512);
    file.write_at(&AlignedBuf::zeroed(512), 512).unwrap();
    sim.set_block_len(PAGE);
    let file = sim.env().fs.open_in_place(p("/log"), Access::Direct).unwrap();
    assert_eq!(file.block_len(), PAGE);
    let _ = file.write_at(&AlignedBuf::zeroed(512), 512);
}

#[test]
fn files_and_directories_are_created_renamed_and_removed() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    let missing = |r: base::Result<()>| assert_eq!(r.unwrap_err().kind(), ErrorKind::NotFound);
    missing(fs.create(p("/d/t"), &CreateOptions::default()).map(drop));
    fs.create_dir_all(p("/d/e")).unwrap();
    fs.create_dir_all(p("/d/e")).unwrap();
    settled(&sim, "/d/b", b"b");
    settled(&sim, "/d/a", b"aa");
    let names: Vec<_> = fs.list(p("/d")).unwrap().into_iter().map(|e| (e.name, e.len)).collect();
    assert_eq!(names, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    fs.link(p("/d/a"), p("/d/e/c")).unwrap();
    assert_eq!(fs.metadata(p("/d/a")).unwrap().links, 2);
    assert_eq!(fs.link(p("/d/a"), p("/d/b")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs.rename(p("/d/a"), p("/d/b")).unwrap();
    missing(fs.rename(p("/d/a"), p("/d/x")));
    missing(fs.remove(p("/d/a")));
    missing(fs.list(p("/no")).map(drop));
    assert_eq!(sim.read_file("/d/b").unwrap(), b"aa");
    assert!(fs.remove_dir(p("/d")).is_err());
    assert!(fs.metadata(p("/d")).unwrap().is_dir && fs.exists(p("/d/b")).unwrap());
    let listed: Vec<_> = sim.files().into_iter().map(|(path, _)| path.display().to_string()).collect();
    assert_eq!(listed, ["/d/b", "/d/e/c"]);
    fs.rename(p("/d/e"), p("/d/f")).unwrap();
    fs.remove(p("/d/f/c")).unwrap();
    fs.remove_dir(p("/d/f")).unwrap();
    assert!(fs.create_dir_all(p("/d/b/x")).is_err(), "a file is in the way");
}

#[test]
fn removed_files_stay_readable_and_cost_space_until_closed() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    drop(settled(&sim, "/t", &[1; 3 * PAGE]));
    let reader = fs.open(p("/t"), Access::Buffered).unwrap();
    fs.remove(p("/t")).unwrap();
    // Enough changes for unreachable files to be swept.
    for n in 0..200 {
        drop(written(&sim, &format!("/u{n}"), b""));
    }
    let mut byte = [0];
    reader.read_at(&mut byte, 3 * PAGE as u64 - 1).unwrap();
    assert_eq!((byte[0], sim.used()), (1, 3 * PAGE as u64));
    drop(reader);
    assert_eq!(sim.used(), 0);
}

#[test]
fn the_open_file_limit_is_enforced() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    drop((settled(&sim, "/a", b"a"), settled(&sim, "/b", b"b")));
    sim.set_open_max(Some(2));
    let (first, lock) = (fs.open(p("/a"), Access::Buffered).unwrap(), fs.lock(p("/LOCK"), "a test").unwrap());
    let refusals = [
        fs.open(p("/b"), Access::Buffered).map(drop),
        fs.open(p("/a"), Access::Buffered).map(drop),
        fs.create(p("/c"), &CreateOptions::default()).map(drop),
        fs.create_in_place(p("/c"), PAGE as u64, Access::Buffered).map(drop),
        fs.create_scratch(p("/c"), PAGE).map(drop),
        fs.lock(p("/OTHER"), "a test").map(drop),
        sim.device("/c", PAGE as u64).map(drop),
    ];
    for refused in refusals {
        let e = refused.unwrap_err();
        assert!(e.kind() == ErrorKind::Io && e.is_passing(), "{e}");
        assert!(e.message().contains("one more file than there may be"), "{e}");
    }
    assert_eq!(fs.list(p("/")).unwrap().len(), 3, "what is refused has made nothing");
    assert_eq!((sim.open_now(), sim.take_open_peak()), (2, 2));
    drop((first, lock));
    assert_eq!((sim.open_now(), sim.take_open_peak()), (0, 2));
    assert_eq!(sim.take_open_peak(), 0);
    drop(fs.open(p("/b"), Access::Buffered).unwrap());
    sim.set_open_max(None);
    let all: Vec<_> = (0..9).map(|_| fs.open(p("/a"), Access::Buffered).unwrap()).collect();
    assert_eq!(sim.open_now(), all.len() as u64);
}

#[test]
fn holes_are_zeros_and_free() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    drop(settled(&sim, "/t", &[1; 5 * PAGE]));
    let (before, same) = (sim.state_hash(), sim.fork(0));
    fs.punch_hole(p("/t"), 100, 2 * PAGE as u64).unwrap();
    let bytes = sim.read_file("/t").unwrap();
    assert!(bytes[PAGE..2 * PAGE].iter().all(|&b| b == 0), "the only page wholly inside");
    assert!(bytes[..PAGE].iter().chain(&bytes[2 * PAGE..]).all(|&b| b == 1));
    let meta = fs.metadata(p("/t")).unwrap();
    assert_eq!((meta.len, meta.allocated), (5 * PAGE as u64, 4 * PAGE as u64));
    same.overwrite("/t", PAGE as u64, &[0; PAGE]).unwrap();
    assert_eq!(sim.state_hash(), same.state_hash(), "a hole hashes like zeros");
    assert_ne!(sim.state_hash(), before);
}

#[test]
fn locks_are_exclusive_and_die_with_the_process() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    let lock = fs.lock(p("/LOCK"), "pid 1").unwrap();
    let refused = fs.lock(p("/LOCK"), "pid 2").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Locked);
    assert!(refused.message().contains("pid 1"));
    assert_eq!(sim.read_file("/LOCK").unwrap(), b"pid 1\n");
    let after = sim.crash(CrashKind::ProcessKill, 0);
    drop(after.env().fs.lock(p("/LOCK"), "pid 3").unwrap());
    drop(lock);
    drop(fs.lock(p("/LOCK"), "pid 2").unwrap());
}

#[test]
fn peak_space_of_a_watched_directory_is_tracked() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    fs.create_dir_all(p("/d")).unwrap();
    let _before = in_place(&sim, "/d/a", 3);
    assert_eq!(sim.peak(), 0);
    sim.watch("/d");
    let _elsewhere = in_place(&sim, "/b", 5);
    assert_eq!(sim.peak(), 3 * PAGE as u64);
    let mut file = fs.create(p("/d/t"), &CreateOptions::default()).unwrap();
    file.append(&[1; 2 * PAGE]).unwrap();
    file.flush().unwrap();
    fs.remove(p("/d/a")).unwrap();
    assert_eq!(sim.peak(), 5 * PAGE as u64, "at its fullest");
    sim.watch("/d");
    assert_eq!(sim.peak(), 2 * PAGE as u64, "begun anew");
}

#[test]
fn reserved_space_is_available() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    sim.set_capacity(Some(10 * PAGE as u64));
    let mut file = fs.create(p("/t"), &CreateOptions::default()).unwrap();
    file.append(&[1; PAGE]).unwrap();
    file.reserve(6 * PAGE as u64).unwrap();
    assert_eq!(sim.used(), 6 * PAGE as u64);
    assert_eq!(file.reserve(11 * PAGE as u64).unwrap_err().kind(), ErrorKind::NoSpace);
    let others = in_place(&sim, "/log", 4);
    assert_eq!(file.reserve(7 * PAGE as u64).unwrap_err().kind(), ErrorKind::NoSpace);
    file.append(&[2; 5 * PAGE]).unwrap();
    file.flush().expect("it has its room");
    file.append(b"x").unwrap();
    assert_eq!(file.flush().unwrap_err().kind(), ErrorKind::NoSpace);
    drop((file, others));
    fs.remove(p("/log")).unwrap();
    let mut file = fs.create(p("/u"), &CreateOptions::default()).unwrap();
    file.reserve(4 * PAGE as u64).unwrap();
    drop(file);
    assert_eq!(sim.used(), 6 * PAGE as u64, "what was not filled is given back");
}

#[test]
fn a_full_volume_refuses_writes() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    sim.set_capacity(Some(10 * PAGE as u64));
    let space = || fs.space(p("/")).map(|s| (s.total / PAGE as u64, s.available / PAGE as u64)).unwrap();
    let log = in_place(&sim, "/log", 6);
    assert_eq!(space(), (10, 4));
    assert_eq!(
        fs.create_in_place(p("/log2"), 5 * PAGE as u64, Access::Direct).unwrap_err().kind(),
        ErrorKind::NoSpace
    );
    assert_eq!(fs.create_scratch(p("/map"), 5 * PAGE).map(drop).unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(!fs.exists(p("/log2")).unwrap());
    let mut file = fs.create(p("/t"), &CreateOptions::default()).unwrap();
    file.append(&[1; 5 * PAGE]).unwrap();
    assert_eq!(file.flush().unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(file.append(b"x").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(fs.metadata(p("/t")).unwrap().len, 4 * PAGE as u64, "what fitted was written");
    assert_eq!(space(), (10, 0));
    log.write_durable(&filled(6, 1), 0).expect("overwriting needs no room");
    drop(file);
    fs.remove(p("/t")).unwrap();
    assert_eq!(space(), (10, 4));
    drop(written(&sim, "/t", &[1; 4 * PAGE]));
}

#[test]
fn a_read_only_medium_refuses_writes() {
    let sim = SimEnv::new(1);
    let fs = sim.env().fs;
    let mut file = settled(&sim, "/t", b"x");
    drop(fs.create_in_place(p("/log"), PAGE as u64, Access::Direct).unwrap());
    let before = sim.state_hash();
    sim.set_read_only(true);
    let refused = |r: base::Result<()>| assert_eq!(r.unwrap_err().kind(), ErrorKind::ReadOnly);
    refused(fs.create(p("/u"), &CreateOptions::default()).map(drop));
    refused(fs.remove(p("/t")));
    refused(fs.open_in_place(p("/log"), Access::Direct).map(drop));
    let log = crate::open_in_place_read_only(&*fs, p("/log"), Access::Direct).unwrap();
    assert_eq!(log.len(), PAGE as u64);
    refused(log.write_at(&filled(1, 1), 0));
    refused(log.write_durable(&filled(1, 1), 0));
    refused(log.sync_data());
    refused(fs.sync_dir(p("/")));
    file.append(b"y").unwrap();
    refused(file.sync(SyncKind::Full));
    assert_eq!(fs.read_all(p("/t"), 10).unwrap(), b"x");
    assert_eq!(sim.state_hash(), before);
    sim.set_read_only(false);
    fs.remove(p("/t")).unwrap();
}

#[test]
fn time_moves_with_operations() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let (start_ns, unix) = (env.clock.now_ns(), env.clock.unix_seconds());
    let mut file = written(&sim, "/t", &[0; 1 << 20]);
    file.sync(SyncKind::Full).unwrap();
    let after_ns = env.clock.now_ns();
    assert!((1_000_000..2_000_000).contains(&(after_ns - start_ns)), "1 MB at 1 GB/s and a sync");
    env.clock.sleep_ns(5_000_000_000);
    sim.jump_wall_clock(-100);
    assert_eq!(env.clock.unix_seconds(), unix + 5 - 100);
    let later = sim.crash(CrashKind::PowerLoss, 1);
    assert!(later.now_ns() > sim.now_ns(), "a restarted machine is later");
    assert_ne!(later.env().new_uid(), sim.env().new_uid(), "and draws other identities");
}
