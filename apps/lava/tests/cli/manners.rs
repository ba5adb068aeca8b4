//! Conventions of command lines: no accidental creation, suggestions for mistyped names, one system
//! of units, and resumable interrupted commands.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "looks at the program from outside")]

use crate::common::*;
use std::io::Write;
use std::process::{Output, Stdio};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_unknown_file_extension_is_refused() {
    let s = Scratch::new("endings");
    s.ok(&["put", "k", "v"]);
    for name in ["out.csv", "out.csv.gz", "out.parquet", "out"] {
        let error = s.fails(2, &["export", name]);
        assert!(error.contains(name) && error.contains("--format") && error.contains(".tsv"), "{error}");
        assert!(!s.path(name).exists(), "{name}");
    }
    s.ok(&["export", "out.csv", "--format", "tsv"]);
    s.ok(&["export", "out.json"]);
    assert_eq!(std::fs::read(s.path("out.json")).unwrap(), b"{\"key\":\"k\",\"value\":\"v\"}\n");
}

#[test]
fn a_mistyped_path_makes_no_directories() {
    let s = Scratch::new("mistyped");
    s.file("rows.tsv", b"a\t1\n");
    let commands: [&[&str]; 7] = [
        &["put", "k", "v"],
        &["import", "rows.tsv"],
        &["log", "append", "l", "x"],
        &["family", "create", "f"],
        &["bench", "load", "--num", "10"],
        &["demo", "--generate", "10"],
        &["del", "k"],
    ];
    for args in commands {
        let output = run(&s.path("no/such/place"), args, &s.0);
        assert_eq!(output.status.code(), Some(8), "{args:?}: {}", stderr(&output));
        assert!(!s.path("no").exists(), "{args:?}");
    }
    let output = run(&s.path("no/such/place"), &["put", "k", "v", "--parents"], &s.0);
    assert!(output.status.success(), "{}", stderr(&output));
    s.ok(&["put", "k", "v"]);
    for args in [&["checkpoint", "un/known/copy"][..], &["repair", "--into", "un/known/new"]] {
        s.fails(8, args);
        assert!(!s.path("un").exists(), "{args:?}");
    }
    let output = run(&s.path("other"), &["put", "k", "v", "--fast-tier", "un/known/disk"], &s.0);
    assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
    assert!(!s.path("un").exists() && !s.path("other").exists());
}

#[test]
fn an_import_that_fails_at_once_leaves_no_store() {
    let s = Scratch::new("no-store");
    s.file("bad.tsv", b"no tab\n");
    s.file("good.tsv", b"a\t1\n");
    for (status, args) in [
        (1, &["import", "bad.tsv"][..]),
        (8, &["import", "missing.tsv"]),
        (8, &["import", "good.tsv", "missing.tsv"]),
        (2, &["import", "good.bin"]),
    ] {
        s.fails(status, args);
        assert!(!s.path("db").exists(), "{args:?}");
    }
    s.ok(&["import", "good.tsv"]);
}

