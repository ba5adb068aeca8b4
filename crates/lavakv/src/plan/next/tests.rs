//! Decisions about simulated stores: no engine, no disk, no clock.

use super::*;
use crate::context::family_options::FamilyOptions;
use crate::context::options::Options;
use crate::plan::answer::Purpose;
use crate::plan::facts::{FamilyFacts, Frozen};
use crate::plan::in_progress::{InProgressSet, Subcompactions};
use crate::plan::rest::Suspension;
use crate::plan::scrub::SCRUB_PAUSE_NS;
use crate::tree::family::Family;
use crate::tree::family_work::SettledTree;
use base::{Uid, ValueKind, key};
use datadriven::TestCase;
use memtable::MemTable;
use std::error::Error;
use std::sync::Arc;
use store::run::Job;
use version::{Dependency, Edit, FileMeta, Record, State, Volume, VsstMeta};

/// The facts of a simulated store.
struct MadeUp {
    options: Options,
    in_progress: InProgressSet,
    families: Vec<FamilyFacts>,
    frozen: Vec<(SeqNo, Arc<Family>)>,
    volatile_seq: SeqNo,
    joined_seq: SeqNo,
    cleanup: Option<bool>,
    survey: Option<Arc<Family>>,
    quiet: bool,
    gc_paused: bool,
    now_ns: u64,
    /// Bytes that `would_grant` allows.
    grants: u64,
    room: Option<(u64, u64)>,
    fill_percent: u64,
    log_taken_ns: u64,
    hurried: bool,
    rest: Rest,
    tombstones_in_memory: bool,
    /// A family whose versions kept for snapshots are not known yet.
    retained_unknown: Option<u32>,
    written_bytes: u64,
}

impl Facts for MadeUp {
    fn options(&self) -> &Options {
        &self.options
    }
    fn in_progress(&self) -> &InProgressSet {
        &self.in_progress
    }
    fn families(&self) -> &[FamilyFacts] {
        &self.families
    }
    fn families_with_work(&self) -> &[FamilyFacts] {
        &self.families
    }
    fn settled_trees(&self) -> SettledTree {
        SettledTree::default()
    }
    fn frozen(&self) -> Frozen {
        let memtable = || vec![Arc::new(MemTable::new(1))];
        let ready = self.frozen.iter().map(|(seq, family)| (*seq, family.clone(), memtable()));
        let (volatile_seq, joined_seq) = (self.volatile_seq, self.joined_seq);
        Frozen { ready: ready.collect(), volatile_seq, joined_seq }
    }
    fn has_frozen(&self) -> bool {
        self.families.iter().any(|family| !family.read_state.frozen.is_empty())
    }
    fn cleanup(&self) -> Option<bool> {
        self.cleanup
    }

    fn to_survey(&self) -> Option<Arc<Family>> {
        self.survey.clone()
    }
    fn is_quiet(&self) -> bool {
        self.quiet
    }
    fn gc_is_paused(&self) -> bool {
        self.gc_paused
    }
    fn now_ns(&self) -> u64 {
        self.now_ns
    }
    fn would_grant(&self, input_bytes: u64) -> bool {
        input_bytes <= self.grants
    }
    fn is_short_of_space(&self) -> bool {
        self.room.is_some_and(|(room, margin)| room < margin / 2)
    }
    fn room(&self) -> Option<(u64, u64)> {
        self.room
    }
    fn has_own_limit(&self) -> bool {
        self.room.is_some()
    }
    fn used_bytes(&self) -> u64 {
        1 << 30
    }
    fn log_taken_ns(&self) -> u64 {
        self.log_taken_ns
    }
    fn is_hurried(&self) -> bool {
        self.hurried
    }
    fn fill_percent(&self) -> u64 {
        self.fill_percent
    }
    fn has_snapshots(&self) -> bool {
        false
    }
    fn has_released(&self, _table: u64) -> bool {
        false
    }
    fn knows_retained(&self, family: u32) -> bool {
        self.retained_unknown != Some(family)
    }
    fn has_tombstones_in_memory(&self) -> bool {
        self.tombstones_in_memory
    }
    fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
    fn rest(&self) -> Rest {
        self.rest
    }
    fn is_leaving(&self, _table: version::names::FileKind) -> bool {
        false
    }
    fn is_uncollected(&self, _vsst: u64) -> bool {
        false
    }
}

