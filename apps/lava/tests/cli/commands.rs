//! End-to-end tests of every command: exit statuses, one-line errors, byte-for-byte round trips.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;
use serde_json::Value;
use std::process::Command;

#[test]
fn put_get_del_and_scan_agree() {
    let s = Scratch::new("keys");
    s.ok(&["put", "b", "2"]);
    s.ok(&["put", "a", "1", "--sync"]);
    s.ok(&["put", "-e", "c\\xff", "3\\n"]);
    let file = s.file("value", &[0, 1, 2]);
    s.ok(&["put", "d", "--file", file.to_str().unwrap()]);
    assert_eq!(s.ok(&["get", "a"]), "1\n");
    assert_eq!(s.ok(&["get", "a", "--raw"]), "1");
    assert_eq!(s.ok(&["get", "-e", "c\\xff"]), "3\n");
    assert_eq!(json(&s.ok(&["get", "-e", "c\\xff", "--json"]))["key_b64"], "Y/8=");
    assert_eq!(s.lava(&["get", "d", "--raw"]).stdout, [0, 1, 2]);
    assert_eq!(s.ok(&["scan"]), "a\t1\nb\t2\nc\\xff\t3\\n\nd\t\\x00\\x01\\x02\n");
    assert_eq!(s.ok(&["scan", "--reverse", "--limit", "2", "--keys-only"]), "d\nc\\xff\n");
    assert_eq!(s.ok(&["scan", "--from", "b", "--to", "c", "--json"]), "{\"key\":\"b\",\"value\":\"2\"}\n");
    assert_eq!(s.ok(&["scan", "--prefix", "c", "--keys-only"]), "c\\xff\n");
    s.ok(&["del", "a", "nothing"]);
    s.ok(&["del", "--range", "c", "d"]);
    assert_eq!(s.ok(&["scan", "--keys-only"]), "b\nd\n");
    assert!(s.fails(4, &["get", "a"]).contains("key not found: a"));
}

/// Builds an index in key order: the stanzas, and the bytes of the file.
fn index(count: usize) -> Vec<u8> {
    let mut text = String::new();
    for i in 0..count {
        text += &format!(
            "Package: p{i:05}\nVersion: 1.{i}\nDescription: number {i}\n {}\n .\n\n",
            "more ".repeat(i % 40 + 1)
        );
    }
    text.into_bytes()
}

#[test]
fn package_indexes_of_each_kind_round_trip_byte_for_byte() {
    let s = Scratch::new("index");
    let text = index(3_000);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, &text).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    std::io::Write::write_all(&mut lz4, &text).unwrap();
    let kinds = [
        ("Packages", text.clone()),
        ("x_Packages.gz", gz.finish().unwrap()),
        ("x_Packages.lz4", lz4.finish().unwrap()),
        ("Packages.zst", zstd::encode_all(&text[..], 1).unwrap()),
    ];
    for (name, packed) in kinds {
        let file = s.file(name, &packed);
        let report = json(&s.ok(&["import", file.to_str().unwrap(), "--json"]));
        assert_eq!(report["records"], 3_000);
        assert_eq!(s.ok(&["export", "--format", "packages"]).as_bytes(), text, "{name}");
        assert!(s.ok(&["get", "p00007/1.7"]).starts_with("Package: p00007\nVersion: 1.7\n"));
        std::fs::remove_dir_all(s.path("db")).unwrap();
    }
}

#[test]
fn lines_are_piped_from_store_to_store() {
    let s = Scratch::new("lines");
    let rows = s.file("rows.tsv", b"k1\tone\\ttab\nk2\t\\xff\\xfe\nk3\t\n");
    s.ok(&["import", rows.to_str().unwrap()]);
    for name in ["out.tsv", "out.jsonl"] {
        let report = json(&s.ok(&["export", name, "--json"]));
        assert_eq!(report["records"], 3);
        let other = s.path("other");
        assert!(run(&other, &["import", name], &s.0).status.success());
        assert_eq!(run(&other, &["scan"], &s.0).stdout, std::fs::read(&rows).unwrap(), "{name}");
        std::fs::remove_dir_all(other).unwrap();
    }
    s.ok(&["import", "out.tsv", "--family", "copy"]);
    assert_eq!(s.ok(&["scan", "--family", "copy", "--keys-only"]), "k1\nk2\nk3\n");
}

