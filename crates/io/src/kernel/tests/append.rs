//! Append-only files: tails, growth under readers, hints, full disks.

use super::*;
use crate::{Access, SyncKind};
use base::ErrorKind;

const BOTH: [Access; 2] = [Access::Buffered, Access::Direct];

#[test]
fn odd_lengths_are_read_back_while_the_file_grows() {
    each_engine(|env, dir| {
        for access in BOTH {
            for read_access in BOTH {
                grow_and_read(env, &dir.join(format!("{access:?}-{read_access:?}")), access, read_access);
            }
        }
    });
}

fn grow_and_read(env: &Env, path: &Path, access: Access, read_access: Access) {
    let mut rng = Rng::new(11);
    let mut file = env.fs.create(path, &small_options(access)).unwrap();
    let reader = env.fs.open(path, read_access).unwrap();
    let mut model = Vec::new();
    for round in 0..60 {
        let len = match rng.below(4) {
            0 => rng.below(4) as usize,
            1 => PAGE * rng.below(3) as usize,
            _ => rng.below(3 * PAGE as u64) as usize,
        };
        let bytes = random_bytes(&mut rng, len);
        file.append(&bytes).unwrap();
        model.extend_from_slice(&bytes);
        assert_eq!(file.len(), model.len() as u64);
        match round % 5 {
            0 => file.sync(SyncKind::Data).unwrap(),
            1 | 2 => file.flush().unwrap(),
            _ => continue,
        }
        assert_eq!(reader.len().unwrap(), model.len() as u64);
        let from = rng.below(model.len() as u64 + 1) as usize;
        let mut buf = vec![0; model.len() - from];
        reader.read_at(&mut buf, from as u64).unwrap();
        assert!(buf == model[from..], "bytes differ after {} from {from}", model.len());
    }
    file.sync(SyncKind::Full).unwrap();
    drop(file);
    assert!(env.fs.read_all(path, 1 << 20).unwrap() == model);
}

/// Returns the byte that the test below writes at an offset.
fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[test]
fn readers_on_other_threads_see_all_that_was_flushed() {
    each_engine(|env, dir| {
        for (access, read_access) in BOTH.into_iter().flat_map(|a| BOTH.map(|b| (a, b))) {
            let path = dir.join(format!("{access:?}-{read_access:?}"));
            let mut file = env.fs.create(&path, &small_options(access)).unwrap();
            let reader = env.fs.open(&path, read_access).unwrap();
            let (flushed, done) = (AtomicU64::new(0), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for seed in 0..2 {
                    let (reader, flushed, done) = (&reader, &flushed, &done);
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed);
                        while done.load(Ordering::Acquire) == 0 {
                            let end = flushed.load(Ordering::Acquire);
                            let start = rng.range(end.saturating_sub(3 * PAGE as u64), end);
                            let mut buf = vec![0; (end - start) as usize];
                            reader.read_at(&mut buf, start).unwrap();
                            let differs = (start..end).zip(&buf).find(|&(at, &b)| b != byte_at(at));
                            assert!(differs.is_none(), "{access:?} {read_access:?}: {differs:?} of {end}");
                        }
                    });
                }
                let mut rng = Rng::new(77);
                for _ in 0..150 {
                    let (start, n) = (file.len(), 1 + rng.below(1500));
                    let bytes: Vec<u8> = (start..start + n).map(byte_at).collect();
                    file.append(&bytes).unwrap();
                    file.flush().unwrap();
                    flushed.store(file.len(), Ordering::Release);
                }
                done.store(1, Ordering::Release);
            });
        }
    });
}

#[test]
fn large_appends_bypass_the_buffer() {
    each_engine(|env, dir| {
        for access in BOTH {
            let path = dir.join(format!("{access:?}"));
            let bytes = random_bytes(&mut Rng::new(5), 300_001);
            let mut file =
                env.fs.create(&path, &CreateOptions { access, ..CreateOptions::default() }).unwrap();
            file.append(b"x").unwrap();
            file.append(&bytes).unwrap();
            file.append(&[]).unwrap();
            file.sync(SyncKind::Data).unwrap();
            let read = env.fs.read_all(&path, 1 << 20).unwrap();
            assert!(read[0] == b'x' && read[1..] == bytes);
        }
    });
}

