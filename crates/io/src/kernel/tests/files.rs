//! Reads at offsets and in batches, files written in place, scratch files.

use super::*;
use crate::kernel::uring::{Read, RingPool, TransferOutcome};
use crate::{Access, AlignedBuf, FileRead, ReadFile, ReadRequest, read_files};
use base::ErrorKind;
use rustix::fd::AsFd;
use rustix::fs::OFlags;
use rustix::io::Errno;

const BOTH: [Access; 2] = [Access::Buffered, Access::Direct];

#[test]
fn reads_at_any_offset_and_length() {
    each_engine(|env, dir| {
        let path = dir.join("a");
        let mut rng = Rng::new(3);
        let model = random_bytes(&mut rng, 20 * PAGE + 123);
        write_file(env, &path, &model);
        for access in BOTH {
            let file = env.fs.open(&path, access).unwrap();
            assert_eq!((file.len().unwrap(), file.path()), (model.len() as u64, path.as_path()));
            file.will_need(0, 1 << 30);
            file.will_need(5, 0);
            let mut aligned = AlignedBuf::zeroed(8 * PAGE);
            for _ in 0..300 {
                let from = rng.below(model.len() as u64) as usize;
                let len = (rng.below(6 * PAGE as u64) as usize).min(model.len() - from);
                let (shift, from) = if rng.one_in(3) {
                    (0, from - from % PAGE)
                } else {
                    (rng.below(PAGE as u64) as usize, from)
                };
                let buf = &mut aligned.as_mut_slice()[shift..shift + len];
                file.read_at(buf, from as u64).unwrap();
                assert!(buf == &model[from..from + len], "{access:?}: {len} bytes at {from}");
            }
        }
    });
}

#[test]
fn reads_past_the_end_are_corruption_that_names_file_and_offset() {
    each_engine(|env, dir| {
        let path = dir.join("a");
        write_file(env, &path, &[9; PAGE + 10]);
        for access in BOTH {
            let file = env.fs.open(&path, access).unwrap();
            let cases =
                [(0u64, PAGE + 11), (PAGE as u64 + 10, 1), (1 << 40, 5), (u64::MAX - 2, 100), (u64::MAX, 1)];
            for (offset, len) in cases {
                let mut buf = vec![0; len];
                let alone = file.read_at(&mut buf, offset).unwrap_err();
                let mut good = [0; 3];
                let mut batch =
                    [ReadRequest { offset: 1, buf: &mut good }, ReadRequest { offset, buf: &mut buf }];
                let together = file.read_batch(&mut batch).unwrap_err();
                for e in [alone, together] {
                    assert_eq!(e.kind(), ErrorKind::Corruption);
                    assert_eq!(e.file(), Some(path.as_path()));
                    assert_eq!(e.offset(), Some(offset));
                }
            }
            file.read_at(&mut [], 0).unwrap();
        }
        assert_eq!(env.fs.read_all(&path, PAGE).unwrap_err().kind(), ErrorKind::Corruption);
    });
}

#[test]
fn batches_of_any_size_agree_with_single_reads() {
    each_engine(|env, dir| {
        let path = dir.join("a");
        let mut rng = Rng::new(4);
        let model = random_bytes(&mut rng, 100 * PAGE + 1);
        write_file(env, &path, &model);
        for access in BOTH {
            let file = env.fs.open(&path, access).unwrap();
            for count in [0usize, 1, 2, 63, 64, 65, 200, 1100] {
                let mut bufs: Vec<(usize, Vec<u8>)> = (0..count)
                    .map(|_| {
                        let from = rng.below(model.len() as u64) as usize;
                        let len = (rng.below(5000) as usize).min(model.len() - from);
                        (from, vec![0; len])
                    })
                    .collect();
                let mut requests: Vec<ReadRequest<'_>> =
                    bufs.iter_mut().map(|(from, buf)| ReadRequest { offset: *from as u64, buf }).collect();
                file.read_batch(&mut requests).unwrap();
                for (from, buf) in &bufs {
                    assert!(buf == &model[*from..from + buf.len()], "{access:?} {count}: at {from}");
                }
            }
        }
    });
}

