//! Hostile input: the memory of a command is bounded, whatever a file or standard input contains.
//!
//! The input is generated while it is written, so that this process stays small: the kernel
//! initially counts the memory of a child as a copy of its parent.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "looks at the program from outside")]

mod common;

use common::*;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

/// Length of a line of hostile input: many times the limit.
const LINE_LEN: u64 = 1 << 30;
/// Limit on resident memory: the store's own, and a line of maximum length with its copies.
const MEMORY_MAX: u64 = 256 << 20;
const PIECE: usize = 1 << 16;

/// Result of a child.
struct Ended {
    status: i32,
    resident_bytes: u64,
    stderr: String,
}

/// Runs a command to its end and reads its peak resident memory.
#[allow(clippy::zombie_processes, reason = "wait4 reaps the child")]
fn measured(command: &mut Command, s: &Scratch) -> Ended {
    let stderr = File::create(s.path("stderr")).unwrap();
    let child = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    let mut status = 0;
    // SAFETY: `rusage` is plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables of this function, of the types that the call fills.
    let reaped = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert_eq!(reaped, child.id() as i32);
    assert!(libc::WIFEXITED(status), "ended by a signal: {status}");
    Ended {
        status: libc::WEXITSTATUS(status),
        resident_bytes: usage.ru_maxrss as u64 * 1024,
        stderr: std::fs::read_to_string(s.path("stderr")).unwrap(),
    }
}

/// Imports a file within the memory limit.
fn import(s: &Scratch, args: &[&str]) -> Ended {
    let ended = measured(lava(&s.0).arg("import").args(args).args(["--db", "db"]), s);
    let mib = ended.resident_bytes >> 20;
    println!("{args:?}: {mib} MiB resident, status {}: {}", ended.status, ended.stderr.trim());
    assert!(ended.resident_bytes < MEMORY_MAX, "{args:?} took {mib} MiB: {}", ended.stderr);
    ended
}

/// Checks that the error names the file, the line, the offset, the limit and the remedy.
fn names_the_limit(ended: &Ended, file: &str) {
    assert_eq!(ended.status, 1, "{}", ended.stderr);
    for word in [file, "line 2", "offset 4", "67,108,864", "--line-bytes-max", "--skip-malformed"] {
        assert!(ended.stderr.contains(word), "{word} is missing: {}", ended.stderr);
    }
}

/// Writes a record, the start of a second one, and then a byte pattern many times.
fn hostile(out: &mut impl Write, first: &[u8], start: &[u8], fill: &[u8], len: u64) {
    out.write_all(first).unwrap();
    out.write_all(start).unwrap();
    let piece = fill.repeat(PIECE / fill.len());
    for _ in 0..len / piece.len() as u64 {
        out.write_all(&piece).unwrap();
    }
}

fn zstd_file(s: &Scratch, name: &str) -> zstd::stream::write::Encoder<'static, File> {
    zstd::stream::write::Encoder::new(File::create(s.path(name)).unwrap(), 1).unwrap()
}

/// Regression: 157 kB of input took 4.9 GB.
#[test]
fn a_line_without_an_end_is_refused_in_bounded_memory() {
    let s = Scratch::new("endless");
    let mut out = zstd_file(&s, "bomb.tsv.zst");
    hostile(&mut out, b"a\t1\n", b"k\t", b"v", LINE_LEN);
    out.finish().unwrap();
    assert!(s.path("bomb.tsv.zst").metadata().unwrap().len() < 1 << 20, "a small file");
    names_the_limit(&import(&s, &["bomb.tsv.zst"]), "bomb.tsv.zst");
    assert_eq!(s.ok(&["scan"]), "a\t1\n", "the record before it is there");

    let mut out = flate2::write::GzEncoder::new(
        BufWriter::new(File::create(s.path("bomb.jsonl.gz")).unwrap()),
        flate2::Compression::fast(),
    );
    hostile(&mut out, b"\n\n\n\n", b"{\"key\":\"", b"v", LINE_LEN / 16);
    out.finish().unwrap();
    let ended = import(&s, &["bomb.jsonl.gz"]);
    assert!(ended.status == 1 && ended.stderr.contains("line 5") && ended.stderr.contains("67,108,864"));

    let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max4MB);
    let file = File::create(s.path("bomb_Packages.lz4")).unwrap();
    let mut out = lz4_flex::frame::FrameEncoder::with_frame_info(info, file);
    hostile(&mut out, b"\n\n", b"Package: x\nVersion: 1\nDescription: ", b"v", LINE_LEN / 16);
    out.finish().unwrap();
    let ended = import(&s, &["bomb_Packages.lz4"]);
    assert!(ended.status == 1 && ended.stderr.contains("--line-bytes-max"), "{}", ended.stderr);
}

