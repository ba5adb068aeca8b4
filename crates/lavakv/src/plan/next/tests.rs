//! Decisions about stores that are made up: no engine, no disk, no clock.

use super::*;
use crate::context::family_options::FamilyOptions;
use crate::context::options::Options;
use crate::plan::answer::Purpose;
use crate::plan::facts::{FamilyFacts, Frozen};
use crate::plan::in_progress::{InPieces, InProgressSet};
use crate::tree::family::Family;
use base::{Uid, ValueKind, key};
use memtable::MemTable;
use std::sync::Arc;
use store::run::Job;
use version::{Dependency, Edit, FileMeta, Record, State, Volume, VsstMeta};

/// A store as facts tell of it.
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
    /// What may be written still; room that is left.
    grants: u64,
    room: Option<(u64, u64)>,
    fill_percent: u64,
    log_taken_ns: u64,
    hurried: bool,
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
    fn frozen(&self) -> Frozen {
        let memtable = || vec![Arc::new(MemTable::new(1))];
        let ready = self.frozen.iter().map(|(seq, family)| (*seq, family.clone(), memtable()));
        let (volatile_seq, joined_seq) = (self.volatile_seq, self.joined_seq);
        Frozen { ready: ready.collect(), volatile_seq, joined_seq }
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
    fn are_let_go(&self, _snapshots: &[SeqNo]) -> bool {
        true
    }
    fn is_leaving(&self, _table: version::names::FileKind) -> bool {
        false
    }
    fn is_uncollected(&self, _vsst: u64) -> bool {
        false
    }
}

/// A table over all keys, and what it references of the vSST 100.
fn table(number: u64, referenced_bytes: u64) -> FileMeta {
    let end = |user_key: &[u8]| key::encode(user_key, number, ValueKind::Reference);
    let (raw_bytes, stored_bytes) = (referenced_bytes, referenced_bytes);
    let dependency = Dependency { blob_id: 100, count: referenced_bytes / 1000, raw_bytes, stored_bytes };
    FileMeta {
        number,
        uid: Uid::from_words(number, number),
        len: 1 << 20,
        smallest: end(b"a"),
        largest: end(b"z"),
        min_seq: number,
        max_seq: number,
        entries: 1000,
        raw_bytes: (1 << 20) + raw_bytes,
        uses: if referenced_bytes > 0 { vec![dependency] } else { Vec::new() }.into(),
        ..FileMeta::default()
    }
}

/// A family with so many tables in level 0, one in the last level, and a vSST of a megabyte of which so much is referenced.
fn family(id: u32, l0: u64, referenced_bytes: Option<u64>) -> FamilyFacts {
    family_on(id, l0, referenced_bytes, Volume::DIRECTORY)
}

/// The same with the vSST on this disk.
fn family_on(id: u32, l0: u64, referenced_bytes: Option<u64>, volume: Volume) -> FamilyFacts {
    let options = FamilyOptions::default().expert(|expert| expert.vsst_bytes = 64 << 10);
    family_of(id, (l0, referenced_bytes, volume), options)
}

fn family_of(
    id: u32,
    (l0, referenced_bytes, volume): (u64, Option<u64>, Volume),
    options: FamilyOptions,
) -> FamilyFacts {
    let mut records = vec![Record::CreateFamily { id, name: "made up".into(), options: Vec::new() }];
    if referenced_bytes.is_some() {
        let end = |user_key: &[u8]| key::encode(user_key, 1, ValueKind::Value);
        let (smallest, largest, record_bytes) = (end(b"a"), end(b"z"), 1 << 20);
        let meta = VsstMeta { number: 100, volume, record_bytes, smallest, largest, ..VsstMeta::default() };
        records.push(Record::AddVsst { family: id, meta });
    }
    let mut add = |level, meta| records.push(Record::AddFile { family: id, level, meta });
    add(6, table(1, referenced_bytes.unwrap_or(0)));
    (0..l0).for_each(|n| add(0, table(10 + n, 0)));
    let state = State::empty(Uid::default(), 1).apply(Edit(records)).unwrap();
    let version = state.family(id).unwrap().version.clone();
    let store = Options::default();
    let name = format!("family {id}");
    let family = Family::new(id, name, options, version, 1, &store, Default::default());
    FamilyFacts::of(Arc::new(family))
}

