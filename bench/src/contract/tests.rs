use super::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// A store in memory that takes a quarter more than its data, and keeps to its limit.
struct Bounded {
    values: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    limit_bytes: u64,
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
        if !known && self.bytes() > self.limit_bytes {
            return Err(lavastore::Error::new(ErrorKind::NoSpace, "the limit is reached").into());
        }
        self.values.lock().unwrap().insert(key.to_vec(), value.to_vec());
        Ok(())
    }
    fn write(&self, batch: &crate::Batch, _durable: bool) -> Result<()> {
        batch.iter().try_for_each(|(key, value)| self.put(key, value))
    }
    fn delete(&self, key: &[u8]) -> Result<()> {
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
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Opens;

impl Opener for Opens {
    fn name(&self) -> String {
        "bounded".to_owned()
    }
    fn open(&self, _dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Bounded {
            values: Mutex::default(),
            limit_bytes: settings.space_limit_bytes.unwrap_or(u64::MAX),
        }))
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
    let report = contract(&options(), &Opens, &dir.join("bench-contract-none")).unwrap();
    assert!(report.enospc > 0 && report.resumed && report.full_writes > 0, "{report:?}");
    assert_eq!((report.limit_breaches, report.options.seconds), (0, Some(0.5)));
    assert!(report.limit_samples > 0 && report.mb_per_s > 0.0 && report.unlimited_mb_per_s > 0.0);
    let text = report.text();
    assert!(text.contains("writes resumed") && text.contains("above a limit  0 of"), "{text}");
}

#[test]
fn what_is_not_told_has_the_defaults_of_the_contract() {
    let args = BenchArgs { num: None, value_size: None, seconds: None, ..options() };
    let told = with_defaults(&args);
    assert_eq!((told.num, told.value_size, told.seconds), (Some(65_536), Some(16_000), Some(600.0)));
    assert_eq!(told.limit_bytes().unwrap(), (65_536.0 * 16_024.0 * 1.5) as u64);
}
