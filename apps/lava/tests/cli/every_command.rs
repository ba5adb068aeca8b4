//! Every command without a terminal, in all environments: a good store, a closed pipe, a full disk,
//! a wrong directory, a store held by another process, a damaged store, and a LavaFS volume.
//! (`log.rs` covers logs, `fs.rs` volumes.) Every failure is reported in one line with a documented
//! exit status.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "looks at the program from outside")]

use crate::common::*;
use std::path::Path;
use std::process::{Output, Stdio};

/// Every command that works on a store, with valid input.
const COMMANDS: [&[&str]; 18] = [
    &["get", "k0001"],
    &["scan", "--limit", "3"],
    &["export", "-"],
    &["stat"],
    &["space"],
    &["gc", "--dry-run"],
    &["verify"],
    &["dump"],
    &["repair", "--dry-run"],
    &["engines"],
    &["put", "x", "y"],
    &["del", "x"],
    &["import", "more.tsv"],
    &["gc"],
    &["compact"],
    &["upgrade", "--to", "1"],
    &["checkpoint", "copy"],
    &["export", "all.tsv", "--force"],
];
/// Indices of the writing commands.
const WRITING: std::ops::Range<usize> = 10..17;

fn store(name: &str) -> Scratch {
    let s = Scratch::new(name);
    let rows: String = (0..300).map(|i| format!("k{i:04}\tvalue {i} {}\n", "v".repeat(i * 5))).collect();
    s.file("rows.tsv", rows.as_bytes());
    s.file("more.tsv", b"more\t1\n");
    s.ok(&["import", "rows.tsv"]);
    s
}

/// Checks that the program did not panic or die of a signal; an error is its last line and begins
/// with its name.
fn decent(args: &[&str], output: &Output) -> i32 {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let status = output.status.code().unwrap_or_else(|| panic!("{args:?} was killed: {stderr}"));
    assert!((0..10).contains(&status) && !stderr.contains("panicked"), "{args:?}: {status}: {stderr}");
    if status != 0 {
        assert!(stderr.lines().last().is_some_and(|line| line.starts_with("lava: ")), "{args:?}: {stderr}");
    }
    status
}

fn is_json(args: &[&str], text: &str) {
    assert!(!text.is_empty(), "{args:?} prints nothing");
    if serde_json::from_str::<serde_json::Value>(text).is_err() {
        text.lines().for_each(|line| drop(json(line)));
    }
}

