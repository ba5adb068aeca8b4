//! Commit groups: how many threads a round waits for, and how long.
//!
//! Several threads may sync repeatedly, each as soon as its previous sync is done. A round that
//! begins as soon as the previous one ends takes only the threads that arrived in between, since
//! the others have just been woken. Then two halves alternate, and each sync lasts two rounds. If
//! the round waits until the woken threads are back, for a part of the time of a write, one write
//! serves all of them. Each sync then lasts one round and that wait.
//!
//! So a thread that finds the token free waits for its *commit group*: as many threads as the last
//! round made durable, plus those that waited for the next round when it ended. **The last thread
//! to arrive leads**, at once, so no thread needs to be woken. One of the others, the *watch*,
//! waits with a timeout, and leads when it expires. The watch is bound to a round and ends when any
//! thread begins that round.
//!
//! This applies to few threads ([`COMPANY_MAX`]). With many threads, their work between two syncs
//! takes as long as a write, and one half does that work while the write of the other half is in
//! flight. With 64 threads on two cores, waiting for all of them costs a tenth of the throughput.
//!
//! If no thread comes back, the cost is a part of the time of one write. If most of the commit
//! group stays away repeatedly, the next round does not wait, then the next two, four, and so on up
//! to [`SKIPS_MAX`]. A single thread is its own commit group and never waits.

/// Largest commit group that a round waits for.
pub(super) const COMPANY_MAX: usize = 16;
/// Longest wait for a commit group.
const PATIENCE_NS_MAX: u64 = 2_000_000;
/// Wait for a commit group, as a fraction of the time of a round: one over this.
const PATIENCE_PART: u64 = 2;
/// Most rounds that do not wait, after another wait in vain.
const SKIPS_MAX: u32 = 64;

/// State of the commit group; guarded by the lock of [`Commit`](super::Commit).
#[derive(Debug, Default)]
pub(super) struct CommitGroup {
    /// Threads to wait for.
    size: usize,
    /// Threads that have arrived for the next round.
    came: usize,
    /// Threads that arrived for the present round.
    present: usize,
    /// The round that has a watch.
    watched: u64,
    /// Coming rounds that do not wait.
    skips: u32,
    /// Value of `skips` after the last wait in vain.
    last_skips: u32,
    /// Wait for a commit group.
    patience_ns: u64,
    /// Number of watches.
    #[cfg(test)]
    watches: u64,
}

/// A waiter: the round that it is counted for, and whether it has been the watch.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    round: Option<u64>,
    has_watched: bool,
}

/// Action of a thread that finds the token free.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Lead the round.
    Lead,
    /// Wait for the commit group.
    Wait,
    /// Wait for the commit group for this many nanoseconds, then lead if no other thread did.
    Watch(u64),
}

impl Waiter {
    /// Assigns the waiter to a round. Returns true if it must be counted for that round.
    pub fn comes(&mut self, round: u64) -> bool {
        self.round.replace(round) != Some(round)
    }
}

impl CommitGroup {
    /// Counts a waiter for the next round.
    pub fn comes(&mut self) {
        self.came += 1;
    }

    /// Counts a waiter for the present round.
    pub fn joins(&mut self) {
        self.present += 1;
    }

    /// Takes the threads of the present round, which continues without the token.
    pub fn release_token_for_write(&mut self) -> usize {
        std::mem::take(&mut self.present)
    }

    /// Returns true if the commit group has at least `crowd` threads, and one in `parts` has
    /// arrived for the next round.
    pub fn has_part(&self, parts: usize, crowd: usize) -> bool {
        self.size >= crowd && self.came * parts >= self.size
    }

    /// Returns the number of threads that have arrived, for the present round or the next.
    pub fn under_way(&self) -> usize {
        self.present + self.came
    }

    /// Chooses the action of a thread, which has been counted, for a round that has not begun. A
    /// round takes one of `parts` parts of the commit group.
    pub fn plan(&mut self, comer: &mut Waiter, round: u64, parts: usize) -> Plan {
        let complete = self.came * parts >= self.size || self.size > COMPANY_MAX;
        if complete || comer.has_watched || self.skips > 0 || self.patience_ns == 0 {
            return Plan::Lead;
        }
        if self.watched == round {
            return Plan::Wait;
        }
        self.watched = round;
        #[cfg(test)]
        {
            self.watches += 1;
        }
        comer.has_watched = true;
        Plan::Watch(self.patience_ns)
    }

    /// Returns the number of watches.
    #[cfg(test)]
    pub fn watches(&self) -> u64 {
        self.watches
    }

    /// Returns the number of threads of the commit group that have not arrived for the next round.
    pub fn missing(&self) -> usize {
        self.size.saturating_sub(self.came)
    }