/// Everything but what one of these tests alone is of: these stores have few values, and much garbage.
fn without(also: &[&str]) -> crate::Ablation {
    crate::Ablation::without(also.iter().copied().chain(["space_first"])).unwrap()
}

fn at_rest(families: Vec<FamilyFacts>) -> MadeUp {
    let ablation = without(&[]);
    MadeUp {
        options: Options { background_threads: 4, ..Options::default() }.expert(|expert| {
            expert.scrub_bytes_per_s = 1 << 20;
            expert.ablation = ablation;
        }),
        in_progress: InProgressSet::default(),
        families,
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
    }
}

/// What is decided, in a word.
fn told_below(facts: &MadeUp, below: JobClass) -> String {
    match next(facts, below, &mut Notes::default()) {
        None => "nothing".into(),
        Some(Plan::Flush(units)) => {
            let ids: Vec<_> = units.iter().map(|(family, _)| family.id).collect();
            format!("flush {ids:?}")
        }
        Some(Plan::Cleanup { prune }) => format!("cleanup {prune}"),
        Some(Plan::Compact(Compact::Asked(family))) => format!("asked {}", family.id),
        Some(Plan::Compact(Compact::Picked(family, c))) => format!("compact {} from {}", family.id, c.level),
        Some(Plan::Compact(Compact::Step(family, ..))) => format!("relocation {}", family.id),
        Some(Plan::Help(job)) => format!("help {job}"),
        Some(Plan::Collect(c)) => {
            let purpose = match c.purpose {
                Purpose::Garbage => "",
                Purpose::UrgentGarbage => " at once",
                Purpose::SpeedDisk => " for the disk",
            };
            format!("collect {}{purpose}", c.family.id)
        }
        Some(Plan::Move(_, table, _)) => format!("move {}", table.number),
        Some(Plan::Survey(family)) => format!("survey {}", family.id),
        Some(Plan::Scrub) => "scrub".into(),
    }
}

fn told(facts: &MadeUp) -> String {
    told_below(facts, JobClass::Idle)
}

#[test]
fn what_holds_up_writers_goes_first() {
    // All there can be to do: each taken away, the next is what is done.
    let mut facts = at_rest(vec![family(1, 0, Some(1 << 18)), family(2, 5, None)]);
    (facts.quiet, facts.cleanup) = (true, Some(true));
    facts.frozen = vec![(9, facts.families[0].family.clone()), (7, facts.families[1].family.clone())];
    assert_eq!(told(&facts), "flush [2]");
    facts.in_progress.running.flush = true;
    assert_eq!(told(&facts), "cleanup true");
    facts.in_progress.running.cleanup = true;
    facts.survey = Some(facts.families[0].family.clone());
    assert_eq!(told(&facts), "survey 1");
    assert_ne!(told_below(&facts, JobClass::Compaction), "survey 1", "level 0 comes between");
    facts.in_progress.running.survey = true;
    assert_eq!(told(&facts), "compact 2 from 0");
    facts.families.remove(1);
    assert_eq!(told(&facts), "collect 1");
    facts.gc_paused = true;
    assert_eq!(told(&facts), "scrub");
    facts.in_progress.scrub.begin();
    assert_eq!(told(&facts), "nothing");
    facts.in_progress.scrub.end(5, crate::plan::scrub::SCRUB_PAUSE_NS);
    facts.now_ns = 6;
    assert_eq!(told(&facts), "nothing");
    facts.now_ns = 6 + 60_000_000_000;
    assert_eq!(told(&facts), "scrub");
}

#[test]
fn nothing_is_started_above_what_runs() {
    let mut facts = at_rest(vec![family(1, 5, Some(1 << 18))]);
    (facts.quiet, facts.cleanup) = (true, Some(false));
    facts.frozen = vec![(9, facts.families[0].family.clone())];
    for (below, what) in
        [(JobClass::Flush, "nothing"), (JobClass::L0, "flush [1]"), (JobClass::Cleanup, "flush [1]")]
    {
        assert_eq!(told_below(&facts, below), what);
    }
    facts.frozen.clear();
    facts.cleanup = None;
    assert_eq!(told_below(&facts, JobClass::L0), "nothing", "level 0 is no more urgent than itself");
    assert_eq!(
        told_below(&facts, JobClass::Compaction),
        "compact 1 from 0",
        "level 0 goes before deeper ones"
    );
    facts.families = vec![family(1, 0, Some(1 << 18))];
    assert_eq!(told_below(&facts, JobClass::Gc), "nothing");
    assert_eq!(told_below(&facts, JobClass::Scrub), "collect 1");
    facts.gc_paused = true;
    assert_eq!(told_below(&facts, JobClass::Scrub), "nothing");
}

