//! A short run of `examples/raft_kv`: a cluster of three processes, kills of the leader and of
//! others, and no acknowledged write is lost. The nodes are processes of this program, so it has
//! its own `main`.

#![allow(clippy::disallowed_methods, reason = "the example is a program of its own")]
#![allow(missing_docs, reason = "openraft's macro makes a public type")]

#[path = "../examples/raft_kv/main.rs"]
#[allow(dead_code, reason = "what reads the command line")]
mod raft_kv;

use raft_kv::client::Writer;
use raft_kv::demo::{Plan, run};
use raft_kv::link::Place;
use raft_kv::processes::{Processes, run_node};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("node") => return run_node(&args[1..]),
        // Test listings get no names, since no test can run by name.
        Some("--list") => return Ok(()),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        acknowledged_writes_survive_kills().await?;
        a_write_that_is_lost_is_found().await
    })
}

async fn acknowledged_writes_survive_kills() -> Result<()> {
    let plan = Plan { seconds: 5.0, writers: 4, kills: 3, dir: raft_kv::default_dir(), seed: 7 };
    let seen = run(&plan).await?;
    println!("{}", seen.text());
    assert_eq!((seen.kills, seen.leader_kills), (3, 2));
    assert!(seen.writes() > 0 && seen.keys > 0 && !plan.dir.exists());
    Ok(())
}

/// Shows that the demonstration can fail: a writer remembers a write that no node has.
async fn a_write_that_is_lost_is_found() -> Result<()> {
    let place = Place { dir: raft_kv::default_dir(), cluster: 1 };
    let processes = Processes::start_all(&place)?;
    let mut writer = Writer::new(&place, 1, 1, Instant::now());
    writer.write().await?;
    let first = writer.acknowledged.clone();
    writer.acknowledged.insert("1/no".to_owned(), 9);
    let told = writer.check_all().await.expect_err("a lost write was not missed").to_string();
    assert!(told.contains("key 1/no is not there"), "{told}");
    let mut writer = Writer::new(&place, 1, 1, Instant::now());
    writer.acknowledged = first.into_keys().map(|key| (key, 9)).collect();
    let told = writer.check_all().await.expect_err("another value was not missed").to_string();
    assert!(told.contains("has another value"), "{told}");
    processes.end()?;
    std::fs::remove_dir_all(&place.dir)?;
    Ok(())
}