/// Kernel files with both kinds of access, and one of the simulator, in one batch.
#[test]
fn several_files_are_read_together() {
    each_engine(|env, dir| {
        let mut rng = Rng::new(5);
        let models: Vec<Vec<u8>> = (0..6).map(|i| random_bytes(&mut rng, (i + 1) * PAGE - i)).collect();
        let sim = crate::sim::SimEnv::new(5).env();
        let mut files = Vec::new();
        for (i, model) in models.iter().enumerate() {
            let (path, access) = (dir.join(format!("{i}")), BOTH[i % 2]);
            write_file(env, &path, model);
            files.push(env.fs.open(&path, access).unwrap());
        }
        let only_kernel = files.len();
        sim.fs.create_dir_all(dir).unwrap();
        write_file(&sim, &dir.join("6"), &models[3]);
        files.push(sim.fs.open(&dir.join("6"), Access::Direct).unwrap());
        for (count, kinds) in
            [(0usize, 7), (1, only_kernel), (100, only_kernel), (100, 7), (1100, 1), (1100, 7)]
        {
            let mut bufs: Vec<(usize, usize, Vec<u8>)> = (0..count)
                .map(|_| {
                    let nth = rng.below(kinds as u64) as usize;
                    let from = rng.below(PAGE as u64 / 2) as usize;
                    (nth, from, vec![0; rng.below(PAGE as u64 / 2 - 8) as usize])
                })
                .collect();
            bufs.sort_by_key(|(nth, ..)| *nth);
            let mut reads: Vec<FileRead<'_>> = bufs
                .iter_mut()
                .map(|(nth, from, buf)| FileRead { file: &files[*nth], offset: *from as u64, buf })
                .collect();
            read_files(&mut reads).unwrap();
            for (nth, from, buf) in &bufs {
                let model = &models[if *nth == 6 { 3 } else { *nth }];
                assert!(buf == &model[*from..from + buf.len()], "file {nth} at {from}");
            }
        }
        let (mut good, mut past) = ([0; 8], [0; 8]);
        let mut reads = [
            FileRead { file: &files[0], offset: 0, buf: &mut good },
            FileRead { file: &files[1], offset: 2 * PAGE as u64, buf: &mut past },
        ];
        let error = read_files(&mut reads).unwrap_err();
        assert_eq!((error.kind(), error.file()), (ErrorKind::Corruption, Some(dir.join("1").as_path())));
    });
}

#[test]
fn threads_read_in_batches_at_once() {
    each_engine(|env, dir| {
        let path = dir.join("a");
        let model = random_bytes(&mut Rng::new(6), 64 * PAGE);
        write_file(env, &path, &model);
        let file = env.fs.open(&path, Access::Direct).unwrap();
        std::thread::scope(|scope| {
            for seed in 0..12 {
                let (file, model) = (&file, &model);
                scope.spawn(move || read_pages(&**file, model, seed));
            }
        });
    });
}

fn read_pages(file: &dyn ReadFile, model: &[u8], seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..20 {
        let mut pages: Vec<(usize, AlignedBuf)> =
            (0..16).map(|_| (rng.below(64) as usize * PAGE, AlignedBuf::zeroed(PAGE))).collect();
        let mut requests: Vec<ReadRequest<'_>> = pages
            .iter_mut()
            .map(|(from, buf)| ReadRequest { offset: *from as u64, buf: buf.as_mut_slice() })
            .collect();
        file.read_batch(&mut requests).unwrap();
        assert!(pages.iter().all(|(from, buf)| buf.as_slice() == &model[*from..from + PAGE]));
    }
}

#[test]
fn direct_access_falls_back_where_the_file_system_refuses_it() {
    each_env(|env| {
        let file = match env.fs.open(Path::new("/proc/version"), Access::Direct) {
            Ok(file) => file,
            Err(e) => return println!("skipped: {e}"),
        };
        let mut word = [0; 4];
        file.read_at(&mut word, 1).unwrap();
        assert_eq!(&word, b"inux");
    });
}

#[test]
fn a_ring_reports_the_outcome_of_each_read() {
    let rings = match RingPool::probe() {
        Ok(rings) => rings,
        Err(e) => return println!("skipped for io_uring: {e}"),
    };
    let dir = Temp::new();
    let path = dir.0.join("a");
    write_file(&env(IoEngine::Portable), &path, &[5; 10]);
    let open = |flags| rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    let (readable, writable) = (open(OFlags::RDONLY), open(OFlags::WRONLY));
    let mut bufs = vec![[0; 8]; 150];
    for _ in 0..3 {
        // Every third read is of the unreadable file.
        let fd = |i: usize| if i.is_multiple_of(3) { writable.as_fd() } else { readable.as_fd() };
        let mut reads: Vec<Read<'_>> = bufs
            .iter_mut()
            .enumerate()
            .map(|(i, buf)| Read { fd: fd(i), offset: i as u64 % 16, buf: &mut buf[..] })
            .collect();
        for (i, outcome) in rings.read_many(&mut reads).iter().enumerate() {
            match i % 3 {
                0 => assert_eq!(*outcome, TransferOutcome::Failed(Errno::BADF)),
                _ => assert_eq!(*outcome, TransferOutcome::Done(10usize.saturating_sub(i % 16).min(8))),
            }
        }
        assert!(rings.read_many(&mut []).is_empty());
    }
}