/// A compaction that never has anything for who comes to help.
struct Done;

impl InPieces for Done {
    fn help(self: Arc<Self>) -> Box<dyn Job> {
        unreachable!("nobody asks")
    }
}

/// Pieces of level 0 go before whatever else may start there, on any thread; others take the threads that deeper compactions may have.
#[test]
fn pieces_of_what_runs_go_first() {
    let whole: Arc<dyn InPieces> = Arc::new(Done);
    let mut facts = at_rest(vec![family(1, 5, None)]);
    let set = &mut facts.in_progress;
    set.running.compactions = 2;
    set.wants_help(8, JobClass::Compaction, 2, Arc::downgrade(&whole));
    set.wants_help(7, JobClass::L0, 1, Arc::downgrade(&whole));
    assert_eq!(told_below(&facts, JobClass::L0), "nothing", "a piece is no more urgent than another");
    assert_eq!(told_below(&facts, JobClass::Compaction), "help 7");
    assert!(facts.in_progress.helps(7).is_some(), "all that it wanted");
    assert_eq!(told_below(&facts, JobClass::Compaction), "compact 1 from 0");
    facts.families.clear();
    assert_eq!(facts.in_progress.running.merges(), 3);
    assert_eq!(told(&facts), "scrub", "level 0 needs a thread, three of four are taken");
    facts.hurried = true;
    assert_eq!(told(&facts), "help 8", "writers wait for what that thread could do");
    facts.options.expert.compactions_max = 3;
    assert_eq!(told(&facts), "scrub", "somebody bounds compactions");
    (facts.hurried, facts.options.expert.compactions_max) = (false, 0);
    facts.in_progress.running.helpers = 0;
    assert_eq!(told(&facts), "help 8");
    facts.options.expert.compactions_max = 2;
    assert_eq!(told(&facts), "scrub", "somebody bounds compactions");
    facts.options.expert.compactions_max = 0;
    drop(whole);
    assert_eq!(told(&facts), "scrub", "it is over");
    assert!(facts.in_progress.helps(8).is_none());
    assert_eq!(facts.in_progress.running.helpers, 0);
}

/// A volatile batch over several families is flushed whole.
#[test]
fn families_of_one_volatile_batch_are_flushed_together() {
    let mut facts = at_rest(vec![family(1, 0, None), family(2, 0, None)]);
    facts.frozen = vec![(9, facts.families[0].family.clone()), (7, facts.families[1].family.clone())];
    facts.volatile_seq = 6;
    assert_eq!(told(&facts), "flush [2]");
    facts.volatile_seq = 7;
    assert_eq!(told(&facts), "flush [1, 2]");
}

/// What was frozen together to spare a sync is flushed together where there is room for that.
#[test]
fn families_that_were_frozen_together_are_flushed_together_if_there_is_room() {
    let mut facts = at_rest(vec![family(1, 0, None), family(2, 0, None)]);
    facts.frozen = vec![(9, facts.families[0].family.clone()), (7, facts.families[1].family.clone())];
    facts.joined_seq = 7;
    assert_eq!(told(&facts), "flush [1, 2]");
    facts.room = Some((1, 10));
    assert_eq!(told(&facts), "flush [2]");
    facts.volatile_seq = 7;
    assert_eq!(told(&facts), "flush [1, 2]", "that is no matter of room");
}

#[test]
fn where_there_is_no_room_nothing_is_started_that_needs_some() {
    let mut facts = at_rest(vec![family(1, 5, Some(1 << 18))]);
    facts.options.expert.scrub_bytes_per_s = 0;
    facts.quiet = true;
    facts.grants = 0;
    assert_eq!(told(&facts), "nothing");
    facts.grants = 1 << 18;
    assert_eq!(told(&facts), "collect 1", "that fits, and frees what the compaction needs");
    facts.grants = 8 << 20;
    assert_eq!(told(&facts), "compact 1 from 0");
    // At the end of the room a collection goes first.
    (facts.fill_percent, facts.families) = (95, vec![family(1, 0, Some(1 << 18)), family(2, 0, None)]);
    assert_eq!(told(&facts), "collect 1 at once");
}

