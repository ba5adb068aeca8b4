use super::*;
use crate::{FormatOptions, MountOptions, format, mount};
use io::CreateOptions;
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};

/// Another thread has queued a claim and not committed it yet. A hole in the same transaction could
/// free the claimed bytes, which a replay must be able to read.
#[test]
fn a_hole_waits_until_queued_claims_are_committed() {
    let sim = SimEnv::new(1);
    let device = sim.device("/device", 4_000 * BLOCK).unwrap();
    format(&sim.env(), &*device, &FormatOptions::default()).unwrap();
    let fs = mount(&sim.env(), device, MountOptions::default()).unwrap();
    let path = Path::new("/a");
    let mut file = fs.create(path, &CreateOptions::default()).unwrap();
    file.append(&[7; 4 * BLOCK as usize]).unwrap();
    file.sync(io::SyncKind::Full).unwrap();
    drop(file);
    {
        let mut core = lock(&fs.volume.core);
        let ino = find(&core, path).unwrap();
        let size = 4 * BLOCK;
        let hash = base::hash::key_hash(&[7]);
        fs.volume.queue(&mut core, &Op::Claim { ino, size, from: size - 1, hash }).unwrap();
        assert!(!core.claims.is_empty());
    }
    fs.punch_hole(path, 0, 2 * BLOCK).unwrap();
    let core = lock(&fs.volume.core);
    assert!(core.claims.is_empty(), "the claim was committed before the hole came in line");
    assert!(!core.pending.is_empty(), "the hole is in line");
}

/// A listing reads the lengths in portions, and returns each name once. This holds for a full last
/// portion, too.
#[test]
fn a_long_directory_is_listed_completely() {
    let sim = SimEnv::new(2);
    let device = sim.device("/device", 4_000 * BLOCK).unwrap();
    format(&sim.env(), &*device, &FormatOptions::default()).unwrap();
    let fs = mount(&sim.env(), device, MountOptions::default()).unwrap();
    let dir = Path::new("/db");
    fs.create_dir_all(dir).unwrap();
    let name = |i: usize| format!("{i:06}");
    for i in 0..=2 * LIST_AT_ONCE {
        if [0, LIST_AT_ONCE - 1, LIST_AT_ONCE, LIST_AT_ONCE + 1, 2 * LIST_AT_ONCE].contains(&i) {
            let names: Vec<String> = fs.list(dir).unwrap().into_iter().map(|entry| entry.name).collect();
            assert_eq!(names, (0..i).map(name).collect::<Vec<_>>());
        }
        drop(fs.create(&dir.join(name(i)), &CreateOptions::default()).unwrap());
    }
}

fn volume(sim: &SimEnv) -> LavaFs {
    let device = sim.device("/device", 4_000 * BLOCK).unwrap();
    format(&sim.env(), &*device, &FormatOptions::default()).unwrap();
    mount(&sim.env(), device, MountOptions::default()).unwrap()
}

#[test]
fn unsupported_operations_are_reported_with_the_file() {
    let sim = SimEnv::new(3);
    let fs = volume(&sim);
    let path = Path::new("/a");
    let mut file = fs.create(path, &CreateOptions::default()).unwrap();
    file.append(&[7; 100]).unwrap();
    file.sync(io::SyncKind::Full).unwrap();
    drop(file);
    fs.create_dir_all(Path::new("/d")).unwrap();
    let past = fs.open(path, Access::Buffered).unwrap().read_at(&mut [0; 10], 1 << 30);
    let refused = [
        (
            fs.rename(Path::new("/d"), Path::new("/d/e")),
            "the target is the renamed directory itself, or in it: nothing was renamed; choose another target",
        ),
        (past, "a read of 10 bytes at this offset ends past the file's 100 bytes (blocks for "),
    ];
    assert_eq!(fs.open_in_place(path, Access::Direct).unwrap().len(), 0, "it has no whole page");
    for (refused, told) in refused {
        let e = refused.expect_err(told);
        assert!(e.message().starts_with(told) && e.file().is_some(), "{told}: {e}");
    }
}

#[test]
fn a_read_that_the_device_refuses_names_the_file() {
    let sim = SimEnv::new(4);
    let fs = volume(&sim);
    let path = Path::new("/a");
    let mut file = fs.create(path, &CreateOptions::default()).unwrap();
    file.append(&[7; 3 * BLOCK as usize]).unwrap();
    file.sync(io::SyncKind::Full).unwrap();
    let open = fs.open(path, Access::Buffered).unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Read]));
    let e = open.read_at(&mut [0; 10], 0).unwrap_err();
    assert!(e.kind() == ErrorKind::Io && e.message().starts_with("while reading /a: "), "{e}");
}

#[test]
fn units_that_do_not_divide_into_blocks_are_named() {
    let sim = SimEnv::new(5);
    let device = sim.device("/device", 4_000 * BLOCK).unwrap();
    let default = FormatOptions::default;
    let cases = [
        (FormatOptions { unit_len: 5000, ..default() }, "the allocation unit of files must be"),
        (FormatOptions { small_unit_len: 0, ..default() }, "the allocation unit of small files must be"),
        (FormatOptions { journal_len: 2 * BLOCK, ..default() }, "the allocation unit of the journal must be"),
    ];
    for (options, told) in cases {
        let e = format(&sim.env(), &*device, &options).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        assert!(e.message().starts_with(told), "{told}: {e}");
    }
}

