//! Engines without limits, with a limit enforced by the harness.

use super::*;
use std::sync::Arc;

/// Every put adds a page to its one file. Its collector thread halves the file repeatedly while the
/// harness makes writers wait.
struct Growing {
    map: Map,
    file: std::path::PathBuf,
    ended: Arc<AtomicBool>,
    collector: Option<std::thread::JoinHandle<()>>,
    knows: bool,
}

const PAGE: u64 = 4096;

#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a file that no engine of ours wrote")]
impl Growing {
    fn open(dir: &Path, collects: bool, knows: bool) -> Self {
        let file = dir.join("data");
        std::fs::File::create(&file).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let collector = collects.then(|| {
            let (file, ended) = (file.clone(), ended.clone());
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let data = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
                    data.set_len(data.metadata().unwrap().len() / 2).unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
            })
        });
        Growing { map: Map::default(), file, ended, collector, knows }
    }

    fn grow(&self) {
        use std::io::Write;
        let mut data = std::fs::OpenOptions::new().append(true).open(&self.file).unwrap();
        data.write_all(&[1; PAGE as usize]).unwrap();
    }
}

impl Engine for Growing {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.grow();
        self.map.put(key, value)
    }
    fn write(&self, batch: &Batch, durable: bool) -> Result<()> {
        self.map.write(batch, durable)
    }
    fn delete(&self, key: &[u8]) -> Result<()> {
        self.map.delete(key)
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.map.get(key, value)
    }
    fn scan(&self, start: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.map.scan(start, limit, visit)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn settle(&self, _timeout: Duration) -> Result<bool> {
        Ok(true)
    }
    fn keeps_space_limit(&self) -> bool {
        self.knows
    }
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn close(mut self: Box<Self>) -> Result<()> {
        self.ended.store(true, Ordering::Relaxed);
        self.collector.take().map_or(Ok(()), |c| c.join().map_err(|_| "the collector panicked".into()))
    }
}

struct Opens {
    collects: bool,
    knows: bool,
}

impl Opener for Opens {
    fn name(&self) -> String {
        "growing".to_owned()
    }
    fn open(&self, dir: &Path, _settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Growing::open(dir, self.collects, self.knows)))
    }
}

fn run_limited(collects: bool, knows: bool, line: &str) -> Report {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bench-limit-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let dir = host::WorkDir::fresh(&std::env::temp_dir().join(name)).unwrap();
    run(&args(line), &Opens { collects, knows }, dir.path()).unwrap()
}

#[test]
fn a_writer_waits_until_space_falls_below_the_limit() {
    // Far more pages than the limit, so that some sample finds it reached.
    let line = "overwrite --num 100 --value-size 20 --updates 60000 --space-limit 200000";
    let report = run_limited(true, false, line);
    let limit = report.limit.clone().unwrap();
    assert_eq!((report.ops, limit.limit_gave_up), (60_000, false));
    assert_eq!((limit.limit_bytes, limit.limit_kept_by.as_str()), (200_000, "harness"));
    assert!(limit.limit_wait_seconds.unwrap() > 0.0 && limit.limit_samples > 0);
    assert!(report.table().contains("kept by the harness"));
    let json = serde_json::to_value(&report).unwrap();
    for field in ["limit_bytes", "limit_breaches", "limit_wait_seconds", "limit_gave_up"] {
        assert!(json.get(field).is_some(), "{field} is missing");
    }
    let again: Report = serde_json::from_value(json).unwrap();
    assert_eq!(again.limit.unwrap().limit_samples, limit.limit_samples);
}

#[test]
fn a_run_ends_early_if_space_stays_above_the_limit() {
    let line = "overwrite --num 100 --value-size 20 --threads 2 --updates 100000000 --space-limit 200000 \
        --limit-patience 0.05";
    let report = run_limited(false, false, &line.split_whitespace().collect::<Vec<_>>().join(" "));
    let limit = report.limit.clone().unwrap();
    assert!(limit.limit_gave_up && limit.limit_breaches > 0);
    assert!(report.ops > 0 && report.ops < 100_000_000);
    assert!(report.table().contains("GAVE UP"));
}

#[test]
fn an_engine_with_its_own_limit_is_not_throttled() {
    let report =
        run_limited(false, true, "overwrite --num 100 --value-size 20 --updates 300 --space-limit 200000");
    let limit = report.limit.unwrap();
    assert_eq!((report.ops, limit.limit_kept_by.as_str()), (300, "engine"));
    assert_eq!((limit.limit_wait_seconds, limit.limit_gave_up), (None, false));
    assert!(limit.limit_breaches > 0);
}
