//! `lava repair`: reports, exit statuses, and no unwanted writes.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the files of a directory by name.
fn image(dir: &Path) -> BTreeMap<std::ffi::OsString, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect()
}

/// Removes the files of the store whose names contain `part`.
fn erase(s: &Scratch, part: &str) {
    let names = image(&s.path("db")).into_keys().filter(|name| name.to_str().unwrap().contains(part));
    let removed = names.map(|name| std::fs::remove_file(s.path("db").join(name)).unwrap()).count();
    assert!(removed > 0, "{part}");
}

fn store(s: &Scratch) -> String {
    let lines: String = (0..200).map(|i| format!("key{i:03}\tvalue {i}\n")).collect();
    s.ok(&["import", s.file("rows.tsv", lines.as_bytes()).to_str().unwrap()]);
    s.ok(&["put", "in the log", "1", "--sync"]);
    s.ok(&["scan"])
}

#[test]
fn a_store_without_current_or_manifest_is_repaired() {
    for lost in [&["CURRENT"][..], &["MANIFEST"], &["CURRENT", "MANIFEST"]] {
        let s = Scratch::new("repair");
        let whole = store(&s);
        lost.iter().for_each(|part| erase(&s, part));
        assert_eq!(s.lava(&["put", "x", "y"]).status.code(), Some(5), "{lost:?}");
        let before = image(&s.path("db"));

        let dry = json(&s.ok(&["repair", "--into", "new", "--dry-run", "--json"]));
        assert!(!s.path("new").exists() && dry["dry_run"] == true, "{dry}");
        let report = json(&s.ok(&["repair", "--into", "new", "--json"]));
        assert_eq!(report["from_manifest"], lost == ["CURRENT"], "{report}");
        assert_eq!(report["lost"], json("[]"));
        assert!(!report["damaged"].as_array().unwrap().is_empty(), "{report}");
        for field in ["families", "lost", "damaged", "files_used"] {
            assert_eq!(dry[field], report[field], "{field}");
        }
        assert_eq!(image(&s.path("db")), before, "the damaged store was changed");
        assert_eq!(run(&s.path("new"), &["scan"], &s.0).stdout, whole.as_bytes());
        assert!(!s.path("new").join("UNFINISHED").exists());
        // The target now contains a store.
        assert!(s.fails(9, &["repair", "--into", "new"]).contains("not empty"));
    }
}

#[test]
fn data_loss_is_reported_with_exit_status_5() {
    let s = Scratch::new("repair-loss");
    store(&s);
    erase(&s, ".ksst");
    for args in [&["repair", "--dry-run", "--json"][..], &["repair", "--into", "new", "--json"]] {
        let output = s.lava(args);
        assert_eq!(output.status.code(), Some(5), "{args:?}");
        let report = json(&String::from_utf8(output.stdout).unwrap());
        let lost = &report["lost"][0];
        assert_eq!(lost["family_name"], "default", "{report}");
        assert!(lost["file"].as_str().unwrap().ends_with(".ksst"), "{report}");
        assert_eq!(
            (lost["from"].as_str(), lost["to"].as_str()),
            (Some("key000"), Some("key199")),
            "{report}"
        );
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
    }
    let text = String::from_utf8(s.lava(&["repair", "--dry-run"]).stdout).unwrap();
    assert!(text.contains("lost: family default, keys"), "{text}");
    assert_eq!(run(&s.path("new"), &["scan"], &s.0).stdout, b"in the log\t1\n");
    assert!(s.fails(2, &["repair"]).contains("--into"));
}

/// Losses of a killed store with volatile writes are unknown: the report is neither damage nor a
/// complete salvage.
#[test]
fn possible_loss_without_certain_loss_is_exit_status_3() {
    use lavastore::{Db, LogBatch, LogOptions, Options, WriteBatch, WriteOptions};
    for volatile in [0, 2] {
        let s = Scratch::new(&format!("repair-unknown-{volatile}"));
        let living = s.path("living");
        let db = Db::open_with_logs(&living, &Options::default(), &LogOptions::default()).unwrap();
        let orders = db.logs().unwrap().log("orders").unwrap();
        db.put("first", "durable").unwrap();
        let options = WriteOptions::volatile();
        (0..volatile).for_each(|n| db.writing(&options).put(format!("volatile {n}"), "x").unwrap());
        let mut both = WriteBatch::new();
        both.put("both", "x");
        db.write_with_logs(&both, LogBatch::new().append(&orders, 1, "an order")).unwrap();
        std::fs::create_dir(s.path("db")).unwrap();
        for (name, bytes) in image(&living) {
            std::fs::write(s.path("db").join(name), bytes).unwrap();
        }
        drop(db);
        let output = s.lava(&["repair", "--into", "new", "--json"]);
        let (stdout, stderr) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(if volatile == 0 { 0 } else { 3 }), "{stdout}{stderr}");
        let report = json(&stdout);
        assert_eq!((&report["damaged"], &report["logs"]["damaged"]), (&json("[]"), &json("[]")));
        assert_eq!(report["lost"].as_array().unwrap().len(), usize::from(volatile > 0), "{report}");
        if volatile > 0 {
            assert!(stderr.contains("unknown") && stderr.lines().count() == 1, "{stderr}");
            assert_eq!(report["lost"][0]["outcome"], "unknown", "{report}");
        }
        let found = String::from_utf8(run(&s.path("new"), &["scan"], &s.0).stdout).unwrap();
        assert_eq!(found, "both\tx\nfirst\tdurable\n");
    }
}