/// A stanza is limited too, even if each of its lines is short.
#[test]
fn a_stanza_without_an_end_is_refused_in_bounded_memory() {
    let s = Scratch::new("stanza");
    let mut out = zstd_file(&s, "Packages.zst");
    hostile(&mut out, b"", b"Package: x\nVersion: 1\n", b"Field: value\n", LINE_LEN / 16);
    out.finish().unwrap();
    let ended = import(&s, &["Packages.zst"]);
    assert!(ended.status == 1 && ended.stderr.contains("line 1: a stanza of more than"), "{}", ended.stderr);
}

/// Members outside of records are not kept: each of these numbers took 32 bytes, each bracket more.
#[test]
fn json_that_is_nested_or_wide_is_read_in_bounded_memory() {
    let s = Scratch::new("nested");
    for (name, start, fill) in [
        ("wide.jsonl.zst", &b"{\"key\":\"k\",\"other\":["[..], &b"0,"[..]),
        ("deep.jsonl.zst", b"{\"key\":\"k\",\"other\":", b"["),
        ("objects.jsonl.zst", b"{\"key\":\"k\",\"other\":", b"{\"a\":"),
        ("members.jsonl.zst", b"{\"key\":\"k\"", b",\"a\":0"),
    ] {
        let mut out = zstd_file(&s, name);
        hostile(&mut out, b"", start, fill, 60 << 20);
        out.write_all(b"\n").unwrap();
        out.finish().unwrap();
        let ended = import(&s, &[name]);
        assert!(ended.status == 1 && ended.stderr.contains("line 1: "), "{name}: {}", ended.stderr);
    }
    // A well-formed line of this kind is read.
    let mut out = zstd_file(&s, "well.jsonl.zst");
    hostile(&mut out, b"", b"{\"key\":\"k\",\"value\":\"v\",\"other\":[0", b",0", 60 << 20);
    out.write_all(b"]}\n").unwrap();
    out.finish().unwrap();
    assert_eq!(import(&s, &["well.jsonl.zst"]).status, 0);
    assert_eq!(s.ok(&["get", "k"]), "v\n");
}

/// A frame may request a window of two gigabytes.
#[test]
fn a_wide_window_of_zstandard_is_refused() {
    let s = Scratch::new("window");
    let mut out = zstd_file(&s, "wide.tsv.zst");
    out.window_log(30).unwrap();
    out.long_distance_matching(false).unwrap();
    hostile(&mut out, b"a\t1\n", b"", b"k\tv\n", 8 << 20);
    out.finish().unwrap();
    let ended = import(&s, &["wide.tsv.zst"]);
    assert_eq!(ended.status, 1, "{}", ended.stderr);
    for word in ["wide.tsv.zst", "offset", "128 MiB", "zstd -d"] {
        assert!(ended.stderr.contains(word), "{word} is missing: {}", ended.stderr);
    }
}

/// A line of maximum length with escapes only: the value exceeds the batch limit and is written on
/// its own.
#[test]
fn escapes_of_the_longest_line_are_read_in_bounded_memory() {
    let s = Scratch::new("escapes");
    let mut out = zstd_file(&s, "escapes.tsv.zst");
    hostile(&mut out, b"", b"k\t", b"\\x41\\x42\\x43\\x44", 60 << 20);
    out.write_all(b"\n").unwrap();
    out.finish().unwrap();
    assert_eq!(import(&s, &["escapes.tsv.zst"]).status, 0);
    assert_eq!(s.ok(&["get", "k"]).len(), (60 << 20) / 4 + 1);
}