/// A family of a script: its tables, and a vSST of a megabyte.
struct MadeUpFamily {
    id: u32,
    /// Tables in level 0. The last level has one table.
    level_0: u64,
    /// Bytes of vSST 100 referenced by the table of the last level. `None`: there is no vSST.
    live: Option<u64>,
    /// Bytes of it that each table of level 0 references, and thus supersedes in the last level.
    hidden: u64,
    /// Point tombstones of each table.
    tombstones: u64,
    volume: Volume,
    table_len: u64,
    file_bytes: Option<u64>,
}

impl MadeUpFamily {
    /// Parses a line of a script: `family 1 level-0=5 live-kib=256`.
    fn of(line: &str) -> MadeUpFamily {
        let mut words = line.split_whitespace().skip(1);
        let id = words.next().expect("a family has a number").parse().unwrap();
        let volume = Volume::DIRECTORY;
        let mut out = MadeUpFamily {
            id,
            level_0: 0,
            live: None,
            hidden: 0,
            tombstones: 0,
            volume,
            table_len: 1 << 20,
            file_bytes: None,
        };
        for (name, value) in words.map(|word| word.split_once('=').unwrap_or((word, "0"))) {
            let number: u64 = value.parse().unwrap();
            match name {
                "level-0" => out.level_0 = number,
                "live-kib" => out.live = Some(number << 10),
                "hidden-kib" => out.hidden = number << 10,
                "tombstones" => out.tombstones = number,
                "table-kib" => out.table_len = number << 10,
                "file-kib" => out.file_bytes = Some(number << 10),
                "on-fast-tier" => out.volume = Volume::FAST,
                other => panic!("a family has no {other}"),
            }
        }
        out
    }

    /// Returns a table over all keys that references these bytes of vSST 100.
    fn table(&self, number: u64, referenced_bytes: u64) -> FileMeta {
        let (raw_bytes, stored_bytes) = (referenced_bytes, referenced_bytes);
        let dependency = Dependency { blob_id: 100, count: referenced_bytes / 1000, raw_bytes, stored_bytes };
        let uses = if referenced_bytes > 0 { vec![dependency] } else { Vec::new() };
        FileMeta {
            len: self.table_len,
            raw_bytes: self.table_len + raw_bytes,
            tombstones: self.tombstones,
            ..table(number, uses)
        }
    }

    fn facts(&self, store: &Options) -> FamilyFacts {
        let mut records = Vec::new();
        if self.live.is_some() {
            let end = |user_key: &[u8]| key::encode(user_key, 1, ValueKind::Value);
            let (smallest, largest, record_bytes) = (end(b"a"), end(b"z"), 1 << 20);
            let volume = self.volume;
            let meta =
                VsstMeta { number: 100, volume, record_bytes, smallest, largest, ..VsstMeta::default() };
            records.push(Record::AddVsst { family: self.id, meta });
        }
        let mut add = |level, meta| records.push(Record::AddFile { family: self.id, level, meta });
        add(6, self.table(1, self.live.unwrap_or(0)));
        (0..self.level_0).for_each(|n| add(0, self.table(10 + n, self.hidden)));
        let options = FamilyOptions::default().expert(|expert| {
            expert.vsst_bytes = 64 << 10;
            expert.file_bytes = self.file_bytes.unwrap_or(expert.file_bytes);
            expert.level_base_bytes = self.file_bytes.unwrap_or(expert.level_base_bytes);
        });
        facts_of(self.id, records, options, store)
    }
}

fn table(number: u64, uses: Vec<Dependency>) -> FileMeta {
    let end = |user_key: &[u8]| key::encode(user_key, number, ValueKind::Reference);
    FileMeta {
        number,
        uid: Uid::from_words(number, number),
        len: 1 << 20,
        smallest: end(b"a"),
        largest: end(b"z"),
        min_seq: number,
        max_seq: number,
        entries: 1000,
        uses: uses.into(),
        ..FileMeta::default()
    }
}

fn facts_of(id: u32, files: Vec<Record>, options: FamilyOptions, store: &Options) -> FamilyFacts {
    let mut records = vec![Record::CreateFamily { id, name: "made up".into(), options: Vec::new() }];
    records.extend(files);
    let state = State::empty(Uid::default(), 1).apply(Edit(records)).unwrap();
    let version = state.family(id).unwrap().version.clone();
    let family = Family::new(id, format!("family {id}"), options, version, 1, store, Default::default());
    FamilyFacts::of(Arc::new(family))
}

