//! `lava log repair`: reports, exit statuses, and no unwanted writes.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;

/// Removes the files of the store with this suffix.
fn erase(s: &Scratch, ending: &str) {
    let files = std::fs::read_dir(s.path("db")).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.to_str().unwrap().ends_with(ending));
    let removed = files.map(|path| std::fs::remove_file(path).unwrap()).count();
    assert!(removed > 0, "{ending}");
}

fn store(s: &Scratch) {
    s.ok(&["log", "append", "orders", "two apples", "one pear", "a plum"]);
    s.ok(&["log", "append", "payments", "--lsn", "7", "3 euros"]);
    s.ok(&["log", "trim", "orders", "2"]);
}

#[test]
fn a_store_of_logs_without_current_is_repaired() {
    let s = Scratch::new("log-repair");
    store(&s);
    erase(&s, "CURRENT");
    s.fails(5, &["log", "ls"]);
    let dry = json(&s.ok(&["log", "repair", "--into", "new", "--dry-run", "--json"]));
    assert!(!s.path("new").exists() && dry["dry_run"] == true, "{dry}");
    let report = json(&s.ok(&["log", "repair", "--into", "new", "--json"]));
    assert_eq!(report["from_manifest"], true, "{report}");
    assert_eq!(report["logs"], dry["logs"]);
    assert_eq!((&report["lost_batches"], &report["may_come_back"]), (&json("[]"), &json("[]")));
    assert!(report["damaged"][0]["why"].as_str().unwrap().contains("CURRENT"), "{report}");
    assert_eq!(run(&s.path("new"), &["log", "tail", "orders"], &s.0).stdout, b"2\tone pear\n3\ta plum\n");
    assert_eq!(run(&s.path("new"), &["log", "tail", "payments"], &s.0).stdout, b"7\t3 euros\n");
    assert!(!s.path("new").join("UNFINISHED").exists());
    assert!(s.fails(9, &["log", "repair", "--into", "new"]).contains("not empty"));
    assert!(s.fails(2, &["log", "repair"]).contains("--into"));
}

#[test]
fn data_loss_is_reported_with_exit_status_5() {
    let s = Scratch::new("log-repair-loss");
    store(&s);
    // Whether an index file covers this page depends on the progress of background work.
    for entry in std::fs::read_dir(s.path("db")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(8).position(|window| window == b"one pear") {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    for args in [&["log", "repair", "--dry-run", "--json"][..], &["log", "repair", "--into", "new", "--json"]]
    {
        let output = s.lava(args);
        assert_eq!(output.status.code(), Some(5), "{args:?}");
        let report = json(&String::from_utf8(output.stdout).unwrap());
        let lost = &report["lost_batches"][0];
        assert!(lost["file"].as_str().unwrap().ends_with(".log"), "{report}");
        assert_eq!(report["logs"][0]["records"], 0, "{report}");
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
    }
    assert_eq!(run(&s.path("new"), &["log", "tail", "payments"], &s.0).stdout, b"7\t3 euros\n");
    let text = String::from_utf8(s.lava(&["log", "repair", "--dry-run"]).stdout).unwrap();
    assert!(text.contains("lost: operations") && text.contains("log payments: 1 record"), "{text}");
}

#[test]
fn log_repair_of_a_store_without_logs_creates_none() {
    let s = Scratch::new("log-repair-none");
    std::fs::create_dir(s.path("db")).unwrap();
    assert!(s.fails(8, &["log", "repair", "--dry-run"]).contains("no store of logs"));
    s.ok(&["put", "a", "1"]);
    assert!(s.fails(1, &["log", "repair", "--into", "new"]).contains("LavaKV"));
    assert!(!s.path("new").exists());
}

#[test]
fn repair_restores_keys_and_logs_together() {
    let s = Scratch::new("log-repair-both");
    store(&s);
    s.ok(&["put", "apples", "98", "--add-engine"]);
    erase(&s, "CURRENT");
    assert!(s.fails(1, &["log", "repair", "--into", "new"]).contains("which saves the logs as well"));
    let dry = json(&s.ok(&["repair", "--into", "new", "--dry-run", "--json"]));
    assert!(!s.path("new").exists(), "{dry}");
    let report = json(&s.ok(&["repair", "--into", "new", "--json"]));
    assert_eq!((&report["lost"], &report["logs"]["lost_batches"]), (&json("[]"), &json("[]")), "{report}");
    assert_eq!((&report["logs"]["logs"], &report["families"]), (&dry["logs"]["logs"], &dry["families"]));
    assert_eq!(run(&s.path("new"), &["get", "apples"], &s.0).stdout, b"98\n");
    assert_eq!(run(&s.path("new"), &["log", "tail", "orders"], &s.0).stdout, b"2\tone pear\n3\ta plum\n");
    let text = s.ok(&["repair", "--dry-run"]);
    assert!(text.contains("family default: ") && text.contains("log orders: 2 records"), "{text}");
    // A loss of the logs fails the whole repair. It reports one range for each log group in the
    // manifest, whose number depends on the progress of background work.
    erase(&s, ".log");
    let output = s.lava(&["repair", "--dry-run"]);
    let told = String::from_utf8(output.stderr).unwrap();
    let is_told = told.contains("of records or operations") && told.contains("lost");
    assert!(output.status.code() == Some(5) && is_told, "{told}");
}
