//! `space`: who owns which bytes, as a table and a bar.

use super::inspect::ReportArgs;
use super::open_to_read;
use crate::{Result, output};
use bench::report::{human_bytes, human_count};
use lavastore::{FamilySpace, Space};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Shows who owns which bytes.
pub fn space(db: Option<PathBuf>, args: &ReportArgs) -> Result<()> {
    let space = open_to_read(db)?.space()?;
    output::report(args.json, &space_json(&space), || space_text(&space, output::Screen::of_stdout()))
}

/// The ledger as JSON.
pub fn space_json(space: &Space) -> Value {
    let mut all: Map<String, Value> =
        space.parts().iter().map(|(k, v)| (format!("{k}_bytes"), (*v).into())).collect();
    let families: Vec<Value> = space.families.iter().map(family_json).collect();
    let more = [
        ("total_bytes", space.total_bytes.into()),
        ("live_bytes_min", space.live_bytes_min.into()),
        ("total_to_live", ratio(space.total_bytes, space.live_bytes_min).into()),
        ("hidden_garbage_bytes", space.hidden_bytes.into()),
        ("hidden_garbage_bytes_min", space.hidden_bytes_min.into()),
        ("hidden_garbage_bytes_max", space.hidden_bytes_max.into()),
        ("memtable_bytes", space.memtable_bytes.into()),
        ("snapshots", space.snapshots.into()),
        ("oldest_snapshot_ns", space.oldest_snapshot_ns.into()),
        ("available_bytes", space.available_bytes.into()),
        ("families", families.into()),
    ];
    all.extend(more.map(|(name, value)| (name.to_owned(), value)));
    all.into()
}

/// One family as JSON.
pub fn family_json(family: &FamilySpace) -> Value {
    let levels = family.levels.iter().map(|l| {
        json!({
            "level": l.level, "files": l.files, "bytes": l.bytes, "compensated_bytes": l.compensated_bytes,
            "entries": l.entries,
        })
    });
    json!({
        "name": family.name,
        "levels": levels.collect::<Vec<_>>(),
        "vssts": family.vssts,
        "vsst_bytes": family.vsst_bytes,
        "segments": family.segments,
        "aliases": family.aliases,
        "references": family.references,
        "record_bytes": family.record_bytes,
        "garbage_bytes": family.garbage_bytes,
        "garbage_percent_max": family.garbage_percent_max,
        "hidden_garbage_bytes": family.hidden_bytes,
        "hidden_garbage_bytes_min": family.hidden_bytes_min,
        "hidden_garbage_bytes_max": family.hidden_bytes_max,
        "live_bytes_min": family.live_bytes_min,
    })
}

fn ratio(bytes: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| bytes as f64 / of as f64)
}

/// The ledger for a person.
pub fn space_text(space: &Space, screen: output::Screen) -> String {
    let mut text = parts_text(space, screen);
    text.push_str(&hidden_text(space));
    if space.job_bytes > 0 {
        text.push_str("jobs: files that jobs are writing, or that are out of use and go with the next clean-up or open\n");
    }
    if let Some(ratio) = ratio(space.total_bytes, space.live_bytes_min) {
        let live = human_bytes(space.live_bytes_min);
        let _ = writeln!(text, "live data is at least {live}: the store takes at most {ratio:.2} times that");
    }
    for family in space.families.iter().filter(|f| !f.levels.is_empty() || f.vssts > 0) {
        text.push('\n');
        text.push_str(&family_text(family));
    }
    let (memory, available) = (human_bytes(space.memtable_bytes), human_bytes(space.available_bytes));
    let _ = writeln!(text, "\nin memtables {memory}; free on the volume {available}");
    if space.snapshots > 0 {
        let seconds = space.oldest_snapshot_ns as f64 / 1e9;
        let _ = writeln!(text, "{} snapshots, the oldest {seconds:.1} s old", space.snapshots);
    }
    text
}

/// A line for each part, and the bar.
fn parts_text(space: &Space, screen: output::Screen) -> String {
    let mut text = format!("{:<12} {:>12} {:>8} {:>10}\n", "part", "size", "share", "to live");
    let share = |bytes: u64| 100.0 * bytes as f64 / space.total_bytes.max(1) as f64;
    let to_live =
        |bytes| ratio(bytes, space.live_bytes_min).map_or_else(|| "-".to_owned(), |r| format!("{r:.3}"));
    let mut line = |mark: &str, name: &str, bytes: u64| {
        let (size, share, to_live) = (human_bytes(bytes), share(bytes), to_live(bytes));
        let _ = writeln!(text, "{mark} {name:<10} {size:>12} {share:>6.1} % {to_live:>10}");
    };
    for (at, (name, bytes)) in space.parts().into_iter().enumerate() {
        line(&screen.mark(at, mark_of(name), 1), name, bytes);
    }
    line(" ", "total", space.total_bytes);
    let _ = writeln!(text, "\n{}", bar(&space.parts(), screen));
    text
}