/// Returns a family of four tables, each of which references a little of each of forty vSSTs.
fn scattered(store: &Options) -> FamilyFacts {
    const VSST: u64 = 64 << 10;
    let mut records = Vec::new();
    let end = |user_key: &[u8], kind| key::encode(user_key, 1, kind);
    for number in 100..140 {
        let (smallest, largest) = (end(b"a", ValueKind::Value), end(b"h", ValueKind::Value));
        let meta = VsstMeta { number, record_bytes: VSST, smallest, largest, ..VsstMeta::default() };
        records.push(Record::AddVsst { family: 1, meta });
    }
    for (number, keys) in [[b"a", b"b"], [b"c", b"d"], [b"e", b"f"], [b"g", b"h"]].into_iter().enumerate() {
        let of = |blob_id| Dependency { blob_id, count: 16, raw_bytes: VSST / 4, stored_bytes: VSST / 4 };
        let [smallest, largest] = keys.map(|key| end(key, ValueKind::Reference));
        let of_table = table(1 + number as u64, (100..140).map(of).collect());
        let meta = FileMeta { smallest, largest, raw_bytes: 10 * VSST, ..of_table };
        records.push(Record::AddFile { family: 1, level: 6, meta });
    }
    let options = FamilyOptions::default().expert(|expert| expert.vsst_bytes = VSST);
    facts_of(1, records, options, store)
}

/// A compaction without pieces for helpers.
struct Done;

impl Subcompactions for Done {
    fn help(self: Arc<Self>) -> Box<dyn Job> {
        unreachable!("nobody asks")
    }
}

fn empty(threads: usize) -> MadeUp {
    MadeUp {
        options: Options { background_threads: threads, ..Options::default() },
        in_progress: InProgressSet::default(),
        families: Vec::new(),
        frozen: Vec::new(),
        volatile_seq: 0,
        joined_seq: 0,
        cleanup: None,
        survey: None,
        quiet: false,
        gc_paused: false,
        now_ns: 1,
        grants: u64::MAX,
        room: None,
        fill_percent: 0,
        log_taken_ns: 0,
        hurried: false,
        rest: Rest::Awake,
        tombstones_in_memory: false,
        retained_unknown: None,
        written_bytes: 0,
    }
}

fn class_of(name: &str) -> JobClass {
    use JobClass::*;
    let all = [Log, Flush, Cleanup, Metrics, L0, UrgentGc, Compaction, Gc, Move, Scrub, Idle];
    all.into_iter().find(|class| format!("{class:?}") == name).unwrap_or_else(|| panic!("no class is {name}"))
}

fn purpose_of(name: &str) -> Purpose {
    let all = [Purpose::Garbage, Purpose::UrgentGarbage, Purpose::FastTier];
    all.into_iter().find(|p| format!("{p:?}") == name).unwrap_or_else(|| panic!("no purpose is {name}"))
}

fn rest_of(name: &str) -> Rest {
    use Suspension::*;
    let suspended = [Option, Snapshot, Backup].map(Rest::Suspended);
    let all = [Rest::Awake, Rest::On].into_iter().chain(suspended);
    let is_of = |rest: &Rest| format!("{rest:?}").trim_end_matches(')').ends_with(name);
    all.into_iter().find(is_of).unwrap_or_else(|| panic!("no rest is {name}"))
}

/// Describes a plan.
fn said(plan: Option<JobPlan>) -> String {
    match plan {
        None => "nothing".into(),
        Some(JobPlan::Flush(units)) => {
            let ids: Vec<String> = units.iter().map(|(family, _)| format!("family {}", family.id)).collect();
            format!("flush {}", ids.join(", "))
        }
        Some(JobPlan::Cleanup { prune }) => format!("cleanup, prune: {prune}"),
        Some(JobPlan::Compact(Compact::Asked(family))) => {
            format!("requested compaction of family {}", family.id)
        }
        Some(JobPlan::Compact(Compact::Picked(family, c))) => {
            format!("compact level {} of family {}", c.level, family.id)
        }
        Some(JobPlan::Compact(Compact::Step(family, ..))) => {
            format!("relocate values of family {}", family.id)
        }
        Some(JobPlan::Help(job)) => format!("help job {job}"),
        Some(JobPlan::Collect(c)) => {
            let purpose = match c.purpose {
                Purpose::Garbage => "",
                Purpose::UrgentGarbage => ", urgent",
                Purpose::FastTier => ", down from the fast tier",
            };
            format!("collect family {}{purpose}", c.family.id)
        }
        Some(JobPlan::Move(_, table, _)) => format!("move table {}", table.number),
        Some(JobPlan::Survey(family)) => format!("survey family {}", family.id),
        Some(JobPlan::FreezeTombstones) => "freeze tombstones".into(),
        Some(JobPlan::ReadRetained(family)) => format!("read what is retained in family {}", family.id),
        Some(JobPlan::Scrub) => "scrub".into(),
    }
}

