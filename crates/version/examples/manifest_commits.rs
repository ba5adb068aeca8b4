//! The cost of a commit in a store of many files: `cargo run --release -p lavastore-version
//! --example manifest_commits`.
//!
//! Each edit replaces one table of level 1 by another, like a small compaction. It runs on the
//! simulated file system, so the measurement covers the manifest's work and not the device's. The
//! result is the median of all commits, in microseconds.

#![allow(clippy::print_stdout, reason = "an example tells what it measures")]

use base::{ValueKind, key};
use io::Env;
use io::sim::SimEnv;
use lavastore_version::{Edit, FileMeta, InitialState, Manifest, Record};

const COMMITS: u64 = 2_000;
const FILES_PER_EDIT: u64 = 1_000;

fn table(place: u64, number: u64) -> Record {
    let bound = |end: &str| key::encode(format!("{place:08}{end}").as_bytes(), 1, ValueKind::Value);
    let (smallest, largest) = (bound("a"), bound("b"));
    let meta = FileMeta { number, smallest, largest, min_seq: 1, max_seq: 1, ..FileMeta::default() };
    Record::AddFile { family: 0, level: 1, meta }
}

fn main() {
    let clock = Env::kernel().clock;
    for files in [100, 10_000, 100_000] {
        let manifest =
            Manifest::create(&SimEnv::new(1).env(), "/".as_ref(), InitialState::default()).unwrap();
        manifest
            .commit(Edit(vec![Record::CreateFamily { id: 0, name: "default".into(), options: vec![] }]))
            .unwrap();
        let mut numbers: Vec<u64> = Vec::new();
        while (numbers.len() as u64) < files {
            let places = numbers.len() as u64..(numbers.len() as u64 + FILES_PER_EDIT).min(files);
            let added: Vec<(u64, u64)> =
                places.map(|place| (place, manifest.allocate_file_number())).collect();
            numbers.extend(added.iter().map(|(_, number)| number));
            let adds = added.into_iter().map(|(place, number)| table(place, number));
            manifest.commit(Edit(adds.collect())).unwrap();
        }
        let mut took_ns = Vec::new();
        for nth in 0..COMMITS {
            let place = nth.wrapping_mul(7_919) % files;
            let (old, number) = (numbers[place as usize], manifest.allocate_file_number());
            let edit =
                Edit(vec![Record::RemoveFile { family: 0, level: 1, number: old }, table(place, number)]);
            let begun_ns = clock.now_ns();
            manifest.commit(edit).unwrap();
            took_ns.push(clock.now_ns() - begun_ns);
            numbers[place as usize] = number;
        }
        took_ns.sort_unstable();
        let at = |percent: usize| took_ns[took_ns.len() * percent / 100] as f64 / 1e3;
        let begun_ns = clock.now_ns();
        manifest.commits().roll().unwrap();
        let roll_ms = (clock.now_ns() - begun_ns) as f64 / 1e6;
        println!("{files} files: {:.1} us a commit, P99 {:.1} us; a roll {roll_ms:.1} ms", at(50), at(99));
    }
}
