//! Known mistakes of similar file systems, each with a test that would detect it.

use base::{ErrorKind, Result, checksum};
use io::kernel::device::{DeviceOptions, ImageRoom, create_image, open};
use io::sim::{CrashKind, Policy, SimEnv};
use io::{Access, AppendFile, CreateOptions, Env, FileSystem, ReadFile, SyncKind};
use lavastore_lavafs::{FormatOptions, LavaFs, MountOptions, Statistics, dump_journal, format, fsck, mount};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK: u64 = 4096;

fn small() -> FormatOptions {
    FormatOptions {
        unit_len: 8 * BLOCK,
        small_unit_len: 2 * BLOCK,
        journal_len: 4 * BLOCK,
        ..FormatOptions::default()
    }
}

fn eager() -> MountOptions {
    MountOptions {
        compact_journal_at: 4 * BLOCK,
        write_buffer_len: BLOCK as usize,
        ..MountOptions::default()
    }
}

/// Returns a simulated machine with a volume of `blocks` blocks.
fn machine(blocks: u64, options: &FormatOptions) -> SimEnv {
    let sim = SimEnv::new(7);
    format(&sim.env(), &*sim.device("/device", blocks * BLOCK).unwrap(), options).unwrap();
    sim
}

fn mounted(sim: &SimEnv, options: MountOptions) -> LavaFs {
    mount(&sim.env(), sim.device("/device", 0).unwrap(), options).unwrap()
}

fn power_losses(sim: &SimEnv) -> impl Iterator<Item = SimEnv> {
    let each = |policy| (0..20).map(move |seed| (CrashKind::PowerLossWith(policy), seed));
    Policy::ALL.into_iter().flat_map(each).map(|(kind, seed)| sim.crash(kind, seed))
}

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn create(fs: &LavaFs, path: &str) -> Box<dyn AppendFile> {
    fs.create(p(path), &CreateOptions::default()).unwrap()
}

fn write_file(fs: &LavaFs, path: &str, bytes: &[u8]) -> Result<()> {
    let mut file = fs.create(p(path), &CreateOptions::default())?;
    file.append(bytes)?;
    file.sync(SyncKind::Full)
}

fn names(fs: &LavaFs) -> Vec<String> {
    fs.list(p("/")).unwrap().into_iter().map(|e| e.name).collect()
}