/// The store of a script.
struct Script {
    facts: MadeUp,
    /// The running compaction in pieces.
    pieces: Option<Arc<dyn Subcompactions>>,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Outcome<String> {
        let input = std::mem::take(&mut case.input);
        if case.directive == "store" {
            self.store(case)?;
        }
        self.set(case)?;
        self.set_running(case)?;
        let out = match &*case.directive {
            "store" | "families" => self.families(&input),
            "set" => String::new(),
            "frozen" => self.freeze(&input),
            "next" => self.next(case)?,
            "account" => self.account(case)?,
            "begin-relocation" => self.begin_relocation(case)?,
            _ => self.change(case)?,
        };
        case.expect_empty()?;
        Ok(out)
    }

    /// Replaces the store by an idle one without families.
    fn store(&mut self, case: &mut TestCase) -> Outcome<()> {
        let without: Vec<String> = case.try_take_args("without")?.unwrap_or_default();
        let ablation = crate::Ablation::without(without.iter().map(String::as_str))?;
        let is_scrubbed = case.take_flag("scrubbed")?;
        self.facts = empty(case.try_take_arg("threads")?.unwrap_or(4));
        self.pieces = None;
        let expert = |expert: &mut crate::ExpertOptions| {
            expert.scrub_bytes_per_s = if is_scrubbed { 1 << 20 } else { 0 };
            expert.ablation = ablation;
        };
        self.facts.options = self.facts.options.clone().expert(expert);
        Ok(())
    }

    /// Sets the bytes rewritten by rest work, and the end of the last rest.
    fn account(&mut self, case: &mut TestCase) -> Outcome<String> {
        let account = &mut self.facts.in_progress.learned.rest;
        if let Some(mib) = case.try_take_arg::<u64>("rested-at-mib")? {
            account.end(mib << 20);
        }
        account.spend(case.try_take_arg::<u64>("spend-mib")?.unwrap_or(0) << 20, 1 << 30);
        Ok(String::new())
    }

    fn families(&mut self, input: &str) -> String {
        let options = &self.facts.options;
        let family = |line: &str| match line {
            "scattered family 1" => scattered(options),
            line => MadeUpFamily::of(line).facts(options),
        };
        self.facts.families = input.lines().map(family).collect();
        String::new()
    }

    /// Changes settings of the store, which stay until the next change.
    fn set(&mut self, case: &mut TestCase) -> Outcome<()> {
        let facts = &mut self.facts;
        let family = |families: &[FamilyFacts], id: u32| {
            families.iter().find(|of| of.family.id == id).map(|of| of.family.clone())
        };
        if let Some(id) = case.try_take_arg("to-survey")? {
            facts.survey = family(&facts.families, id);
        }
        if let Some(what) = case.try_take_arg::<String>("cleanup")? {
            facts.cleanup = (what != "none").then_some(what == "prune");
        }
        if let Some(room) = case.try_take_args::<u64>("room-and-margin-mib")? {
            facts.room = (room.len() == 2).then(|| (room[0] << 20, room[1] << 20));
        }
        facts.quiet = case.try_take_arg("quiet")?.unwrap_or(facts.quiet);
        if let Some(rest) = case.try_take_arg::<String>("rest")? {
            facts.rest = rest_of(&rest);
        }
        facts.tombstones_in_memory =
            case.try_take_arg("tombstones-in-memory")?.unwrap_or(facts.tombstones_in_memory);
        if let Some(family) = case.try_take_arg("retained-unknown")? {
            facts.retained_unknown = (family > 0).then_some(family);
        }
        facts.written_bytes =
            case.try_take_arg("written-mib")?.map_or(facts.written_bytes, |mib: u64| mib << 20);
        facts.gc_paused = case.try_take_arg("gc-paused")?.unwrap_or(facts.gc_paused);
        facts.hurried = case.try_take_arg("writers-wait")?.unwrap_or(facts.hurried);
        facts.fill_percent = case.try_take_arg("fill-percent")?.unwrap_or(facts.fill_percent);
        facts.grants = case.try_take_arg("grants-kib")?.map_or(facts.grants, |kib: u64| kib << 10);
        facts.volatile_seq = case.try_take_arg("volatile-below")?.unwrap_or(facts.volatile_seq);
        facts.joined_seq = case.try_take_arg("joined-below")?.unwrap_or(facts.joined_seq);
        let ms = |ms: u64| ms * 1_000_000;
        facts.now_ns = case.try_take_arg("now-ms")?.map_or(facts.now_ns, ms);
        facts.log_taken_ns = case.try_take_arg("log-busy-ms")?.map_or(facts.log_taken_ns, ms);
        let expert = &mut facts.options.expert;
        expert.compactions_max = case.try_take_arg("compactions-max")?.unwrap_or(expert.compactions_max);
        let ablation = &mut expert.ablation;
        ablation.log_first = case.try_take_arg("log-first")?.unwrap_or(ablation.log_first);
        ablation.correlated = case.try_take_arg("correlated")?.unwrap_or(ablation.correlated);
        Ok(())
    }