/// Where writers are slowed down for garbage a compaction exposes what is hidden, also one that no level asks for, and at the end of the room it goes before collections.
#[test]
fn what_is_hidden_is_exposed_before_anything_is_collected() {
    let end = |user_key: &[u8]| key::encode(user_key, 1, ValueKind::Value);
    let (smallest, largest, record_bytes) = (end(b"a"), end(b"z"), 1 << 20);
    let meta = VsstMeta { number: 100, record_bytes, smallest, largest, ..VsstMeta::default() };
    let of_len = |len: u64, hidden: u64, options: Options| {
        let short = |number, bytes| FileMeta { len, raw_bytes: len + bytes, ..table(number, bytes) };
        let records = vec![
            Record::CreateFamily { id: 1, name: "made up".into(), options: Vec::new() },
            Record::AddVsst { family: 1, meta: meta.clone() },
            Record::AddFile { family: 1, level: 6, meta: short(1, 500_000) },
            Record::AddFile { family: 1, level: 0, meta: short(10, hidden) },
        ];
        let state = State::empty(Uid::default(), 1).apply(Edit(records)).unwrap();
        let version = state.family(1).unwrap().version.clone();
        let family = FamilyOptions::default().expert(|expert| expert.vsst_bytes = 64 << 10);
        let family = Family::new(1, "made up".into(), family, version, 1, &options, Default::default());
        MadeUp { options, ..at_rest(vec![FamilyFacts::of(Arc::new(family))]) }
    };
    let of = |hidden: u64, options: Options| of_len(32 << 10, hidden, options);
    let (on, off) = (without(&[]), without(&["exposing_first"]));
    let (on, off) = (
        Options { background_threads: 4, ..Options::default() }.expert(|expert| expert.ablation = on),
        |on: &Options| on.clone().expert(|expert| expert.ablation = off),
    );
    assert_eq!(told(&of(300_000, on.clone())), "compact 1 from 0");
    assert_eq!(told(&of(300_000, off(&on))), "nothing");
    let paused = MadeUp { gc_paused: true, ..of(300_000, on.clone()) };
    assert_eq!(told(&paused), "nothing", "nobody pays for it");
    let without_room = MadeUp { grants: 1 << 10, ..of(300_000, on.clone()) };
    assert_eq!(told(&without_room), "nothing");
    let full = |options| MadeUp { fill_percent: 95, ..of(300_000, options) };
    assert_eq!(
        (told(&full(on.clone())).as_str(), told(&full(off(&on))).as_str()),
        ("compact 1 from 0", "collect 1 at once")
    );
    let mut runs = full(on.clone());
    runs.in_progress.running.compactions = 1;
    assert_eq!(told(&runs), "collect 1 at once", "one of them at once");
    // An eighth of what is exposed is little.
    assert_eq!(told(&of(40_000, on.clone())), "collect 1");
    // Tables that are too long for it are gone through once, not twice in a decision nor in each.
    let mut long = MadeUp { fill_percent: 95, ..of_len(1 << 20, 300_000, on) };
    for noted in [1, 0] {
        let mut notes = Notes::default();
        assert!(!matches!(next(&long, JobClass::Idle, &mut notes), Some(Plan::Compact(_))));
        assert_eq!(notes.exposes_none.len(), noted);
        long.in_progress.learned.exposes_none.extend(notes.exposes_none);
    }
}

/// What is of these families with all mechanisms.
fn with_space_first(families: Vec<FamilyFacts>, background_threads: usize) -> MadeUp {
    let facts = at_rest(families);
    let options = Options { background_threads, ..facts.options }.expert(|expert| {
        expert.ablation = crate::Ablation::default();
        expert.scrub_bytes_per_s = 0;
    });
    MadeUp { options, ..facts }
}

/// Garbage far above its bound, above it, and hardly any.
const FAR: Option<u64> = Some(1 << 16);
const LESS_FAR: Option<u64> = Some(1 << 17);
const NEAR: Option<u64> = Some(700_000);

