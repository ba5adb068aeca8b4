use super::*;
use crate::host::WorkDir;
use crate::logs::LogSite;
use crate::pages::lava::LavaPages;
use crate::pages::server::{At, PageChange};
use crate::pages::tests::args;
use crate::pages::{PageMix, PageOpener, PageServerReport, run};

fn dir() -> WorkDir {
    WorkDir::fresh(&std::env::temp_dir().join(format!("bench-ingest-{}", std::process::id()))).unwrap()
}

/// Segments long enough for their own files.
fn ingesting() -> PageServerArgs {
    let ingest = IngestArgs { segments: 3, segment_bytes: 1 << 20 };
    PageServerArgs { ingest, seconds: 0.2, ..args(PageMix::ReadWrite) }
}

#[test]
fn ingested_segments_are_written_once_and_survive_reopen() {
    let dir = dir();
    let ingest = |nth: u64| {
        let own = dir.path().join(nth.to_string());
        std::fs::create_dir(&own).unwrap();
        run(&ingesting(), &LavaPages { site: LogSite::machine() }, &own).unwrap()
    };
    // Other tests of this process also write meanwhile, so the minimum over some runs counts.
    let bytes_of = |report: &PageServerReport| report.ingested.as_ref().unwrap().process_bytes_per_byte;
    let mut reports = (0..20).map(ingest);
    let report = reports.find(|report| bytes_of(report) < 1.5).expect("segments are written about once");
    // 200 pages of the mix and 64 of each segment, each compared twice.
    assert_eq!(report.checked, 2 * (200 + 3 * 64));
    let ingested = report.ingested.as_ref().unwrap();
    assert_eq!((ingested.segments, ingested.bytes), (3, 3 << 20));
    assert!(ingested.mb_per_s > 0.0 && ingested.process_bytes_per_byte > 0.9, "{ingested:?}");
    assert!(report.text().contains("3 segments"), "{}", report.text());
    assert!(
        run(
            &args(PageMix::WriteOnly),
            &LavaPages { site: LogSite::machine() },
            dir.path().join("none").as_path()
        )
        .unwrap()
        .ingested
        .is_none()
    );
}

#[test]
fn a_segment_with_a_wrong_page_is_detected() {
    let (dir, args) = (dir(), ingesting());
    let engine = LavaPages { site: LogSite::machine() }.open(dir.path(), &args).unwrap();
    super::run(&*engine, &args, dir.path()).unwrap();
    assert_eq!(compare(&*engine, &args).unwrap(), 3 * 64);
    let first = first_page(&args, 1);
    let pages = (first..first + 64).map(|page| page_bytes(&args, if page == first + 63 { 0 } else { page }));
    engine.ingest(first, &mut pages.into_iter()).unwrap();
    let why = compare(&*engine, &args).unwrap_err().to_string();
    assert!(why.contains("page 63 of segment 1"), "{why}");
    engine.close().unwrap();
}

/// An engine without ingestion: it falls back to pages as in the load.
struct Plain(Box<dyn PageEngine>);

impl PageEngine for Plain {
    fn write_log(&self, slice: u64, first_lsn: u64, records: &[Vec<u8>]) -> Result<()> {
        self.0.write_log(slice, first_lsn, records)
    }
    fn read_log(
        &self,
        slice: u64,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.0.read_log(slice, from, each)
    }
    fn trim_log(&self, slice: u64, below: u64) -> Result<()> {
        self.0.trim_log(slice, below)
    }
    fn apply(&self, changes: &[PageChange<'_>]) -> Result<()> {
        self.0.apply(changes)
    }
    fn sync_pages(&self) -> Result<()> {
        self.0.sync_pages()
    }
    fn applied(&self, slice: u64) -> Result<u64> {
        self.0.applied(slice)
    }
    fn page(&self, page: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool> {
        self.0.page(page, lsn, out)
    }
    fn deltas(
        &self,
        page: u64,
        from: u64,
        to: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.0.deltas(page, from, to, each)
    }
    fn all(&self, each: &mut dyn FnMut(u64, u64, bool)) -> Result<()> {
        self.0.all(each)
    }
    fn settings(&self) -> Vec<(String, String)> {
        self.0.settings()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.0.close()
    }
}

#[test]
fn an_engine_without_ingestion_gets_pages() {
    let (dir, args) = (dir(), ingesting());
    let engine = Plain(LavaPages { site: LogSite::machine() }.open(dir.path(), &args).unwrap());
    super::run(&engine, &args, dir.path()).unwrap();
    assert_eq!(compare(&engine, &args).unwrap(), 3 * 64);
    let page = first_page(&args, 2);
    engine.apply(&[PageChange::DropPage(At { page, lsn: LOADED_LSN })]).unwrap();
    assert!(compare(&engine, &args).unwrap_err().to_string().contains("page 0 of segment 2"));
    Box::new(engine).close().unwrap();
}

#[test]
fn an_invalid_segment_length_is_refused() {
    for segment_bytes in [0, 16_383, 16_385, 2 << 30] {
        let ingest = IngestArgs { segments: 1, segment_bytes };
        assert!(PageServerArgs { ingest, ..args(PageMix::ReadWrite) }.check().is_err(), "{segment_bytes}");
    }
}