    /// Changes running jobs, which stay until the next change.
    fn set_running(&mut self, case: &mut TestCase) -> Outcome<()> {
        let running = &mut self.facts.in_progress.running;
        running.flush = case.try_take_arg("flush-runs")?.unwrap_or(running.flush);
        running.cleanup = case.try_take_arg("cleanup-runs")?.unwrap_or(running.cleanup);
        running.survey = case.try_take_arg("survey-runs")?.unwrap_or(running.survey);
        running.relocation = case.try_take_arg("relocation-runs")?.unwrap_or(running.relocation);
        running.values_go_down = case.try_take_arg("values-go-down")?.unwrap_or(running.values_go_down);
        running.compactions = case.try_take_arg("compactions")?.unwrap_or(running.compactions);
        running.helpers = case.try_take_arg("helpers")?.unwrap_or(running.helpers);
        running.collections = case.try_take_arg("collections")?.unwrap_or(running.collections);
        let urgent = case.try_take_arg("urgent-collections")?;
        running.urgent_collections = urgent.unwrap_or(running.urgent_collections);
        Ok(())
    }

    /// Freezes memtables: `family 1 at 9`.
    fn freeze(&mut self, input: &str) -> String {
        let frozen = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, id, _, seq] = words[..] else { panic!("{line} is no memtable") };
            let family = self.facts.families.iter().find(|of| of.family.id == id.parse::<u32>().unwrap());
            (seq.parse().unwrap(), family.unwrap().family.clone())
        };
        self.facts.frozen = input.lines().map(frozen).collect();
        String::new()
    }

    /// Prints the next job. With `learn` the notes are kept for later commands.
    fn next(&mut self, case: &mut TestCase) -> Outcome<String> {
        let below = case.try_take_arg::<String>("below")?.map_or(JobClass::Idle, |name| class_of(&name));
        let mut notes = PlanNotes::default();
        let mut out = said(next(&self.facts, below, &mut notes)) + "\n";
        if case.take_flag("learn")? {
            out += &self.learn(notes);
        }
        Ok(out)
    }

    fn learn(&mut self, notes: PlanNotes) -> String {
        let learned = &mut self.facts.in_progress.learned;
        let mut out = String::new();
        let ids = |noted: &[(u32, std::sync::Weak<version::Version>)]| {
            format!("{:?}", noted.iter().map(|n| n.0).collect::<Vec<_>>())
        };
        if !notes.at_rest.is_empty() {
            out += &format!("noted: no compaction pays in families {}\n", ids(&notes.at_rest));
        }
        if !notes.unaffordable.is_empty() {
            out +=
                &format!("noted: the account leaves deleted data in families {}\n", ids(&notes.unaffordable));
        }
        if !notes.exposes_none.is_empty() {
            out += &format!("noted: no compaction exposes enough in families {}\n", ids(&notes.exposes_none));
        }
        if let Some(slots) = notes.gc_slots {
            out += &format!("noted: collections at once: {slots}\n");
        }
        if notes.leaves_room_for_log {
            out += "noted: a thread is left to the log\n";
        }
        if notes.manual_is_void {
            out += "noted: the requested compaction cannot start\n";
        }
        learned.at_rest.extend(notes.at_rest);
        learned.exposes_none.extend(notes.exposes_none);
        learned.log_load = notes.log_load.unwrap_or(learned.log_load);
        out
    }

    /// Begins the next job, which must be a step of a relocation walk, and records its costs.
    fn begin_relocation(&mut self, case: &mut TestCase) -> Outcome<String> {
        let is_kept = case.take_flag("keep")?;
        for _ in 0..case.try_take_arg("times")?.unwrap_or(1) {
            let mut notes = PlanNotes::default();
            let begun = next(&self.facts, JobClass::Idle, &mut notes);
            let Some(JobPlan::Compact(Compact::Step(_, _, walk))) = begun else {
                return Ok(said(begun) + "\n");
            };
            notes.spent.iter().for_each(|(family, spent)| family.demand.spent(*spent));
            if is_kept {
                self.facts.in_progress.learned.walks.insert(1, *walk);
            }
        }
        Ok(String::new())
    }

    /// Applies other changes of the store.
    fn change(&mut self, case: &mut TestCase) -> Outcome<String> {
        let (facts, in_progress) = (&self.facts.families, &mut self.facts.in_progress);
        match &*case.directive {
            "begin-scrub" => in_progress.scrub.begin(),
            "end-scrub" => in_progress.scrub.end(self.facts.now_ns, SCRUB_PAUSE_NS),
            "collects" => {
                let purpose = purpose_of(&case.take_arg::<String>("purpose")?);
                in_progress.collects(case.take_arg("family")?, &[100], purpose);
            }
            "abandoned" => drop(in_progress.learned.abandoned.insert(case.take_arg("vsst")?, u64::MAX)),
            "lasting" => {
                in_progress.learned.lasting = vec![(case.take_arg("family")?, case.take_arg("vsst")?)]
            }
            "scanned" => facts[0].family.demand.scanned(case.take_arg("lost")?, 0, 1),
            "written" => facts[0].family.demand.written(case.take_arg("bytes")?),
            "left-by-collections" => {
                let taken = crate::plan::relocation::taken(&self.facts, &facts[0]);
                return Ok(format!("{} vSSTs\n", taken.len()));
            }
            "in-pieces" => {
                let whole = self.pieces.get_or_insert_with(|| Arc::new(Done));
                let (job, class) = (case.take_arg("job")?, class_of(&case.take_arg::<String>("class")?));
                in_progress.wants_help(job, class, case.take_arg("threads")?, Arc::downgrade(whole));
            }
            "help" => {
                let is_there = in_progress.helps(case.take_arg("job")?).is_some();
                let merges = in_progress.running.merges();
                return Ok(format!("{}, {merges} merges\n", if is_there { "helps" } else { "is over" }));
            }
            "end-of-pieces" => self.pieces = None,
            "damage" => return self.damage(case.take_arg("family")?),
            "request-compaction" => self.request_compaction(),
            "policy-unknown" => self.facts.families[0].policy = None,
            other => return Err(format!("no command is called {other}").into()),
        }
        Ok(String::new())
    }

    /// Sets a file of a family aside as damaged.
    fn damage(&mut self, id: u32) -> Outcome<String> {
        let families = &mut self.facts.families;
        let damaged = families.iter().find(|of| of.family.id == id).ok_or("there is no such family")?;
        damaged.family.set_aside(lsm::policy::SetAside::default());
        *families = families.iter().map(|of| FamilyFacts::of(of.family.clone())).collect();
        Ok(String::new())
    }

    /// Requests a manual compaction of level 0 of the first family.
    fn request_compaction(&mut self) {
        let (of, busy) = (&self.facts.families[0], lsm::policy::InProgress::default());
        let asked = of.policy.as_ref().unwrap().levels(&of.of_tree(&busy)).unwrap();
        self.facts.in_progress.claim(&asked);
        let caller = crate::plan::requests::Caller::new(None);
        self.facts.in_progress.manual =
            Some(crate::plan::in_progress::ManualCompaction { compaction: asked, caller });
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/plan/next/scripts", |file| {
        let mut script = Script { facts: empty(4), pieces: None };
        file.run(|case| script.run(case));
    });
}