#[test]
fn in_place_files_are_allocated_zeroed_and_written_anywhere() {
    each_engine(|env, dir| {
        for access in BOTH {
            let path = dir.join(format!("{access:?}"));
            let len = 40 * PAGE;
            let file = env.fs.create_in_place(&path, len as u64, access).unwrap();
            assert_eq!((file.len(), file.is_empty(), file.path()), (len as u64, false, path.as_path()));
            let metadata = env.fs.metadata(&path).unwrap();
            assert!(metadata.len == len as u64 && metadata.allocated >= len as u64);
            let mut model = vec![0; len];
            let mut rng = Rng::new(8);
            for round in 0..40 {
                let pages = 1 + rng.below(3) as usize;
                let from = rng.below((40 - pages) as u64 + 1) as usize * PAGE;
                let mut data = AlignedBuf::zeroed(pages * PAGE);
                rng.fill(data.as_mut_slice());
                model[from..from + data.len()].copy_from_slice(data.as_slice());
                match round % 2 {
                    0 => file.write_at(&data, from as u64).unwrap(),
                    _ => file.write_durable(&data, from as u64).unwrap(),
                }
                let mut read = vec![0; pages * PAGE];
                file.read_at(&mut read, from as u64).unwrap();
                assert!(read == data.as_slice());
            }
            file.sync_data().unwrap();
            drop(file);
            let file = env.fs.open_in_place(&path, access).unwrap();
            let mut read = vec![1; len];
            file.read_at(&mut read, 0).unwrap();
            assert!(file.len() == len as u64 && read == model);
            assert_eq!(file.read_at(&mut [0; PAGE], len as u64).unwrap_err().kind(), ErrorKind::Corruption);
            let again = env.fs.create_in_place(&path, len as u64, access).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::AlreadyExists);
            assert!(env.fs.read_all(&path, len).unwrap() == model, "creating it again must not touch it");
        }
    });
}

#[test]
fn in_place_files_have_whole_pages() {
    each_engine(|env, dir| {
        let path = dir.join("a");
        let refused = env.fs.create_in_place(&path, 100, Access::Buffered).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(!env.fs.exists(&path).unwrap());
        write_file(env, &path, &[1; 100]);
        let part = env.fs.open_in_place(&path, Access::Direct).unwrap();
        assert!(part.is_empty(), "bytes behind the last whole page are no part of it");
        let empty = env.fs.create_in_place(&dir.join("b"), 0, Access::Direct).unwrap();
        assert!(empty.is_empty());
    });
}

#[test]
#[should_panic(expected = "past the end")]
fn in_place_writes_past_the_end_are_a_bug_of_the_caller() {
    let dir = Temp::new();
    let file =
        env(IoEngine::Portable).fs.create_in_place(&dir.0.join("a"), PAGE as u64, Access::Direct).unwrap();
    let _ = file.write_at(&AlignedBuf::zeroed(PAGE), PAGE as u64);
}

#[test]
fn scratch_files_outlive_their_handle_and_start_with_zeros() {
    each_engine(|env, dir| {
        let path = dir.join("a");
        let len = 3 * PAGE + 5;
        let scratch = env.fs.create_scratch(&path, len).unwrap();
        assert_eq!((scratch.len(), scratch.is_empty()), (len, false));
        assert!(env.fs.metadata(&path).unwrap().allocated >= len as u64);
        let mut model = vec![0; len];
        let mut rng = Rng::new(2);
        for _ in 0..200 {
            let from = rng.below(len as u64 + 1) as usize;
            let n = (rng.below(100) as usize).min(len - from);
            let bytes = random_bytes(&mut rng, n);
            scratch.write(from, &bytes).unwrap();
            model[from..from + bytes.len()].copy_from_slice(&bytes);
        }
        assert!(env.fs.read_all(&path, len).unwrap() == model, "readers see what was written");
        drop(scratch);
        assert!(env.fs.read_all(&path, len).unwrap() == model, "it outlives its handle");
        drop(env.fs.create_scratch(&path, PAGE).unwrap());
        assert!(env.fs.read_all(&path, PAGE).unwrap() == [0; PAGE], "made again, it is zeros");
        assert_eq!(env.fs.create_scratch(&dir.join("b"), 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    });
}

#[test]
#[should_panic(expected = "past the end of a scratch file")]
fn scratch_writes_past_the_end_are_a_bug_of_the_caller() {
    let dir = Temp::new();
    let scratch = env(IoEngine::Portable).fs.create_scratch(&dir.0.join("a"), PAGE).unwrap();
    let _ = scratch.write(PAGE - 1, &[1, 2]);
}

/// A device that cannot be synced: the kernel reports it each time, but the second sync does not
/// ask the kernel.
#[test]
fn a_file_written_in_place_takes_nothing_after_a_failed_sync() {
    each_engine(|env, _| {
        let file = env.fs.open_in_place(Path::new("/dev/full"), Access::Buffered).unwrap();
        assert_eq!(file.sync_data().unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(file.sync_data().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(file.write_at(&AlignedBuf::zeroed(0), 0).unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(file.write_durable(&AlignedBuf::zeroed(0), 0).unwrap_err().kind(), ErrorKind::Poisoned);
    });
}
