use super::*;
use crate::pacing::during;
use io::Env;
use io::sim::SimEnv;
use io::sim::threads::Plan;

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

/// Makes a foreground read.
fn read_a_little(fs: &dyn FileSystem, path: &Path) {
    fs.open(path, Access::Direct).unwrap().read_at(&mut [0; 100], 50).unwrap();
}

/// A file that records each limit of writes in flight, with the length at that time.
struct Noting {
    len: u64,
    settled: Arc<std::sync::Mutex<Vec<(u64, usize)>>>,
}

impl AppendFile for Noting {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.len += data.len() as u64;
        Ok(())
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn wait_for_writes(&mut self, most: usize) -> Result<()> {
        self.settled.lock().unwrap().push((self.len, most));
        Ok(())
    }
    fn sync(&mut self, _: SyncKind) -> Result<()> {
        Ok(())
    }
}

/// Background work keeps several writes in flight, but only one beside a foreground reader, whose
/// read would queue behind all of them.
#[test]
fn paced_writes_have_one_piece_in_flight_beside_a_reader() {
    let sim = SimEnv::new(1);
    let (fs, pace) = paced(&sim.env());
    write(&*fs, &path(1), &bytes(1000, 1));
    let settled = Arc::new(std::sync::Mutex::new(Vec::new()));
    let inner = Box::new(Noting { len: 0, settled: settled.clone() });
    let mut file = PacedAppend { inner, pace, piece_len: WRITE_PIECE_BYTES, unbooked: None };
    let piece = bytes(WRITE_PIECE_BYTES, 2);
    let work = during(COMPACTION);
    (0..3).for_each(|_| file.append(&piece).unwrap());
    assert_eq!(*settled.lock().unwrap(), []);
    drop(work);
    read_a_little(&*fs, &path(1));
    let _work = during(COMPACTION);
    file.append(&piece[..5000]).unwrap();
    file.append(&piece).unwrap();
    assert_eq!(*settled.lock().unwrap(), [(4 * WRITE_PIECE_BYTES as u64, 1)]);
}

/// Asynchronous reads count as foreground reads, for each way of reading.
#[test]
fn reads_in_flight_are_timed() {
    let dir = std::env::temp_dir().join(format!("lavastore-paced-{}", std::process::id()));
    for env in [Env::kernel(), SimEnv::new(4).env()] {
        let pace = Arc::new(IoLimiter::new(&env.clock));
        env.fs.create_dir_all(&dir).unwrap();
        let fs = PacedFs { inner: env.fs.clone(), pace: pace.clone(), descriptors: Descriptors::join(&env) };
        write(&fs, &dir.join(names::ksst(1)), &bytes(100_000, 1));
        let file = fs.open(&dir.join(names::ksst(1)), Access::Direct).unwrap();
        let read = |count: u64| {
            let mut reads = io::ReadQueue::new(&env);
            (0..count).for_each(|n| reads.submit(&file, n * 1000, 100, n));
            while reads.in_flight() > 0 {
                reads.complete(true).into_iter().for_each(|done| assert!(done.read.is_ok()));
            }
        };
        assert!(!pace.in_pieces());
        read(50);
        assert!(pace.in_pieces() && pace.report().usual_read_ns > 0);
        env.fs.remove(&dir.join(names::ksst(1))).unwrap();
    }
    #[allow(clippy::disallowed_methods, reason = "tests clean up")]
    std::fs::remove_dir(&dir).unwrap();
}