#[test]
fn reports_are_text_or_json() {
    let s = Scratch::new("reports");
    let file = s.file("Packages", &index(500));
    s.ok(&["import", file.to_str().unwrap()]);
    // The import is flushed, so the log is not needed for it.
    s.ok(&["put", "one", "more"]);
    let space = json(&s.ok(&["space", "--json"]));
    let parts =
        ["tables", "live", "hidden", "garbage", "pinned", "jobs", "wal", "manifest", "engines", "other"]
            .map(|p| space[format!("{p}_bytes")].as_u64().unwrap());
    assert_eq!(parts.iter().sum::<u64>(), space["total_bytes"].as_u64().unwrap());
    assert_eq!(number(&space["live_bytes"]) + number(&space["hidden_bytes"]), number(&space["values_bytes"]));
    assert!(space["holders"].is_null() && number(&space["wal_in_use_bytes"]) > 0, "{space}");
    let text = s.ok(&["space"]);
    assert!(text.contains("total") && text.contains("unknown"), "{text}");
    assert_eq!(json(&s.ok(&["stat", "--json"]))["column_families"][0], "default");
    assert!(s.ok(&["stat"]).contains("column families"));
    let derived = &json(&s.ok(&["stat", "--json"]))["derived_options"][0];
    assert_eq!((&derived["name"], &derived["source"]), (&"memory_bytes".into(), &"derived".into()));
    assert!(s.ok(&["stat"]).contains("4 memtables of 16777216 bytes"));
    let verified = json(&s.ok(&["verify", "--json"]));
    assert_eq!(verified["entries"], 500);
    s.ok(&["checkpoint", "copy"]);
    assert_eq!(run(&s.path("copy"), &["scan"], &s.0).stdout, s.ok(&["scan"]).into_bytes());
    assert!(s.fails(9, &["checkpoint", "copy"]).contains("copy"));
    let dump = s.ok(&["dump"]);
    assert!(dump.contains("MANIFEST") && dump.contains(".ksst"), "{dump}");
    assert!(s.ok(&["dump", "--json"]).lines().all(|line| json(line)["file"].is_string()));
}