#[test]
fn unflushed_bytes_are_not_in_the_file_and_empty_files_are_fine() {
    each_engine(|env, dir| {
        let path = dir.join("a");
        let mut file = env.fs.create(&path, &CreateOptions::default()).unwrap();
        assert!(file.is_empty());
        file.sync(SyncKind::Full).unwrap();
        file.append(b"lost with the handle").unwrap();
        drop(file);
        assert_eq!(env.fs.metadata(&path).unwrap().len, 0);
        assert_eq!(
            env.fs.create(&path, &CreateOptions::default()).err().unwrap().kind(),
            ErrorKind::AlreadyExists
        );
    });
}

#[test]
fn unused_reserved_blocks_are_released() {
    each_engine(|env, dir| {
        for access in BOTH {
            for (name, synced) in [("synced", true), ("dropped", false)] {
                let path = dir.join(format!("{name}-{access:?}"));
                let options = CreateOptions { expected_len: 1 << 20, ..small_options(access) };
                let mut file = env.fs.create(&path, &options).unwrap();
                if env.fs.metadata(&path).unwrap().allocated < 1 << 20 {
                    println!("skipped: this file system reserves no blocks");
                    return;
                }
                assert_eq!(env.fs.metadata(&path).unwrap().len, 0);
                file.append(&[7; 2 * PAGE]).unwrap();
                if synced {
                    file.sync(SyncKind::Full).unwrap();
                } else {
                    drop(file);
                }
                let metadata = env.fs.metadata(&path).unwrap();
                assert_eq!(metadata.len, 2 * PAGE as u64);
                assert!(metadata.allocated <= 64 << 10, "{} bytes are still allocated", metadata.allocated);
            }
        }
    });
}

#[test]
fn an_oversized_length_hint_has_no_effect() {
    each_engine(|env, dir| {
        let path = dir.join("a");
        let options = CreateOptions { expected_len: 1 << 60, ..CreateOptions::default() };
        let mut file = env.fs.create(&path, &options).unwrap();
        file.append(b"abc").unwrap();
        file.sync(SyncKind::Full).unwrap();
        assert_eq!(env.fs.read_all(&path, 10).unwrap(), b"abc");
        assert!(env.fs.metadata(&path).unwrap().allocated <= 64 << 10);
    });
}

#[test]
fn space_is_reserved_or_refused_and_released() {
    each_engine(|env, dir| {
        for access in BOTH {
            let path = dir.join(format!("{access:?}"));
            let mut file = env.fs.create(&path, &small_options(access)).unwrap();
            file.append(&[1; PAGE]).unwrap();
            file.reserve(1 << 20).unwrap();
            // More than the volume has: refused, or accepted where the file system cannot tell.
            if let Err(e) = file.reserve(1 << 60) {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
            }
            file.append(&[2; 3 * PAGE]).unwrap();
            file.sync(SyncKind::Data).unwrap();
            file.append(b"end").unwrap();
            drop(file);
            let file = env.fs.read_all(&path, 1 << 20).unwrap();
            let after = env.fs.metadata(&path).unwrap();
            // Dropping the file keeps the written bytes; those in the buffer may be lost.
            assert!(file.len() >= 4 * PAGE && file[PAGE..4 * PAGE] == [2; 3 * PAGE], "{access:?}");
            assert!(after.allocated <= 64 << 10, "{} bytes are still allocated", after.allocated);
        }
    });
}

#[test]
fn write_back_in_steps_changes_nothing_but_the_timing() {
    each_engine(|env, dir| {
        for access in BOTH {
            let path = dir.join(format!("{access:?}"));
            let options = CreateOptions { sync_every: 3 * PAGE as u64, ..small_options(access) };
            let mut file = env.fs.create(&path, &options).unwrap();
            let bytes = random_bytes(&mut Rng::new(9), 40 * PAGE + 17);
            bytes.chunks(1000).for_each(|chunk| file.append(chunk).unwrap());
            file.sync(SyncKind::Data).unwrap();
            assert!(env.fs.read_all(&path, 1 << 20).unwrap() == bytes);
        }
    });
}

