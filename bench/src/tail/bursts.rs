//! Measurements of bursts: completed requests, waits, and the time until memory and level 0 are
//! back at their idle size.
//!
//! Clients count their requests by burst ([`Tally`]); a sampler reads the engine's backlog ten
//! times per second ([`watch`]). *Back* is the first sample from which on the backlog stays small
//! until the next burst: at most the idle backlog, or that at the start of the burst if larger.

use super::queue::{ArrivalQueue, Bursts, Schedule};
use crate::engine::{Backlog, Engine};
use crate::host::{now_ns, wait_until};
use crate::report::{human_bytes, human_count, human_us};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sampling interval.
const LOOK_NS: u64 = 100_000_000;

/// Counts of the requests of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Completed requests.
    pub done: u64,
    /// Requests completed before the end of the burst.
    pub done_within: u64,
    /// Maximum time from the due time to completion or the end of the run.
    pub longest_ns: u64,
    /// Completion time of the last request.
    pub last_end_ns: u64,
}

/// Counts of a client by burst.
#[derive(Clone, Debug)]
pub struct Tally {
    bursts: Bursts,
    start_ns: u64,
    seen: Vec<Seen>,
}

impl Tally {
    /// Returns the counts for clients of a queue, if it has bursts.
    pub fn of(queue: &ArrivalQueue, start_ns: u64) -> Option<Tally> {
        match queue.schedule()? {
            Schedule::Steady(_) => None,
            Schedule::Bursts(bursts) => Some(Tally { bursts, start_ns, seen: Vec::new() }),
        }
    }

    fn burst(&mut self, number: u64) -> (&mut Seen, u64) {
        let burst = self.bursts.burst_of(number);
        let over_ns = self.start_ns + burst * self.bursts.period_ns() + self.bursts.burst_ns;
        let at = burst as usize;
        self.seen.resize(self.seen.len().max(at + 1), Seen::default());
        (&mut self.seen[at], over_ns)
    }

    /// Counts a completed request.
    pub fn done(&mut self, number: u64, due_ns: u64, end_ns: u64) {
        let (seen, over_ns) = self.burst(number);
        seen.done += 1;
        seen.done_within += u64::from(end_ns <= over_ns);
        seen.longest_ns = seen.longest_ns.max(end_ns.saturating_sub(due_ns));
        seen.last_end_ns = seen.last_end_ns.max(end_ns);
    }

    /// Counts a request that was not begun before the end.
    pub fn left(&mut self, number: u64, due_ns: u64, end_ns: u64) {
        let (seen, _) = self.burst(number);
        seen.longest_ns = seen.longest_ns.max(end_ns.saturating_sub(due_ns));
    }
}

/// Merges the counts of all clients.
pub fn merged(tallies: &[Tally]) -> Vec<Seen> {
    let mut all: Vec<Seen> = Vec::new();
    for tally in tallies {
        all.resize(all.len().max(tally.seen.len()), Seen::default());
        for (all, seen) in all.iter_mut().zip(&tally.seen) {
            all.done += seen.done;
            all.done_within += seen.done_within;
            all.longest_ns = all.longest_ns.max(seen.longest_ns);
            all.last_end_ns = all.last_end_ns.max(seen.last_end_ns);
        }
    }
    all
}

/// A sample of the engine's backlog.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Time since the first request was due.
    pub ns: u64,
    /// Backlog.
    pub backlog: Option<Backlog>,
    /// Waits of writers so far.
    pub waits_ns: BTreeMap<String, u64>,
}

/// Samples until `stop`, and once more.
pub fn watch(engine: &dyn Engine, start_ns: u64, stop: &AtomicBool) -> Vec<Look> {
    let mut looks = Vec::new();
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        let ns = now_ns() - start_ns;
        looks.push(Look { ns, backlog: engine.backlog(), waits_ns: engine.waits_ns().into_iter().collect() });
        if is_last {
            return looks;
        }
        wait_until(start_ns + ns + LOOK_NS);
    }
}

/// Schedule and load of the bursts.
#[derive(Clone, Debug)]
pub struct Plan {
    bursts: Bursts,
    /// Requests of each burst over all queues.
    offered: Vec<u64>,
    start_ns: u64,
    /// End of the schedule after the start.
    seconds_ns: u64,
}

