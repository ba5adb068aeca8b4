//! `upgrade` raises the format of a store once, on request, and `stat` reports it.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "looks at the program from outside")]

use crate::common::*;

#[test]
fn an_empty_key_needs_the_upgrade() {
    let s = Scratch::new("upgrade-empty-key");
    s.ok(&["put", "a", "1"]);
    let rows = s.file("rows.tsv", b"\tnothing\nb\t2\n");
    let import = ["import", rows.to_str().unwrap()];
    for refused in [&["put", "", "nothing"][..], &["del", ""], &import] {
        assert!(s.fails(2, refused).contains("raise it with 'lava upgrade'"), "{refused:?}");
    }
    assert!(s.fails(4, &["get", ""]).contains("key not found"));
    s.ok(&["del", "--range", "", "a"]);
    assert_eq!(s.ok(&["scan"]), "a\t1\n");
    s.ok(&["upgrade"]);
    s.ok(&import);
    assert_eq!(s.ok(&["get", ""]), "nothing\n");
    assert_eq!(s.ok(&["scan"]), "\tnothing\na\t1\nb\t2\n");
    assert_eq!(s.ok(&["scan", "--to", "a", "--keys-only"]), "\n");
    s.ok(&["verify"]);
    for name in ["out.tsv", "out.jsonl"] {
        s.ok(&["export", name]);
        let other = s.path(&format!("other-{name}"));
        assert!(run(&other, &["put", "a", "0"], &s.0).status.success());
        assert!(run(&other, &["upgrade"], &s.0).status.success());
        for args in [&["import", name][..], &["import", name, "--resume"]] {
            assert!(run(&other, args, &s.0).status.success(), "{args:?}");
            assert_eq!(run(&other, &["scan"], &s.0).stdout, b"\tnothing\na\t1\nb\t2\n", "{args:?}");
        }
    }
    s.ok(&["del", ""]);
    s.fails(4, &["get", ""]);
}

#[test]
fn upgrade_of_a_store_with_keys_succeeds() {
    let s = Scratch::new("upgrade");
    s.ok(&["put", "key", "value"]);
    let format = || json(&s.ok(&["stat", "--json"]))["counters_since_open"]["format"].clone();
    assert_eq!(format(), 1);
    assert!(s.ok(&["stat"]).contains("format               1, run lava upgrade to raise it to 2\n"));
    let same = json(&s.ok(&["upgrade", "--to", "1", "--json"]));
    assert_eq!((&same["format_before"], &same["format"]), (&1.into(), &1.into()));
    assert!(s.ok(&["upgrade"]).starts_with("format 1 raised to 2"));
    assert!(s.ok(&["upgrade"]).contains("format 2 already"));
    assert_eq!(format(), 2);
    assert!(s.ok(&["stat"]).contains("format               2\n"));
    assert!(s.fails(2, &["upgrade", "--to", "1"]).contains("only be raised"));
    assert!(s.fails(1, &["upgrade", "--to", "77"]).contains("format 77,"));
    assert_eq!(s.ok(&["get", "key"]), "value\n");
    s.ok(&["verify"]);
}

#[test]
fn upgrade_of_a_store_of_logs_succeeds() {
    let s = Scratch::new("upgrade-logs");
    s.ok(&["log", "append", "orders", "two apples"]);
    assert_eq!(json(&s.ok(&["log", "stat", "--json"]))["format"], 1);
    s.ok(&["upgrade"]);
    assert_eq!(json(&s.ok(&["log", "stat", "--json"]))["format"], 2);
    assert!(!s.ok(&["engines"]).contains("lavakv"), "no keys were made");
    assert!(s.ok(&["log", "tail", "orders"]).contains("two apples"));
}

#[test]
fn upgrade_of_a_missing_store_is_refused() {
    let s = Scratch::new("upgrade-nothing");
    s.fails(8, &["upgrade"]);
    assert!(!s.path("db").exists());
}