/// Rows `from..to` with values of 2,000 bytes that name the round.
fn rows(from: usize, to: usize, step: usize, round: usize) -> Vec<u8> {
    let row = |i: usize| format!("key{i:05}\t{}\n", format!("{i}/{round} ").repeat(700)[..2000].trim_end());
    (from..to).step_by(step).map(row).collect::<String>().into_bytes()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn separated_values_are_shown_and_their_garbage_collected() {
    let s = Scratch::new("separated");
    let first = s.file("first.tsv", &rows(0, 3_000, 1, 0));
    s.ok(&["import", first.to_str().unwrap(), "--min-blob-size", "512"]);
    let second = s.file("second.tsv", &rows(0, 3_000, 3, 1));
    s.ok(&["import", second.to_str().unwrap()]);
    let all = s.ok(&["scan"]);

    let space = json(&s.ok(&["space", "--json"]));
    let family = &space["families"][0];
    assert!(number(&family["vssts"]) > 0 && number(&family["references"]) >= 3_000, "{space}");
    assert!(number(&space["values_bytes"]) > 3_000 * 2_000, "{space}");
    let text = s.ok(&["space"]);
    assert!(text.is_ascii() && text.contains("vSSTs") && text.contains("[") && text.contains("LL"), "{text}");

    s.ok(&["compact"]);
    // A third of the one old vSST is garbage, below the threshold of automatic collection.
    let plan = json(&s.ok(&["gc", "--dry-run", "--until", "5%", "--json"]));
    assert_eq!(
        plan,
        json(&s.ok(&["gc", "--dry-run", "--until", "0.05", "--json"])),
        "a dry run changes nothing"
    );
    let garbage = number(&plan["garbage_bytes"]);
    if garbage > 0 {
        assert!(number(&plan["freed_bytes"]) > 0 && number(&plan["files"]) > 0, "{plan}");
        assert!(s.ok(&["gc", "--dry-run", "--until", "5%"]).contains("total"));
    }
    let report = json(&s.ok(&["gc", "--until", "5%", "--json"]));
    assert!(number(&report["garbage_bytes"]) * 20 <= number(&report["record_bytes"]), "{report}");
    let family = json(&s.ok(&["space", "--json"]))["families"][0].clone();
    assert_eq!(family["garbage_bytes"], report["garbage_bytes"]);
    assert!(number(&family["record_bytes"]) < 4_000 * 2_000, "{family}");
    assert!(s.ok(&["gc", "--dry-run", "--until", "0.05"]).contains("nothing to collect"));
    assert!(s.ok(&["gc"]).contains("freed"));
    assert_eq!(s.ok(&["scan"]), all);
    assert!(number(&json(&s.ok(&["verify", "--json"]))["vssts"]) > 0);
}

#[test]
fn value_storage_options_can_change_and_persist() {
    let s = Scratch::new("toggle");
    let options = |s: &Scratch| json(&s.ok(&["stats", "--json"]))["families"][0]["options"].clone();
    let mut files = Vec::new();
    for (round, (blob, codec)) in
        [("0", "none"), ("600", "zstd"), ("0", "lz4"), ("64", "none")].iter().enumerate()
    {
        let file = s.file("rows.tsv", &rows(round * 500, round * 500 + 1_000, 1, round));
        s.ok(&["import", file.to_str().unwrap(), "--min-blob-size", blob, "--compression", codec]);
        // These commands open the store for writing without these options.
        s.ok(&["put", "small", "value"]);
        s.ok(&["del", "small"]);
        let now = options(&s);
        assert_eq!(
            (now["min_blob_size"].to_string(), &now["compression"]),
            ((*blob).to_owned(), &Value::from(*codec))
        );
        files.push(file);
    }
    let expected =
        [rows(0, 500, 1, 0), rows(500, 1_000, 1, 1), rows(1_000, 1_500, 1, 2), rows(1_500, 2_500, 1, 3)];
    let expected = expected.concat();
    assert_eq!(s.ok(&["scan"]).into_bytes(), expected);
    s.ok(&["compact", "--min-blob-size", "0", "--compression", "zstd"]);
    assert_eq!(s.ok(&["scan"]).into_bytes(), expected);
    assert_eq!(options(&s)["compression"], "zstd");
    s.ok(&["verify"]);
    s.fails(2, &["import", files[0].to_str().unwrap(), "--min-blob-size", "5"]);
    assert_eq!(options(&s)["policy"], "leveled");
    s.ok(&["compact", "--policy", "vlsm"]);
    s.ok(&["put", "small", "value"]);
    s.ok(&["del", "small"]);
    assert_eq!((&options(&s)["policy"], s.ok(&["scan"]).into_bytes()), (&Value::from("vlsm"), expected));
    s.fails(2, &["compact", "--policy", "tiered"]);
    let from = s.fails(2, &["compact", "--family", "default", "--rewrite", "--from", "a\\x4"]);
    assert!(from.contains("--from: \\x must be followed by two hexadecimal digits"), "{from}");
    s.ok(&["compact", "--policy", "leveled"]);
    assert_eq!(options(&s)["policy"], "leveled");
    s.ok(&["import", files[0].to_str().unwrap(), "--family", "other", "--compression", "lz4"]);
    assert_eq!(json(&s.ok(&["stat", "--json"]))["families"][1]["options"]["compression"], "lz4");
}

#[test]
fn a_large_value_goes_in_and_out_as_a_stream() {
    let s = Scratch::new("large");
    let bytes: Vec<u8> = (0..20_000_000u32).map(|i| (i / 7) as u8).collect();
    let file = s.file("large", &bytes);
    s.ok(&["put", "film", "--file", file.to_str().unwrap()]);
    s.ok(&["put", "small", "--file", s.file("small", b"line\n").to_str().unwrap()]);
    assert!(s.lava(&["get", "film", "--raw"]).stdout == bytes);
    assert_eq!(s.ok(&["get", "small"]), "line\n");
    assert!(s.ok(&["compact"]).contains("compacted"));
    assert!(number(&json(&s.ok(&["space", "--json"]))["families"][0]["segments"]) == 1);
    assert!(s.ok(&["inspect"]).contains("value segment version"));
    s.ok(&["verify"]);
    assert!(s.lava(&["get", "film", "--raw"]).stdout == bytes);
}

#[test]
fn files_of_values_are_inspected() {
    let s = Scratch::new("inspect");
    let file = s.file("rows.tsv", &rows(0, 50, 1, 0));
    s.ok(&["import", file.to_str().unwrap(), "--min-blob-size", "512"]);
    let dump = s.ok(&["inspect", "--entries"]);
    let of_values: Vec<&str> = dump.lines().filter(|line| line.contains(".vsst: ")).collect();
    assert!(of_values.iter().any(|line| line.contains("vSST version")), "{dump}");
    assert!(of_values.iter().filter(|line| line.contains("key000")).count() >= 50, "{dump}");
    let name = of_values[0].split(": ").next().unwrap();
    let path = s.path("db").join(name);
    let output =
        Command::new(env!("CARGO_BIN_EXE_lava")).env_remove("LAVA_DB").arg("inspect").arg(&path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("vSST version"));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let report = json(&String::from_utf8(s.lava(&["verify", "--json"]).stdout).unwrap());
    assert!(report["errors"][0].as_str().unwrap().contains(name), "{report}");
}

#[test]
fn damage_is_an_error_of_verify() {
    let s = Scratch::new("damage");
    let file = s.file("Packages", &index(500));
    s.ok(&["import", file.to_str().unwrap()]);
    let tables = std::fs::read_dir(s.path("db")).unwrap().map(|e| e.unwrap().path());
    let table = tables.into_iter().find(|p| p.extension().is_some_and(|e| e == "ksst")).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let output = s.lava(&["verify", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let report = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(report["errors"].as_array().unwrap().len(), 1);
    assert!(report["errors"][0].as_str().unwrap().contains(".ksst"));
}

#[test]
fn export_with_skip_damaged_continues_after_damage() {
    let s = Scratch::new("skip");
    // Three tables in level 0 with disjoint ranges.
    for (part, from) in ["a", "b", "c"].into_iter().zip([0, 100, 200]) {
        let lines: String = (from..from + 100).map(|i| format!("{part}{i:03}\tvalue {i}\n")).collect();
        s.ok(&["import", s.file("part.tsv", lines.as_bytes()).to_str().unwrap()]);
    }
    let whole = s.ok(&["export"]);
    assert_eq!(whole.lines().count(), 300);
    assert_eq!(json(&s.ok(&["export", "x.tsv", "--skip-damaged", "--json"]))["left_out"], json("[]"));
    let table = table_with(&s, "b150");
    let bytes = std::fs::read(&table).unwrap();
    // Destroys the footer, so that the whole table is unreadable.
    std::fs::write(&table, [&bytes[..bytes.len() - 8], &[0; 8]].concat()).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();

    let stopped = s.fails(5, &["export", "x.tsv", "--force"]);
    assert_eq!(std::fs::read_to_string(s.path("x.tsv")).unwrap(), whole, "what was there is as it was");
    assert!(stopped.contains(name) && stopped.contains("--skip-damaged"), "{stopped}");
    let output = s.lava(&["export", "x.tsv", "--force", "--skip-damaged", "--json"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains(name) && stderr.contains("after a099 and before c200"), "{stderr}");
    let report = json(&String::from_utf8(output.stdout).unwrap());
    let gap = &report["left_out"][0];
    assert_eq!(
        (number(&report["records"]), report["left_out"].as_array().unwrap().len()),
        (200, 1),
        "{report}"
    );
    assert_eq!(
        (gap["after_key"].as_str(), gap["before_key"].as_str()),
        (Some("a099"), Some("c200")),
        "{gap}"
    );
    assert!(gap["file"].as_str().unwrap().ends_with(name), "{gap}");
    let rest: String =
        whole.lines().filter(|line| !line.starts_with('b')).map(|line| format!("{line}\n")).collect();
    assert_eq!(std::fs::read_to_string(s.path("x.tsv")).unwrap(), rest);
    // The same to standard output; a range without damage is complete.
    let output = s.lava(&["export", "--skip-damaged"]);
    assert_eq!((output.status.code(), output.stdout), (Some(3), rest.into_bytes()));
    assert_eq!(s.ok(&["export", "--from", "c", "--skip-damaged"]).lines().count(), 100);
}

/// Returns the table of the store that contains a key.
fn table_with(s: &Scratch, key: &str) -> std::path::PathBuf {
    let files = std::fs::read_dir(s.path("db")).unwrap().map(|e| e.unwrap().path());
    let tables = files.filter(|p| p.extension().is_some_and(|e| e == "ksst"));
    let mut with = tables.filter(|p| {
        let name = p.file_name().unwrap();
        s.ok(&["inspect", name.to_str().unwrap(), "--entries"]).contains(key)
    });
    with.next().unwrap()
}

#[test]
fn usage_errors_print_one_line_and_create_no_files() {
    let s = Scratch::new("mistakes");
    for args in [
        &["get", "k"][..],
        &["scan"],
        &["del", "k"],
        &["stat"],
        &["space"],
        &["gc"],
        &["gc", "--dry-run"],
        &["compact"],
        &["verify"],
        &["checkpoint", "x"],
    ] {
        s.fails(8, args);
        assert!(
            !s.path("db").exists() || std::fs::read_dir(s.path("db")).unwrap().next().is_none(),
            "{args:?} made a store"
        );
    }
    s.fails(2, &["put", "k"]);
    s.fails(2, &["nonsense"]);
    s.fails(2, &["bench", "overwrite", "--num", "0"]);
    s.fails(2, &["put", "-e", "a\\q", "v"]);
    s.fails(2, &["gc", "--until", "20"]);
    s.fails(2, &["put", "k", "v", "--compression", "brotli"]);
    s.fails(2, &["import", "file.unknown"]);
    assert!(s.fails(8, &["import", "missing.tsv"]).starts_with("lava: missing.tsv: No such file"));
    let bad = s.file("bad.tsv", b"a\tb\nno tab here\n");
    assert!(s.fails(1, &["import", bad.to_str().unwrap()]).contains("bad.tsv: line 2"));
    assert!(s.fails(2, &["put", "", "empty"]).contains("raise it with 'lava upgrade'"));
    s.fails(8, &["scan", "--family", "unknown"]);
    let output =
        Command::new(env!("CARGO_BIN_EXE_lava")).env_remove("LAVA_DB").args(["get", "k"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn bench_reports_documented_fields_and_cleans_up() {
    let s = Scratch::new("bench");
    for workload in ["overwrite", "readwhilewriting"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lava"));
        let line = format!(
            "bench {workload} --value-size 100 --num 2000 --updates 3000 --threads 2 --write-mb-per-s 1 --json r.json"
        );
        let output = command.env_remove("LAVA_DB").current_dir(&s.0).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{workload}: {}", String::from_utf8_lossy(&output.stderr));
        let report = json(&std::fs::read_to_string(s.path("r.json")).unwrap());
        assert_eq!(report["workload"], workload);
        assert!(report["ops_per_s"].as_f64().unwrap() > 0.0);
        assert!(!s.path("bench-data").exists(), "{workload} left its store behind");
    }
    let kept = json(&{
        s.ok(&["bench", "load", "--value-size", "100", "--num", "1000", "--json", "r.json"]);
        std::fs::read_to_string(s.path("r.json")).unwrap()
    });
    assert_eq!(kept["ops"], 1000);
    assert_eq!(s.ok(&["scan", "--keys-only"]).lines().count(), 1000);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lava"));
    let line = "bench page-server --pages 200 --seconds 0.2 --ingest 2 --segment-bytes 1048576 --json r.json";
    let output = command.env_remove("LAVA_DB").current_dir(&s.0).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&std::fs::read_to_string(s.path("r.json")).unwrap());
    assert!(report["write_log"]["count"].as_u64() > Some(0) && report["read_page"]["p9999_us"].is_number());
    assert!(report["ingested"]["bytes"] == 2 << 20 && report["ingested"]["mb_per_s"].as_f64() > Some(0.0));
    assert!(!s.path("bench-data").exists(), "the page server left its store behind");
    assert!(s.fails(9, &["bench", "load", "--num", "10"]).contains("not empty"));
}

/// Runs a benchmark; returns its JSON report and its output. It leaves no store behind.
fn benched(s: &Scratch, line: &str) -> (serde_json::Value, String) {
    let output = lava(&s.0).args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(!s.path("bench-data").exists(), "{line} left its store behind");
    let told = json(&std::fs::read_to_string(s.path("r.json")).unwrap());
    (told, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn bench_recovery_opens_the_store_of_a_killed_process() {
    let s = Scratch::new("bench-recovery");
    let line = "bench recovery --log-size 3000000 --families 2 --json r.json";
    let (told, text) = benched(&s, line);
    assert!(text.contains("2,930 keys, all there"), "{text}");
    assert!(told["records"] == 2930 && told["table_bytes_before"] == 0, "{told}");
    assert!(told["open_ms"].as_f64() > Some(0.0) && told["log_bytes"].as_u64() > Some(3_000_000), "{told}");
    // With less memory than the log, the open finds tables and logs.
    let (told, _) = benched(&s, &format!("{line} --memory 600000"));
    assert!(told["records"] == 2930 && told["table_bytes"].as_u64() > Some(0), "{told}");
    // On a volume mounted by the killed process.
    s.ok(&["fs", "mkfs", "image", "--size", "256M", "--sparse"]);
    let (told, _) = benched(&s, &format!("--db lavafs:image {line}"));
    assert!(told["records"] == 2930 && told["log_bytes"].as_u64() > Some(3_000_000), "{told}");
    let again = lava(&s.0).args(["--db", "lavafs:image", "bench", "recovery"]).output().unwrap();
    assert_eq!(again.status.code(), Some(9), "{}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn bench_scale_meta_describes_a_synthetic_store() {
    let s = Scratch::new("bench-scale-meta");
    let (told, text) = benched(&s, "bench scale-meta --terabytes 0.01 --value-size 1000 --json r.json");
    assert!(text.contains("149 names each"), "{text}");
    assert!(told["tables"] == 3 && told["options"]["value_size"] == 1000, "{told}");
    assert!(
        told["times"]["flush"]["install_ms"].is_number() && told["sums_bytes"].as_u64() > Some(0),
        "{told}"
    );
}

#[test]
fn bench_tail_reports_scheduled_requests_and_cleans_up() {
    let s = Scratch::new("bench-tail");
    let report = |options: &str| {
        let line = format!(
            "bench tail --policy leveled --value-size 200 --num 2000 --families 4 --read-share 0.5 --seconds 0.2 --json r.json {options}"
        );
        let (told, text) = benched(&s, &line);
        assert!(text.contains("writes") && text.contains("waits"), "{options}: {text}");
        told
    };
    for options in ["--rate 2500 --load 80", "--rate 2500 --load 80 --clients separate --distribution pareto"]
    {
        let told = report(options);
        assert_eq!(
            (told["sustained_per_s"].as_f64(), told["rate_per_s"].as_f64()),
            (Some(2500.0), Some(2000.0))
        );
        // The number of due operations is known; their delays depend on the machine.
        assert_eq!(told["ops"].as_u64().unwrap() + told["ops_left"].as_u64().unwrap(), 400, "{options}");
        assert!(told["timeline"][0]["write"]["p99_us"].is_number(), "{options}");
        assert!(told["waits_seconds"]["l0"].is_number() && told["space_peak_ratio"].as_f64() > Some(0.0));
        assert_eq!(told["engine_settings"]["policy"], "leveled");
    }
    let several = report("--rate 2500 --load 20,80");
    let due: Vec<f64> =
        several["points"].as_array().unwrap().iter().map(|r| r["rate_per_s"].as_f64().unwrap()).collect();
    assert_eq!(due, [500.0, 2000.0]);
    let bursts = report("--rate 1000 --burst 3x50ms --idle 50ms");
    assert_eq!(
        (bursts["bursts"].as_array().unwrap().len(), &bursts["bursts"][1]["offered"]),
        (2, &150.into())
    );
    let closed = report("--rate 1000 --closed 8");
    assert!(
        closed["ops_over_sustained"].as_f64() > Some(0.0)
            && closed["engine_times"]["waits"]["l0"]["max_us"].is_f64()
    );
    let found = report("--load 20 --find-seconds 0.1");
    let (all, part) = (found["sustained_per_s"].as_f64().unwrap(), found["rate_per_s"].as_f64().unwrap());
    assert!(all > 0.0 && (part / all - 0.2).abs() < 1e-6, "{part} of {all}");
}

#[test]
fn bench_compares_policies_and_cleans_up() {
    let s = Scratch::new("bench-policy");
    let line = "bench ablation --policy --pairs 1 --num 500 --value-size 100 --rate 1000 --seconds 0.1 --json r.json";
    let (told, text) = benched(&s, line);
    let rows: Vec<&str> =
        told["rows"].as_array().unwrap().iter().map(|row| row["row"].as_str().unwrap()).collect();
    assert_eq!(rows, ["leveled", "leveled, RocksDB's sizes", "leveled, small tables", "vlsm"]);
    assert!(text.contains("write P99.9, us") && text.contains("sum of stalls, s"), "{text}");
}

#[test]
fn bench_ablation_measures_each_durable_write_mechanism() {
    let s = Scratch::new("bench-spandb");
    let line = "bench ablation --spandb --pairs 1 --num 500 --value-size 100 --writers 4 --seconds 0.1 --json r.json";
    let (told, text) = benched(&s, line);
    assert_eq!((told["rows"].as_array().unwrap().len(), told["writers"].as_u64()), (9, Some(4)));
    assert!(text.contains("durable puts a second") && text.contains("asynchronous, 3 loggers"), "{text}");
}

#[test]
fn demo_verifies() {
    let s = Scratch::new("demo");
    for _ in 0..2 {
        // The second run finds the store of the first one and replaces it.
        let out = s.ok(&["demo", "--generate", "3000"]);
        assert_eq!(out.lines().last(), Some("demo: 3000 records verified, 0 lost"), "{out}");
        assert!(out.contains("SIGKILL") && out.contains("write amplification") && out.contains("P99.9"));
        assert!(out.contains("\nspace: ") && out.contains("references to separated values"), "{out}");
    }
    assert_eq!(s.ok(&["scan", "--keys-only"]).lines().count(), 3000);
    let other = s.path("other");
    std::fs::create_dir_all(other.join("holiday")).unwrap();
    assert!(!run(&other, &["demo", "--generate", "100"], &s.0).status.success());
}