/// Asynchronous background reads are accounted once, and hold no slot. Beside a foreground reader
/// they are made in pieces before the call returns.
#[test]
fn read_ahead_is_accounted_and_holds_no_depth_slot() {
    let dir = std::env::temp_dir().join(format!("lavastore-beside-{}", std::process::id()));
    for env in [Env::kernel(), SimEnv::new(4).env()] {
        let pace = Arc::new(IoLimiter::new(&env.clock));
        env.fs.create_dir_all(&dir).unwrap();
        let fs = PacedFs { inner: env.fs.clone(), pace: pace.clone(), descriptors: Descriptors::join(&env) };
        let data = bytes(300_000, 1);
        write(&fs, &dir.join(names::ksst(1)), &data);
        let file = fs.open(&dir.join(names::ksst(1)), Access::Direct).unwrap();
        let read = |reads: &mut io::ReadQueue| {
            let wanted: Vec<_> = (0..50).map(|n| (&file, n * 1000, 150_000)).collect();
            let goes_on = reads.submit_all(&wanted, 7);
            let mut told = 0;
            while reads.in_flight() > 0 {
                for done in reads.complete(true) {
                    let from = (done.token as usize - 7) * 1000;
                    assert!(done.read.unwrap()[..] == data[from..from + 150_000]);
                    told += 1;
                }
            }
            assert!(told == 50 && pace.depth.is_unused());
            goes_on
        };
        let mut reads = io::ReadQueue::of_background(&env);
        {
            let _during = during(Some(Traffic::Collection));
            assert!(read(&mut reads));
            assert_eq!(pace.report().bytes, [0, 0, 50 * 150_000, 0]);
        }
        read_a_little(&fs, &dir.join(names::ksst(1)));
        assert!(pace.in_pieces());
        let _during = during(Some(Traffic::Collection));
        // The simulation has no other thread that could read meanwhile.
        assert_eq!(read(&mut reads), env.is_simulated());
        assert_eq!(pace.report().bytes, [0, 0, 2 * 50 * 150_000, 0]);
        drop(reads);
        env.fs.remove(&dir.join(names::ksst(1))).unwrap();
    }
    #[allow(clippy::disallowed_methods, reason = "tests clean up")]
    std::fs::remove_dir(&dir).unwrap();
}