/// Far above the bound of garbage all threads but one free space before level 0 is compacted, as long as that is not near its stop.
#[test]
fn space_goes_before_level_0_far_above_the_bound() {
    let of = |l0: u64, referenced| with_space_first(vec![family(1, 0, referenced), family(2, l0, None)], 4);
    let mut facts = of(5, FAR);
    assert_eq!(told(&facts), "collect 1 at once");
    facts.gc_paused = true;
    assert_eq!(told(&facts), "compact 2 from 0");
    facts.gc_paused = false;
    facts.in_progress.collects(1, &[100], Purpose::UrgentGarbage);
    for below in [JobClass::UrgentGc, JobClass::Gc] {
        assert_eq!(told_below(&facts, below), "nothing", "level 0 takes no thread of a collection");
    }
    assert_eq!(told(&facts), "compact 2 from 0", "nothing more to collect");
    facts.in_progress.running.urgent_collections = 3;
    assert_eq!(told_below(&facts, JobClass::Gc), "compact 2 from 0", "one thread is for level 0");
    let mut all = of(5, FAR);
    all.in_progress.running.urgent_collections = 3;
    assert_eq!(told(&all), "compact 2 from 0");
    let mut suspended = with_space_first(vec![family(1, 0, FAR), family(2, 5, None), family(3, 0, FAR)], 2);
    suspended.in_progress.collects(1, &[100], Purpose::Garbage);
    assert_eq!(told(&suspended), "collect 3 at once", "that may wait on the stack of a thread");
    let off = MadeUp { options: at_rest(Vec::new()).options, ..of(5, FAR) };
    assert_eq!(told(&off), "compact 2 from 0");
    assert_eq!(told(&of(23, FAR)), "collect 1 at once");
    assert_eq!(told(&of(24, FAR)), "compact 2 from 0", "half way from the slow-down to the stop");
    assert_eq!(told(&of(5, NEAR)), "compact 2 from 0", "hardly any");
}

/// A level 0 may wait for a compaction below it: that is interrupted for space where level 0 would interrupt it, and else goes on.
#[test]
fn a_compaction_goes_on_where_level_0_would_let_it() {
    let of = |l0: u64| with_space_first(vec![family(1, 0, FAR), family(2, l0, None)], 4);
    assert_eq!(told_below(&of(5), JobClass::Compaction), "collect 1 at once");
    assert_eq!(told_below(&of(0), JobClass::Compaction), "nothing");
    assert_eq!(told(&of(0)), "collect 1 at once");
}

/// What goes first is what is of the families far above their bound, the farthest first; whatever else there is to collect is as urgent as ever.
#[test]
fn space_goes_first_where_the_garbage_is() {
    let of = |others, far| {
        let families = vec![family(1, 0, others), family(2, 5, None), family(3, 0, far)];
        // A quiet store collects what has little garbage.
        MadeUp { quiet: true, ..with_space_first(families, 4) }
    };
    assert_eq!(told(&of(NEAR, NEAR)), "compact 2 from 0");
    assert_eq!(told(&of(NEAR, FAR)), "collect 3 at once");
    assert_eq!(told(&of(LESS_FAR, FAR)), "collect 3 at once");
    assert_eq!(told(&of(FAR, LESS_FAR)), "collect 1 at once");
    let mut others = of(NEAR, FAR);
    others.in_progress.learned.abandoned.insert(100, u64::MAX);
    assert_eq!(told(&others), "compact 2 from 0", "nothing of it can be freed");
    others.in_progress.collects(1, &[100], Purpose::Garbage);
    assert_eq!(told_below(&others, JobClass::Gc), "compact 2 from 0", "another's collection is no reason");
    let mut full = of(NEAR, FAR);
    full.in_progress.collects(3, &[100], Purpose::UrgentGarbage);
    (full.fill_percent, full.families[1]) = (95, family(2, 0, None));
    assert_eq!(told(&full), "collect 1 at once", "the end of the room is near");
    let damaged = of(NEAR, FAR);
    damaged.families[2].family.set_aside(lsm::policy::SetAside::default());
    let families = damaged.families.iter().map(|of| FamilyFacts::of(of.family.clone())).collect();
    assert_eq!(told(&MadeUp { families, ..damaged }), "compact 2 from 0", "damaged files keep it");
}

