//! `import` and `export` lose nothing silently and leave nothing half done.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;
use std::io::{Read, Write};
use std::process::Stdio;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(text).unwrap();
    out.finish().unwrap()
}

fn lz4(text: &[u8]) -> Vec<u8> {
    let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
    out.write_all(text).unwrap();
    out.finish().unwrap()
}

/// All frames of a file from a parallel compressor or `cat` are read, not only the first.
#[test]
fn all_frames_of_a_packed_file_are_imported() {
    let s = Scratch::new("frames");
    let parts = [&b"a\t1\n"[..], b"b\t2\n", b"c\t3\n"];
    let all = |pack: &dyn Fn(&[u8]) -> Vec<u8>| parts.iter().flat_map(|part| pack(part)).collect::<Vec<u8>>();
    let zstd = |text: &[u8]| zstd::encode_all(text, 1).unwrap();
    for (name, packed) in [("r.tsv.lz4", all(&lz4)), ("r.tsv.gz", all(&gzip)), ("r.tsv.zst", all(&zstd))] {
        s.file(name, &packed);
        assert_eq!(json(&s.ok(&["import", name, "--json"]))["records"], 3, "{name}");
        assert_eq!(s.ok(&["scan"]), "a\t1\nb\t2\nc\t3\n", "{name}");
        std::fs::remove_dir_all(s.path("db")).unwrap();
        // Garbage between frames: earlier records are imported, and the error names the offset.
        let first = packed.len() / 3;
        s.file(name, &[&packed[..first], b"rubbish", &packed[first..]].concat());
        let error = s.fails(1, &["import", name]);
        assert!(error.contains(name) && error.contains(&format!("offset {first}")), "{error}");
        assert!(error.contains("1 record imported before"), "{error}");
        assert_eq!(s.ok(&["scan"]), "a\t1\n");
        std::fs::remove_dir_all(s.path("db")).unwrap();
    }
}

#[test]
fn standard_output_has_a_name() {
    let s = Scratch::new("dash");
    s.ok(&["put", "k", "v"]);
    assert_eq!(s.ok(&["export", "-"]), "k\tv\n");
    assert!(!s.path("-").exists());
    assert!(s.fails(2, &["export", "-", "--json"]).contains("lava help export"));
}

#[test]
fn an_export_appears_only_when_complete() {
    let s = Scratch::new("export");
    for key in ["a", "b"] {
        s.ok(&["put", key, "1"]);
    }
    s.ok(&["export", "x.tsv"]);
    s.ok(&["put", "c", "1"]);
    let refused = s.fails(9, &["export", "x.tsv"]);
    assert!(refused.contains("--force"), "{refused}");
    assert_eq!(std::fs::read(s.path("x.tsv")).unwrap(), b"a\t1\nb\t1\n");
    s.ok(&["export", "x.tsv", "--force"]);
    assert_eq!(std::fs::read(s.path("x.tsv")).unwrap(), b"a\t1\nb\t1\nc\t1\n");
    // The target of a symbolic link is replaced.
    std::os::unix::fs::symlink("x.tsv", s.path("link.tsv")).unwrap();
    s.ok(&["export", "link.tsv", "--limit", "1", "--force"]);
    assert!(s.path("link.tsv").is_symlink());
    assert_eq!(std::fs::read(s.path("x.tsv")).unwrap(), b"a\t1\n");
    // The extension determines the compression.
    for name in ["x.tsv.gz", "x.jsonl.lz4", "x.tsv.zst"] {
        s.ok(&["export", name]);
        let other = run(&s.path("other"), &["import", name], &s.0);
        assert!(other.status.success(), "{name}");
        assert_eq!(run(&s.path("other"), &["scan"], &s.0).stdout, s.ok(&["scan"]).into_bytes(), "{name}");
        std::fs::remove_dir_all(s.path("other")).unwrap();
    }
    assert_eq!(std::fs::read(s.path("x.tsv.gz")).unwrap()[..2], [0x1f, 0x8b]);
    // Targets that are no files are written directly.
    s.ok(&["export", "/dev/null"]);
    s.fails(2, &["export", "."]);
    s.fails(8, &["export", "none/x.tsv"]);
    let left: Vec<_> = std::fs::read_dir(&s.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_str().unwrap().contains("partial")), "{left:?}");
}

#[test]
fn an_export_that_fails_leaves_nothing() {
    let s = Scratch::new("export-fails");
    let lines: String = (0..500).map(|i| format!("k{i:04}\tvalue {i}\n")).collect();
    s.ok(&["import", s.file("rows.tsv", lines.as_bytes()).to_str().unwrap()]);
    damage(&files(&s, ".ksst")[0], 100);
    s.fails(5, &["export", "x.tsv"]);
    let left: Vec<_> = std::fs::read_dir(&s.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "db" || name == "rows.tsv"), "{left:?}");
}

