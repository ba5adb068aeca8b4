//! A store shared with another engine: the command line lists and removes that engine.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

#[allow(dead_code, reason = "an example, of which a part is used here")]
#[path = "../../../../crates/store/examples/toy_log/engine.rs"]
mod engine;

use crate::common::*;
use engine::{Replayed, Toy, ToyLog};
use io::{Access, Env};
use store::Store;
use store::commit::{Aging, Durability, LogTerms, Loggers};
use store::manifest::Engines;

/// A session of the other engine alone, on the store of the command line.
fn write_entries(s: &Scratch) {
    let terms = LogTerms {
        access: Access::Buffered,
        group_bytes: 64 << 10,
        free_groups_max: 1,
        loggers: Loggers::default(),
        retained_open_max: 8,
        aging: Aging::default(),
    };
    let (mut replayed, engines) = (Replayed::default(), Engines::of::<Toy>());
    let mut take = |tenant, number, bytes: &[u8]| replayed.take(tenant, number, bytes);
    let store = Store::open(&Env::kernel(), &s.path("db"), terms, &engines, &mut take).unwrap();
    let toy = ToyLog::over(store.manifest(), store.log(), replayed).unwrap();
    for _ in 0..10 {
        toy.append(b"an entry", Durability::Durable).unwrap();
    }
    store.close().unwrap();
}

#[test]
fn another_engine_is_listed_and_removed() {
    let s = Scratch::new("engines");
    s.ok(&["put", "k", "v"]);
    let text = s.ok(&["engines"]);
    assert!(text.contains("lavakv") && text.lines().count() == 1, "{text}");
    s.fails(8, &["engines", "--remove", "toy log", "--yes"]);
    write_entries(&s);
    let text = s.ok(&["engines"]);
    assert!(
        text.lines().any(|line| line.starts_with("toy log") && line.contains("not known here")),
        "{text}"
    );
    let engines = json(&s.ok(&["engines", "--json"]))["engines"].clone();
    assert_eq!((&engines[0]["name"], &engines[1]["known"]), (&"lavakv".into(), &false.into()));

    let asked = s.fails(2, &["engines", "--remove", "toy log"]);
    assert!(asked.contains("deletes all of its data") && asked.contains("--yes"), "{asked}");
    s.fails(2, &["engines", "--yes"]);
    let own = s.fails(1, &["engines", "--remove", "lavakv", "--yes"]);
    assert!(own.contains("cannot be removed"), "{own}");
    let missing = s.fails(8, &["engines", "--remove", "another", "--yes"]);
    assert!(missing.contains("toy log"), "it says which there are: {missing}");
    assert_eq!(s.ok(&["engines"]).lines().count(), 2, "nothing was removed so far");

    let removed = json(&s.ok(&["engines", "--remove", "toy log", "--yes", "--json"]));
    assert_eq!(removed["removed"], "toy log");
    assert_eq!(s.ok(&["engines"]).lines().count(), 1);
    s.fails(8, &["engines", "--remove", "toy log", "--yes"]);
    assert_eq!(s.ok(&["get", "k"]), "v\n");
    s.ok(&["verify"]);
}
