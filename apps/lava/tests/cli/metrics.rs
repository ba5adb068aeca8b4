//! Metrics come from the process that has the store open.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "looks at the program from outside")]

use crate::common::*;
use lavastore::{Db, Options};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

fn counter(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(&format!("lavastore_{name}{{")));
    let line = line.unwrap_or_else(|| panic!("{name} is not there: {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Runs `promtool check metrics` if Prometheus is installed.
fn check(text: &str) {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: promtool is not installed");
        return;
    };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && told.is_empty(), "{told}");
}

#[test]
fn stats_reads_live_counters_of_the_running_process() {
    let s = Scratch::new("metrics");
    s.ok(&["put", "k", "v"]);
    let nobody = s.fails(8, &["stats", "--prometheus"]);
    assert!(nobody.contains("no metrics in") && nobody.contains("metrics_file"), "{nobody}");

    let options = Options { metrics_file: Some("METRICS".into()), ..Options::default() };
    let db = Db::open_with(s.path("db"), &options).unwrap();
    let mut rounds = 0;
    let mut seen = Vec::new();
    // Two pages with increasing numbers of writes.
    while seen.len() < 2 {
        db.put(b"k", format!("{rounds}").as_bytes()).unwrap();
        rounds += 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
        let output = s.lava(&["stats", "--prometheus"]);
        if output.status.code() == Some(8) {
            continue;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let batches = counter(&text, "write_batches_total");
        if seen.last().is_none_or(|last| batches > *last) {
            check(&text);
            assert!(text.contains(&format!("store=\"{}\"", s.path("db").display())), "{text}");
            seen.push(batches);
        }
    }
    let direct = db.metrics().unwrap();
    check(&direct);
    assert!(counter(&direct, "write_batches_total") >= seen[1]);
    let elsewhere = s.file("copy.prom", direct.as_bytes());
    assert_eq!(s.ok(&["stats", "--prometheus", "--metrics-file", elsewhere.to_str().unwrap()]), direct);
    db.close().unwrap();
    s.fails(8, &["stats", "--prometheus"]);
    assert!(!s.path("db").join("METRICS").exists());
    s.fails(2, &["stats", "--metrics-file", "x"]);
}

/// Opens a store in this process, with a metrics page of some work.
fn working(s: &Scratch) -> Db {
    let options = Options { metrics_file: Some("METRICS".into()), ..Options::default() };
    let db = Db::open_with(s.path("db"), &options).unwrap();
    work(&db);
    db.sync().unwrap();
    db.flush().unwrap();
    wait_for(|| {
        std::fs::read_to_string(s.path("db").join("METRICS"))
            .is_ok_and(|page| counter(&page, "flushes_total") > 0)
    });
    db
}

fn work(db: &Db) {
    for i in 0..500u32 {
        db.put(i.to_be_bytes(), vec![7; 1000]).unwrap();
        db.get(i.to_be_bytes()).unwrap();
    }
}

fn wait_for(mut done: impl FnMut() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("it did not come");
}

#[test]
fn watch_shows_the_process_that_owns_the_store() {
    let s = Scratch::new("watch");
    s.ok(&["put", "k", "v"]);
    let nobody = s.fails(8, &["stat", "--watch", "--count", "1"]);
    assert!(nobody.contains("no metrics in") && nobody.contains("metrics_file"), "{nobody}");
    assert!(!s.ok(&["stat"]).contains("operations"), "nobody tells");

    let db = working(&s);
    let text = s.ok(&["stat", "--watch", "--count", "3", "--interval", "0.05"]);
    let blocks: Vec<&str> = text.split("\n\n").filter(|block| !block.is_empty()).collect();
    assert_eq!(blocks.len(), 3, "{text}");
    for block in blocks {
        for part in [
            "operations",
            "  put ",
            "  log_append ",
            "waits of writers",
            "over the budget",
            "level 0",
            "on disk",
        ] {
            assert!(block.contains(part), "{part} is not in {block}");
        }
        assert!(!block.contains('\x1b'), "no terminal: {block}");
        // The first line has the path of the store.
        assert!(block.lines().skip(1).all(|line| line.chars().count() <= 80), "{block}");
    }
    // Rates appear with the second page.
    let rated = |line: &str| {
        let view = json(line);
        assert!(
            view["operations"]["get"]["count"].is_number() && view["waits"]["l0"]["max_seconds"].is_number()
        );
        assert!(view["waits_over_budget"]["l0"].is_number(), "{line}");
        assert!(
            view["levels"].is_array() && view["space"]["on_disk_bytes"].as_f64().unwrap() > 0.0,
            "{line}"
        );
        view["per_second"]["changes"].as_f64().is_some_and(|rate| rate > 0.0)
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                work(&db);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let _stop = bench::host::StopOnDrop(&stop);
        let lines = s.ok(&["stat", "--watch", "--json", "--count", "14", "--interval", "0.5"]);
        assert!(lines.lines().any(rated), "{lines}");
        assert_eq!(lines.lines().count(), 14);
    });

    let stat = s.ok(&["stat"]);
    assert!(stat.contains("the process that has the store open") && stat.contains("  put "), "{stat}");
    let stat = json(&s.ok(&["stat", "--json"]));
    assert!(stat["process"]["operations"]["put"]["p99_seconds"].as_f64().unwrap() > 0.0, "{stat}");
    assert!(stat["process"]["compaction_chain"]["count"].is_number(), "{stat}");
    db.close().unwrap();
    s.fails(8, &["stat", "--watch"]);
}