#[test]
fn a_truncated_import_resumes() {
    let s = Scratch::new("resume");
    let lines: Vec<String> =
        (0..3000).map(|i| format!("k{:04}\t{i} {}\n", i % 2000, "v".repeat(200))).collect();
    let whole = lines.concat();
    s.file("rows.tsv", whole.as_bytes());
    s.file("bad.tsv", [&lines[..1500].concat(), "no tab\n"].concat().as_bytes());
    let error = s.fails(1, &["import", "bad.tsv"]);
    assert!(error.contains("line 1501") && error.contains("1,500 records imported before"), "{error}");
    assert!(error.contains("--resume"), "{error}");
    let report = json(&s.ok(&["import", "rows.tsv", "--resume", "--json"]));
    assert_eq!((&report["left_out"], &report["records"]), (&1500.into(), &1500.into()));
    // The result equals that of one import: the later record with the same key wins.
    assert!(run(&s.path("other"), &["import", "rows.tsv"], &s.0).status.success());
    assert_eq!(s.ok(&["scan"]).into_bytes(), run(&s.path("other"), &["scan"], &s.0).stdout);
    let again = json(&s.ok(&["import", "rows.tsv", "--resume", "--json"]));
    assert_eq!(s.ok(&["scan"]).into_bytes(), run(&s.path("other"), &["scan"], &s.0).stdout);
    assert_eq!(again["left_out"].as_u64().unwrap() + again["records"].as_u64().unwrap(), 3000);
}

#[test]
fn a_killed_import_resumes() {
    let s = Scratch::new("killed");
    let lines: String = (0..20_000).map(|i| format!("k{i:06}\t{}\n", "v".repeat(100))).collect();
    let mut child = lava(&s.0)
        .args(["import", "-", "--format", "tsv", "--db", "db"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // Half of the input, then the process dies while it waits for more.
    child.stdin.as_mut().unwrap().write_all(&lines.as_bytes()[..lines.len() / 2]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    s.file("rows.tsv", lines.as_bytes());
    let report = json(&s.ok(&["import", "rows.tsv", "--resume", "--json"]));
    assert_eq!(report["left_out"].as_u64().unwrap() + report["records"].as_u64().unwrap(), 20_000);
    assert!(s.ok(&["scan"]) == lines);
}

/// A closed pipe is no error and prints nothing.
#[test]
fn a_broken_pipe_ends_quietly() {
    let s = Scratch::new("pipe");
    let lines: String = (0..20_000).map(|i| format!("k{i:06}\t{}\n", "v".repeat(100))).collect();
    s.ok(&["import", s.file("rows.tsv", lines.as_bytes()).to_str().unwrap()]);
    for args in [&["scan"][..], &["export"], &["export", "-"], &["scan", "--json"], &["dump", "--entries"]] {
        let mut child = lava(&s.0)
            .args(args)
            .args(["--db", "db"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{args:?}");
    }
}

/// A key returns to its stored value after another one: the last record wins, as in a whole import.
#[test]
fn resuming_writes_a_repeated_key_again() {
    let s = Scratch::new("repeated");
    let rows: String = (0..100).map(|i| format!("k{i:02}\tfirst\n")).collect();
    s.ok(&["import", s.file("a.tsv", rows.as_bytes()).to_str().unwrap()]);
    let again: String = (0..100).map(|i| format!("k{i:02}\tsecond\nk{i:02}\tfirst\n")).collect();
    let report =
        json(&s.ok(&["import", s.file("b.tsv", again.as_bytes()).to_str().unwrap(), "--resume", "--json"]));
    assert_eq!((&report["left_out"], &report["records"]), (&0.into(), &200.into()));
    assert_eq!(s.ok(&["scan"]), rows);
    // The store has only a part of the unordered file, and some of its keys with other values.
    s.ok(&["put", "k50", "else"]);
    s.ok(&["del", "k10"]);
    let mixed: String = (0..100).rev().map(|i| format!("k{:02}\tfirst\n", i * 37 % 100)).collect();
    let report =
        json(&s.ok(&["import", s.file("c.tsv", mixed.as_bytes()).to_str().unwrap(), "--resume", "--json"]));
    assert_eq!((&report["left_out"], &report["records"]), (&98.into(), &2.into()));
    assert_eq!(s.ok(&["scan"]), rows);
}

/// Resuming compares the file in one pass over the store, without a read per record: it costs no
/// more than writing all records. (Measured in blocks read, because times depend on the machine.)
#[test]
fn resuming_costs_no_read_a_record() {
    let s = Scratch::new("resume-cost");
    let row = |i: u64| format!("k{:08}\t{}\n", i * 7_919 % 100_003, "v".repeat(100));
    let rows: String = (0..100_003).map(row).collect();
    s.file("rows.tsv", rows.as_bytes());
    let half = rows.lines().take(50_000).map(|line| line.to_owned() + "\n").collect::<String>();
    s.ok(&["import", s.file("half.tsv", half.as_bytes()).to_str().unwrap()]);
    let report = json(&s.ok(&["import", "rows.tsv", "--resume", "--json"]));
    assert_eq!((&report["left_out"], &report["records"]), (&50_000.into(), &50_003.into()));
    let steps = report["comparison_steps"].as_u64().unwrap();
    assert!(steps < 2 * 100_003 + 1_000_000, "{steps} steps");
    assert!(run(&s.path("other"), &["import", "rows.tsv"], &s.0).status.success());
    assert!(s.ok(&["scan"]).into_bytes() == run(&s.path("other"), &["scan"], &s.0).stdout);
}
