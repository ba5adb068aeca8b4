use super::*;
use crate::engine::{Engine, EngineSettings};
use crate::full::Full;
use lavastore::ErrorKind;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keys and values of a directory.
type Values = Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>;

/// An in-memory store that occupies a quarter more than its data and keeps its limit.
struct Bounded {
    values: Values,
    limit_bytes: AtomicU64,
    fault: Fault,
    full: AtomicBool,
}

/// A fault of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// After it was full, it forgets accepted writes.
    Forgets,
    /// After it was full, it refuses all writes.
    Poisoned,
    /// After it was full, it also refuses deletes.
    KeepsAll,
    /// After the first change, it ignores its limit.
    ForgetsLimit,
}

impl Bounded {
    fn bytes(&self) -> u64 {
        let live: usize =
            self.values.lock().unwrap().iter().map(|(key, value)| key.len() + value.len()).sum();
        live as u64 * 5 / 4
    }
}

impl Engine for Bounded {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let known = self.values.lock().unwrap().contains_key(key);
        if self.full.load(Ordering::Relaxed) && self.fault == Fault::Poisoned {
            return Err("poisoned".into());
        }
        let more = (key.len() + value.len()) as u64 * 5 / 4;
        if !known && self.bytes() + more > self.limit_bytes.load(Ordering::Relaxed) {
            self.full.store(true, Ordering::Relaxed);
            return Err(lavastore::Error::new(ErrorKind::NoSpace, "the limit is reached").into());
        }
        if self.full.load(Ordering::Relaxed) && self.fault == Fault::Forgets {
            return Ok(());
        }
        self.values.lock().unwrap().insert(key.to_vec(), value.to_vec());
        Ok(())
    }
    fn write(&self, batch: &crate::Batch, _durable: bool) -> Result<()> {
        batch.iter().try_for_each(|(key, value)| self.put(key, value))
    }
    fn delete(&self, key: &[u8]) -> Result<()> {
        if self.full.swap(false, Ordering::Relaxed) && self.fault == Fault::KeepsAll {
            return Err(lavastore::Error::new(ErrorKind::NoSpace, "the limit is reached").into());
        }
        self.values.lock().unwrap().remove(key);
        Ok(())
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.values.lock().unwrap().get(key).cloned();
        *value = found.clone().unwrap_or_default();
        Ok(found.is_some())
    }
    fn scan(&self, _start: &[u8], _limit: u64, _visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        Ok(0)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn settle(&self, _timeout: Duration) -> Result<bool> {
        Ok(true)
    }
    fn keeps_space_limit(&self) -> bool {
        true
    }
    fn change_space_limit(&self, limit_bytes: u64) -> Result<Option<u64>> {
        let limit_of_now = if self.fault == Fault::ForgetsLimit { u64::MAX } else { limit_bytes };
        self.limit_bytes.store(limit_of_now, Ordering::Relaxed);
        Ok(Some(limit_bytes.max(self.bytes())))
    }
    fn allocated(&self, _dir: &Path) -> crate::space::Space {
        crate::space::Space { bytes: self.bytes(), ..Default::default() }
    }
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Opens the store of a directory repeatedly.
#[derive(Default)]
struct Opens {
    stores: Mutex<HashMap<PathBuf, Values>>,
    /// A directory, and the capacity for stores below it.
    volume: Option<(PathBuf, u64)>,
    fault: Fault,
}

impl Opener for Opens {
    fn name(&self) -> String {
        "bounded".to_owned()
    }
    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        let values = self.stores.lock().unwrap().entry(dir.to_owned()).or_default().clone();
        let told = settings.space_limit_bytes.unwrap_or(u64::MAX);
        let volume = self.volume.as_ref().filter(|(parent, _)| dir.starts_with(parent));
        let limit_bytes = told.min(volume.map_or(u64::MAX, |(_, bytes)| *bytes));
        let limit_bytes = limit_bytes.into();
        Ok(Box::new(Bounded { values, limit_bytes, fault: self.fault, full: AtomicBool::new(false) }))
    }
}

fn options() -> BenchArgs {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        bench: BenchArgs,
    }
    let line = ["bench", "contract", "--num", "3000", "--value-size", "100", "--seconds", "0.5"];
    <Cli as clap::Parser>::parse_from(line).bench
}

