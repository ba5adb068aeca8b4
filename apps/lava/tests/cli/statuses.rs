//! Exit statuses: all documented ones, and the distinctions that scripts need.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;
use std::path::Path;
use std::process::Stdio;

#[test]
fn the_table_is_printed_and_complete() {
    let s = Scratch::new("table");
    let output = lava(&s.0).args(["help", "exit-codes"]).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    for status in 0..10 {
        assert!(table.contains(&format!("\n  {status}  ")), "{table}");
    }
    let help = lava(&s.0).arg("--help").output().unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().contains(&table));
}

#[test]
fn a_missing_key_is_not_reported_as_damage() {
    let s = Scratch::new("missing");
    s.ok(&["put", "k", "v"]);
    assert!(s.fails(4, &["get", "other"]).contains("key not found: other"));
    // Damage of the table that may contain the key.
    let rows: String = (0..500).map(|i| format!("k{i:04}\tvalue {i}\n")).collect();
    s.ok(&["import", s.file("rows.tsv", rows.as_bytes()).to_str().unwrap()]);
    for table in files(&s, ".ksst") {
        std::fs::remove_file(table).unwrap();
    }
    assert!(s.fails(5, &["get", "k0100"]).contains("repair"));
    assert!(s.fails(5, &["scan"]).contains("repair"));
    assert_eq!(s.lava(&["verify"]).status.code(), Some(5));
}

#[test]
fn a_store_without_current_is_damaged_for_every_command() {
    let s = Scratch::new("current");
    s.ok(&["put", "k", "v"]);
    std::fs::remove_file(s.path("db").join("CURRENT")).unwrap();
    let reports = [&["stat"][..], &["space"], &["engines"], &["gc", "--dry-run"], &["export", "-"]];
    let others = [&["get", "k"][..], &["put", "k", "w"], &["del", "k"], &["scan"], &["get", "other"]];
    for args in [reports, others].concat() {
        let output = s.lava(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(5), "{args:?}: {stderr}");
        assert!(stderr.contains("CURRENT") && stderr.contains("lava repair"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_file_is_refused_as_a_store() {
    let s = Scratch::new("file");
    let file = s.file("passwd", b"root:x:0:0\n");
    for args in [&["get", "k"][..], &["put", "k", "v"], &["del", "k"], &["stat"], &["gc"], &["verify"]] {
        let output = run(&file, args, &s.0);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains("is a file") && stderr.contains("passwd"), "{args:?}: {stderr}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"root:x:0:0\n");
}

#[test]
fn a_locked_store_names_its_holder() {
    let s = Scratch::new("in-use");
    s.ok(&["put", "k", "v"]);
    let mut holder = lava(&s.0)
        .args(["import", "-", "--format", "tsv", "--db", "db"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let lock = s.path("db").join("LOCK");
    let pid = format!("process {}", holder.id());
    while !std::fs::read_to_string(&lock).is_ok_and(|line| line.contains(&pid)) {
        assert!(holder.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let refused = s.fails(7, &["put", "k", "w"]);
    assert!(refused.contains(&pid), "{refused}");
    assert_eq!(s.ok(&["get", "k"]), "v\n", "reading goes on beside it");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    s.ok(&["put", "k", "w"]);
}

#[test]
fn a_full_volume_is_reported_with_exit_status_6() {
    let s = Scratch::new("full");
    assert!(
        lava(&s.0).args(["fs", "mkfs", "image", "--size", "64M", "--sparse"]).status().unwrap().success()
    );
    s.file("large", &vec![7; 60 << 20]);
    let output = run(Path::new("lavafs:image"), &["put", "k", "--file", "large"], &s.0);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    assert!(stderr.contains("no space"), "{stderr}");
    // Errors of standard output.
    s.ok(&["put", "k", "v"]);
    #[allow(clippy::disallowed_types, reason = "a file of the machine")]
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for args in [&["get", "k"][..], &["scan"], &["stat"], &["help"]] {
        let output = lava(&s.0).args(["--db", "db"]).args(args).stdout(full()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(6) && stderr.contains("standard output: "),
            "{args:?}: {stderr}"
        );
    }
    assert!(s.fails(6, &["export", "/dev/full"]).contains("cannot write /dev/full: "));
}

#[test]
fn a_mistake_leads_to_the_help_of_its_command() {
    let s = Scratch::new("hints");
    for (args, help) in [
        (&["put", "k"][..], "lava help put "),
        (&["import"], "lava help import "),
        (&["fs", "mkfs", "image", "--size", "4X"], "lava help fs mkfs "),
        (&["fs", "mkfs", "image"], "lava help fs mkfs "),
        (&["bench", "overwrite", "--num", "0"], "lava help bench "),
        (&["bench", "fs", "--sync", "x"], "lava help bench fs "),
        (&["stats", "--nonsense"], "lava help stat "),
        (&["nonsense"], "lava help "),
    ] {
        let error = s.fails(2, args);
        assert!(error.contains(&format!("(see {help}for details)")), "{args:?}: {error}");
    }
    let output = lava(&s.0).args(["get", "k"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--db DIR"));
}

#[test]
fn a_large_benchmark_load_needs_confirmation() {
    let s = Scratch::new("unseen");
    let output = lava(&s.0).args(["bench", "read"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("976.56 MiB") && stderr.contains("--yes") && stderr.contains("--db"), "{stderr}");
    assert!(!s.path("bench-data").exists());
    // The next run removes the remains of a killed one.
    let orphan = s.path("bench-data").join("run-4294967294-0");
    std::fs::create_dir_all(&orphan).unwrap();
    let status = lava(&s.0).args(["bench", "load", "--num", "100", "--json"]).output().unwrap();
    assert_eq!(json(&String::from_utf8(status.stdout).unwrap())["workload"], "load");
    assert!(!orphan.exists());
}