impl Plan {
    /// Returns the plan of all these queues; `None` without bursts.
    pub fn of<'a>(
        queues: impl Iterator<Item = &'a ArrivalQueue>,
        start_ns: u64,
        seconds_ns: u64,
    ) -> Option<Plan> {
        let mut plan: Option<Plan> = None;
        for queue in queues {
            let Some(Schedule::Bursts(bursts)) = queue.schedule() else { continue };
            let (each, count) = (bursts.each(), queue.count());
            let plan = plan.get_or_insert(Plan { bursts, offered: Vec::new(), start_ns, seconds_ns });
            let number = count.div_ceil(each) as usize;
            plan.offered.resize(plan.offered.len().max(number), 0);
            for (offered, burst) in plan.offered.iter_mut().zip(0..) {
                *offered += count.saturating_sub(burst * each).min(each);
            }
        }
        plan
    }

    /// Returns the reports of all bursts.
    pub fn reports(&self, seen: &[Seen], looks: &[Look]) -> Vec<BurstReport> {
        let of = |(number, offered): (usize, &u64)| {
            self.report(number as u64, *offered, seen.get(number).copied().unwrap_or_default(), looks)
        };
        self.offered.iter().enumerate().map(of).collect()
    }

    fn report(&self, burst: u64, offered: u64, seen: Seen, looks: &[Look]) -> BurstReport {
        let from_ns = burst * self.bursts.period_ns();
        // The last burst may be cut.
        let over_ns = (from_ns + self.bursts.burst_ns).min(self.seconds_ns);
        let is_last = burst + 1 >= self.offered.len() as u64;
        let next_ns = if is_last { u64::MAX } else { from_ns + self.bursts.period_ns() };
        let seconds = (over_ns - from_ns) as f64 / 1e9;
        let before = looks.iter().rfind(|look| look.ns <= from_ns).or(looks.first());
        let during: Vec<&Look> = looks.iter().filter(|look| look.ns > from_ns && look.ns < next_ns).collect();
        let held =
            |of: fn(&Backlog) -> u64| during.iter().filter_map(|look| look.backlog.as_ref().map(of)).max();
        let back = |of: fn(&Backlog) -> u64, rest: fn(&Backlog) -> u64| {
            let before = before?.backlog.as_ref()?;
            back_ns(&during, of, of(before).max(rest(before)), over_ns).map(|ns| ns as f64 / 1e9)
        };
        BurstReport {
            burst,
            offered,
            offered_per_s: offered as f64 / seconds,
            achieved_per_s: seen.done_within as f64 / seconds,
            left: offered.saturating_sub(seen.done),
            longest_wait_ms: seen.longest_ns as f64 / 1e6,
            done_after_seconds: seen.last_end_ns.saturating_sub(self.start_ns + over_ns) as f64 / 1e9,
            waits_ms: before.map(|before| waits_ms(before, during.last())).unwrap_or_default(),
            memory_peak_bytes: held(|b| b.memory_bytes),
            level_0_peak_files: held(|b| b.level_0_files),
            memory_back_seconds: back(|b| b.memory_bytes, |b| b.memory_rest_bytes),
            level_0_back_seconds: back(|b| b.level_0_files, |b| b.level_0_rest_files),
        }
    }
}

/// Returns the time after `over_ns` from which on the value stays at most `most`; `None` if the
/// last sample is above.
fn back_ns(looks: &[&Look], of: fn(&Backlog) -> u64, most: u64, over_ns: u64) -> Option<u64> {
    let held: Vec<(u64, u64)> =
        looks.iter().filter_map(|look| Some((look.ns, of(look.backlog.as_ref()?)))).collect();
    let from = held.iter().rposition(|(_, held)| *held > most).map_or(0, |above| above + 1);
    held.get(from).map(|(ns, _)| ns.saturating_sub(over_ns))
}

fn waits_ms(before: &Look, after: Option<&&Look>) -> BTreeMap<String, f64> {
    let all = after.map(|after| &after.waits_ns).into_iter().flatten();
    let grown = all.map(|(cause, ns)| {
        let old = before.waits_ns.get(cause).copied().unwrap_or(0);
        (cause.clone(), ns.saturating_sub(old) as f64 / 1e6)
    });
    grown.filter(|(_, ms)| *ms > 0.0).collect()
}

/// The report of a burst.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstReport {
    /// Number of the burst, from 0.
    pub burst: u64,
    /// Requests due in the burst.
    pub offered: u64,
    /// The same per second.
    pub offered_per_s: f64,
    /// Requests per second completed during the burst.
    pub achieved_per_s: f64,
    /// Requests not begun at the end of the run.
    pub left: u64,
    /// Maximum delay of its requests in milliseconds.
    pub longest_wait_ms: f64,
    /// Time from its end to the completion of the last request; 0 without a backlog.
    pub done_after_seconds: f64,
    /// Waits of writers by cause from its beginning to the next burst, in milliseconds, without
    /// zeros.
    pub waits_ms: BTreeMap<String, f64>,
    /// Maximum memtable memory; `None` if unknown.
    pub memory_peak_bytes: Option<u64>,
    /// Maximum number of tables in level 0.
    pub level_0_peak_files: Option<u64>,
    /// Time from its end until memory stays at its idle size; `None` if not before the next burst.
    pub memory_back_seconds: Option<f64>,
    /// The same for level 0.
    pub level_0_back_seconds: Option<f64>,
}

impl BurstReport {
    /// Formats the burst as text.
    pub fn text(&self) -> String {
        let back =
            |seconds: Option<f64>| seconds.map_or("not back".to_owned(), |s| format!("back after {s:.1} s"));
        let waits: Vec<String> =
            self.waits_ms.iter().map(|(cause, ms)| format!("{cause} {ms:.1} ms")).collect();
        let waits = if waits.is_empty() { "none".to_owned() } else { waits.join(", ") };
        let mut text = format!(
            "{}/s of {}/s offered ({:.0} %), all done {:.1} s after it{}; longest wait {}; waits {waits}",
            human_count(self.achieved_per_s.round() as u64),
            human_count(self.offered_per_s.round() as u64),
            100.0 * self.achieved_per_s / self.offered_per_s.max(f64::MIN_POSITIVE),
            self.done_after_seconds,
            if self.left == 0 { String::new() } else { format!(", BUT {} LEFT", human_count(self.left)) },
            human_us(self.longest_wait_ms * 1e3),
        );
        if let (Some(bytes), Some(files)) = (self.memory_peak_bytes, self.level_0_peak_files) {
            text += &format!(
                "; memory {} at most, {}; level 0 {files} tables at most, {}",
                human_bytes(bytes),
                back(self.memory_back_seconds),
                back(self.level_0_back_seconds)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests;
