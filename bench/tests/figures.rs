//! The table of figures in the README equals the record.
//!
//! `peers/figures` makes the record (`docs/figures.json`) on a machine with the other engines;
//! `LAVASTORE_BLESS=1 cargo test -p lavastore-bench --test figures` makes the table from it.

#![allow(clippy::disallowed_methods, reason = "reads the repository itself")]

use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- figures: made by `LAVASTORE_BLESS=1 cargo test -p lavastore-bench --test figures` from docs/figures.json -->\n";
const END: &str = "<!-- end of figures -->";
/// Compared engines by their names in the record and in the table.
const PEERS: [(&str, &str); 3] = [("rocksdb", "RocksDB"), ("blobdb", "BlobDB"), ("fjall", "fjall")];

fn table(record: &Value) -> String {
    let mut out = String::from("| | LavaStore, /s |");
    PEERS.iter().for_each(|(_, name)| write!(out, " over {name} |").unwrap());
    out.push_str(" most space, times the data |\n|---|---|---|---|---|---|\n");
    for row in record["rows"].as_array().expect("rows") {
        let figures = &row["figures"];
        let rate = figures["ops_per_s"]["lavastore"]["median"].as_f64().expect("a rate of our own");
        write!(out, "| {} | {} |", row["name"].as_str().expect("a name"), thousands(rate)).unwrap();
        PEERS.iter().for_each(|(peer, _)| write!(out, " {} |", ratio(&figures["ops_per_s"][peer])).unwrap());
        writeln!(out, " {} |", space(&figures["space_peak_ratio"])).unwrap();
    }
    out
}

/// Formats a rate with three significant digits.
fn thousands(x: f64) -> String {
    let unit = 10f64.powf((x.log10().floor() - 2.0).max(0.0));
    let digits = ((x / unit).round() * unit).to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

/// Formats median, minimum and maximum over pairs; losses are as bold as wins.
fn ratio(peer: &Value) -> String {
    let of = |name: &str| peer["ratio"][name].as_f64();
    match (of("median"), of("min"), of("max")) {
        (Some(median), Some(min), Some(max)) => format!("**{median:.2}** ({min:.2} to {max:.2})"),
        _ => "-".to_owned(),
    }
}

/// Formats our figure, then those of the peers.
fn space(figure: &Value) -> String {
    let of = |name: &str| figure[name]["median"].as_f64();
    let Some(ours) = of("lavastore") else { return "-".to_owned() };
    let theirs = PEERS.iter().filter_map(|(peer, name)| Some(format!("{name} {:.2}", of(peer)?)));
    let theirs: Vec<String> = theirs.collect();
    if theirs.is_empty() { format!("{ours:.2}") } else { format!("{ours:.2}; {}", theirs.join(", ")) }
}

#[test]
fn the_readme_shows_the_record() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let record: Value = serde_json::from_str(&read("docs/figures.json")).unwrap();
    let readme = read("README.md");
    let (before, rest) = readme.split_once(BEGIN).expect("the mark where the table begins");
    let (shown, after) = rest.split_once(END).expect("the mark where it ends");
    let made = table(&record);
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(root.join("README.md"), format!("{before}{BEGIN}{made}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(shown, made, "make the table anew");
}

#[test]
fn figures_have_three_digits_for_losses_and_gains() {
    assert_eq!(thousands(221_571.3), "222,000");
    assert_eq!(thousands(7_484.0), "7,480");
    assert_eq!(thousands(52.4), "52");
    let lost = serde_json::json!({ "ratio": { "median": 0.5, "min": 0.4, "max": 0.61 } });
    assert_eq!(ratio(&lost), "**0.50** (0.40 to 0.61)");
    assert_eq!(ratio(&Value::Null), "-");
}
