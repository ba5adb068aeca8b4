//! Files of background work, which are written and read in pieces beside foreground reads.

use base::ErrorKind;
use io::sim::SimEnv;
use io::{Access, CreateOptions, Env, FileRead, FileSystem, ReadRequest, SyncKind};
use std::path::Path;
use std::sync::Arc;
use store::descriptors::Descriptors;
use store::names;
use store::pacing::{IoLimiter, PacedFs, Traffic, during};

const COMPACTION: Option<Traffic> = Some(Traffic::Compaction);

/// Returns a paced file system and its limiter.
fn paced(env: &Env) -> (Arc<PacedFs>, Arc<IoLimiter>) {
    let pace = Arc::new(IoLimiter::new(&env.clock));
    env.fs.create_dir_all(Path::new("/s")).unwrap();
    (
        Arc::new(PacedFs { inner: env.fs.clone(), pace: pace.clone(), descriptors: Descriptors::join(env) }),
        pace,
    )
}

fn path(number: u64) -> std::path::PathBuf {
    Path::new("/s").join(names::ksst(number))
}

fn bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (i * 31 + (i >> 8) * salt) as u8).collect()
}

/// Writes a file in blocks of 5000 bytes.
fn write(fs: &dyn FileSystem, path: &Path, data: &[u8]) {
    let options = CreateOptions { write_buffer_len: 1 << 20, ..CreateOptions::default() };
    let mut file = fs.create(path, &options).unwrap();
    data.chunks(5000).for_each(|block| file.append(block).unwrap());
    file.sync(SyncKind::Full).unwrap();
}

/// Reads in the foreground.
fn read_a_little(fs: &dyn FileSystem, path: &Path) {
    fs.open(path, Access::Direct).unwrap().read_at(&mut [0; 100], 50).unwrap();
}

#[test]
fn background_writes_are_split_into_pieces() {
    let mut operations = Vec::new();
    for on in [false, true] {
        let sim = SimEnv::new(1);
        let (fs, pace) = paced(&sim.env());
        if !on {
            pace.switch_off();
        }
        write(&*fs, &path(1), &bytes(1000, 1));
        assert_eq!(pace.report().bytes, [0; 4], "in the foreground");
        read_a_little(&*fs, &path(1));
        let before = sim.op_count();
        let _during = during(COMPACTION);
        let data = bytes((1 << 20) + 10, 3);
        write(&*fs, &path(2), &data);
        operations.push(sim.op_count() - before);
        assert_eq!(pace.report().bytes, [0, data.len() as u64, 0, 0]);
        assert!(fs.read_all(&path(2), 2 << 20).unwrap() == data);
    }
    assert!(operations[1] >= operations[0] + 3, "{operations:?}");
}

#[test]
fn reads_in_pieces_return_the_written_bytes() {
    let sim = SimEnv::new(2);
    let (fs, pace) = paced(&sim.env());
    let files: Vec<_> = (1..4)
        .map(|n| {
            let data = bytes(400_000 + n as usize, n);
            write(&*fs, &path(n), &data);
            (fs.open(&path(n), Access::Direct).unwrap(), data)
        })
        .collect();
    for reads in [false, true] {
        if reads {
            read_a_little(&*fs, &path(1));
        }
        let _during = during(COMPACTION);
        let before = pace.report().bytes[1];
        let (file, data) = &files[0];
        let mut found = vec![0; 300_000];
        file.read_at(&mut found, 77).unwrap();
        assert!(found == data[77..300_077]);
        let (a, b) = found.split_at_mut(150_000);
        let at = |offset, buf| ReadRequest { offset, buf };
        file.read_batch(&mut [at(0, a), at(200_000, &mut b[..200])]).unwrap();
        assert!(found[..150_000] == data[..150_000] && found[150_000..150_200] == data[200_000..200_200]);
        let mut bufs = vec![vec![0; 100_000]; 3];
        let reads = files.iter().zip(&mut bufs).map(|((file, _), buf)| FileRead { file, offset: 11, buf });
        io::read_files(&mut reads.collect::<Vec<_>>()).unwrap();
        assert!(files.iter().zip(&bufs).all(|((_, data), buf)| *buf == data[11..100_011]));
        assert_eq!(pace.report().bytes[1] - before, 300_000 + 150_200 + 300_000);
        let beyond = file.read_at(&mut [0; 200_000], 300_000).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::Corruption);
    }
    let batch = FileRead { file: &files[0].0, offset: 0, buf: &mut [0; 10] };
    io::read_files(&mut [batch]).unwrap();
    io::read_files(&mut []).unwrap();
}

#[test]
fn other_files_and_a_pace_that_is_off_are_not_paced() {
    let sim = SimEnv::new(3);
    let (fs, pace) = paced(&sim.env());
    pace.switch_off();
    let _during = during(COMPACTION);
    write(&*fs, &path(1), &bytes(200_000, 1));
    write(&*fs, &Path::new("/s").join(names::manifest(2)), &bytes(200_000, 1));
    drop(during(None));
    {
        let _foreground = during(None);
        read_a_little(&*fs, &path(1));
    }
    read_a_little(&*fs, &path(1));
    let report = pace.report();
    assert_eq!((report.bytes[1], report.usual_read_ns, report.waits), (200_100, 0, 0), "{report:?}");
}
