//! How many threads a round is worth waiting for, and how long.
//!
//! Where several threads sync again and again, each as soon as its last one is done, a round that begins as soon as the one
//! before it ends takes only those who came meanwhile: the others have just been woken. Then two halves take turns, and
//! each sync lasts two rounds. If the round waits until they are back, which takes a part of the time of a write, one write
//! serves all, and each sync lasts one round and that moment.
//!
//! So who finds the token free waits for the *company*: as many threads as the last round made durable, with those who waited
//! for the next when it ended. **The last to come leads**, at once: nobody is woken for it. One of the others, the *watch*, waits
//! for a moment only, and leads if that passes. The watch is bound to a round: whoever begins it ends the watch.
//!
//! That is for few threads ([`COMPANY_MAX`]). What many have to do between two syncs takes as long as a write, and two halves that take
//! turns do it while the other half's is under way: with 64 threads on two cores waiting for all of them cost a tenth of the throughput.
//!
//! What it costs where nobody comes back: a part of the time of a write, once; and if most of the company stays away again
//! and again, nothing is waited for in the next round, in the next two, four, and so on up to [`SKIPS_MAX`]. One thread alone is its own
//! company and waits for nobody.

/// Larger companies are not waited for.
pub(super) const COMPANY_MAX: usize = 16;
/// The longest that anybody waits for others.
const PATIENCE_NS_MAX: u64 = 2_000_000;
/// The part of the time of a round that the next is waited for: one over this.
const PATIENCE_PART: u64 = 2;
/// Rounds that are not waited for, at most, after waiting was in vain again.
const SKIPS_MAX: u32 = 64;

/// See the module. All of it is of the state that the lock of the commit guards.
#[derive(Debug, Default)]
pub(super) struct Company {
    /// Whom to wait for.
    size: usize,
    /// Threads that have come for the next round.
    came: usize,
    /// Threads that came for the present one.
    present: usize,
    /// The round that somebody watches.
    watched: u64,
    /// So many rounds are not waited for.
    skips: u32,
    /// So many were not after the last time that it was in vain.
    last_skips: u32,
    /// How long to wait.
    patience_ns: u64,
    /// How often somebody watched.
    #[cfg(test)]
    watches: u64,
}

/// A thread that asks for a page: for which round it is counted, and whether it has watched.
#[derive(Debug, Default)]
pub(super) struct Comer {
    round: Option<u64>,
    has_watched: bool,
}

/// What a thread does that finds the token free.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It leads.
    Lead,
    /// It waits for the others.
    Wait,
    /// It waits for the others, for so many nanoseconds, and then leads if nobody did.
    Watch(u64),
}

impl Comer {
    /// It waits for a round. True: it is to be counted for it.
    pub fn comes(&mut self, round: u64) -> bool {
        self.round.replace(round) != Some(round)
    }
}

impl Company {
    /// A thread waits for the next round.
    pub fn comes(&mut self) {
        self.came += 1;
    }

    /// A thread waits for the present round.
    pub fn joins(&mut self) {
        self.present += 1;
    }

    /// The present round goes on without the token, with so many threads.
    pub fn takes_off(&mut self) -> usize {
        std::mem::take(&mut self.present)
    }

    /// True if there are at least `crowd`, and a part of them of one in `parts` has come for the next round.
    pub fn has_part(&self, parts: usize, crowd: usize) -> bool {
        self.size >= crowd && self.came * parts >= self.size
    }

    /// Threads that have come, for the present round or for the next.
    pub fn under_way(&self) -> usize {
        self.present + self.came
    }

