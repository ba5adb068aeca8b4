use super::*;
use datadriven::TestCase;
use io::Rng;
use std::error::Error;

/// A disk model: the latency of a single read without its bytes, the number of reads in parallel,
/// and the time of a byte over all of them.
#[derive(Clone, Copy, Default)]
struct Disk {
    latency_ns: u64,
    ways: u64,
    byte_ps: u64,
}

impl Disk {
    /// Returns the duration of `reads` that begin together.
    fn takes_ns(self, reads: u64, bytes: u64) -> u64 {
        self.latency_ns + self.latency_ns * (reads - 1) / self.ways + bytes * self.byte_ps / 1000
    }

    /// Prints the results that a measurement should find.
    fn said(self) -> String {
        let (request_ns, mib_ns) = (self.latency_ns / self.ways, self.byte_ps * MIB as u64 / 1000);
        let [gap, window] = [request_ns, self.latency_ns].map(|ns| (ns * 1000).checked_div(self.byte_ps));
        let bytes = |n: Option<u64>| n.map_or("no bound".into(), |n| format!("{n} B"));
        format!("request {request_ns} ns, MiB {mib_ns} ns, gap {}, window {}\n", bytes(gap), bytes(window))
    }
}

fn said(report: ReadCostReport) -> String {
    let ReadCostReport { request_ns, mib_ns, gap_bytes, window_bytes } = report;
    if report == ReadCostReport::default() {
        return "nothing is known\n".into();
    }
    format!("request {request_ns} ns, MiB {mib_ns} ns, gap {gap_bytes} B, window {window_bytes} B\n")
}

/// Learns from single reads and from bursts of these lengths, with a deviation of up to a tenth.
fn learnt(disk: Disk, alone: &[u64], many: &[u64]) -> ReadCost {
    let (cost, mut rng, mut now_ns) = (ReadCost::new(), Rng::new(5), 1000);
    let mut burst = |reads: u64, len: u64| {
        let ns = disk.takes_ns(reads, reads * len) * (90 + rng.below(21)) / 100;
        cost.begins(now_ns, reads, reads * len);
        now_ns += ns;
        cost.ends(now_ns, reads);
        now_ns += 7;
    };
    for round in 0..500 {
        alone.iter().for_each(|len| burst(1, *len));
        many.iter().for_each(|len| burst(4 + round % 60, *len));
    }
    cost
}

struct Script {
    disk: Disk,
    cost: ReadCost,
    now_ns: u64,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Outcome<String> {
        let mut out = String::new();
        match &*case.directive {
            "disk" => {
                let (latency_ns, ways) = (case.take_arg("latency-ns")?, case.take_arg("ways")?);
                self.disk = Disk { latency_ns, ways, byte_ps: case.take_arg("ps-per-byte")? };
                out = self.disk.said();
            }
            "learn" => {
                let alone: Vec<u64> = case.try_take_args("alone")?.unwrap_or_default();
                let many: Vec<u64> = case.try_take_args("many")?.unwrap_or_default();
                // Later than all bursts so far.
                (self.cost, self.now_ns) = (learnt(self.disk, &alone, &many), 1 << 50);
                out = said(self.cost.report());
            }
            "new" => (self.cost, self.now_ns) = (ReadCost::new(), 0),
            "report" => out = said(self.cost.report()),
            "in-use" => {
                let ReadCosts { gap_bytes, window_bytes } = self.cost.get();
                let bytes = |n: Option<u64>| n.map_or("default".into(), |n| format!("{n} B"));
                out = format!("gap {}, window {}\n", bytes(gap_bytes), bytes(window_bytes));
            }
            "give-gap" => self.cost.give_gap(case.take_arg("bytes")?),
            "switch-off" => self.cost.switch_off(),
            "bursts" => out = self.bursts(case)?,
            "counted" => out = self.counted(),
            _ => self.reads(case)?,
        }
        case.expect_empty()?;
        Ok(out)
    }

    /// Runs a command that begins or ends reads.
    fn reads(&mut self, case: &mut TestCase) -> Outcome<()> {
        self.now_ns = case.try_take_arg("at")?.unwrap_or(self.now_ns);
        let reads = case.take_arg("reads")?;
        match &*case.directive {
            "begin" => (0..case.try_take_arg("times")?.unwrap_or(1)).for_each(|_| {
                self.cost.begins(self.now_ns, reads, 100);
                self.now_ns += 1;
            }),
            "end" => self.cost.ends(self.now_ns, reads),
            "begin-beside" => self.cost.begin_unlimited(self.now_ns, reads),
            "end-beside" => self.cost.end_unlimited(reads),
            other => return Err(format!("no command is called {other}").into()),
        }
        Ok(())
    }

    /// Runs the bursts of the lines, in rounds: `reads 1 bytes 4096 ns 80000`, or without `ns` the
    /// duration of the disk model. `beside`: the number of reads without a waiting thread. Prints
    /// the rounds in which the costs in use change.
    fn bursts(&mut self, case: &mut TestCase) -> Outcome<String> {
        let (rounds, beside) =
            (case.try_take_arg("rounds")?.unwrap_or(1), case.try_take_arg("beside")?.unwrap_or(0));
        let bursts: Vec<Vec<u64>> = case
            .input
            .lines()
            .map(|line| line.split_whitespace().filter_map(|w| w.parse().ok()).collect())
            .collect();
        let (mut changes, mut before) = (Vec::new(), self.cost.get());
        for round in 1..=rounds {
            if beside > 0 {
                self.cost.begin_unlimited(self.now_ns, beside);
            }
            for burst in &bursts {
                let (reads, bytes) = (burst[0], burst[1]);
                self.cost.begins(self.now_ns, reads, bytes);
                self.now_ns += burst.get(2).copied().unwrap_or_else(|| self.disk.takes_ns(reads, bytes));
                self.cost.ends(self.now_ns, reads);
            }
            self.cost.end_unlimited(beside);
            self.now_ns += 1000;
            let now = self.cost.get();
            if now != before {
                changes.push(round);
            }
            before = now;
        }
        let is_listed = case.take_flag("changes")?;
        Ok(if is_listed { format!("changed after rounds {changes:?}\n") } else { String::new() })
    }

    fn counted(&self) -> String {
        let counted = |of: &AtomicU64| of.load(Relaxed);
        let learnt = lock(&self.cost.learnt);
        let sums = learnt.alone.iter().chain(&learnt.many);
        let (bursts, reads, ns) =
            sums.fold((0, 0, 0), |sum, of| (sum.0 + of.bursts, sum.1 + of.reads, sum.2 + of.ns));
        let (begun, ended) = (counted(&self.cost.begun), counted(&self.cost.ended));
        format!("begun {begun}, ended {ended}; learnt from {bursts} bursts of {reads} reads, {ns} ns\n")
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/pacing/read_cost/scripts", |file| {
        let mut script = Script { disk: Disk::default(), cost: ReadCost::new(), now_ns: 0 };
        file.run(|case| script.run(case));
    });
}