#[test]
fn every_command_succeeds_on_a_sound_store() {
    let s = store("good");
    for args in COMMANDS {
        let output = s.lava(args);
        assert_eq!(decent(args, &output), 0, "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The reader may be gone before the first byte: then a command still works, silently and
/// successfully. An unwritable standard output is an error.
#[test]
fn commands_survive_a_closed_stdout_pipe() {
    let s = store("unread");
    let help: [&[&str]; 5] = [
        &["help"],
        &["help", "import"],
        &["help", "exit-codes"],
        &["completions", "bash"],
        &["man", "pages"],
    ];
    for args in COMMANDS.into_iter().chain(help) {
        let on = if help.contains(&args) { &[][..] } else { &["--db", "db"] };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = lava(&s.0).args(args).args(on).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked") && !stderr.contains("lava: "), "{args:?}: {stderr}");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
        let _ = std::fs::remove_dir_all(s.path("copy"));
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = lava(&s.0).args(args).args(on).stdout(full).output().unwrap();
        let status = decent(args, &output);
        let prints = !lava(&s.0).args(args).args(on).output().unwrap().stdout.is_empty();
        assert!(status == 6 || !prints, "{args:?}: {status}");
        let _ = std::fs::remove_dir_all(s.path("copy"));
    }
}

#[test]
fn every_command_prints_json() {
    let s = store("json");
    for args in COMMANDS {
        if *args == ["export", "-"] {
            continue;
        }
        is_json(args, &s.ok(&[args, &["--json"]].concat()).replace("lava: ", ""));
        if args[0] == "checkpoint" {
            std::fs::remove_dir_all(s.path("copy")).unwrap();
        }
    }
    let put = json(&s.ok(&["put", "k", "v", "--json"]));
    assert_eq!((&put["key"], &put["value_bytes"]), (&"k".into(), &1.into()));
    assert_eq!(json(&s.ok(&["del", "k", "--json"]))["keys"][0], "k");
    let demo = run(&s.path("demo"), &["demo", "--generate", "500", "--json"], &s.0);
    is_json(&["demo"], &String::from_utf8(demo.stdout).unwrap());
    let bench = lava(&s.0).args(["bench", "load", "--num", "100", "--json"]).output().unwrap();
    is_json(&["bench"], &String::from_utf8(bench.stdout).unwrap());
    s.file("small", b"hello\n");
    for line in [
        "mkfs image --size 64M --sparse",
        "cp image small :/small",
        "ls image",
        "cat image /small",
        "stat image /small",
        "df image",
        "grow image",
        "fsck image",
        "dump-journal image",
    ] {
        let args: Vec<&str> = ["fs"].into_iter().chain(line.split(' ')).chain(["--json"]).collect();
        is_json(&args, &s.ok(&args));
    }
}

#[test]
fn every_command_refuses_a_wrong_directory() {
    let s = Scratch::new("wrong");
    s.file("more.tsv", b"more\t1\n");
    std::fs::create_dir(s.path("home")).unwrap();
    std::fs::write(s.path("home").join("letter"), b"dear").unwrap();
    for args in COMMANDS {
        for (place, statuses) in [("none", &[8][..]), ("home", &[8, 2, 0])] {
            let makes = matches!(args[0], "put" | "import");
            if makes && place == "none" {
                continue;
            }
            let output = run(&s.path(place), args, &s.0);
            let status = decent(args, &output);
            assert!(statuses.contains(&status), "{args:?} in {place}: {status}");
            assert!(status != 0 || args[0] == "dump", "{args:?} in {place} succeeds");
        }
    }
    let left: Vec<_> = std::fs::read_dir(s.path("home")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["letter"], "nothing was made there");
    assert!(!s.path("none").exists());
}

#[test]
fn every_command_handles_a_locked_store() {
    let s = store("held");
    let mut holder = lava(&s.0)
        .args(["import", "-", "--format", "tsv", "--db", "db"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = format!("process {}", holder.id());
    while !std::fs::read_to_string(s.path("db").join("LOCK")).is_ok_and(|line| line.contains(&pid)) {
        assert!(holder.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    for (at, args) in COMMANDS.iter().enumerate() {
        let status = decent(args, &s.lava(args));
        if args[0] == "checkpoint" {
            assert_eq!(status, 0, "the holder makes it");
        } else if WRITING.contains(&at) {
            assert_eq!(status, 7, "{args:?}");
        } else if args[0] != "repair" {
            assert_eq!(status, 0, "{args:?}");
        }
    }
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

#[test]
fn every_command_reports_a_damaged_store() {
    for what in ["table", "manifest", "CURRENT", "log"] {
        let s = store("damaged");
        s.ok(&["put", "in the log", "1", "--sync"]);
        match what {
            "table" => damage(&files(&s, ".ksst")[0], 50),
            "manifest" => {
                let all = std::fs::read_dir(s.path("db")).unwrap().map(|entry| entry.unwrap().path());
                let manifest =
                    all.into_iter().find(|path| path.to_str().unwrap().contains("MANIFEST")).unwrap();
                damage(&manifest, 60);
            }
            "CURRENT" => damage(&s.path("db").join("CURRENT"), 10),
            _ => files(&s, ".log").iter().for_each(|log| damage(log, 20)),
        }
        let mut told = 0;
        for args in COMMANDS {
            told += usize::from(decent(args, &s.lava(args)) == 5);
            let _ = std::fs::remove_dir_all(s.path("copy"));
        }
        assert!(told > 0 || what == "log", "{what}: no command tells of the damage");
    }
}

#[test]
fn every_command_works_on_a_volume() {
    let s = store("volume");
    assert!(
        lava(&s.0).args(["fs", "mkfs", "image", "--size", "256M", "--sparse"]).status().unwrap().success()
    );
    let on = Path::new("lavafs:image");
    assert!(run(on, &["import", "rows.tsv"], &s.0).status.success());
    for args in COMMANDS {
        let args: Vec<&str> =
            args.iter().map(|arg| if *arg == "copy" { "lavafs:image:/copy" } else { arg }).collect();
        let output = run(on, &args, &s.0);
        assert_eq!(decent(&args, &output), 0, "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(run(Path::new("lavafs:image:/copy"), &["verify"], &s.0).status.success());
    // A file without a volume.
    s.file("data", &vec![1; 16 << 20]);
    for args in COMMANDS {
        assert_ne!(decent(args, &run(Path::new("lavafs:data"), args, &s.0)), 0, "{args:?}");
    }
}
