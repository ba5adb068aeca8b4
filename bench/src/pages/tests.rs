use super::*;
use crate::host::WorkDir;
use crate::logs::LogSite;
use crate::pages::lava::LavaPages;

fn dir() -> WorkDir {
    WorkDir::fresh(&std::env::temp_dir().join(format!("bench-pages-{}", std::process::id()))).unwrap()
}

pub fn args(mix: PageMix) -> PageServerArgs {
    PageServerArgs {
        mix,
        pages: 200,
        slices: 4,
        writers: 2,
        readers: 2,
        batch: 10,
        record_size: 200,
        out_of_order: 0.2,
        rate: 0.0,
        backlog: 256 << 10,
        cache: 1 << 20,
        memtable: 1 << 20,
        seconds: 0.5,
        ingest: IngestArgs::default(),
    }
}

#[test]
fn every_mix_runs_and_its_pages_are_right() {
    for mix in [PageMix::WriteOnly, PageMix::ReadWrite, PageMix::ReadOnly] {
        let dir = dir();
        let report = run(&args(mix), &LavaPages { site: LogSite::machine() }, dir.path()).unwrap();
        assert_eq!(report.checked, 400);
        assert_eq!(report.write_log.count > 0, mix != PageMix::ReadOnly);
        assert_eq!(report.read_page.count > 0, mix != PageMix::WriteOnly);
        let text = report.text();
        assert!(text.contains("WriteLog") && text.contains("400 pages compared"), "{text}");
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<PageServerReport>(&json).unwrap().checked, 400);
    }
}

#[test]
fn a_wrong_page_is_detected() {
    let dir = dir();
    let args = args(PageMix::WriteOnly);
    let engine = LavaPages { site: LogSite::machine() }.open(dir.path(), &args).unwrap();
    load(&*engine, &args).unwrap();
    let server = PageServer::open(engine, args.slices).unwrap();
    let mut writers: Vec<PageWriter<'_>> =
        (0..args.writers).map(|writer| PageWriter::new(&args, writer)).collect();
    assert_eq!(compare(&server, &args, &writers).unwrap(), 200);
    // A record known to the model but not to the server.
    writers[0].slices[0].last[0] = LOADED_LSN + 1;
    let why = compare(&server, &args, &writers).unwrap_err().to_string();
    assert!(why.contains("wrong answer: page 0"), "{why}");
    server.close().unwrap();
}

#[test]
fn invalid_options_are_refused() {
    let wrong = [
        PageServerArgs { pages: 3, ..args(PageMix::ReadWrite) },
        PageServerArgs { writers: 5, ..args(PageMix::ReadWrite) },
        PageServerArgs { batch: 0, ..args(PageMix::ReadWrite) },
        PageServerArgs { record_size: 8, ..args(PageMix::ReadWrite) },
        PageServerArgs { out_of_order: 0.6, ..args(PageMix::ReadWrite) },
        PageServerArgs { seconds: 0.0, ..args(PageMix::ReadWrite) },
    ];
    wrong.iter().for_each(|args| assert!(args.check().is_err(), "{args:?}"));
}
