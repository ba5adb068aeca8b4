//! Metrics are those of the process that has the store open.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

mod common;

use common::*;
use lavastore::{Db, Options};
use std::io::Write;
use std::process::{Command, Stdio};

fn counter(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(&format!("lavastore_{name}{{")));
    let line = line.unwrap_or_else(|| panic!("{name} is not there: {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// `promtool check metrics`, where Prometheus is installed.
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
fn counters_are_those_of_the_running_process_and_go_up() {
    let s = Scratch::new("metrics");
    s.ok(&["put", "k", "v"]);
    let nobody = s.fails(8, &["stats", "--prometheus"]);
    assert!(nobody.contains("no running process") && nobody.contains("metrics_file"), "{nobody}");

    let options = Options { metrics_file: Some("METRICS".into()), ..Options::default() };
    let db = Db::open_with(s.path("db"), &options).unwrap();
    let mut rounds = 0;
    let mut seen = Vec::new();
    // Two pages, each with more writes than the one before.
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
