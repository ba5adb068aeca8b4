//! End-to-end tests of `lava log`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "looks at the program from outside")]

use crate::common::*;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

/// Splits the arguments of `lava log`.
fn args(line: &str) -> Vec<&str> {
    ["log"].into_iter().chain(line.split(' ')).collect()
}

fn ok(s: &Scratch, line: &str) -> String {
    s.ok(&args(line))
}

fn fails(s: &Scratch, status: i32, line: &str) -> String {
    s.fails(status, &args(line))
}

/// Appends the lines of standard input.
fn append(s: &Scratch, line: &str, input: &[u8]) -> std::process::Output {
    let mut child = lava(&s.0)
        .args(args(line))
        .args(["--db", "db"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn appended_log_records_are_read_back() {
    let s = Scratch::new("log");
    assert_eq!(ok(&s, "append orders apples pears"), "");
    let told = json(&ok(&s, "append orders plums --json"));
    assert_eq!(told, json(r#"{"log": "orders", "records": 1, "first_lsn": 3, "last_lsn": 3}"#));
    ok(&s, "append orders -e a\\tb\\xff --lsn 7");
    assert!(append(&s, "append orders", b"from\nstandard input\n").status.success());
    let directory = std::fs::File::open(&s.0).unwrap();
    let refused =
        lava(&s.0).args(args("append orders")).args(["--db", "db"]).stdin(directory).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("standard input"), "{why}");
    assert_eq!(
        ok(&s, "tail orders"),
        "1\tapples\n2\tpears\n3\tplums\n7\ta\\tb\\xff\n8\tfrom\n9\tstandard input\n"
    );
    assert_eq!(ok(&s, "tail orders -n 3"), "7\ta\\tb\\xff\n8\tfrom\n9\tstandard input\n");
    assert_eq!(ok(&s, "tail orders --from 2 -n 2"), "2\tpears\n3\tplums\n");
    assert_eq!(ok(&s, "tail orders -n 0"), "");
    assert_eq!(ok(&s, "read orders 2"), "pears\n");
    assert_eq!(ok(&s, "read orders 2 --raw"), "pears");
    assert_eq!(json(&ok(&s, "read orders 7 --json"))["record_b64"], "YQli/w==");
    assert_eq!(json(ok(&s, "tail orders --json -n 1").trim())["record"], "standard input");
    // A record that exists already.
    ok(&s, "append orders --lsn 3 plums");
    assert!(fails(&s, 9, "append orders --lsn 3 grapes").contains("3"));
    ok(&s, "trim orders 3");
    assert_eq!(json(&ok(&s, "trim orders 3 --json"))["first_lsn"], 3);
    assert!(fails(&s, 4, "read orders 2").contains("trimmed"));
    assert!(fails(&s, 4, "read orders 4").contains("record not found"));
    ok(&s, "append payments cash");
    let logs = json(&ok(&s, "ls --json"))["logs"].clone();
    assert_eq!(
        (&logs[0]["name"], &logs[0]["first_lsn"], &logs[0]["last_lsn"]),
        (&"orders".into(), &3.into(), &9.into())
    );
    let text = ok(&s, "ls");
    assert!(text.lines().count() == 2 && text.ends_with("1                    1  payments\n"), "{text}");
    let one = json(&ok(&s, "stat orders --json"));
    assert_eq!((&one["gaps"], &one["last_lsn"]), (&json("[[4,6]]"), &9.into()));
    assert_eq!(json(&ok(&s, "stat --json"))["logs"], 2);
    assert!(
        ok(&s, "stat").contains("logs                 2")
            && ok(&s, "stat orders").contains("gaps                 1")
    );
    let verified = json(&ok(&s, "verify --json"));
    assert_eq!((&verified["records"], &verified["damages"]), (&5.into(), &json("[]")));
    assert!(verified["checked"]["manifest_edits"]["count"].as_u64() > Some(0), "{verified}");
    assert!(ok(&s, "verify").starts_with("read 5 records of 2 logs"));
}

#[test]
fn many_log_records_span_batches_and_gaps() {
    let s = Scratch::new("log-many");
    let lines: String = (1..=2500).map(|n| format!("{n}\n")).collect();
    assert_eq!(
        json(&String::from_utf8(append(&s, "append a --json", lines.as_bytes()).stdout).unwrap())["records"],
        2500
    );
    assert_eq!(ok(&s, "tail a --from 1").lines().count(), 2500);
    for lsn in [5000, 900_000, u64::MAX - 1] {
        ok(&s, &format!("append a --lsn {lsn} far"));
    }
    let last: Vec<String> =
        ok(&s, "tail a -n 5").lines().map(|line| line.split_once('\t').unwrap().0.to_owned()).collect();
    assert_eq!(last, ["2499", "2500", "5000", "900000", "18446744073709551614"]);
    let refused = fails(&s, 2, "append a more");
    assert!(refused.contains("LSN"), "{refused}");
    // Empty input appends nothing and is no error.
    let none = append(&s, "append a --lsn 7000 --json", b"");
    assert_eq!(json(&String::from_utf8(none.stdout).unwrap())["last_lsn"], serde_json::Value::Null);
}

#[test]
fn missing_stores_and_logs_are_named_and_not_created() {
    let s = Scratch::new("log-none");
    std::fs::create_dir(s.path("home")).unwrap();
    std::fs::write(s.path("home").join("letter"), b"dear").unwrap();
    for line in ["read a 1", "tail a", "tail a -f", "trim a 5", "ls", "stat", "stat a", "verify"] {
        fails(&s, 8, line);
        assert!(!s.path("db").exists(), "{line}");
        let home = run(&s.path("home"), &args(line), &s.0);
        assert!([2, 8].contains(&home.status.code().unwrap()), "{line}: {home:?}");
    }
    assert_eq!(run(&s.path("home"), &args("append a x"), &s.0).status.code(), Some(2));
    let left: Vec<_> = std::fs::read_dir(s.path("home")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["letter"], "nothing was made there");
    // A store of keys has no logs until the first append; then it has both engines.
    s.ok(&["put", "k", "v"]);
    assert!(fails(&s, 8, "ls").contains("no logs"));
    assert!(fails(&s, 2, "append a x").contains("has keys and no logs: pass --add-engine"));
    ok(&s, "append a x --add-engine");
    for line in ["read b 1", "tail b", "trim b 5", "stat b"] {
        assert!(fails(&s, 8, line).contains('b'), "{line}");
    }
    for line in ["read a one", "read a", "append", "tail a -n x", "trim a -1", "append a -e x\\q", "nonsense"]
    {
        fails(&s, 2, line);
    }
    assert_eq!(s.ok(&["get", "k"]), "v\n");
    ok(&s, "append a y");
    assert_eq!(ok(&s, "tail a"), "1\tx\n2\ty\n");
}

/// The store is complete and has no keys yet.
#[test]
fn a_store_of_logs_without_keys_is_not_reported_as_damaged() {
    let s = Scratch::new("log-alone");
    ok(&s, "append a x");
    for line in ["get k", "scan", "export -", "gc --dry-run", "verify"] {
        let told = s.fails(8, &line.split(' ').collect::<Vec<_>>());
        assert!(
            told.contains("there are no column families in this store: another engine made it"),
            "{told}"
        );
    }
    let refused = s.fails(2, &["put", "k", "v"]);
    assert!(refused.contains("has logs and no keys: pass --add-engine"), "{refused}");
    assert!(s.fails(2, &["import", s.file("a.tsv", b"a\t1\n").to_str().unwrap()]).contains("--add-engine"));
    s.fails(8, &["scan"]);
    s.ok(&["put", "k", "v", "--add-engine"]);
    assert_eq!((s.ok(&["get", "k"]), ok(&s, "tail a")), ("v\n".to_owned(), "1\tx\n".to_owned()));
}

/// Reports of the store include its logs, with and without keys.
#[test]
fn space_reports_include_logs() {
    let s = Scratch::new("log-ledgers");
    ok(&s, "append orders apples pears");
    ok(&s, "append a\\tb x");
    let space = json(&s.ok(&["space", "--json"]));
    let logs = &space["logs"];
    let parts = [
        "live",
        "garbage",
        "open",
        "index",
        "checkpoint",
        "jobs",
        "free",
        "wal",
        "manifest",
        "engines",
        "other",
    ];
    let sum: u64 = parts.iter().map(|part| logs[format!("{part}_bytes")].as_u64().unwrap()).sum();
    assert_eq!(logs["total_bytes"], sum);
    let orders = logs["logs"].as_array().unwrap().iter().find(|log| log["name"] == "orders").unwrap();
    assert_eq!((&orders["records"], &orders["live_bytes"]), (&2.into(), &11.into()));
    let text = s.ok(&["space"]);
    assert!(
        text.contains("checkpoint") && text.contains("  orders\n") && !text.contains("\nlogs\n"),
        "{text}"
    );
    assert_eq!(json(&s.ok(&["stat", "--json"]))["logs"]["logs"], 2);
    assert!(s.ok(&["stat"]).starts_with("logs                 2\n"));
    let engines = json(&s.ok(&["engines", "--json"]))["engines"].clone();
    assert_eq!((&engines[0]["name"], &engines[0]["known"]), (&"LavaLog".into(), &true.into()));

    s.ok(&["put", "k", "v", "--add-engine"]);
    let both = json(&s.ok(&["space", "--json"]));
    // Each report counts the whole directory; the logs were opened in between.
    assert!(both["engines_bytes"].as_u64() > Some(0));
    assert!(
        both["logs"]["logs"].as_array().unwrap().len() == 2
            && both["families"].as_array().unwrap().len() == 1
    );
    let text = s.ok(&["space"]);
    let (of_keys, of_logs) = text.split_once("\nlogs\n").unwrap();
    assert!(of_keys.contains("in memtables") && of_logs.contains("  orders\n"), "{text}");
    let stat = s.ok(&["stat"]);
    assert!(stat.contains("column families") && stat.contains("\nlogs                 2\n"), "{stat}");
    assert!(s.ok(&["engines"]).contains("LavaLog") && !s.ok(&["engines"]).contains("not known here"));

    // All reports work while another process holds the store.
    let holder = lavastore::Db::open(s.path("db")).unwrap();
    assert_eq!(json(&s.ok(&["space", "--json"]))["logs"]["logs"].as_array().unwrap().len(), 2);
    assert!(s.ok(&["stat"]).contains("\nlogs                 2\n"));
    drop(holder);
}

#[test]
fn log_commands_fail_at_once_on_a_locked_store() {
    let s = Scratch::new("log-held");
    ok(&s, "append a x");
    let mut holder =
        lava(&s.0).args(args("append a")).args(["--db", "db"]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = format!("process {}", holder.id());
    while !std::fs::read_to_string(s.path("db").join("LOCK")).is_ok_and(|line| line.contains(&pid)) {
        assert!(holder.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    for line in ["append a y", "trim a 1"] {
        fails(&s, 7, line);
    }
    // Reading commands need no lock.
    assert_eq!([ok(&s, "read a 1"), ok(&s, "tail a")], ["x\n", "1\tx\n"]);
    assert!(ok(&s, "ls").contains('a') && ok(&s, "stat").starts_with("logs"));
    assert!(ok(&s, "stat a").starts_with("first LSN            1"));
    assert!(ok(&s, "verify").starts_with("read 1 record of 1 log"));
    assert_eq!(ok(&s, "tail a -f -n 1 --from 1"), "1\tx\n");
    assert!(s.ok(&["engines"]).starts_with("LavaLog") && s.ok(&["space"]).contains("checkpoint"));
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

#[test]
fn tail_follows_appends_of_other_processes() {
    let s = Scratch::new("log-follow");
    ok(&s, "append a 1 2 3");
    let mut tail = lava(&s.0)
        .args(args("tail a -f -n 5 --from 2"))
        .args(["--db", "db"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!([next(), next()], ["2\t2", "3\t3"]);
    for record in ["4", "5", "6", "7"] {
        // The other process holds the store for moments.
        while !s.lava(&["log", "append", "a", record]).status.success() {
            std::thread::yield_now();
        }
    }
    assert_eq!([next(), next(), next()], ["4\t4", "5\t5", "6\t6"]);
    assert!(tail.wait().unwrap().success(), "it ends when it has printed what it was asked for");
}

/// Damage in sealed log groups loses only the damaged records.
#[test]
fn a_damaged_log_record_is_reported_and_the_rest_is_read() {
    let s = Scratch::new("log-damaged");
    for round in 1..=6 {
        let records: Vec<String> = (0..10).map(|i| format!("r{round}-{i:02}-").repeat(1500)).collect();
        ok(&s, &format!("append a {}", records.join(" ")));
    }
    assert!(ok(&s, "verify").starts_with("read 60 records"));
    // Unsealed log groups are replayed by the open, which fails on damage.
    lavastore::LogStore::open(s.path("db")).and_then(|logs| logs.wait_idle()).unwrap();
    let spoil = |record: &str| {
        let begins = record.repeat(10);
        let find = |path: std::path::PathBuf| {
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(begins.len()).position(|part| part == begins.as_bytes())?;
            Some((path, at))
        };
        let (file, at) = files(&s, ".log").into_iter().find_map(find).expect("the record is in some group");
        // In the middle, where no other record begins or ends.
        damage(&file, at + 5000);
    };
    spoil("r1-02-");
    let told = fails(&s, 5, "read a 3");
    assert!(told.contains("is damaged or missing") && told.contains(".log"), "{told}");
    assert!(ok(&s, "read a 2").starts_with("r1-01-") && ok(&s, "read a 4").starts_with("r1-03-"));
    let verified = |last: &str| {
        let output = s.lava(&args("verify"));
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let remedy = "restore a checkpoint or backup, or run lava log repair";
        assert_eq!(stderr, format!("lava: {last}, as listed; nothing was changed: {remedy}\n"));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(verified("one damage was found").contains("lost: a, records 3 to 3"));
    spoil("r1-07-");
    let told = verified("2 damages were found");
    assert!(told.starts_with("read 58 records") && told.contains("lost: a, records 8 to 8"), "{told}");
}

#[test]
fn log_commands_survive_a_closed_stdout_pipe() {
    let s = Scratch::new("log-unread");
    ok(&s, "append a one two three");
    for line in
        ["ls", "stat", "stat a", "verify", "read a 1", "tail a", "ls --json", "trim a 2", "append a four"]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = lava(&s.0).args(args(line)).args(["--db", "db"]).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{line}");
    }
    assert_eq!(ok(&s, "tail a"), "2\ttwo\n3\tthree\n4\tfour\n");
    for line in ["ls", "stat", "verify", "tail a"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = lava(&s.0).args(args(line)).args(["--db", "db"]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(6), "{line}: {output:?}");
    }
}

/// Damage is reported as such, and no new store is created in its place.
#[test]
fn a_damaged_store_of_logs_is_named() {
    for what in ["CURRENT", "MANIFEST", ".log"] {
        let s = Scratch::new("log-broken");
        ok(&s, "append a one two three");
        let all = std::fs::read_dir(s.path("db")).unwrap().map(|entry| entry.unwrap().path());
        let named = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(what) || name.ends_with(what)
        };
        for path in all.filter(named) {
            std::fs::write(&path, b"").unwrap();
        }
        for line in ["ls", "stat", "tail a", "read a 1", "trim a 2", "append a four"] {
            let told = fails(&s, 5, line);
            assert!(told.contains("corruption"), "{what}: {line}: {told}");
        }
        let verified = s.lava(&args("verify"));
        let told = String::from_utf8([verified.stdout, verified.stderr].concat()).unwrap();
        assert_eq!(verified.status.code(), Some(5), "{told}");
        assert!(told.contains("corruption"), "{what}: {told}");
    }
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let s = Scratch::new("log-checkpoint");
    ok(&s, "append a x y");
    assert!(ok(&s, "checkpoint copy").contains("checkpoint in copy"));
    ok(&s, "append a z");
    let on = |dir: &str, line: &str| run(Path::new(dir), &args(line), &s.0);
    assert_eq!(on("copy", "tail a").stdout, b"1\tx\n2\ty\n");
    assert!(on("copy", "append a other").status.success() && on("copy", "verify").status.success());
    assert_eq!(ok(&s, "tail a -n 1"), "3\tz\n");
    assert_eq!(json(&ok(&s, "checkpoint again --json"))["target"], "again");
    fails(&s, 9, "checkpoint copy");
    // A checkpoint of a store with keys covers both engines, or fails.
    s.ok(&["put", "k", "v", "--add-engine"]);
    assert!(fails(&s, 1, "checkpoint third").contains("engine") && !s.path("third").exists());
}

#[test]
fn a_volume_holds_logs() {
    let s = Scratch::new("log-volume");
    assert!(
        lava(&s.0).args(["fs", "mkfs", "image", "--size", "256M", "--sparse"]).status().unwrap().success()
    );
    let on = |line: &str| {
        let output = run(Path::new("lavafs:image"), &args(line), &s.0);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(Path::new("lavafs:image"), &args("ls"), &s.0).status.code(), Some(8));
    on("append a x y");
    assert_eq!(on("tail a"), "1\tx\n2\ty\n");
    assert_eq!(on("read a 2"), "y\n");
    on("trim a 2");
    let verified = on("verify");
    assert!(verified.starts_with("read 1 record of"), "{verified}");
    assert_eq!(json(&on("ls --json"))["logs"][0]["first_lsn"], 2);
    assert_eq!(json(&on("stat --json"))["logs"], 1);
    on("checkpoint lavafs:image:/copy");
    on("append a z");
    let copy = run(Path::new("lavafs:image:/copy"), &args("tail a"), &s.0);
    assert_eq!(copy.stdout, b"2\ty\n", "{copy:?}");
}

/// Keys written together with records by a killed process are only in the log of records.
#[test]
fn unflushed_keys_beside_logs_are_read_and_written() {
    use lavastore::{Db, LogBatch, LogOptions, Options, WriteBatch};
    let s = Scratch::new("log-both");
    let logs = LogOptions { group_bytes: Some(1 << 20), ..LogOptions::default() };
    let db = Db::open_with_logs(s.path("live"), &Options::default(), &logs).unwrap();
    let log = db.logs().unwrap().log("orders").unwrap();
    let mut stock = WriteBatch::new();
    stock.put("apples", "98");
    db.write_with_logs(&stock, LogBatch::new().append(&log, 1, "two apples")).unwrap();
    // The copy simulates a killed process. No job changes the directory meanwhile.
    assert!(db.wait_idle(std::time::Duration::from_secs(60)));
    std::fs::create_dir(s.path("db")).unwrap();
    for file in std::fs::read_dir(s.path("live")).unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), s.path("db").join(file.file_name())).unwrap();
    }
    assert_eq!(s.ok(&["get", "apples"]), "98\n");
    assert!(s.ok(&["engines"]).contains("LavaLog"));
    let refused = s.fails(1, &["engines", "--remove", "LavaLog", "--yes"]);
    assert!(refused.contains("changes that are in no table"), "{refused}");
    s.ok(&["put", "pears", "3"]);
    assert_eq!((s.ok(&["get", "apples"]), s.ok(&["get", "pears"])), ("98\n".into(), "3\n".into()));
    assert_eq!(s.ok(&["log", "read", "orders", "1"]), "two apples\n");
    // The keys from the log are in tables now.
    s.ok(&["engines", "--remove", "LavaLog", "--yes"]);
    assert_eq!(s.ok(&["get", "apples"]), "98\n");
    drop((db, log));
}

/// A benchmark opens the store of a killed one and checks all required records.
#[test]
fn bench_log_recovers_the_store_of_a_killed_run() {
    let s = Scratch::new("log-recover");
    let run = |args: &[&str]| {
        let common = ["bench", "log", "--db", "left", "--logs", "3", "--writers", "2", "--seconds", "0.1"];
        let output =
            lava(&s.0).args(common).args(["--keep", "20000", "--in-place", "0"]).args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run(&["--warmup-seconds", "0.1", "--crash", "ends"]).0, Some(0));
    assert_eq!(run(&["--warmup-seconds", "0.1"]).0, Some(9), "there is a store");
    let (status, told) = run(&["--recover", "ends"]);
    assert_eq!(status, Some(0), "{told}");
}