#[test]
fn a_watch_ends_with_its_reader_and_with_the_process_it_watches() {
    let s = Scratch::new("watch-ends");
    let db = working(&s);
    let watch = || {
        let mut command = lava(&s.0);
        command.args(["stat", "--watch", "--interval", "0.05", "--db", "db"]).stderr(Stdio::piped());
        command
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let unread = watch().stdout(writer).output().unwrap();
    assert_eq!((unread.status.code(), unread.stderr.len()), (Some(0), 0), "nobody reads");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert_eq!(watch().stdout(full).output().unwrap().status.code(), Some(6));

    let child = watch().stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    db.close().unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(8), "{told}");
    assert!(told.contains("no metrics in") && told.lines().count() == 1, "{told}");

    for wrong in [
        &["--watch", "--prometheus"][..],
        &["--watch", "--interval", "0"],
        &["--watch", "--interval", "soon"],
        &["--watch", "--count", "0"],
        &["--interval", "1"],
        &["--count", "1"],
    ] {
        s.fails(2, &[&["stat"], wrong].concat());
    }
}

#[test]
fn watch_shows_the_fast_tier_and_its_levels() {
    let s = Scratch::new("watch-speed");
    let options = Options {
        metrics_file: Some("METRICS".into()),
        fast_tier: Some(s.path("fast")),
        ..Options::default()
    }
    .expert(|expert| expert.fast_tier_levels = 2);
    let db = Db::open_with(s.path("db"), &options).unwrap();
    wait_for(|| s.path("db").join("METRICS").exists());
    let page = s.path("db").join("METRICS").display().to_string();
    let text = s.ok(&["stat", "--watch", "--count", "1", "--metrics-file", &page]);
    assert!(text.contains("fast tier") && text.contains("2.00 levels"), "{text}");
    let view = json(&s.ok(&["stat", "--watch", "--json", "--count", "1", "--metrics-file", &page]));
    assert_eq!(view["speed_disk"]["levels"], 2.0);
    db.close().unwrap();
}

/// The last metrics of a dead process must not pass for the present.
#[test]
fn the_metrics_of_a_dead_process_are_refused() {
    let s = Scratch::new("dead");
    s.ok(&["put", "k", "v"]);
    let file = s.path("db").join("METRICS");
    std::fs::write(&file, "lavastore_gets_total{store=\"x\"} 7\n").unwrap();
    let written_before = |seconds| {
        let at = std::time::SystemTime::now() - Duration::from_secs(seconds);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
    };
    let looks: [&[&str]; 2] = [&["stat", "--prometheus"], &["stat", "--watch", "--count", "1"]];
    for args in looks {
        written_before(0);
        assert!(s.lava(args).status.success(), "a fresh page, whoever wrote it");
        written_before(300);
        let told = s.fails(8, args);
        assert!(told.contains("has exited") && told.contains("5 minutes old"), "{told}");
        assert!(s.lava(args).stdout.is_empty(), "nothing that looks like a page");
        // A living process that writes its metrics late.
        written_before(30);
        let lock = std::fs::File::options().write(true).open(s.path("db").join("LOCK")).unwrap();
        lock.lock().unwrap();
        assert!(s.lava(args).status.success(), "it lives");
        written_before(300);
        assert!(s.fails(8, args).contains("or hangs"));
        drop(lock);
        let elsewhere = [args, &["--metrics-file", file.to_str().unwrap()]].concat();
        assert!(s.fails(8, &elsewhere).contains("has exited"));
    }
}
