use super::*;
use crate::host::{WorkDir, now_ns};
use crate::logs::LogSite;
use crate::pages::ingest::IngestArgs;
use crate::pages::lava::{LavaPages, page_and_lsn};
use crate::pages::{PageMix, PageOpener, PageServerArgs, read_pages};
use std::sync::atomic::AtomicBool;

fn dir() -> WorkDir {
    WorkDir::fresh(&std::env::temp_dir().join(format!("bench-pages-{}", std::process::id()))).unwrap()
}

fn args() -> PageServerArgs {
    PageServerArgs {
        mix: PageMix::ReadWrite,
        pages: 40,
        slices: 2,
        writers: 2,
        readers: 1,
        batch: 5,
        record_size: 100,
        out_of_order: 0.0,
        rate: 0.0,
        backlog: 1 << 20,
        cache: 8 << 20,
        memtable: 8 << 20,
        seconds: 1.0,
        ingest: IngestArgs::default(),
    }
}

fn record(page: u64, at: u16, bytes: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    Redo { page, at, bytes }.encode(&mut record);
    record
}

fn page(server: &PageServer, number: u64, lsn: u64) -> Vec<u8> {
    let mut out = Vec::new();
    assert_eq!(server.read_page(number, lsn, &mut out).unwrap(), PageRead::Whole);
    out
}

#[test]
fn records_after_a_gap_apply_once_the_gap_is_filled() {
    let dir = dir();
    let server =
        PageServer::open(LavaPages { site: LogSite::machine() }.open(dir.path(), &args()).unwrap(), 2)
            .unwrap();
    let mut applier = Applier::default();
    server.write_log(0, 1, &[record(4, 0, b"aa"), record(4, 1, b"bb")]).unwrap();
    server.write_log(0, 5, &[record(4, 0, b"ee")]).unwrap();
    assert_eq!(server.gaps(0), [(3, 4)]);
    while server.apply(&mut applier, 0).unwrap() {}
    assert_eq!((server.applied(0), applier.applied_records), (2, 2));
    assert_eq!(&page(&server, 4, 1)[..4], b"aa\0\0");
    assert_eq!(&page(&server, 4, 2)[..4], b"abb\0");
    let mut out = Vec::new();
    let why = server.read_page(4, 5, &mut out).unwrap_err().to_string();
    assert!(why.contains("not applied up to LSN 5"), "{why}");
    server.write_log(0, 3, &[record(4, 3, b"c"), record(6, 0, b"d")]).unwrap();
    while server.apply(&mut applier, 0).unwrap() {}
    assert_eq!(server.gaps(0), []);
    assert_eq!(&page(&server, 4, 5)[..4], b"eebc");
    assert_eq!(&page(&server, 4, 4)[..4], b"abbc");
    assert_eq!(&page(&server, 6, 5)[..2], b"d\0");
    server.close().unwrap();
}

#[test]
fn folded_pages_keep_two_versions_and_survive_reopen() {
    let dir = dir();
    let server =
        PageServer::open(LavaPages { site: LogSite::machine() }.open(dir.path(), &args()).unwrap(), 2)
            .unwrap();
    let mut applier = Applier::default();
    let count = 5 * FOLDED as u64;
    for lsn in 1..=count {
        server.write_log(1, lsn, &[record(3, lsn as u16, &[lsn as u8])]).unwrap();
        while server.apply(&mut applier, 1).unwrap() {}
    }
    let oldest = server.oldest(3);
    assert_eq!(oldest, count - FOLDED as u64);
    let expected = |lsn: u64| -> Vec<u8> {
        (0..PAGE_BYTES as u64).map(|at| if at <= lsn { at as u8 } else { 0 }).collect()
    };
    let read_all = |server: &PageServer| {
        (oldest..=count).for_each(|lsn| assert!(page(server, 3, lsn) == expected(lsn), "as of {lsn}"));
        let read = server.read_page(3, oldest - 1, &mut Vec::new()).unwrap();
        assert_eq!(read, PageRead::KeptFrom(oldest));
    };
    read_all(&server);
    let (mut versions, mut deltas) = (0, 0);
    server.engine().all(&mut |_, _, is_delta| if is_delta { deltas += 1 } else { versions += 1 }).unwrap();
    assert_eq!((versions, deltas), (2, FOLDED));
    server.trim().unwrap();
    let mut left = 0;
    server
        .engine()
        .read_log(1, count + 1, &mut |_, _| {
            left += 1;
            Ok(true)
        })
        .unwrap();
    assert_eq!(left, 0);
    // Received but not applied before the close.
    server.write_log(1, count + 1, &[record(3, 0, b"x")]).unwrap();
    server.close().unwrap();
    let server =
        PageServer::open(LavaPages { site: LogSite::machine() }.open(dir.path(), &args()).unwrap(), 2)
            .unwrap();
    assert_eq!(server.applied(1), count);
    assert_eq!(server.backlog_bytes(), 11);
    read_all(&server);
    assert!(server.apply(&mut applier, 1).unwrap());
    assert_eq!(page(&server, 3, count + 1)[0], b'x');
    assert_eq!(server.backlog_bytes(), 0);
    server.close().unwrap();
}

/// A page that is constantly rewritten: its reader is superseded between the choice of an LSN and
/// the read.
#[test]
fn a_superseded_reader_reads_a_retained_version() {
    let dir = dir();
    let args = PageServerArgs { pages: 2, ..args() };
    let engine = LavaPages { site: LogSite::machine() }.open(dir.path(), &args).unwrap();
    crate::pages::load(&*engine, &args).unwrap();
    let server = PageServer::open(engine, 2).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let applying = scope.spawn(|| crate::pages::apply_slices(&server, &stop));
        let readers: Vec<_> = (0..2u64)
            .map(|seed| {
                let (server, args, from_ns) = (&server, &args, now_ns());
                scope.spawn(move || read_pages(server, args, seed, from_ns, from_ns + 300_000_000))
            })
            .collect();
        let mut lsn = crate::pages::LOADED_LSN + 1;
        while readers.iter().any(|reader| !reader.is_finished()) {
            for slice in 0..2 {
                let records: Vec<_> =
                    (lsn..lsn + 4 * FOLDED as u64).map(|n| record(slice, n as u16 % 100, b"x")).collect();
                server.write_log(slice, lsn, &records).unwrap();
            }
            lsn += 4 * FOLDED as u64;
            server.wait_for_backlog(1 << 14, Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        applying.join().unwrap().unwrap();
        for reader in readers {
            reader.join().unwrap().unwrap();
        }
    });
    server.close().unwrap();
}

#[test]
fn keys_are_pages_and_lsns() {
    assert_eq!(page_and_lsn(&crate::pages::lava::key(7, 9)).unwrap(), (7, 9));
    assert!(page_and_lsn(b"short").is_err());
}