/// Read-ahead that completes in time has no waiting thread, so it does not change the cost of a
/// byte. (In simulation a read completes when its result is requested.)
#[test]
fn completed_read_ahead_does_not_change_the_read_cost() {
    let dir = std::env::temp_dir().join(format!("lavastore-ahead-{}", std::process::id()));
    let env = Env::kernel();
    let pace = Arc::new(IoLimiter::new(&env.clock));
    env.fs.create_dir_all(&dir).unwrap();
    let fs = PacedFs { inner: env.fs.clone(), pace: pace.clone(), descriptors: Descriptors::join(&env) };
    write(&fs, &dir.join(names::ksst(1)), &bytes(200_000, 1));
    let file = fs.open(&dir.join(names::ksst(1)), Access::Direct).unwrap();
    let read = |wait: bool| {
        let _during = during(Some(Traffic::Collection));
        let mut reads = io::ReadQueue::of_background(&env);
        let wanted: Vec<_> = (0..20).map(|n| (&file, n * 1000, 150_000)).collect();
        assert!(reads.submit_all(&wanted, 0));
        while reads.in_flight() > 0 {
            reads.complete(wait).into_iter().for_each(|done| assert!(done.read.is_ok()));
            std::thread::yield_now();
        }
        pace.load()
    };
    let ahead = read(false);
    assert_eq!((ahead.bytes, ahead.bytes_ns), (0, 0), "nobody waited");
    assert_eq!(pace.report().bytes[Traffic::Collection as usize], 20 * 150_000, "it was read all the same");
    let waited = read(true);
    assert!(waited.bytes <= 20 * 150_000 && (waited.bytes_ns > 0 || waited.bytes == 0), "{waited:?}");
    assert!(pace.depth.is_unused());
    drop(file);
    #[allow(clippy::disallowed_methods, reason = "tests clean up")]
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A collection batch over both disks is waited for, each disk with its own reads. The limiter of
/// the first file's disk must not let it run asynchronously.
#[test]
fn a_background_batch_is_accounted_to_one_disk() {
    let dir = std::env::temp_dir().join(format!("lavastore-beside-both-{}", std::process::id()));
    let env = Env::kernel();
    let pace = Arc::new(IoLimiter::of_two(&env.clock));
    let speed = pace.of_fast_tier().unwrap().clone();
    env.fs.create_dir_all(&dir).unwrap();
    let fs = PacedFs { inner: env.fs.clone(), pace: pace.clone(), descriptors: Descriptors::join(&env) };
    let data = bytes(100_000, 1);
    let files = [FileKind::Ksst(1), FileKind::FastKsst(2)].map(|kind| {
        let path = dir.join(kind.to_string());
        write(&fs, &path, &data);
        fs.open(&path, Access::Direct).unwrap()
    });
    let read = |these: &[usize]| {
        let _during = during(Some(Traffic::Collection));
        let mut reads = io::ReadQueue::of_background(&env);
        let wanted: Vec<_> = these.iter().map(|n| (&files[*n], 500, 10_000)).collect();
        let goes_on = reads.submit_all(&wanted, 0);
        while reads.in_flight() > 0 {
            let done = reads.complete(true);
            done.into_iter().for_each(|done| assert!(done.read.unwrap()[..] == data[500..10_500]));
        }
        goes_on
    };
    let booked = |pace: &IoLimiter| pace.report_alone().bytes[Traffic::Collection as usize];
    assert!(read(&[0, 0]) && read(&[1]), "of one disk");
    assert_eq!((booked(&pace), booked(&speed)), (20_000, 10_000));
    assert!(!read(&[0, 1, 1]) && !read(&[1, 0]));
    assert_eq!((booked(&pace), booked(&speed)), (40_000, 40_000));
    assert!(pace.depth.is_unused() && speed.depth.is_unused());
    drop(files);
    #[allow(clippy::disallowed_methods, reason = "tests clean up")]
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Background threads write and read beside a foreground reader. Under every schedule each reads
/// back its own data and finishes, also with a single slot at the device.
#[test]
fn paced_threads_finish_under_every_schedule() {
    let mut waits = 0;
    for seed in 1..=150 {
        let sim = SimEnv::new(seed);
        let waited = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let told = waited.clone();
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let (fs, pace) = paced(env);
            write(&*fs, &path(1), &bytes(1000, 1));
            read_a_little(&*fs, &path(1));
            (0..seed % 8).for_each(|_| pace.depth.judge_slow());
            let spawner = env.spawner.clone().expect("threads under a schedule");
            let threads: Vec<_> = (2..4 + seed % 2)
                .map(|n| {
                    let fs = fs.clone();
                    let traffic = if n == 4 { Traffic::Flush } else { Traffic::Collection };
                    let body = Box::new(move || {
                        let _during = during(Some(traffic));
                        let data = bytes(150_000, n);
                        write(&*fs, &path(n), &data);
                        let mut found = vec![0; 150_000];
                        fs.open(&path(n), Access::Direct).unwrap().read_at(&mut found, 0).unwrap();
                        assert!(found == data);
                    });
                    spawner.spawn("works", io::Priority::Background, body).unwrap()
                })
                .collect();
            (0..5).for_each(|_| read_a_little(&*fs, &path(1)));
            threads.into_iter().for_each(|thread| assert!(thread.join()));
            assert!(pace.depth.is_unused());
            told.store(pace.report().waits, std::sync::atomic::Ordering::SeqCst);
        });
        ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        waits += waited.load(std::sync::atomic::Ordering::SeqCst);
    }
    assert!(waits > 20, "{waits}");
}