#[test]
fn a_full_volume_is_no_space_and_poisons_the_file() {
    let Some(volume) = SmallVolume::mount(64 * PAGE) else { return };
    let dir = &volume.0.0;
    each_env(|env| {
        for access in BOTH {
            let path = dir.join("full");
            let mut file = env.fs.create(&path, &small_options(access)).unwrap();
            let first = loop {
                if let Err(e) = file.append(&[1; PAGE]) {
                    break e;
                }
            };
            assert_eq!(first.kind(), ErrorKind::NoSpace);
            assert_eq!(first.file(), Some(path.as_path()));
            env.fs.remove(&path).unwrap();
            for later in [file.append(b"x"), file.flush(), file.sync(SyncKind::Data)] {
                let later = later.unwrap_err();
                assert_eq!(later.kind(), ErrorKind::Poisoned);
                assert_eq!(later.file(), Some(path.as_path()));
            }
        }
        let group = dir.join("group");
        let error = env.fs.create_in_place(&group, 128 * PAGE as u64, Access::Direct).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(!env.fs.exists(&group).unwrap());
        let scratch = dir.join("scratch");
        assert_eq!(env.fs.create_scratch(&scratch, 128 * PAGE).unwrap_err().kind(), ErrorKind::NoSpace);
        assert!(!env.fs.exists(&scratch).unwrap());
        let space = env.fs.space(dir).unwrap();
        assert_eq!(space.total, 64 * PAGE as u64);
        assert!(space.available <= space.total && space.available > 0);
    });
}

/// Several asynchronous writes: plain calls finish incomplete ones, in any order of their ends.
/// Only a lasting failure is an error, and it poisons the file for good.
#[cfg(feature = "faults")]
#[test]
fn failing_and_short_writes_behind_the_caller_lose_nothing() {
    use crate::kernel::calls::Call;
    use crate::kernel::calls::watch::{Fault, Form, Watch};
    let (mut struck, mut failed) = (0, 0);
    for only in [Call::RingSubmit, Call::RingWrite, Call::Write] {
        for (form, nth) in Form::ALL.into_iter().flat_map(|form| [0, 3].map(|nth| (form, nth))) {
            for sticky in [false, true] {
                if only == Call::Write && sticky && form.is_transient() {
                    continue; // An interrupted call is repeated forever.
                }
                let temp = Temp::new();
                let env = Env::kernel();
                let path = temp.0.join("file");
                let options = CreateOptions { write_buffer_len: 2 * PAGE, ..small_options(Access::Direct) };
                let mut file = env.fs.create(&path, &options).unwrap();
                let watch = Watch::new(&temp.0, Some(Fault { nth, form, sticky, only: Some(only) }), false);
                let bytes = random_bytes(&mut Rng::new(nth), 25 * PAGE + 100);
                let mut write = || -> base::Result<()> {
                    for (at, chunk) in bytes.chunks(3000).enumerate() {
                        file.append(chunk)?;
                        if at % 9 == 8 {
                            file.wait_for_writes(1)?;
                        }
                    }
                    file.sync(SyncKind::Data)
                };
                let done = write();
                struck += u64::from(watch.fired() > 0);
                drop(watch);
                match done {
                    Ok(()) => {
                        assert!(env.fs.read_all(&path, 1 << 20).unwrap() == bytes, "{only:?} {form:?} {nth}")
                    }
                    Err(e) => {
                        assert!(
                            !form.is_transient() && only == Call::Write,
                            "{only:?} {form:?} {nth} {sticky}: {e}"
                        );
                        assert_eq!(e.file(), Some(path.as_path()));
                        assert_eq!(file.sync(SyncKind::Data).unwrap_err().kind(), ErrorKind::Poisoned);
                        failed += 1;
                    }
                }
            }
        }
    }
    assert!(struck > 15, "{struck} struck, {failed} failed");
}