/// One thread does both in turn: what writers suffer from more goes first.
#[test]
fn one_thread_does_what_writers_suffer_from_more() {
    let of = |file_bytes: u64, threads: usize| {
        let options = FamilyOptions::default().expert(|expert| {
            expert.file_bytes = file_bytes;
            expert.level_base_bytes = file_bytes;
        });
        let behind = family_of(2, (5, None, Volume::DIRECTORY), options);
        with_space_first(vec![family(1, 0, FAR), behind], threads)
    };
    // Five tables of a megabyte above one, without the slack of eight files.
    assert_eq!(told(&of(64 << 10, 1)), "compact 2 from 0");
    assert_eq!(told(&of(64 << 10, 2)), "collect 1 at once", "there is a thread for either");
    assert_eq!(told(&of(1 << 20, 1)), "collect 1 at once", "no more than the slack");
}

/// What a family's policy would say nobody asks where it is not known, and its values are collected all the same.
#[test]
fn a_family_whose_policy_is_not_known_is_not_compacted() {
    let mut facts = at_rest(vec![family(1, 9, Some(1 << 18))]);
    facts.quiet = true;
    facts.families[0].policy = None;
    assert_eq!(told(&facts), "collect 1");
    let c = facts.families[0].read_state.version.files(0)[0].clone();
    let facts_of = family(1, 9, None);
    let busy = lsm::policy::InProgress::default();
    let asked = facts_of.policy.as_ref().unwrap().levels(&facts_of.of_tree(&busy)).unwrap();
    assert!(asked.input_files().any(|(_, f)| f.number == c.number));
    facts.in_progress.claim(&asked);
    facts.in_progress.manual = Some(asked);
    let mut notes = Notes::default();
    assert!(matches!(next(&facts, JobClass::Idle, &mut notes), Some(Plan::Collect(_))));
    assert!(notes.manual_is_void, "nobody would ever start it");
}

/// Being asked twice changes nothing: what was learned is in the notes, and nowhere else.
#[test]
fn asking_changes_nothing() {
    let mut facts = at_rest(vec![family(1, 0, None)]);
    facts.quiet = true;
    facts.options.expert.scrub_bytes_per_s = 0;
    for _ in 0..2 {
        let mut notes = Notes::default();
        assert!(next(&facts, JobClass::Idle, &mut notes).is_none());
        assert_eq!(notes.at_rest.len(), 1, "a version in which nothing pays");
        assert_eq!(notes.gc_slots, Some(1));
    }
    let version = Arc::downgrade(&facts.families[0].read_state.version);
    facts.in_progress.learned.at_rest.insert(1, version);
    let mut notes = Notes::default();
    assert!(next(&facts, JobClass::Idle, &mut notes).is_none() && notes.at_rest.is_empty());
}

/// Of four threads three have jobs while the log is written all the time; flush and level 0 ask nobody, nor does what writers wait for.
#[test]
fn beside_a_log_that_is_written_much_one_job_less_runs() {
    let mut facts = at_rest(vec![family(1, 0, Some(1 << 18))]);
    (facts.quiet, facts.options.expert.scrub_bytes_per_s) = (true, 0);
    (facts.now_ns, facts.log_taken_ns) = (1_000_000_000, 900_000_000);
    facts.in_progress.running.collections = 2;
    assert_eq!(told(&facts), "collect 1");
    facts.in_progress.running.collections = 3;
    let mut notes = Notes::default();
    assert!(next(&facts, JobClass::Idle, &mut notes).is_none() && notes.leaves_room_for_log);
    // What was learned holds on between the two bounds.
    facts.in_progress.learned.log_load = notes.log_load.unwrap();
    (facts.now_ns, facts.log_taken_ns) = (2_000_000_000, 1_200_000_000);
    assert_eq!(told(&facts), "nothing");
    facts.hurried = true;
    assert_eq!(told(&facts), "collect 1");
    facts.hurried = false;
    facts.options.expert.ablation.log_first = false;
    assert_eq!(told(&facts), "collect 1");
    facts.options.expert.ablation.log_first = true;
    facts.families.push(family(2, 5, None));
    assert_eq!(told(&facts), "compact 2 from 0");
    facts.frozen = vec![(9, facts.families[0].family.clone())];
    assert_eq!(told(&facts), "flush [1]");
    facts.frozen.clear();
    facts.families.pop();
    (facts.now_ns, facts.log_taken_ns) = (3_000_000_000, 1_200_000_000);
    assert_eq!(told(&facts), "collect 1", "15 % of the time");
}