/// Each disk has its own limiter. On the disk of the log pieces are short and log writes count as
/// foreground. Slow reads on one disk do not affect the other.
#[test]
fn each_disk_has_a_pace_of_its_own() {
    let sim = SimEnv::new(9);
    let pace = Arc::new(IoLimiter::of_two(&sim.env().clock));
    let speed = pace.of_fast_tier().unwrap().clone();
    sim.env().fs.create_dir_all(Path::new("/s")).unwrap();
    let fs = PacedFs { inner: sim.env().fs, pace: pace.clone(), descriptors: Descriptors::join(&sim.env()) };
    let of_speed = |number| Path::new("/s").join(FileKind::FastKsst(number).to_string());
    let log = fs.create_in_place(&Path::new("/s").join(names::log(7)), 1 << 20, Access::Direct).unwrap();
    let page = AlignedBuf::zeroed(io::PAGE);
    log.write_durable(&page, 0).unwrap();
    assert!(speed.in_pieces() && !pace.in_pieces(), "the log is written there");
    assert_eq!((speed.load().log_bytes, pace.load().log_bytes), (io::PAGE as u64, 0));
    assert_eq!(speed.load().log_late_ns, 0);
    let data = bytes(1 << 20, 3);
    let operations: Vec<u64> = [path(1), of_speed(2)]
        .iter()
        .map(|path| {
            let _during = during(COMPACTION);
            let before = sim.op_count();
            write(&fs, path, &data);
            sim.op_count() - before
        })
        .collect();
    assert!(operations[0] >= 4 && operations[1] >= operations[0] + 12, "pieces of 64 KiB: {operations:?}");
    let [slow, fast] = [pace.load(), speed.load()];
    assert!(
        slow.bytes == data.len() as u64 && fast.bytes == slow.bytes && fast.bytes_ns > 0,
        "{slow:?} {fast:?}"
    );
    assert_eq!(pace.report().bytes, [0, 2 * data.len() as u64, 0, 0], "both together");
    // A delayed log write counts its delay. Background work makes room on that disk, and not on the
    // other.
    sim.set_costs(io::sim::Costs { sync_ns: 20_000_000, ..Default::default() });
    for _ in 0..200 {
        log.write_durable(&page, 0).unwrap();
        let _during = during(COMPACTION);
        fs.open(&of_speed(2), Access::Direct).unwrap().read_at(&mut [0; 100], 0).unwrap();
    }
    assert!(speed.load().log_late_ns > 100 * 10_000_000, "{:?}", speed.load());
    assert!(speed.report_alone().depth_milli < pace.report().depth_milli);
    assert!(fs.read_all(&of_speed(2), 2 << 20).unwrap() == data);
    // A foreground read is timed on its own disk.
    let before = pace.load().reads;
    read_a_little(&fs, &of_speed(2));
    assert_eq!((pace.load().reads, speed.load().reads), (before, 1));
}

/// In a batch over both disks, each disk accounts its own reads, in one go or in pieces.
#[test]
fn a_batch_over_both_disks_is_accounted_per_disk() {
    let sim = SimEnv::new(10);
    let pace = Arc::new(IoLimiter::of_two(&sim.env().clock));
    let speed = pace.of_fast_tier().unwrap().clone();
    sim.env().fs.create_dir_all(Path::new("/s")).unwrap();
    let fs = PacedFs { inner: sim.env().fs, pace: pace.clone(), descriptors: Descriptors::join(&sim.env()) };
    let of_speed = |number| Path::new("/s").join(FileKind::FastKsst(number).to_string());
    let files: Vec<_> = [path(1), of_speed(2), path(3), of_speed(4)]
        .into_iter()
        .zip(1..)
        .map(|(path, salt)| {
            let data = bytes(300_000, salt);
            write(&fs, &path, &data);
            (fs.open(&path, Access::Direct).unwrap(), data)
        })
        .collect();
    // Reads `len` bytes of each of these files.
    let read = |these: &[usize], len: usize| {
        let mut bufs = vec![vec![0; len]; these.len()];
        let of = |(n, buf): (usize, _)| FileRead { file: &files[n].0, offset: 7, buf };
        let mut reads: Vec<_> =
            these.iter().copied().zip(bufs.iter_mut().map(Vec::as_mut_slice)).map(of).collect();
        io::read_files(&mut reads).unwrap();
        drop(reads);
        assert!(these.iter().zip(&bufs).all(|(n, buf)| *buf == files[*n].1[7..7 + len]), "{these:?}");
    };
    for these in [&[0, 1, 2, 3][..], &[1, 0], &[3, 1], &[]] {
        read(these, 100);
    }
    let booked = |pace: &IoLimiter| pace.report_alone().bytes[Traffic::Collection as usize];
    assert_eq!((booked(&pace), booked(&speed)), (0, 0));
    let _during = during(Some(Traffic::Collection));
    read(&[0, 1, 2], 100_000);
    assert_eq!((booked(&pace), booked(&speed)), (200_000, 100_000));
    // Beside a foreground reader they are made in pieces.
    {
        let _foreground = during(None);
        read_a_little(&fs, &path(1));
        read_a_little(&fs, &of_speed(2));
    }
    assert!(pace.in_pieces() && speed.in_pieces());
    read(&[3, 0, 1], 200_000);
    assert_eq!((booked(&pace), booked(&speed)), (400_000, 500_000));
    assert!(pace.depth.is_unused() && speed.depth.is_unused());
}