#[test]
fn a_full_store_refuses_and_resumes_after_deletes() {
    let dir = std::env::temp_dir();
    let report = contract(&options(), &Opens::default(), &dir.join("bench-contract-none")).unwrap();
    assert!(report.enospc > 0 && report.resumed && report.full.writes > 0, "{report:?}");
    assert_eq!((report.limit_breaches, report.options.seconds), (0, Some(0.5)));
    assert!(report.limit_samples > 0 && report.mb_per_s > 0.0 && report.unlimited_mb_per_s > 0.0);
    assert_eq!((report.full.deletes, report.full.reads, report.full.failure.as_deref()), (1000, 6000, None));
    assert!(report.is_kept() && report.volume.is_empty());
    let changed = report.changed.as_ref().expect("its limit can be changed");
    assert!(changed.changes > 3 && changed.calls.writes > 0, "{changed:?}");
    let text = report.text();
    assert!(text.contains("writes resumed") && text.contains("above a limit  0 of"), "{text}");
    assert!(!text.contains("NOT"), "{text}");
}

/// Space for all but a tenth of the keys.
const FULL_BYTES: u64 = 420_000;

fn full_with(fault: Fault) -> Full {
    let options = BenchArgs { space_limit: Some(SpaceLimit::Bytes(FULL_BYTES)), ..options() };
    let opener = Opens { fault, ..Opens::default() };
    Full::run(&options, &opener, Path::new("in memory"), 0.05).unwrap()
}

#[test]
fn contract_violations_of_a_full_store_are_detected() {
    assert!(full_with(Fault::None).is_kept());
    let forgets = full_with(Fault::Forgets);
    assert!(forgets.reads_wrong > 0 && forgets.text().contains("NOT KEPT"), "{forgets:?}");
    let poisoned = full_with(Fault::Poisoned);
    assert_eq!((poisoned.failure.as_deref(), poisoned.resumed), (Some("poisoned"), false));
    assert_eq!((poisoned.reads, poisoned.reads_wrong), (3000, 0), "it is opened again all the same");
    let keeps = full_with(Fault::KeepsAll);
    assert_eq!((keeps.deletes_refused, keeps.deletes, keeps.is_kept()), (1, 1000, false));
}

#[test]
fn growth_above_a_changed_limit_is_detected() {
    let changed_with = |fault, seconds| {
        let opener = Opens { fault, ..Opens::default() };
        let options = BenchArgs { space_limit: Some(SpaceLimit::Bytes(FULL_BYTES)), ..options() };
        Changed::run(&options, &opener, Path::new("in memory"), FULL_BYTES, seconds).unwrap().unwrap()
    };
    let sound = changed_with(Fault::None, 2.0);
    assert!(sound.is_kept() && sound.looks > 0 && sound.calls.deletes > 0, "{sound:?}");
    let forgets = changed_with(Fault::ForgetsLimit, 2.0);
    assert!(forgets.breaches > 0 && !forgets.is_kept(), "{forgets:?}");
    let refuses = changed_with(Fault::KeepsAll, 0.5);
    assert!(refuses.calls.deletes_refused > 0 && !refuses.is_kept(), "{refuses:?}");
}

#[test]
fn key_count_follows_the_volume_and_both_stores_are_reported() {
    let parent = std::env::temp_dir().join(format!("bench-volume-test-{}", std::process::id()));
    let opener = Opens { volume: Some((parent.clone(), FULL_BYTES)), ..Opens::default() };
    let told = BenchArgs { volume: Some(parent.clone()), ..options() };
    let report = contract(&told, &opener, Path::new("in memory")).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(report.volume.len(), 2);
    assert!(report.is_kept() && report.volume.iter().all(|on| on.keys == 3000 && on.full.enospc > 0));
    assert_eq!(json["volume"][0]["limit_bytes"], serde_json::Value::Null);
    assert_eq!(json["volume"][1]["limit_bytes"], 2 * report.volume[1].volume_bytes);
    for field in [
        "available_bytes",
        "available_bytes_min",
        "live_bytes",
        "writes",
        "enospc",
        "deletes_refused",
        "longest_wait_ms",
        "resumed",
        "resumed_after_ms",
        "reads",
        "reads_wrong",
        "files_damaged",
        "failure",
    ] {
        assert!(json["volume"][0].get(field).is_some(), "{field} is missing");
    }
    assert!(report.text().contains("volume, none"));
    assert!(!parent.exists(), "stores are removed");
    for values in ["fixed:1000", "mixed-8k"] {
        let told = BenchArgs { num: None, values: Some(values.parse().unwrap()), ..options() };
        let keys = crate::volume::keys_of(&told, 90_000_000);
        let live = |num| BenchArgs { num: Some(num), ..told.clone() }.live_bytes();
        assert!((88_000_000..=90_000_000).contains(&live(keys)), "{values}: {keys} keys");
    }
}

#[test]
fn unset_options_take_the_contract_defaults() {
    let args = BenchArgs { num: None, value_size: None, seconds: None, ..options() };
    let told = with_defaults(&args);
    assert_eq!((told.num, told.value_size, told.seconds), (Some(65_536), Some(16_000), Some(600.0)));
    assert_eq!(told.limit_bytes().unwrap(), (65_536.0 * 16_024.0 * 1.5) as u64);
}
