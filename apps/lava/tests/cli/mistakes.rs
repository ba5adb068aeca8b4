//! Invalid input: exit statuses and error messages.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;
use std::io::Write;

/// Returns the error of an import of a file.
fn of_import(s: &Scratch, name: &str, bytes: &[u8]) -> String {
    s.fails(1, &["import", s.file(name, bytes).to_str().unwrap()])
}

#[test]
fn invalid_arguments_are_named() {
    let s = Scratch::new("arguments");
    s.ok(&["put", "k", "v"]);
    let cases: [(&[&str], &str); 23] = [
        (&["put", "-e", "k\\x1", "v"], "\\x must be followed by two hexadecimal digits"),
        (&["put", "-e", "k\\q", "v"], "\\q is no escape"),
        (&["put", "-e", "k\\", "v"], "it ends in a single backslash"),
        (&["del", "--range", "k"], "--range needs two keys"),
        (&["fs", "mkfs", "image", "--size", "99999999T"], "the size exceeds 64 bits"),
        (
            &["fs", "mkfs", "image", "--size", "3Q"],
            "a size is a number of bytes, or a number with K, M, G or T",
        ),
        (&["bench", "families", "--num", "0"], "bench families: --num must be 1 to 60000"),
        (&["bench", "log", "--writers", "0"], "bench log: --writers must be at least 1 thread"),
        (
            &["bench", "page-server", "--batch", "0"],
            "bench page-server: --batch must be 1 to 10000 redo records",
        ),
        (&["bench", "recovery", "--families", "0"], "bench recovery: --families must be 1 to 1000"),
        (&["bench", "scale-meta", "--terabytes", "0"], "bench scale-meta: --terabytes must be above 0"),
        (
            &["bench", "page-server", "--segment-bytes", "1"],
            "bench page-server: --segment-bytes must be a multiple of a page",
        ),
        (&["bench", "load", "--num", "0"], "bench: --num must be at least 1"),
        (&["bench", "tail", "--load", "0"], "bench: --load must be above 0"),
        (&["bench", "tail", "--load", "20,1001"], "bench: --load must be above 0"),
        (&["bench", "tail", "--burst", "0x1s"], "bench: --burst must be above 0"),
        (&["bench", "tail", "--closed", "8", "--load", "80"], "bench: --closed runs without a fixed rate"),
        (&["bench", "tail", "--policy"], "bench: --policy needs leveled or vlsm"),
        (&["bench", "ablation", "--sweep", "growth=8"], "bench: --sweep works only with ablation --policy"),
        (&["bench", "sync", "--spandb"], "bench: --spandb works only with the workload ablation"),
        (
            &["bench", "overwrite", "--mechanisms"],
            "bench: --mechanisms works only with the workload ablation",
        ),
        (&["bench", "sync", "--loggers", "4"], "bench: --loggers must be 0 to 3"),
        (&["gc", "--until", "200%"], "a ratio is a number from 0 to 1"),
    ];
    for (args, told) in cases {
        let error = s.fails(2, args);
        assert!(error.contains(told), "{args:?}: {error}");
    }
}

#[test]
fn malformed_lines_are_named() {
    let s = Scratch::new("lines");
    let cases: [(&str, &[u8], &str); 11] = [
        ("a.jsonl", b"nonsense\n", "line 1: no JSON object"),
        ("b.jsonl", b"{\"key_b64\": 5}\n", "line 1: key_b64 is no string"),
        ("c.jsonl", b"{\"key_b64\": \"!\"}\n", "line 1: key_b64 is not base64"),
        ("d.jsonl", b"\n{\"key\": 5}\n", "line 2: key is no string"),
        ("e.jsonl", b"{\"key\": \"k\"}\n", "line 1: the object has neither value nor value_b64"),
        ("a.tsv", b"key without value\n", "line 1: no tab between key and value"),
        ("b.tsv", b"k\tv\nk\\q\tv\n", "line 2: key: \\q is no escape"),
        ("c.tsv", b"k\tv\\\n", "line 1: value: it ends in a single backslash"),
        ("Packages", b"Package: a\n\n", "line 1: a stanza without Package and Version"),
        ("legacy.tsv.lz4", &[2, 0x21, 0x4c, 0x18, 0, 0, 0, 0], "a legacy LZ4 frame"),
        ("skip.tsv.lz4", &[0x50, 0x2a, 0x4d, 0x18, 9, 0, 0, 0, 1], "the skippable frame cannot be passed"),
    ];
    for (name, bytes, told) in cases {
        let error = of_import(&s, name, bytes);
        assert!(error.contains(told) && error.contains(name), "{name}: {error}");
    }
    let long = [&b"Package: "[..], &vec![b'x'; 17 << 20], b"\nVersion: 1\n"].concat();
    assert!(of_import(&s, "Packages", &long).contains("line 1: a stanza of more than"));
}

