use super::*;
use crate::LogStore;
use crate::secondary::SecondaryLogs;
use datadriven::TestCase;
use io::sim::SimEnv;
use std::error::Error;
use std::path::Path;
use store::names::{self, FileKind};
use store::secondary_engine::SecondaryEngine;

fn below(limit: u64) -> Options {
    Options { space_limit: Some(limit), ..Options::default() }
}

/// Parses bytes: `11MiB`, `1GiB`, `2000000000`.
fn bytes(text: &str) -> u64 {
    let units = [("MiB", 20), ("GiB", 30)];
    let found = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = found.unwrap_or((text, 0));
    digits.parse::<u64>().unwrap_or_else(|e| panic!("{text}: {e}")) << shift
}

/// Validates options under their own limit, and as a secondary engine under the limit of the store.
fn judged(group: Option<u64>, limit: &str) -> String {
    let limit_bytes = (limit != "none").then(|| bytes(limit));
    let options = Options { space_limit: limit_bytes, group_bytes: group, ..Options::default() };
    if let Err(e) = options.check() {
        return format!("{limit}: {e}\n");
    }
    let (longest, reserve) = (options.longest_group() >> 10, options.overhead_bytes() >> 10);
    format!("{limit}: groups of {longest} KiB, {reserve} KiB kept free\n")
}

fn beside(group: Option<u64>, limit: &str) -> String {
    let limit_bytes = (limit != "none").then(|| bytes(limit));
    let options = Options { group_bytes: group, ..Options::default() };
    let terms = SecondaryLogs::new(&options).unwrap().below(limit_bytes).terms();
    format!("{limit}: groups of {} KiB\n", terms.group_bytes >> 10)
}

fn run(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let group = case.try_take_arg::<String>("group")?.map(|text| bytes(&text));
    let limits: Vec<String> = case.try_take_args("limits")?.unwrap_or_else(|| vec!["none".into()]);
    let limits = limits.iter();
    let out = match &*case.directive {
        "logs-alone" => limits.map(|limit| judged(group, limit)).collect(),
        "beside-keys" => limits.map(|limit| beside(group, limit)).collect(),
        "written" => {
            let written = |limit: &String| {
                let options = Options { group_bytes: group, ..below(bytes(limit)) };
                format!("{limit}: the longest group has {} KiB\n", longest_written(&options) >> 10)
            };
            limits.map(written).collect()
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/options/scripts", |file| file.run(run));
}

/// Returns the lengths of the groups of a fast writer.
fn longest_written(options: &Options) -> u64 {
    let sim = SimEnv::new(1);
    let dir = Path::new("/logs");
    let store = LogStore::open(&sim.env(), dir, options).unwrap();
    let log = store.create_log("log").unwrap();
    let mut longest = 0;
    for lsn in 1..=400 {
        log.append(lsn, &[7; 60_000], Durability::Buffered).unwrap();
        log.trim(lsn).unwrap();
        let files = sim.env().fs.list(dir).unwrap().into_iter();
        let groups = files.filter(|file| matches!(names::parse(&file.name), Some(FileKind::Log(_))));
        longest = groups.map(|file| file.len).max().unwrap_or(0).max(longest);
    }
    longest
}