/// Only closed files support holes.
#[test]
fn open_files_refuse_appends_after_a_hole() {
    let sim = SimEnv::new(5);
    let fs = volume(&sim);
    let mut file = fs.create(Path::new("/a"), &CreateOptions::default()).unwrap();
    file.append(&[7; BLOCK as usize + 9]).unwrap();
    file.sync(io::SyncKind::Full).unwrap();
    fs.punch_hole(Path::new("/a"), BLOCK, BLOCK).unwrap();
    let e = file.append(&[7; 9]).and_then(|()| file.sync(io::SyncKind::Full)).unwrap_err();
    assert_eq!(e.kind(), base::ErrorKind::InvalidArgument, "{e}");
    assert_eq!(
        e.message(),
        "the file was not closed when blocks at its end were freed (punched): close a file before you punch it"
    );
    let scratch = fs.create_scratch(Path::new("/s"), 2 * BLOCK as usize).unwrap();
    scratch.write(0, &[1; 9]).unwrap();
    fs.punch_hole(Path::new("/s"), BLOCK, BLOCK).unwrap();
    let partial = scratch.write(BLOCK as usize - 4, &[1; 9]).unwrap_err();
    assert_eq!((partial.stored_bytes, partial.error.kind()), (4, base::ErrorKind::InvalidArgument));
    assert_eq!(
        partial.error.message(),
        "the range of the write has a hole of the scratch file: write elsewhere"
    );
    assert_eq!(partial.error.file(), Some(Path::new("/s")));
}

/// An exact file takes only the blocks that its bytes need. Other files get blocks in advance.
#[test]
fn an_exact_file_never_takes_more_blocks_than_its_bytes_need() {
    let fs = volume(&SimEnv::new(5));
    let path = Path::new("/a");
    for exact in [true, false] {
        let options = CreateOptions { exact, write_buffer_len: BLOCK as usize, ..CreateOptions::default() };
        let mut file = fs.create(path, &options).unwrap();
        let mut ahead = 0;
        for _ in 0..300 {
            file.append(&[7; 3000]).unwrap();
            file.flush().unwrap();
            let taken = fs.metadata(path).unwrap().allocated;
            ahead = ahead.max(taken.saturating_sub(file.len().next_multiple_of(BLOCK)));
        }
        assert_eq!(ahead == 0, exact, "{ahead} bytes ahead");
        drop(file);
        fs.remove(path).unwrap();
    }
}

/// The journal may grow into the reserve. Files still get the space of removed files, instead of
/// the reserve: an allocation without space compacts the journal.
#[test]
fn removed_space_on_a_full_volume_is_reusable_by_files() {
    let sim = SimEnv::new(7);
    let device = sim.device("/device", 400 * BLOCK).unwrap();
    let small = FormatOptions {
        unit_len: 8 * BLOCK,
        small_unit_len: 2 * BLOCK,
        journal_len: 4 * BLOCK,
        ..FormatOptions::default()
    };
    format(&sim.env(), &*device, &small).unwrap();
    let options = MountOptions {
        compact_journal_at: 1 << 20,
        write_buffer_len: BLOCK as usize,
        ..MountOptions::default()
    };
    let fs = mount(&sim.env(), device, options).unwrap();
    let write_file = |path: &str, bytes: &[u8]| {
        let mut file = fs.create(Path::new(path), &CreateOptions::default())?;
        file.append(bytes)?;
        file.sync(io::SyncKind::Full)
    };
    let name = |n: u64| format!("/{n:04}");
    let count = (0..).take_while(|n| write_file(&name(*n), &[7; 9000]).is_ok()).count() as u64;
    let (mut into_reserve, mut next, before) = (0, count, fs.statistics());
    for n in 1..60 {
        for _ in 0..n % 23 {
            fs.rename(Path::new("/0000"), Path::new("/zero")).unwrap();
            fs.sync_dir(Path::new("/")).unwrap();
            fs.rename(Path::new("/zero"), Path::new("/0000")).unwrap();
            fs.sync_dir(Path::new("/")).unwrap();
        }
        fs.remove(Path::new(&name(n))).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        into_reserve += u64::from(fs.statistics().available_bytes == 0);
        write_file(&name(n), b"one block").unwrap_or_else(|e| panic!("file {n} of {count}: {e}"));
        // Fill the volume again.
        next += (next..).take_while(|n| write_file(&name(*n), b"x").is_ok()).count() as u64;
    }
    let after = fs.statistics();
    assert!(into_reserve > 3, "{into_reserve} times");
    // A dump for each file without space would slow down every write to a full volume.
    let compactions = after.journal_compactions - before.journal_compactions;
    assert!(compactions < 120, "{compactions} compactions");
    let left = sim.crash(CrashKind::PowerLoss, 1);
    let after = mount(&left.env(), left.device("/device", 0).unwrap(), MountOptions::default()).unwrap();
    assert_eq!(after.read_all(Path::new(&name(1)), 1 << 20).unwrap(), b"one block");
}