#[test]
fn truncated_packed_files_are_named() {
    let s = Scratch::new("packed");
    let rows: Vec<u8> =
        (0..20_000).flat_map(|i| format!("k{i:05}\tvalue {}\n", i * i).into_bytes()).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&rows).unwrap();
    let gzip = gzip.finish().unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&rows).unwrap();
    let lz4 = lz4.finish().unwrap();
    let behind_a_skip = [&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 1][..], b"k\tv\n"].concat();
    let cases = [
        ("a.tsv.gz", &gzip[..gzip.len() / 2], "the gzip member cannot be unpacked: it is cut off"),
        ("b.tsv.lz4", &lz4[..lz4.len() - 4], "the LZ4 frame cannot be unpacked: it is cut off"),
        (
            "c.tsv.lz4",
            &behind_a_skip,
            "offset 9 of the packed file: neither an LZ4 nor a Zstandard frame follows",
        ),
        ("d.tsv.gz", &[&gzip[..], b"k\tv\n"].concat(), "what follows is no gzip"),
    ];
    for (name, bytes, told) in cases {
        let error = of_import(&s, name, bytes);
        assert!(error.contains(told) && error.contains(name), "{name}: {error}");
    }
}

#[test]
fn foreign_files_and_directories_are_left_unchanged() {
    let s = Scratch::new("places");
    let file = s.file("file", b"x");
    let below = file.join("below");
    s.ok(&["fs", "mkfs", "image", "--size", "64M"]);
    let volume = |args: &[&str]| {
        let output = lava(&s.0).args(args).arg("--db").arg("lavafs:image").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(volume(&["put", "k", "v"]).0, Some(0));
    let cases: [(&[&str], i32, &str); 4] = [
        (&["bench", "contract"], 2, "contract and ablation create many stores"),
        (&["bench", "multi-get"], 2, "multi-get reads the files of the store directly"),
        (
            &["bench", "load", "--num", "10"],
            9,
            "image has a store already: format the volume again, or pass --reuse",
        ),
        (&["demo", "--generate", "10"], 9, "is not the store of an earlier demo: name another volume"),
    ];
    for (args, status, told) in cases {
        let (code, error) = volume(args);
        assert_eq!(code, Some(status), "{args:?}: {error}");
        assert!(error.contains(told), "{args:?}: {error}");
    }
    let run = |args: &[&str], db: &str| {
        let output = lava(&s.0).args(args).args(["--db", db]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = run(&["bench", "fs"], "device:image");
    assert!(code == Some(2) && error.contains("pass --force to overwrite it"), "{error}");
    let (code, error) = run(&["demo", "--generate", "10"], below.to_str().unwrap());
    assert!(code == Some(1) && error.contains("cannot read "), "{error}");
    let man = lava(&s.0).arg("man").arg(&below).output().unwrap();
    let error = String::from_utf8(man.stderr).unwrap();
    assert!(man.status.code() == Some(1) && error.contains("cannot make "), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
}

#[test]
fn damages_are_counted() {
    let s = Scratch::new("damages");
    for half in ["a", "b"] {
        let rows: String = (0..500).map(|i| format!("{half}{i:04}\tvalue {i}\n")).collect();
        s.ok(&["import", s.file("rows.tsv", rows.as_bytes()).to_str().unwrap()]);
    }
    let tables = files(&s, ".ksst");
    assert!(tables.len() > 1, "{tables:?}");
    tables.iter().for_each(|table| damage(table, 100));
    let error = s.fails(5, &["verify"]);
    assert!(error.contains(&format!("{} damages were found", tables.len())), "{error}");
}