    /// Ends a watch, at whose start `missing` threads had not arrived. `led`: another thread led
    /// the round.
    pub fn watch_ends(&mut self, missing: usize, led: bool) {
        if led || 2 * self.missing() <= missing {
            self.last_skips = 0;
        } else {
            self.last_skips = (2 * self.last_skips).clamp(1, SKIPS_MAX);
            self.skips = self.last_skips;
        }
    }

    /// Begins a round with the threads that have arrived. `is_sync`: the round serves them.
    pub fn begins(&mut self, is_sync: bool) {
        self.present = std::mem::take(&mut self.came);
        if is_sync {
            self.skips = self.skips.saturating_sub(1);
        }
    }

    /// Ends a round that took `took_ns`; `others` threads wait for rounds in flight.
    pub fn ends(&mut self, took_ns: u64, others: usize) {
        self.size = self.present + others + self.came;
        self.patience_ns = (took_ns / PATIENCE_PART).min(PATIENCE_NS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK_NS: u64 = 100_000;

    /// Returns the state after a round of `threads`.
    fn after(threads: usize) -> CommitGroup {
        let mut company = CommitGroup::default();
        (0..threads).for_each(|_| company.comes());
        company.begins(true);
        company.ends(TOOK_NS, 0);
        company
    }

    /// Another thread arrives for a round.
    fn comes(company: &mut CommitGroup, round: u64) -> Plan {
        let mut comer = Waiter::default();
        assert!(comer.comes(round));
        company.comes();
        company.plan(&mut comer, round, 1)
    }

    #[test]
    fn the_last_arriving_waiter_leads() {
        let mut company = after(4);
        let plans: Vec<Plan> = (0..4).map(|_| comes(&mut company, 2)).collect();
        assert_eq!(plans, [Plan::Watch(TOOK_NS / PATIENCE_PART), Plan::Wait, Plan::Wait, Plan::Lead]);
    }

    #[test]
    fn alternating_halves_wait_only_for_their_own_half() {
        let mut company = after(5);
        let plans: Vec<Plan> = (0..3)
            .map(|_| {
                company.comes();
                company.plan(&mut Waiter::default(), 2, 2)
            })
            .collect();
        assert_eq!(plans, [Plan::Watch(TOOK_NS / PATIENCE_PART), Plan::Wait, Plan::Lead]);
    }

    #[test]
    fn a_single_waiter_leads_at_once() {
        for threads in [0, 1] {
            assert_eq!(comes(&mut after(threads), 2), Plan::Lead);
        }
    }

    #[test]
    fn large_commit_groups_are_not_waited_for() {
        assert!(matches!(comes(&mut after(COMPANY_MAX), 2), Plan::Watch(_)));
        assert_eq!(comes(&mut after(COMPANY_MAX + 1), 2), Plan::Lead);
    }

    /// Covers a watch that leads, a thread that checks again, and a thread that arrives during the
    /// write.
    #[test]
    fn each_waiter_counts_once_per_round() {
        let mut company = after(3);
        let mut watch = Waiter::default();
        assert!(watch.comes(2));
        company.comes();
        assert!(matches!(company.plan(&mut watch, 2, 1), Plan::Watch(_)));
        assert!(!watch.comes(2), "it was counted");
        assert_eq!((company.missing(), company.plan(&mut watch, 2, 1)), (2, Plan::Lead));
        company.begins(true);
        company.joins();
        company.comes();
        company.ends(TOOK_NS, 0);
        assert_eq!((company.size, company.came), (3, 1));
    }

    #[test]
    fn unsuccessful_waits_back_off_until_one_succeeds() {
        let mut company = after(8);
        let (mut watches, mut round) = (0, 2);
        for _ in 0..1000 {
            let mut comer = Waiter::default();
            company.comes();
            if let Plan::Watch(_) = company.plan(&mut comer, round, 1) {
                watches += 1;
                let missing = company.missing();
                company.watch_ends(missing, false);
            }
            company.begins(true);
            // The other threads arrive during the round, and not before.
            (0..7).for_each(|_| company.joins());
            company.ends(TOOK_NS, 0);
            round += 1;
        }
        assert!((10..30).contains(&watches), "{watches} of 1000 rounds were waited for in vain");
        while company.skips > 0 {
            company.begins(true);
        }
        company.watch_ends(7, true);
        assert_eq!((company.skips, company.last_skips), (0, 0));
    }

    /// A round for other work says nothing about the threads that sync, and ends the watch.
    #[test]
    fn other_work_ends_a_wait_without_changing_the_group_size() {
        let mut company = after(2);
        let mut first = Waiter::default();
        company.comes();
        assert!(matches!(company.plan(&mut first, 2, 1), Plan::Watch(_)));
        company.begins(false);
        assert_eq!((company.size, company.missing()), (2, 2));
        assert!(matches!(comes(&mut company, 3), Plan::Watch(_)), "somebody else watches the round after");
    }
}
