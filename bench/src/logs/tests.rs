use super::*;
use std::sync::Mutex;

fn args() -> LogArgs {
    LogArgs {
        logs: 3,
        writers: 2,
        record_size: 40,
        out_of_order: 0.2,
        seconds: 0.2,
        keep: 3 * 40 * 20,
        warmup_seconds: Some(0.02),
        in_place: 0,
        ..LogArgs::default()
    }
}

#[test]
fn a_run_appends_trims_and_checks() {
    let dir =
        crate::host::WorkDir::fresh(&std::env::temp_dir().join(format!("bench-logs-{}", std::process::id())));
    let dir = dir.unwrap();
    for (engine, name) in [(OwnEngine::Lavalog, "lavalog"), (OwnEngine::Lavakv, "lavakv")] {
        let args = LogArgs { in_place: 5, ..args() };
        let report = run(&args, &*engine.opener(LogSite::machine(), &args), &dir.path().join(name)).unwrap();
        assert!(report.appends > 0 && report.checked > 0, "{report:?}");
        assert!(report.text().contains("durable appends"), "{}", report.text());
        let (before, after) = report.in_place_writes_per_s.unwrap();
        let times = report.appends_per_in_place_write.unwrap();
        assert!((times * (before + after) / 2.0 - report.appends_per_s).abs() < 1.0, "{report:?}");
        // Only the log engine reports its index and its writes.
        assert_eq!(report.index_bytes_ratio.is_some(), name == "lavalog");
        assert_eq!(report.records_per_device_write.is_some_and(|n| n > 0.0), name == "lavalog");
    }
}

/// Loses one in so many records.
#[derive(Default)]
struct Forgetful {
    all: Mutex<std::collections::BTreeMap<(u64, u64), Vec<u8>>>,
    forgets: bool,
}

struct Shared(std::sync::Arc<Forgetful>);

impl LogOpener for Shared {
    fn name(&self) -> String {
        "memory".to_owned()
    }
    fn open(&self, _: &Path, _: u64) -> Result<Box<dyn LogEngine>> {
        Ok(Box::new(Shared(self.0.clone())))
    }
}