/// Values go down from the speed disk when nothing else is to be done, and in nobody's way.
#[test]
fn values_go_down_in_nobodys_way() {
    let mut facts = at_rest(vec![family_on(1, 0, Some(1 << 20), Volume::SPEED)]);
    facts.options.expert.scrub_bytes_per_s = 0;
    assert_eq!(told(&facts), "nothing", "none has to go");
    facts.in_progress.learned.lasting = vec![(1, 100)];
    assert_eq!(told(&facts), "collect 1 for the disk");
    assert_eq!(told_below(&facts, JobClass::Move), "nothing");
    facts.in_progress.running.collections = 1;
    assert_eq!(told(&facts), "collect 1 for the disk", "beside a collection");
    // The end of the room is near: collections have all threads, and the device.
    facts.fill_percent = 80;
    assert_eq!(told(&facts), "nothing");
    facts.in_progress.running.collections = 0;
    assert_eq!(told(&facts), "collect 1 for the disk", "between them");
    facts.fill_percent = 0;
    // The log is written all the time, and jobs have what they may have beside it.
    (facts.now_ns, facts.log_taken_ns) = (1_000_000_000, 900_000_000);
    facts.in_progress.running.compactions = 2;
    assert_eq!(told(&facts), "collect 1 for the disk");
    facts.in_progress.running.compactions = 3;
    assert_eq!(told(&facts), "nothing");
    facts.log_taken_ns = 0;
    assert_eq!(told(&facts), "collect 1 for the disk");
    facts.in_progress.running.values_go_down = true;
    assert_eq!(told(&facts), "nothing", "one at a time");
}

/// A family of four tables, each of which references a little of each of forty vSSTs.
fn scattered() -> FamilyFacts {
    const VSST: u64 = 64 << 10;
    let mut records = vec![Record::CreateFamily { id: 1, name: "made up".into(), options: Vec::new() }];
    let end = |user_key: &[u8], kind| key::encode(user_key, 1, kind);
    for number in 100..140 {
        let (smallest, largest) = (end(b"a", ValueKind::Value), end(b"h", ValueKind::Value));
        let meta = VsstMeta { number, record_bytes: VSST, smallest, largest, ..VsstMeta::default() };
        records.push(Record::AddVsst { family: 1, meta });
    }
    for (number, keys) in [[b"a", b"b"], [b"c", b"d"], [b"e", b"f"], [b"g", b"h"]].into_iter().enumerate() {
        let of = |blob_id| Dependency { blob_id, count: 16, raw_bytes: VSST / 4, stored_bytes: VSST / 4 };
        let [smallest, largest] = keys.map(|key| end(key, ValueKind::Reference));
        let uses = (100..140).map(of).collect::<Vec<_>>().into();
        let meta = FileMeta { smallest, largest, raw_bytes: 10 * VSST, uses, ..table(1 + number as u64, 0) };
        records.push(Record::AddFile { family: 1, level: 6, meta });
    }
    let state = State::empty(Uid::default(), 1).apply(Edit(records)).unwrap();
    let version = state.family(1).unwrap().version.clone();
    let options = FamilyOptions::default().expert(|expert| expert.vsst_bytes = VSST);
    let family =
        Family::new(1, "made up".into(), options, version, 1, &Options::default(), Default::default());
    FamilyFacts::of(Arc::new(family))
}

/// What is decided in a store with such a family, whose scans have lost so much, after a change.
fn told_scattered(lost: u64, change: &dyn Fn(&mut MadeUp)) -> String {
    let mut facts = at_rest(vec![scattered()]);
    facts.options.expert.scrub_bytes_per_s = 0;
    facts.families[0].family.demand.scanned(lost, 0, 1);
    change(&mut facts);
    told(&facts)
}

#[test]
fn beside_writers_values_are_put_in_order_where_scans_lose_more_than_that_costs() {
    let written = |bytes: u64| move |facts: &mut MadeUp| facts.families[0].family.demand.written(bytes);
    // A tenth of 2.5 MiB is taken, read and written.
    assert_eq!(told_scattered(512 << 10, &|_| {}), "relocation 1");
    assert_eq!(told_scattered((512 << 10) - 1, &|_| {}), "nothing");
    assert_eq!(told_scattered(1 << 20, &written(256 << 10)), "relocation 1");
    assert_eq!(told_scattered(1 << 20, &written((256 << 10) + 1)), "nothing");
    // In a quiet store half of what is rewritten is enough.
    assert_eq!(told_scattered(256 << 10, &|facts| facts.quiet = true), "relocation 1");
    assert_eq!(told_scattered((256 << 10) - 1, &|facts| facts.quiet = true), "nothing");
}

