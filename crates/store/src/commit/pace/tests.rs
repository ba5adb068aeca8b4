//! Group lengths on a simulated clock.

use super::*;
use datadriven::TestCase;
use std::error::Error;

const MS: u64 = 1_000_000;

/// Successive groups, each of whole pages and no longer than the longest.
struct Groups {
    pace: Pace,
    longest: u64,
    now_ns: u64,
}

impl Groups {
    fn new(longest_kib: u64) -> Groups {
        Groups { pace: Pace::default(), longest: longest_kib << 10, now_ns: 1 << 40 }
    }

    /// Makes a group that lasts for `lasts_ms`, and returns its length in bytes.
    fn make(&mut self, live_bytes: u64, lasts_ms: u64) -> u64 {
        let len = self.pace.next_len(self.longest, self.now_ns, live_bytes);
        assert!(len.is_multiple_of(PAGE as u64) && len <= self.longest, "{len}");
        self.pace.made(len, self.now_ns);
        self.now_ns += MS * lasts_ms;
        len
    }
}

fn run(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let mut groups = Groups::new(case.take_arg("longest-kib")?);
    let out = match &*case.directive {
        // Lengths of the groups of a short log, by how long each lasts.
        "groups" => {
            let lasts: Vec<u64> = case.take_args("last-ms")?;
            let times = case.try_take_arg("times")?.unwrap_or(1);
            let lens = lasts.repeat(times).into_iter().map(|ms| format!("{} KiB", groups.make(0, ms) >> 10));
            lens.collect::<Vec<_>>().join(", ") + "\n"
        }
        // Number of groups of a log that grows to `mib` without a release.
        "long-log" => {
            let (until, lasts_ms) = (case.take_arg::<u64>("mib")? << 20, case.take_arg("each-lasts-ms")?);
            let (mut live_bytes, mut count) = (0, 0);
            while live_bytes < until {
                live_bytes += groups.make(live_bytes, lasts_ms);
                count += 1;
            }
            format!("{count} groups\n")
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/commit/pace/scripts", |file| file.run(run));
}