/// What stands for a part where there are no colours.
fn mark_of(name: &str) -> char {
    match name {
        "garbage" => '!',
        _ => name.chars().next().map_or('?', |c| c.to_ascii_uppercase()),
    }
}

/// All parts side by side in the width of the screen: each part that is there at all has at least one column.
fn bar(parts: &[(&'static str, u64)], screen: output::Screen) -> String {
    let widths = columns(parts, screen.width.saturating_sub(2).max(parts.len()));
    let runs = parts.iter().zip(widths).enumerate().filter(|(_, (_, width))| *width > 0);
    let runs: String = runs.map(|(at, ((name, _), width))| screen.mark(at, mark_of(name), width)).collect();
    format!("[{runs}]")
}

/// Shares `width` columns out in proportion: one column first to each part that has bytes, the rest by largest remainder.
fn columns(parts: &[(&'static str, u64)], width: usize) -> Vec<usize> {
    let total: u128 = parts.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    if total == 0 {
        return vec![0; parts.len()];
    }
    let present = parts.iter().filter(|(_, bytes)| *bytes > 0).count();
    let rest = width.saturating_sub(present) as u128;
    let exact = |bytes: u64| u128::from(bytes) * rest;
    let mut widths: Vec<usize> =
        parts.iter().map(|(_, b)| usize::from(*b > 0) + (exact(*b) / total) as usize).collect();
    let mut by_remainder: Vec<usize> = (0..parts.len()).filter(|&at| parts[at].1 > 0).collect();
    by_remainder.sort_by_key(|&at| std::cmp::Reverse(exact(parts[at].1) % total));
    let left = width.saturating_sub(widths.iter().sum());
    by_remainder.iter().take(left).for_each(|&at| widths[at] += 1);
    widths
}

fn hidden_text(space: &Space) -> String {
    if space.hidden_bytes_max == 0 {
        return String::new();
    }
    let [likely, low, high] =
        [space.hidden_bytes, space.hidden_bytes_min, space.hidden_bytes_max].map(human_bytes);
    format!(
        "hidden garbage, inside tables and values: about {likely} (between {low} and {high}); compaction exposes it\n"
    )
}

/// One family for a person.
pub fn family_text(family: &FamilySpace) -> String {
    let mut text = format!(
        "family {}\n  {:<8} {:>8} {:>12} {:>14} {:>14}\n",
        family.name, "level", "files", "size", "compensated", "entries"
    );
    for l in &family.levels {
        let (size, compensated) = (human_bytes(l.bytes), human_bytes(l.compensated_bytes));
        let (level, files, entries) = (format!("L{}", l.level), human_count(l.files), human_count(l.entries));
        let _ = writeln!(text, "  {level:<8} {files:>8} {size:>12} {compensated:>14} {entries:>14}");
    }
    if family.vssts == 0 {
        return text;
    }
    let (files, size) = (human_count(family.vssts), human_bytes(family.vsst_bytes));
    let (records, garbage) = (human_bytes(family.record_bytes), human_bytes(family.garbage_bytes));
    let percent = 100.0 * family.garbage_bytes as f64 / family.record_bytes.max(1) as f64;
    let _ = writeln!(text, "  {:<8} {files:>8} {size:>12}", "vSSTs");
    if family.segments > 0 {
        let _ = writeln!(text, "  of these, {} hold one large value each", human_count(family.segments));
    }
    let _ = writeln!(
        text,
        "  records {records}, of which garbage {garbage} ({percent:.1} %; {} % in the worst vSST); {} references; {} aliases",
        family.garbage_percent_max,
        human_count(family.references),
        human_count(family.aliases),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_with_bytes_has_a_column_and_all_fill_the_width() {
        let parts = [("a", 1u64), ("b", 0), ("c", 1_000_000), ("d", 500_000), ("e", 3)];
        for width in [5, 20, 72, 211] {
            let widths = columns(&parts, width);
            assert_eq!(widths.iter().sum::<usize>(), width, "{widths:?}");
            assert!(widths.iter().zip(parts).all(|(w, (_, b))| (*w > 0) == (b > 0)), "{widths:?}");
        }
        assert!(columns(&parts, 72)[2].abs_diff(2 * columns(&parts, 72)[3]) <= 2);
        assert_eq!(columns(&[("a", 0)], 10), [0]);
        assert_eq!(columns(&[("a", u64::MAX), ("b", u64::MAX)], 10), [5, 5]);
    }

    #[test]
    fn the_plain_bar_is_letters_of_the_width() {
        let space = Space { table_bytes: 100, garbage_bytes: 100, total_bytes: 200, ..Space::default() };
        let bar = bar(&space.parts(), output::Screen { width: 22, colours: false });
        assert_eq!(bar, format!("[{}{}]", "T".repeat(10), "!".repeat(10)));
        let text = space_text(&space, output::Screen { width: 40, colours: false });
        assert!(text.is_ascii() && text.contains("garbage"), "{text}");
    }
}
