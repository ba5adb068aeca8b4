//! The reports of a run, one per load, in one store.

use super::TailReport;
use crate::report::{Latency, human_count, human_us};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// All reports of a run. JSON has a single report as such, and several as a list `points` below
/// their common fields.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Told", into = "Told")]
pub struct TailRuns {
    /// In order of the loads.
    pub points: Vec<TailReport>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Told {
    Several {
        engine: String,
        workload: String,
        sustained_per_s: f64,
        found_by_second: Vec<u64>,
        machine: String,
        points: Vec<TailReport>,
    },
    One(Box<TailReport>),
}

impl From<Told> for TailRuns {
    fn from(told: Told) -> Self {
        match told {
            Told::One(report) => TailRuns { points: vec![*report] },
            Told::Several { points, .. } => TailRuns { points },
        }
    }
}

impl From<TailRuns> for Told {
    fn from(TailRuns { mut points }: TailRuns) -> Self {
        if points.len() == 1 {
            return Told::One(Box::new(points.remove(0)));
        }
        let first = points.first().cloned().unwrap_or_default();
        Told::Several {
            engine: first.engine,
            workload: first.workload,
            sustained_per_s: first.sustained_per_s,
            found_by_second: first.found_by_second,
            machine: first.machine,
            points,
        }
    }
}

impl TailReport {
    /// Returns the load in percent of the sustained rate: 0 for a closed loop.
    pub fn load_percent(&self) -> f64 {
        let tail = self.options.as_ref().map(|options| &options.tail);
        tail.filter(|tail| tail.closed.is_none()).and_then(|tail| tail.loads().iter().next()).unwrap_or(0.0)
    }
}

impl TailRuns {
    /// Formats the table of a single report, or a line per report.
    pub fn table(&self) -> String {
        let [first, _, ..] = self.points.as_slice() else {
            return self.points.iter().map(TailReport::table).collect();
        };
        let mut out = first.heading();
        let _ = writeln!(
            out,
            "sustained {}/s\n\n{:>6} {:>9} {:>9}  {:<42}{:<42}{:>7} {:>8} {:>8}  {:<8} ",
            human_count(first.sustained_per_s.round() as u64),
            "load",
            "due/s",
            "done/s",
            "writes: P50, P99, P99.9, max",
            "reads: P50, P99, P99.9, max",
            "windows",
            "waits, s",
            "device",
            "longest wait, over the budget"
        );
        self.points.iter().for_each(|point| out.push_str(&point.line()));
        out
    }
}

impl TailReport {
    fn line(&self) -> String {
        let times = |l: &Latency| match l.count {
            0 => "-".to_owned(),
            _ => [l.p50_us, l.p99_us, l.p999_us, l.max_us].map(human_us).join(", "),
        };
        let waits = self.engine_times.as_ref().map_or("-".to_owned(), |times| {
            let over = times.over_budget().map_or(String::new(), |over| format!(", {}", human_count(over)));
            human_us(times.longest_wait_us()) + &over
        });
        let two = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.2}"));
        format!(
            "{:>4} % {:>9} {:>9}  {:<42}{:<42}{:>7} {:>8} {:>8}  {waits}{}\n",
            self.load_percent(),
            human_count(self.rate_per_s.round() as u64),
            human_count(self.ops_per_s.round() as u64),
            times(&self.write),
            times(&self.read),
            self.stall_windows_100ms,
            two(self.wait_seconds),
            two(self.device_bytes_per_user_byte),
            if self.kept_up { "" } else { "  FELL BEHIND" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tail::TailArgs;

    fn point(load: f64) -> TailReport {
        let mut options = crate::args::tests::args("tail");
        options.tail = TailArgs::default().at(load);
        TailReport {
            engine: "e".to_owned(),
            sustained_per_s: 2000.0,
            rate_per_s: 20.0 * load,
            kept_up: load < 90.0,
            options: Some(options),
            ..TailReport::default()
        }
    }

    #[test]
    fn several_reports_are_serialized_as_a_list() {
        let json = |runs: &TailRuns| serde_json::to_value(runs).unwrap();
        let one = TailRuns { points: vec![point(80.0)] };
        assert_eq!(json(&one), serde_json::to_value(&one.points[0]).unwrap());
        assert_eq!(json(&one)["options"]["tail"]["load"], 80.0);
        let several = TailRuns { points: vec![point(20.0), point(95.0)] };
        let told = json(&several);
        assert_eq!(
            (&told["sustained_per_s"], &told["points"][1]["rate_per_s"]),
            (&2000.0.into(), &1900.0.into())
        );
        for runs in [one, several] {
            let again: TailRuns = serde_json::from_value(json(&runs)).unwrap();
            assert_eq!((again.points.len(), again.table()), (runs.points.len(), runs.table()));
            assert_eq!(json(&again), json(&runs));
        }
    }

    #[test]
    fn each_load_has_its_line() {
        let table = TailRuns { points: vec![point(20.0), point(95.0)] }.table();
        let lines: Vec<&str> = table.lines().rev().take(2).collect();
        assert!(lines[1].trim_start().starts_with("20 %       400"), "{table}");
        assert!(
            lines[0].trim_start().starts_with("95 %     1,900") && lines[0].ends_with("FELL BEHIND"),
            "{table}"
        );
        assert!(table.contains("sustained 2,000/s"), "{table}");
    }
}