/// Standard input has the same limits as a file.
#[test]
fn standard_input_is_read_in_bounded_memory() {
    let s = Scratch::new("stdin");
    let zeros = |len: u64| {
        let mut head = Command::new("head");
        head.args(["-c", &len.to_string(), "/dev/zero"]).stdout(Stdio::piped());
        head.spawn().unwrap()
    };
    let run = |args: &[&str], len: u64| {
        let mut source = zeros(len);
        let input = source.stdout.take().unwrap();
        let ended = measured(lava(&s.0).args(args).args(["--db", args[0]]).stdin(input), &s);
        source.wait().unwrap();
        let mib = ended.resident_bytes >> 20;
        println!("{args:?}: {mib} MiB resident, status {}: {}", ended.status, ended.stderr.trim());
        assert!(ended.resident_bytes < MEMORY_MAX, "{args:?} took {mib} MiB");
        ended
    };
    let ended = run(&["log", "append", "events"], LINE_LEN);
    assert!(ended.status == 1 && ended.stderr.contains("standard input"), "{}", ended.stderr);
    assert!(ended.stderr.contains("line 1") && ended.stderr.contains("--line-bytes-max"), "{}", ended.stderr);
    assert_eq!(run(&["put", "k", "--file", "-"], 1 << 29).status, 0, "a long value is passed on in pieces");
    let ended = run(&["import", "-", "--format", "jsonl"], LINE_LEN);
    assert!(ended.status == 1 && ended.stderr.contains("line 1"), "{}", ended.stderr);
}

/// Files of a store with holes behind their ends; some are longer than memory.
#[test]
fn dumping_oversized_files_takes_bounded_memory() {
    let s = Scratch::new("dump");
    let rows: String = (0..2000).map(|i| format!("k{i:04}\t{}\n", "v".repeat(i % 1000))).collect();
    s.ok(&["import", s.file("rows.tsv", rows.as_bytes()).to_str().unwrap()]);
    for entry in std::fs::read_dir(s.path("db")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let long = s.path(&name);
        std::fs::copy(&path, &long).unwrap();
        File::options().write(true).open(&long).unwrap().set_len(2 << 30).unwrap();
        let ended = measured(lava(&s.0).args(["dump", "--entries", &name]), &s);
        let mib = ended.resident_bytes >> 20;
        println!("{name}: {mib} MiB resident, status {}: {}", ended.status, ended.stderr.trim());
        assert!(ended.resident_bytes < MEMORY_MAX, "{name} took {mib} MiB: {}", ended.stderr);
        std::fs::remove_file(&long).unwrap();
    }
}

/// A value or a file may exceed the memory limit: its JSON is written in pieces.
#[test]
fn long_values_and_files_become_json_in_bounded_memory() {
    let s = Scratch::new("json");
    let zeros = s.path("zeros");
    File::create(&zeros).unwrap().set_len(5 << 26).unwrap();
    s.ok(&["put", "k", "--file", "zeros"]);
    s.ok(&["fs", "mkfs", "image", "--size", "1G", "--sparse"]);
    s.ok(&["fs", "cp", "image", "zeros", ":/zeros"]);
    for args in [&["get", "k", "--json", "--db", "db"][..], &["fs", "cat", "image", "/zeros", "--json"]] {
        let ended = measured(lava(&s.0).args(args), &s);
        let mib = ended.resident_bytes >> 20;
        println!("{args:?}: {mib} MiB resident, status {}: {}", ended.status, ended.stderr.trim());
        assert_eq!(ended.status, 0, "{}", ended.stderr);
        assert!(ended.resident_bytes < MEMORY_MAX, "{args:?} took {mib} MiB");
    }
}

/// Any program may have written the page.
#[test]
fn a_page_of_metrics_is_read_in_bounded_memory() {
    const PAGE_LEN: u64 = 63 << 20;
    let s = Scratch::new("metrics");
    s.ok(&["put", "k", "v"]);
    for (name, first, start, fill) in [
        ("samples", &b""[..], &b""[..], &b"lavastore_a 1\n"[..]),
        ("labelled", b"", b"", b"lavastore_a{l=\"v\",m=\"w\",n=\"x\",o=\"y\",p=\"z\"} 1\n"),
        ("labels", b"lavastore_b{a=\"1\"", b"", b",l=\"\""),
    ] {
        let mut out = BufWriter::new(File::create(s.path(name)).unwrap());
        hostile(&mut out, first, start, fill, PAGE_LEN);
        out.write_all(b"} 1\n").unwrap();
        out.into_inner().unwrap();
        let args =
            ["stat", "--watch", "--count", "2", "--interval", "0.05", "--metrics-file", name, "--db", "db"];
        let ended = measured(lava(&s.0).args(args), &s);
        let mib = ended.resident_bytes >> 20;
        println!("{name}: {mib} MiB resident, status {}: {}", ended.status, ended.stderr.trim());
        assert!(ended.resident_bytes < 2 * MEMORY_MAX, "{name} took {mib} MiB: {}", ended.stderr);
    }
}
