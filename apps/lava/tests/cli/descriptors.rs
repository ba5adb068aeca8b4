//! A process with 64 descriptors works on a store of many more files.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;
use lavastore::{Compression, Db, FamilyOptions, Options};
use std::process::{Command, Stdio};

const RECORDS: u64 = 4000;

fn key(i: u64) -> String {
    format!("key{i:06}")
}

/// Creates a store of over 200 files.
fn make_many_files(s: &Scratch) {
    let family =
        FamilyOptions { min_blob_size: 512, compression: Compression::None, ..FamilyOptions::default() }
            .expert(|expert| {
                expert.file_bytes = 8 << 10;
                expert.level_base_bytes = 64 << 10;
                expert.vsst_bytes = 8 << 10;
            });
    let options = Options { memtable_bytes: 32 << 10, memory_bytes: 96 << 10, family, ..Options::default() };
    let db = Db::open_with(s.path("db"), &options).unwrap();
    for i in 0..RECORDS {
        let len = if i % 9 == 0 { 4000 } else { 460 };
        db.put(key(i).as_bytes(), vec![b'a' + (i % 26) as u8; len]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let count = files(s, ".ksst").len() + files(s, ".vsst").len();
    assert!(count >= 200, "{count} files");
}

/// Returns the standard output of a command in a process with 64 descriptors.
fn within_64(s: &Scratch, args: &[&str]) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n 64 && exec "$0" "$@""#, env!("CARGO_BIN_EXE_lava")]).args(args);
    command.arg("--db").arg(s.path("db")).current_dir(&s.0).env_remove("LAVA_DB").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "lava {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn sixty_four_descriptors_are_enough_for_a_store_of_many_files() {
    let s = Scratch::new("descriptors");
    make_many_files(&s);
    within_64(&s, &["put", "another", "value"]);
    assert_eq!(within_64(&s, &["get", "another"]).trim_end(), "value");
    for i in (0..RECORDS).step_by(371) {
        let value = within_64(&s, &["get", &key(i)]);
        assert!(value.trim_end().len() >= 460 && value.starts_with((b'a' + (i % 26) as u8) as char));
    }
    assert_eq!(within_64(&s, &["scan"]).lines().count() as u64, RECORDS + 1);
    within_64(&s, &["verify"]);
    within_64(&s, &["checkpoint", "copy"]);
    within_64(&s, &["compact"]);
    within_64(&s, &["verify"]);
    within_64(&s, &["stat"]);
    assert_eq!(within_64(&s, &["get", "another"]).trim_end(), "value");
}