#[test]
fn malformed_records_are_skipped_on_request() {
    let s = Scratch::new("malformed");
    let mut rows = String::new();
    for i in 0..100 {
        rows += &format!("k{i:02}\t{i}\nno tab {i}\n");
    }
    s.file("rows.tsv", rows.as_bytes());
    let output = s.lava(&["import", "rows.tsv", "--skip-malformed", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let report = json(&String::from_utf8(output.stdout.clone()).unwrap());
    assert_eq!((&report["records"], &report["malformed"]), (&100.into(), &100.into()));
    let lines = stderr(&output);
    assert_eq!(lines.lines().count(), 22, "the first twenty, how many more, the error: {lines}");
    assert!(lines.contains("rows.tsv: line 2: no tab") && lines.contains("skipped 80 more"), "{lines}");
    assert!(lines.contains("100 malformed records skipped"), "{lines}");
    assert_eq!(s.ok(&["scan", "--keys-only"]).lines().count(), 100);
    s.file("long.tsv", format!("a\t{}\nb\t2\n", "v".repeat(5000)).as_bytes());
    let output = s.lava(&["import", "long.tsv", "--skip-malformed", "--line-bytes-max", "4K"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("line 1: a line of more than 4,096 bytes"), "{}", stderr(&output));
    assert_eq!(s.ok(&["get", "b"]), "2\n");
}

#[test]
fn a_mistyped_name_gets_a_suggestion() {
    let s = Scratch::new("typos");
    s.ok(&["put", "k", "v"]);
    s.ok(&["family", "create", "users"]);
    s.ok(&["log", "append", "events", "x", "--add-engine"]);
    let cases: [(i32, &[&str], &str); 11] = [
        (2, &["imprt", "x"], "import"),
        (2, &["family", "creat", "x"], "create"),
        (2, &["scan", "--limt", "3"], "--limit"),
        (2, &["bench", "overwrit"], "overwrite"),
        (2, &["bench", "load", "--distribution", "zip"], "zipf"),
        (2, &["put", "k", "v", "--compression", "lz5"], "lz4"),
        (2, &["put", "k", "v", "--policy", "levelled"], "leveled"),
        (8, &["get", "k", "--family", "user"], "users"),
        (8, &["family", "drop", "usres", "--yes"], "users"),
        (8, &["log", "tail", "event"], "events"),
        (2, &["help", "exprt"], "export"),
    ];
    for (status, args, meant) in cases {
        let output = if args[0] == "help" { lava(&s.0).args(args).output().unwrap() } else { s.lava(args) };
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {error}");
        let meant_is_told = error.split("did you mean ").nth(1).is_some_and(|names| names.contains(meant));
        assert!(meant_is_told, "{args:?}: {error}");
    }
}

#[test]
fn families_are_listed_made_and_dropped() {
    let s = Scratch::new("families");
    s.ok(&["put", "k", "v"]);
    s.ok(&["family", "create", "texts", "--compression", "zstd"]);
    s.ok(&["put", "k", "v", "--family", "texts"]);
    s.ok(&["compact"]);
    let list = s.ok(&["family", "ls"]);
    assert_eq!(list.lines().count(), 2);
    assert!(list.contains("1 table ") && list.contains("default") && list.contains("texts"), "{list}");
    assert_eq!(json(&s.ok(&["family", "ls", "--json"]))["families"][1]["name"], "texts");
    s.fails(9, &["family", "create", "texts"]);
    assert!(s.fails(2, &["family", "drop", "texts"]).contains("--yes"));
    s.fails(2, &["family", "drop", "default", "--yes"]);
    assert_eq!(json(&s.ok(&["family", "drop", "texts", "--yes", "--json"]))["dropped"], "texts");
    assert_eq!(s.ok(&["family", "ls"]).lines().count(), 1);
}

#[test]
fn sizes_use_binary_units_for_input_and_output() {
    let s = Scratch::new("units");
    assert!(s.ok(&["fs", "mkfs", "image", "--size", "64M", "--sparse"]).contains("64.00 MiB"));
    assert!(s.ok(&["fs", "mkfs", "second", "--size", "16MiB", "--sparse"]).contains("16.00 MiB"));
    assert!(s.ok(&["fs", "mkfs", "third", "--size", "32768000B", "--sparse"]).contains("31.25 MiB"));
    assert!(s.fails(2, &["fs", "mkfs", "fourth", "--size", "64MB"]).contains("MiB"), "not a power of two");
}

#[test]
fn counts_of_one_use_the_singular() {
    let s = Scratch::new("singular");
    s.file("one.tsv", b"a\t1\n");
    assert!(s.ok(&["import", "one.tsv"]).contains("imported 1 record,"));
    assert!(s.ok(&["export", "out.tsv"]).contains("exported 1 record,"));
    for args in [&["verify"][..], &["repair", "--dry-run"], &["engines"], &["compact"], &["gc"]] {
        let text = s.ok(args);
        for noun in ["files", "entries", "records", "times", "tables", "vSSTs"] {
            assert!(
                !text.contains(&format!(" 1 {noun}")) && !text.starts_with(&format!("1 {noun}")),
                "{text}"
            );
        }
    }
}

/// A second Ctrl-C would end the process at once; the first one ends it at a record, and it dies of
/// the signal.
#[test]
fn an_interrupted_import_prints_where_to_resume() {
    use std::os::unix::process::ExitStatusExt;
    let s = Scratch::new("interrupted");
    let mut child = lava(&s.0)
        .args(["import", "-", "--format", "tsv", "--db", "db"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let rows: String = (0..20_000).map(|i| format!("k{i:06}\t{}\n", "v".repeat(100))).collect();
    let mut input = child.stdin.take().unwrap();
    input.write_all(rows.as_bytes()).unwrap();
    // The process waits for more input.
    while !s.path("db/CURRENT").exists() {
        std::thread::yield_now();
    }
    // SAFETY: signals a child that has not been waited for, so its id is still valid.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    let error = stderr(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGINT), "{error}");
    assert!(error.contains("interrupted") && error.contains("--resume"), "{error}");
    drop(input);
    let there = s.ok(&["scan"]);
    let records = there.lines().count().to_string();
    assert!(
        rows.starts_with(&there) && error.replace(',', "").contains(&format!("({records} records")),
        "{error}"
    );
}

#[test]
fn a_finished_rewrite_prints_no_continuation() {
    let s = Scratch::new("rewritten");
    s.file("rows.tsv", b"a\t1\nb\t2\n");
    s.ok(&["import", "rows.tsv"]);
    let output = s.lava(&["compact", "--rewrite"]);
    assert!(output.status.success() && !stderr(&output).contains("to continue:"), "{}", stderr(&output));
}

#[test]
fn reports_show_names_and_no_debug_text() {
    let s = Scratch::new("debug");
    let output = lava(&s.0).args(["bench", "load", "--num", "1000"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", stderr(&output));
    for debug in ["{", "}", "Some(", "None", "Ablation", "true,"] {
        assert!(!text.contains(debug), "{debug}: {text}");
    }
}

/// Long commands show progress on a terminal, but not in a pipe.
#[test]
fn progress_is_shown_on_a_terminal() {
    let s = Scratch::new("progress");
    let lava_bin = env!("CARGO_BIN_EXE_lava");
    let on_terminal = |line: &str| {
        let mut script = std::process::Command::new("script");
        script
            .args(["-qec", &format!("{lava_bin} {line}"), "/dev/null"])
            .current_dir(&s.0)
            .stdin(Stdio::null());
        let output = script.output().ok()?;
        assert!(output.status.success(), "{line}: {output:?}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(text) = on_terminal("bench overwrite --num 200000 --updates 200000 --value-size 500") else {
        println!("skipped: script is not installed");
        return;
    };
    assert!(text.contains("bench: ") && text.contains(" operations, "), "{text}");
    let rows = s.path("rows.tsv");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&rows).unwrap());
    for i in 0..400_000 {
        writeln!(out, "k{i:07}\t{}", "v".repeat(400)).unwrap();
    }
    drop(out);
    assert!(on_terminal("import rows.tsv --db db").unwrap().contains("made a new store in db"));
    std::fs::remove_file(&rows).unwrap();
    assert!(
        on_terminal("export out.tsv.zst --db db").unwrap().contains("out.tsv.zst"),
        "a spinner with its name"
    );
    assert!(on_terminal("verify --db db").unwrap().contains("verify: read "));
    assert!(on_terminal("repair --into new --db db").unwrap().contains("repair: read "));
    let quiet = s.lava(&["verify"]);
    assert!(quiet.stderr.is_empty(), "{}", stderr(&quiet));
}

/// Ctrl-C ends a repair between two records: no part of the new store is left, and the process dies
/// of the signal.
#[test]
fn an_interrupted_repair_leaves_nothing() {
    use std::os::unix::process::ExitStatusExt;
    let s = Scratch::new("interrupted-repair");
    let rows: String = (0..60_000).map(|i| format!("k{i:06}\t{}\n", "v".repeat(900))).collect();
    s.file("rows.tsv", rows.as_bytes());
    s.ok(&["import", "rows.tsv"]);
    let mut child = lava(&s.0)
        .args(["repair", "--into", "repaired", "--db", "db"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !s.path("repaired/UNFINISHED").exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    // SAFETY: signals a child that has not been waited for; it may have exited already.
    let _ = unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    let error = stderr(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGINT), "{error}");
    assert!(error.contains("interrupted: the new store is removed"), "{error}");
    assert!(!s.path("repaired").exists());
    s.ok(&["repair", "--into", "repaired"]);
}