#[test]
fn who_writes_goes_before_a_walk_and_so_does_space() {
    let nothing = |change: &dyn Fn(&mut MadeUp)| assert_eq!(told_scattered(1 << 30, change), "nothing");
    assert_eq!(told_scattered(1 << 30, &|_| {}), "relocation 1");
    nothing(&|facts| facts.hurried = true);
    nothing(&|facts| facts.room = Some((3 << 20, 2 << 20)));
    nothing(&|facts| facts.fill_percent = 80);
    nothing(&|facts| facts.gc_paused = true);
    nothing(&|facts| facts.options.expert.ablation.correlated = false);
    nothing(&|facts| {
        facts.in_progress.running.compactions = 1;
        facts.in_progress.running.relocation = true;
    });
    // Where the log is written much no more begins than may run beside it.
    nothing(&|facts| {
        (facts.now_ns, facts.log_taken_ns) = (1_000_000_000, 900_000_000);
        facts.in_progress.running.compactions = 3;
    });
}

/// Begins what is next, which is a walk, and enters what it is for.
fn begin_walk(facts: &MadeUp) -> lsm::policy::Relocation {
    let mut notes = Notes::default();
    let begun = next(facts, JobClass::Idle, &mut notes);
    let Some(Plan::Compact(Compact::Step(_, _, walk))) = begun else { panic!("nothing began") };
    notes.spent.iter().for_each(|(family, spent)| family.demand.spent(*spent));
    *walk
}

/// A walk that has begun rests while it is in the way, and leaves its files to collections then.
#[test]
fn a_walk_beside_writers_rests_where_it_is_in_the_way() {
    let mut facts = at_rest(vec![scattered()]);
    facts.options.expert.scrub_bytes_per_s = 0;
    let demand = facts.families[0].family.demand.clone();
    demand.scanned(512 << 10, 0, 1);
    let walk = begin_walk(&facts);
    facts.in_progress.learned.walks.insert(1, walk.clone());
    let seen =
        |facts: &MadeUp| (told(facts), crate::plan::relocation::taken(facts, &facts.families[0]).len());
    let (goes_on, rests) = (("relocation 1".to_string(), walk.vssts().len()), ("nothing".to_string(), 0));
    assert_eq!(seen(&facts), goes_on, "all that was lost is spent, and it goes on");
    facts.hurried = true;
    assert_eq!(seen(&facts), rests);
    facts.hurried = false;
    demand.written((128 << 10) - 1);
    assert_eq!(seen(&facts), goes_on);
    demand.written(1);
    assert_eq!(seen(&facts), rests, "writers undo what it does");
    facts.quiet = true;
    assert_eq!(seen(&facts), goes_on);
    facts.quiet = false;
    demand.scanned(1, 0, 1);
    assert_eq!(seen(&facts), goes_on, "scans lose more than writers undo");
}

/// Whatever scans lose: beside writers each byte is put in order once after it was written.
#[test]
fn beside_writers_no_more_is_put_in_order_than_was_written() {
    let mut facts = at_rest(vec![scattered()]);
    facts.options.expert.scrub_bytes_per_s = 0;
    let demand = facts.families[0].family.demand.clone();
    demand.scanned(1 << 40, 0, 1);
    // All that there is, of which nobody knows when it was written; each walk takes a tenth.
    (0..10).for_each(|_| drop(begin_walk(&facts)));
    assert_eq!(told(&facts), "nothing");
    demand.written((256 << 10) - 1);
    assert_eq!(told(&facts), "nothing");
    demand.written(1);
    begin_walk(&facts);
    assert_eq!(told(&facts), "nothing");
    // However much was written, there is no more than all.
    demand.written(1 << 30);
    demand.scanned(1 << 40, 0, 1);
    (0..10).for_each(|_| drop(begin_walk(&facts)));
    assert_eq!(told(&facts), "nothing");
    facts.quiet = true;
    assert_eq!(told(&facts), "relocation 1", "nobody undoes it");
}