    /// What a thread does for a round that has not begun. It has come for it. A round takes one of so many parts of the company.
    pub fn plan(&mut self, comer: &mut Comer, round: u64, parts: usize) -> Plan {
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

    /// How often somebody watched.
    #[cfg(test)]
    pub fn watches(&self) -> u64 {
        self.watches
    }

    /// How many have come for the next round, of how many: before a watch.
    pub fn missing(&self) -> usize {
        self.size.saturating_sub(self.came)
    }

    /// A watch is over: so many were missing when it began. `led`: somebody has led the round.
    pub fn watch_ends(&mut self, missing: usize, led: bool) {
        if led || 2 * self.missing() <= missing {
            self.last_skips = 0;
        } else {
            self.last_skips = (2 * self.last_skips).clamp(1, SKIPS_MAX);
            self.skips = self.last_skips;
        }
    }

    /// A round begins, with those who have come. `is_sync`: they are what it is for.
    pub fn begins(&mut self, is_sync: bool) {
        self.present = std::mem::take(&mut self.came);
        if is_sync {
            self.skips = self.skips.saturating_sub(1);
        }
    }

    /// A round for those who have come was over after so long; so many threads wait for others that are in flight.
    pub fn ends(&mut self, took_ns: u64, others: usize) {
        self.size = self.present + others + self.came;
        self.patience_ns = (took_ns / PATIENCE_PART).min(PATIENCE_NS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK_NS: u64 = 100_000;

    /// After a round of so many.
    fn after(threads: usize) -> Company {
        let mut company = Company::default();
        (0..threads).for_each(|_| company.comes());
        company.begins(true);
        company.ends(TOOK_NS, 0);
        company
    }

    /// Another thread comes for a round.
    fn comes(company: &mut Company, round: u64) -> Plan {
        let mut comer = Comer::default();
        assert!(comer.comes(round));
        company.comes();
        company.plan(&mut comer, round, 1)
    }

    #[test]
    fn the_last_to_come_leads() {
        let mut company = after(4);
        let plans: Vec<Plan> = (0..4).map(|_| comes(&mut company, 2)).collect();
        assert_eq!(plans, [Plan::Watch(TOOK_NS / PATIENCE_PART), Plan::Wait, Plan::Wait, Plan::Lead]);
    }

    #[test]
    fn of_a_company_in_parts_one_part_is_waited_for() {
        let mut company = after(5);
        let plans: Vec<Plan> = (0..3)
            .map(|_| {
                company.comes();
                company.plan(&mut Comer::default(), 2, 2)
            })
            .collect();
        assert_eq!(plans, [Plan::Watch(TOOK_NS / PATIENCE_PART), Plan::Wait, Plan::Lead]);
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        for threads in [0, 1] {
            assert_eq!(comes(&mut after(threads), 2), Plan::Lead);
        }
    }

    #[test]
    fn many_are_not_waited_for() {
        assert!(matches!(comes(&mut after(COMPANY_MAX), 2), Plan::Watch(_)));
        assert_eq!(comes(&mut after(COMPANY_MAX + 1), 2), Plan::Lead);
    }

    /// A watch that leads, a thread that looks again, and one that comes while the round is written.
    #[test]
    fn everybody_counts_once_for_a_round() {
        let mut company = after(3);
        let mut watch = Comer::default();
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
    fn waiting_in_vain_becomes_rare_and_comes_back_when_it_pays() {
        let mut company = after(8);
        let (mut watches, mut round) = (0, 2);
        for _ in 0..1000 {
            let mut comer = Comer::default();
            company.comes();
            if let Plan::Watch(_) = company.plan(&mut comer, round, 1) {
                watches += 1;
                let missing = company.missing();
                company.watch_ends(missing, false);
            }
            company.begins(true);
            // Others come meanwhile, and not before.
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

    /// A round that was written for something else says nothing of who syncs, and ends the watch.
    #[test]
    fn other_work_ends_a_watch_and_changes_no_size() {
        let mut company = after(2);
        let mut first = Comer::default();
        company.comes();
        assert!(matches!(company.plan(&mut first, 2, 1), Plan::Watch(_)));
        company.begins(false);
        assert_eq!((company.size, company.missing()), (2, 2));
        assert!(matches!(comes(&mut company, 3), Plan::Watch(_)), "somebody else watches the round after");
    }
}