/// A directory that is removed on drop.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Temp {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lavafs-test-{}-{n}", std::process::id()));
        Env::kernel().fs.create_dir_all(&path).unwrap();
        Temp(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn operations_queued_during_compaction_replay_once() {
    let sim = machine(1000, &small());
    let fs = mounted(&sim, eager());
    // Each round queues operations that can be applied only once, and commits, which runs a step of
    // the compaction.
    for round in 0..60 {
        let name = format!("/file{}", round % 3);
        drop(create(&fs, &name));
        fs.rename(p(&name), p("/moved")).unwrap();
        fs.create_dir_all(p(&format!("/dir{round}"))).unwrap();
        fs.sync_dir(p("/")).unwrap();
        fs.remove(p("/moved")).unwrap();
        for after in power_losses(&sim).step_by(7) {
            let fs = mounted(&after, eager());
            assert_eq!(names(&fs), ["moved"], "round {round}");
            assert_eq!(fs.directories(p("/")).unwrap().len(), round + 1);
        }
    }
    assert!(fs.statistics().journal_compactions > 3, "{:?}", fs.statistics());
}

#[test]
fn the_journal_keeps_space_for_itself() {
    let sim = machine(4000, &small());
    let fs = mounted(&sim, MountOptions { compact_journal_at: 1 << 30, ..eager() });
    let long = "n".repeat(200);
    for round in 0..3 {
        // One transaction of many blocks; the journal grows by four.
        (0..2000).for_each(|n| drop(create(&fs, &format!("/{long}{round}-{n}"))));
        fs.sync_dir(p("/")).unwrap();
        let after = sim.crash(CrashKind::PowerLossWith(Policy::Dropped), round);
        assert_eq!(names(&mounted(&after, eager())).len() as u64, 2000 * (round + 1));
    }
}

#[test]
fn a_full_journal_is_compacted_on_a_full_volume() {
    let sim = machine(300, &small());
    let fs = mounted(&sim, eager());
    let mut count = 0;
    let full = loop {
        match write_file(&fs, &format!("/{count}"), &[7; 9000]) {
            Ok(()) => count += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), ErrorKind::NoSpace);
    assert!(count > 20);
    // Reads and renames continue to work. Removals work, too, and afterwards all other operations.
    for round in 0..200 {
        fs.rename(p("/0"), p("/zero")).unwrap();
        fs.sync_dir(p("/")).unwrap();
        fs.rename(p("/zero"), p("/0")).unwrap();
        fs.sync_dir(p("/")).unwrap();
        assert!(fs.statistics().journal_bytes < 40 * BLOCK, "round {round}: {:?}", fs.statistics());
    }
    let after = mounted(&sim.crash(CrashKind::PowerLoss, 1), eager());
    assert_eq!(after.read_all(p("/0"), 1 << 20).unwrap(), [7; 9000]);
    for n in 0..count {
        fs.remove(p(&format!("/{n}"))).unwrap();
        fs.sync_dir(p("/")).unwrap();
    }
    write_file(&fs, "/again", &[8; 400_000]).unwrap();
}

/// Returns true if the superblock does not name all blocks of the dump.
fn has_a_long_dump(sim: &SimEnv) -> bool {
    let (mut in_dump, mut goes_on) = (false, false);
    dump_journal(&*sim.device("/device", 0).unwrap(), &mut |line| match line.split_once(": ") {
        Some((_, what)) => in_dump = what.starts_with("dump of"),
        None => goes_on |= in_dump && line.contains("journal goes on"),
    })
    .unwrap();
    goes_on
}

/// Same case with only single free blocks between files. The metadata needs more of them than a
/// superblock can name.
#[test]
fn a_journal_is_compacted_also_into_scattered_blocks() {
    let sim = machine(6000, &FormatOptions { small_unit_len: BLOCK, unit_len: BLOCK, ..small() });
    let fs = mounted(&sim, eager());
    let name = |n: u64| format!("/{n}");
    let fill = |from: u64| (from..).take_while(|n| write_file(&fs, &name(*n), b"x").is_ok()).count() as u64;
    let mut count = fill(0);
    (0..count).step_by(2).for_each(|n| fs.remove(p(&name(n))).unwrap());
    fs.sync_dir(p("/")).unwrap();
    // Long names occupy no blocks, but much space in a dump.
    for n in 0..4000 {
        fs.link(p(&name(1)), p(&format!("/{}{n}", "n".repeat(200)))).unwrap();
        if n % 50 == 0 {
            fs.sync_dir(p("/")).unwrap();
        }
    }
    count += fill(count);
    let before = fs.statistics();
    assert_eq!(before.available_bytes, 0);
    for round in 0..2000 {
        fs.rename(p("/1"), p("/moved")).unwrap();
        fs.sync_dir(p("/")).unwrap();
        fs.rename(p("/moved"), p("/1")).unwrap();
        fs.sync_dir(p("/")).unwrap();
        let found = fs.statistics();
        assert!(found.journal_bytes < before.total_bytes / 4, "round {round}: {found:?}");
    }
    let after = fs.statistics();
    assert!(after.journal_compactions > before.journal_compactions + 3, "{after:?}");
    assert!(has_a_long_dump(&sim), "{after:?}");
    for after in power_losses(&sim).step_by(25) {
        let report = fsck::fsck(&after.env(), &*after.device("/device", 0).unwrap(), true).unwrap();
        assert!(report.is_clean() && report.findings.len() <= 1, "{:?}", report.findings);
        assert_eq!(mounted(&after, eager()).read_all(p("/1"), 1 << 20).unwrap(), b"x");
    }
    assert!(count > 4000);
    names(&fs).iter().for_each(|name| fs.remove(p(&format!("/{name}"))).unwrap());
    fs.sync_dir(p("/")).unwrap();
    write_file(&fs, "/again", &[8; 10_000_000]).unwrap();
}

#[test]
fn a_no_space_error_leaves_metadata_unchanged() {
    let sim = machine(300, &small());
    let fs = mounted(&sim, eager());
    let before = fs.statistics();
    let too_much = before.total_bytes;
    assert_eq!(fs.create_in_place(p("/a"), too_much, Access::Direct).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(fs.create_scratch(p("/b"), too_much as usize).unwrap_err().kind(), ErrorKind::NoSpace);
    let mut file = create(&fs, "/c");
    assert_eq!(file.append(&vec![1; too_much as usize]).unwrap_err().kind(), ErrorKind::NoSpace);
    drop(file);
    fs.remove(p("/c")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    let Statistics { free_bytes, files, file_bytes, .. } = fs.statistics();
    assert_eq!((files, file_bytes, names(&fs).len()), (0, 0, 0));
    assert!(free_bytes + 8 * BLOCK >= before.free_bytes, "{free_bytes} of {}", before.free_bytes);
}

/// A writer with reserved space never finds the volume full, even if other writers fill it
/// meanwhile. A rejected reservation has no effect.
#[test]
fn reserved_space_is_available() {
    let sim = machine(400, &small());
    let fs = mounted(&sim, eager());
    let mut file = fs.create(p("/a"), &CreateOptions::default()).unwrap();
    file.append(b"begin").unwrap();
    file.reserve(100 * BLOCK).unwrap();
    let mut other = fs.create(p("/b"), &CreateOptions::default()).unwrap();
    let block = vec![7; BLOCK as usize];
    while other.append(&block).and_then(|()| other.sync(SyncKind::Data)).is_ok() {}
    assert_eq!(file.reserve(400 * BLOCK).unwrap_err().kind(), ErrorKind::NoSpace);
    for _ in 0..99 {
        file.append(&block).unwrap();
    }
    file.sync(SyncKind::Full).unwrap();
    assert_eq!(file.len(), 99 * BLOCK + 5);
    drop(file);
    assert_eq!(fs.metadata(p("/a")).unwrap().allocated, 100 * BLOCK);
}

#[test]
fn an_open_file_does_not_prevent_journal_truncation() {
    let sim = machine(4000, &small());
    let fs = mounted(&sim, eager());
    let mut long = create(&fs, "/long");
    long.append(&[5; 5000]).unwrap();
    long.sync(SyncKind::Data).unwrap();
    let mut other = create(&fs, "/other");
    for _ in 0..2000 {
        other.append(&[6; 100]).unwrap();
        other.sync(SyncKind::Full).unwrap();
    }
    assert!(fs.statistics().journal_bytes < 40 * BLOCK, "{:?}", fs.statistics());
    let after = mounted(&sim.crash(CrashKind::PowerLossWith(Policy::Dropped), 3), eager());
    assert_eq!(after.read_all(p("/long"), 1 << 20).unwrap(), [5; 5000]);
    assert_eq!(after.metadata(p("/other")).unwrap().len, 200_000);
}

/// Returns a record with a checksum under the stamp of a file.
fn record(stamp: base::Uid, n: u64) -> Vec<u8> {
    let mut bytes = vec![n as u8; 500];
    bytes.extend_from_slice(&n.to_le_bytes());
    let sum = checksum::stored(&bytes, stamp, n);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the number of consecutive records in a file whose recorded size is too small.
fn scan(fs: &LavaFs, path: &str) -> u64 {
    let stamp = fs.stamp(p(path)).unwrap();
    let file = fs.open(p(path), Access::Direct).unwrap();
    let end = fs.scan_extent_tail(p(path)).unwrap();
    (0..)
        .take_while(|n| {
            let mut bytes = vec![0; 512];
            (n + 1) * 512 <= end && file.read_at(&mut bytes, n * 512).is_ok() && bytes == record(stamp, *n)
        })
        .count() as u64
}

/// Returns the index of the stamp that matches a record, at any position.
fn author(piece: &[u8], stamps: &[base::Uid]) -> Option<usize> {
    let n = u64::from_le_bytes(piece.get(500..508)?.try_into().unwrap());
    stamps.iter().position(|stamp| record(*stamp, n) == piece)
}

/// An adversary chooses the contents of old files. It knows the stamps of all files, including open
/// ones, and the place at which a reader would look for a record. It also copies the contents of
/// the file that gets its blocks next.
#[test]
fn a_recycled_extent_is_never_the_tail_of_another_file() {
    let sim = machine(600, &small());
    let fs = mounted(&sim, eager());
    let mut open = Vec::new();
    let mut stamps = Vec::new();
    for n in 0..3 {
        let mut file = create(&fs, &format!("/open{n}"));
        stamps.push(fs.stamp(p(&format!("/open{n}"))).unwrap());
        (0..5).for_each(|i| file.append(&record(stamps[n], i)).unwrap());
        file.sync(SyncKind::Data).unwrap();
        open.push(file);
    }
    let (mut of_others, mut own_copies) = (0, 0);
    for round in 0..8 {
        let new = format!("/new{round}");
        let mut file = create(&fs, &new);
        let stamp = fs.stamp(p(&new)).unwrap();
        assert!(!stamps.contains(&stamp));
        let mut len = 0;
        for part in 0..3 {
            // An old file with records under the stamps of other files. Once the victim file has
            // contents, they alternate with copies of its records.
            let old = format!("/old{round}-{part}");
            let mut imitation = create(&fs, &old);
            stamps.push(fs.stamp(p(&old)).unwrap());
            for n in 0..300 {
                let others = record(stamps[(n + round) as usize % stamps.len()], n);
                let copied = part > 0 && n % 2 == 1;
                imitation.append(&if copied { record(stamp, n % len) } else { others }).unwrap();
            }
            imitation.sync(SyncKind::Full).unwrap();
            drop(imitation);
            fs.remove(p(&old)).unwrap();
            fs.sync_dir(p("/")).unwrap();
            let synced = len + 37;
            for n in len..synced {
                file.append(&record(stamp, n)).unwrap();
                if n % 9 == 0 || n + 1 == synced {
                    file.sync(SyncKind::Data).unwrap();
                }
            }
            len = synced + 3;
            (synced..len).for_each(|n| file.append(&record(stamp, n)).unwrap());
            file.flush().unwrap();
            for after in power_losses(&sim) {
                let fs = mounted(&after, eager());
                let found = scan(&fs, &new);
                assert!((synced..=len).contains(&found), "{found} records, of {synced} to {len}");
                assert!(fs.metadata(p(&new)).unwrap().len <= len * 512);
                let mut tail = vec![0; (fs.scan_extent_tail(p(&new)).unwrap() - found * 512) as usize];
                fs.open(p(&new), Access::Direct).unwrap().read_at(&mut tail, found * 512).unwrap();
                for piece in tail.chunks(512) {
                    of_others += u64::from(author(piece, &stamps).is_some());
                    own_copies += u64::from(author(piece, &[stamp]).is_some());
                }
            }
        }
        drop(file);
        fs.remove(p(&new)).unwrap();
        stamps.push(stamp);
        fs.sync_dir(p("/")).unwrap();
    }
    assert!(
        of_others > 1000 && own_copies > 1000,
        "{of_others} imitations, {own_copies} copies behind the ends"
    );
}

#[test]
fn blocks_are_not_reused_while_readers_hold_them() {
    let sim = machine(300, &small());
    let fs = mounted(&sim, eager());
    write_file(&fs, "/read", &[1; 300_000]).unwrap();
    let reader = fs.open(p("/read"), Access::Direct).unwrap();
    fs.remove(p("/read")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    let mut count = 0;
    while write_file(&fs, &format!("/{count}"), &[2; 20_000]).is_ok() {
        count += 1;
    }
    let mut bytes = vec![0; 300_000];
    reader.read_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&b| b == 1), "the open file was overwritten");
    drop(reader);
    fs.remove(p(&format!("/{count}"))).unwrap_or(());
    write_file(&fs, "/more", &[3; 200_000]).unwrap();
}

#[test]
fn a_data_sync_writes_little_more_than_the_data() {
    for (kind, most) in [(SyncKind::Data, 1.05), (SyncKind::Full, 2.05)] {
        let sim = machine(16_384, &FormatOptions::default());
        let fs = mounted(&sim, MountOptions::default());
        let before = fs.statistics();
        let mut file = create(&fs, "/log");
        for _ in 0..8192 {
            file.append(&[9; 4096]).unwrap();
            file.sync(kind).unwrap();
        }
        let after = fs.statistics();
        let written = after.data_bytes_written + after.journal_bytes_written + after.dump_bytes_written;
        let amplification = (written - before.journal_bytes_written) as f64 / (8192.0 * 4096.0);
        assert!(amplification <= most, "{kind:?}: {amplification}");
    }
}

#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    use io::sim::{FaultEffect, FaultPlan, OpKind};
    // A full device (an image on a full file system) differs from a full volume: the failed
    // operation must not be retried.
    let failures = [FaultEffect::Eio, FaultEffect::NoSpace]
        .into_iter()
        .flat_map(|effect| [OpKind::SyncData, OpKind::WriteDurable].map(|kind| (kind, effect)));
    for (kind, effect) in failures {
        let sim = machine(1000, &small());
        let fs = mounted(&sim, eager());
        let mut file = create(&fs, "/a");
        file.append(&[1; 10_000]).unwrap();
        file.sync(SyncKind::Full).unwrap();
        sim.inject(FaultPlan::nth(0, effect).kinds(&[kind]));
        let mut acknowledged = 10_000;
        let failed = loop {
            match file.append(&[1; 5_000]).and_then(|()| file.sync(SyncKind::Full)) {
                Ok(()) => acknowledged += 5_000,
                Err(e) => break e,
            }
        };
        assert_eq!(failed.kind(), ErrorKind::Io, "{kind:?}, {effect:?}: {failed}");
        assert!(sim.faults_fired() == 1, "{kind:?}");
        for refused in [
            file.sync(SyncKind::Data).unwrap_err(),
            fs.sync_dir(p("/")).unwrap_err(),
            fs.remove(p("/a")).unwrap_err(),
            fs.create(p("/b"), &CreateOptions::default()).err().unwrap(),
            fs.unmount().unwrap_err(),
        ] {
            assert_eq!(refused.kind(), ErrorKind::Poisoned, "{kind:?}: {refused}");
        }
        let mut bytes = vec![0; 10_000];
        fs.open(p("/a"), Access::Direct).unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [1; 10_000], "reads go on");
        let again = mounted(&sim.crash(CrashKind::PowerLoss, 5), eager());
        assert!(again.metadata(p("/a")).unwrap().len >= acknowledged);
    }
}

/// A failed sync has lost some writes, which remain readable until the machine crashes. A later
/// mount must not continue after a transaction that exists only in a cache.
#[test]
fn bytes_lost_by_a_failed_sync_are_rewritten() {
    use io::sim::{FaultEffect, FaultPlan, OpKind};
    let mut failed = 0;
    for (nth, seed) in (0..12).flat_map(|nth| (0..6).map(move |seed| (nth, seed))) {
        let sim = machine(1000, &small()).fork(seed);
        let fs = mounted(&sim, MountOptions { compact_journal_at: 1 << 30, ..eager() });
        sim.inject(FaultPlan::nth(nth, FaultEffect::Eio).kinds(&[OpKind::SyncData]));
        // Each transaction takes one block. Every fourth needs another transaction before it, and a
        // sync for both.
        let done = (0..60).take_while(|n| write_file(&fs, &format!("/{n}"), b"bytes").is_ok()).count();
        failed += usize::from(sim.faults_fired() > 0 && done < 60);
        sim.clear_faults();
        drop(fs);
        let fs = mounted(&sim, eager());
        write_file(&fs, "/later", b"acknowledged").unwrap();
        for after in power_losses(&sim).step_by(9) {
            let fs = mounted(&after, eager());
            assert_eq!(fs.read_all(p("/later"), 100).unwrap(), b"acknowledged");
            for n in 0..done {
                assert_eq!(fs.read_all(p(&format!("/{n}")), 100).unwrap(), b"bytes", "{n}");
            }
            // No recorded size covers bytes lost in the sync that should have made both durable.
            for name in (done..60).map(|n| format!("/{n}")).filter(|name| fs.exists(p(name)).unwrap()) {
                let len = fs.metadata(p(&name)).unwrap().len as usize;
                let bytes = fs.read_all(p(&name), 1 << 20).unwrap();
                assert!(b"bytes".starts_with(&bytes[..len]), "{name}: {:?}", &bytes[..len]);
            }
        }
    }
    assert!(failed > 20, "{failed} syncs failed");
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let sim = machine(1000, &small());
    let fs = mounted(&sim, eager());
    write_file(&fs, "/a", b"bytes").unwrap();
    drop(fs);
    let before = sim.state_hash();
    let fs = mounted(&sim, MountOptions { read_only: true, ..eager() });
    assert_eq!(fs.read_all(p("/a"), 100).unwrap(), b"bytes");
    for refused in [
        fs.create(p("/b"), &CreateOptions::default()).err(),
        fs.remove(p("/a")).err(),
        fs.lock(p("/LOCK"), "me").err(),
        fs.sync_dir(p("/")).err(),
        fs.create_in_place(p("/c"), BLOCK, Access::Direct).err(),
    ] {
        assert_eq!(refused.unwrap().kind(), ErrorKind::ReadOnly);
    }
    drop(fs);
    assert_eq!(sim.state_hash(), before);
}

#[test]
fn locks_name_their_holder_and_scratch_files_survive() {
    let sim = machine(1000, &small());
    let fs = mounted(&sim, eager());
    let held = fs.lock(p("/LOCK"), "process 7").unwrap();
    let refused = fs.lock(p("/LOCK"), "process 8").unwrap_err();
    assert!(refused.kind() == ErrorKind::Locked && refused.to_string().contains("process 7"), "{refused}");
    assert_eq!(fs.read_all(p("/LOCK"), 100).unwrap(), b"process 7\n");
    drop(held);
    drop(fs.lock(p("/LOCK"), "process 9").unwrap());
    let scratch = fs.create_scratch(p("/STAGING"), 10_000).unwrap();
    scratch.write(9_000, b"the last words").unwrap();
    let after = mounted(&sim.crash(CrashKind::ProcessKill, 1), eager());
    let mut bytes = [0; 14];
    after.open(p("/STAGING"), Access::Buffered).unwrap().read_at(&mut bytes, 9_000).unwrap();
    assert_eq!(&bytes, b"the last words");
    let again = after.create_scratch(p("/STAGING"), 10_000).unwrap();
    after.open(p("/STAGING"), Access::Buffered).unwrap().read_at(&mut bytes, 9_000).unwrap();
    assert_eq!((bytes, again.len()), ([0; 14], 10_000), "one that is made again is zeros");
}

#[test]
fn threads_commit_while_the_journal_is_compacted() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 400;
    const PASSES_MAX: usize = 20;
    let dir = Temp::new();
    let image = dir.0.join("image");
    create_image(&image, 64 << 20, ImageRoom::Written).unwrap();
    let env = Env::kernel();
    let device = open(&image, &DeviceOptions::default()).unwrap();
    format(&env, &*device, &FormatOptions { journal_len: 16 * BLOCK, ..FormatOptions::default() }).unwrap();
    let options = MountOptions { compact_journal_at: 64 * BLOCK, ..MountOptions::default() };
    let fs = mount(&env, device, options).unwrap();
    let work = |pass: usize, thread: usize| {
        for round in 0..ROUNDS {
            let path = format!("/{pass}-{thread}-{round}");
            write_file(&fs, &path, path.as_bytes()).unwrap();
            let reader: Arc<dyn ReadFile> = fs.open(p(&path), Access::Direct).unwrap();
            if round % 4 != 0 {
                fs.remove(p(&path)).unwrap();
            }
            let mut bytes = vec![0; path.len()];
            reader.read_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, path.as_bytes());
        }
    };
    // On a busy machine the compaction thread rarely runs: repeat until it has run a few times.
    let mut passes = 0;
    while fs.statistics().journal_compactions < 3 {
        assert!(passes < PASSES_MAX, "{:?}", fs.statistics());
        std::thread::scope(|scope| {
            let work = &work;
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(passes, thread))));
        });
        passes += 1;
    }
    fs.unmount().unwrap();
    drop(fs);
    let device = open(&image, &DeviceOptions::default()).unwrap();
    let report = fsck::fsck(&env, &*device, false).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let fs = mount(&env, device, options).unwrap();
    assert_eq!(names(&fs).len(), passes * THREADS * ROUNDS / 4);
    for name in names(&fs) {
        let path = format!("/{name}");
        assert_eq!(fs.read_all(p(&path), 100).unwrap(), path.as_bytes());
    }
}