impl LogEngine for Shared {
    fn append(&self, log: u64, lsn: u64, record: &[u8]) -> Result<()> {
        let mut all = self.0.all.lock().unwrap();
        if !self.0.forgets || !lsn.is_multiple_of(3) {
            all.insert((log, lsn), record.to_vec());
        }
        Ok(())
    }
    fn trim(&self, log: u64, below: u64) -> Result<()> {
        let mut all = self.0.all.lock().unwrap();
        while let Some((&first, _)) = all.range((log, 0)..(log, below)).next() {
            all.remove(&first);
        }
        Ok(())
    }
    fn read(&self, log: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool> {
        let all = self.0.all.lock().unwrap();
        let found = all.get(&(log, lsn));
        *out = found.cloned().unwrap_or_default();
        Ok(found.is_some())
    }
    fn takes_gaps(&self) -> bool {
        true
    }
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn stats(&self) -> Vec<(String, Value)> {
        vec![("index_bytes".to_owned(), 1.into()), ("record_bytes".to_owned(), 1000.into())]
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_lost_record_is_detected() {
    let honest = Shared(std::sync::Arc::default());
    let report = run(&args(), &honest, Path::new("/")).unwrap();
    assert_eq!(report.index_bytes_ratio, Some(0.001));
    assert!(report.out_of_order > 0.0);
    let forgets = Shared(std::sync::Arc::new(Forgetful { forgets: true, ..Forgetful::default() }));
    let error = run(&args(), &forgets, Path::new("/")).unwrap_err().to_string();
    assert!(error.contains("is missing"), "{error}");
}

#[test]
fn invalid_options_are_refused() {
    for (wrong, word) in [
        (LogArgs { writers: 0, ..args() }, "writer"),
        (LogArgs { writers: 4, ..args() }, "writer"),
        (LogArgs { record_size: 8, ..args() }, "record"),
        (LogArgs { in_flight: 2, put_size: Some(1), ..args() }, "in-flight"),
        (LogArgs { out_of_order: 0.9, ..args() }, "out-of-order"),
        (LogArgs { seconds: 0.0, ..args() }, "seconds"),
    ] {
        assert!(wrong.check().unwrap_err().to_string().contains(word));
    }
}

#[test]
fn a_writer_may_append_several_at_once() {
    let parent = crate::host::WorkDir::fresh(
        &std::env::temp_dir().join(format!("bench-at-once-{}", std::process::id())),
    );
    let parent = parent.unwrap();
    // More records than logs per writer, so that some logs get two records in one call.
    for in_flight in [2, 5] {
        let args = LogArgs { in_flight, ..args() };
        for (engine, name) in [(OwnEngine::Lavalog, "lavalog"), (OwnEngine::Lavakv, "lavakv")] {
            let dir = parent.path().join(format!("{name}-{in_flight}"));
            let report = run(&args, &*engine.opener(LogSite::machine(), &args), &dir).unwrap();
            assert!(report.checked > 0 && report.out_of_order > 0.0, "{report:?}");
            assert!(report.appends.is_multiple_of(in_flight), "{report:?}");
        }
        let forgets = Shared(std::sync::Arc::new(Forgetful { forgets: true, ..Forgetful::default() }));
        // On a busy machine a run may end before the first loss.
        assert!((0..20).any(|_| run(&args, &forgets, Path::new("/")).is_err()));
    }
}

#[test]
fn tail_readers_run_during_appends_and_reads_after_them() {
    let parent = crate::host::WorkDir::fresh(
        &std::env::temp_dir().join(format!("bench-tails-{}", std::process::id())),
    );
    let parent = parent.unwrap();
    let args = LogArgs { tail_readers: 2, reads: 50, never_trimmed: 1, group_bytes: Some(1 << 20), ..args() };
    let dir = parent.path().join("lavalog");
    let report = run(&args, &*OwnEngine::Lavalog.opener(LogSite::machine(), &args), &dir).unwrap();
    assert!(report.followed_per_s.is_some_and(|n| n > 0.0), "{report:?}");
    assert!(report.bytes_max > 0 && report.recovery_ms.is_some(), "{report:?}");
    let kinds: Vec<_> = report.reads.iter().map(|reads| (reads.kind.as_str(), reads.records)).collect();
    assert_eq!(kinds[..2], [("old", 50), ("recent", 50)]);
    // As many as exist; a busy machine may have had little time.
    assert!(kinds[2].0 == "scan" && kinds[2].1 > 0, "{kinds:?}");
    assert!(report.text().contains("reads, recent"), "{}", report.text());
    let keyed = OwnEngine::Lavakv.opener(LogSite::machine(), &args);
    let refused = run(&args, &*keyed, &parent.path().join("lavakv")).unwrap_err();
    assert!(refused.to_string().contains("cannot follow a log"), "{refused}");
}

#[test]
fn appends_may_embed_a_put_each() {
    let parent = crate::host::WorkDir::fresh(
        &std::env::temp_dir().join(format!("bench-joint-{}", std::process::id())),
    );
    let parent = parent.unwrap();
    for put_size in [0, 100] {
        let args = LogArgs { put_size: Some(put_size), ..args() };
        let dir = parent.path().join(format!("joint-{put_size}"));
        let report = run(&args, &*OwnEngine::Lavalog.opener(LogSite::machine(), &args), &dir).unwrap();
        assert!(report.checked > 0 && report.appends_per_s > 0.0, "{report:?}");
        let options = lavastore::Options { create_if_missing: false, ..Default::default() };
        let keys = lavastore::Db::open_with(&dir, &options).unwrap().iter().count();
        assert_eq!(keys > 0, put_size > 0, "{keys} keys");
    }
}

/// Exiting without a close leaves the state of a killed process. In this test the forgotten store
/// would keep its lock, so the file is compared with a closed store.
#[test]
fn required_log_ends_are_recorded_and_checked() {
    let parent =
        crate::host::WorkDir::fresh(&std::env::temp_dir().join(format!("bench-ends-{}", std::process::id())));
    let parent = parent.unwrap();
    let (dir, file) = (parent.path().join("lavalog"), parent.path().join("ends"));
    let opener = OwnEngine::Lavalog.opener(LogSite::machine(), &args());
    let store = opener.open(&dir, 3).unwrap();
    let mut record = vec![0; 40];
    for (log, lsn) in [(0, 1), (0, 2), (2, 1)] {
        fill(log, lsn, &mut record);
        store.append(log, lsn, &record).unwrap();
    }
    store.close().unwrap();
    Ends(vec![(0, 1..3), (1, 1..1), (2, 1..2)]).write(&file).unwrap();
    let args = LogArgs { recover: Some(file.clone()), reads: 10, ..args() };
    let report = run(&args, &*opener, &dir).unwrap();
    assert!(report.checked == 2 && report.recovery_ms.is_some() && report.reads.len() == 3, "{report:?}");
    Ends(vec![(0, 1..4)]).write(&file).unwrap();
    let missing = run(&args, &*opener, &dir).unwrap_err();
    assert!(missing.to_string().contains("record 3 of log 0 is missing or differs"), "{missing}");
}
