//! A store with a fast tier, from the command line.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;

#[test]
fn a_store_attaches_and_detaches_a_fast_tier() {
    let s = Scratch::new("speed");
    let speed = s.path("fast").display().to_string();
    s.ok(&["put", "one", "1"]);
    s.ok(&["put", "two", "2", "--fast-tier", &speed]);
    assert_eq!(s.ok(&["get", "one", "--fast-tier", &speed]), "1\n");
    let text = s.fails(2, &["get", "one"]);
    assert!(text.contains("is on a fast tier") && text.contains(&speed), "{text}");
    let nowhere = s.path("nowhere").display().to_string();
    assert!(s.fails(8, &["put", "three", "3", "--fast-tier", &nowhere]).contains("mount the tier"));
    let space = json(&s.ok(&["space", "--json", "--fast-tier", &speed]));
    assert_eq!(space["speed"]["place"], speed.as_str());
    assert!(space["speed"]["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    assert_eq!((&space["speed"]["table_bytes"], &space["speed"]["value_bytes"]), (&0.into(), &0.into()));
    assert!(s.ok(&["space", "--fast-tier", &speed]).contains("on the fast tier"));
    s.ok(&["verify", "--fast-tier", &speed]);
    let (kept, lost) = (s.path("kept").display().to_string(), s.path("lost").display().to_string());
    s.ok(&["repair", "--into", &kept, "--fast-tier", &speed]);
    s.fails(2, &["repair", "--into", &lost]);
    s.fails(5, &["repair", "--into", &lost, "--without-fast-tier"]);
    assert!(s.fails(2, &["fast-tier", "detach"]).contains("pass --fast-tier"));
    assert!(s.ok(&["fast-tier", "detach", "--fast-tier", &speed]).contains("is detached from the store"));
    assert_eq!(s.ok(&["get", "two"]), "2\n");
}
