//! `space`: the owners of bytes on disk, as a table and a bar. A store with keys and logs has one
//! for each engine, because each counts the whole directory, with the other's files as one part.

use super::Halves;
use super::inspect::ReportArgs;
use crate::formats::escape;
use crate::{Result, output};
use bench::report::{counted, human_bytes, human_count};
use lavastore::{
    Db, FamilySpace, FastTierSpace, Holder, LogSpace, LogStore, LogStoreSpace, RestReport, RestState, Space,
};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Maximum number of logs in the text report: those with the most bytes.
const LOGS_LISTED: usize = 20;

/// Shows the owner of each byte.
pub fn space(db: Option<PathBuf>, args: &ReportArgs) -> Result<()> {
    let halves = Halves::open(db)?;
    let keys = halves.keys.as_ref().map(Db::space).transpose()?;
    let (logs, logs_whole) = halves.logs(LogStore::space)?.unzip();
    let mut report = keys.as_ref().map_or_else(|| json!({}), space_json);
    if let Some(logs) = &logs {
        report["logs"] = logs_json(logs);
    }
    output::report(args.json, &report, || {
        let screen = output::Screen::of_stdout();
        let mut text = keys.as_ref().map(|space| space_text(space, screen)).unwrap_or_default();
        if let Some(logs) = &logs {
            text.push_str(if text.is_empty() { "" } else { "\nlogs\n" });
            text.push_str(&logs_text(logs, screen));
        }
        text
    })?;
    halves.keys_whole().and(logs_whole.unwrap_or(Ok(())))
}

/// Formats the space of the logs as JSON.
fn logs_json(space: &LogStoreSpace) -> Value {
    let mut all: Map<String, Value> =
        space.parts().iter().map(|(k, v)| (format!("{k}_bytes"), (*v).into())).collect();
    let one =
        |log: &LogSpace| json!({ "name": &*log.name, "records": log.records, "live_bytes": log.live_bytes });
    let stored = &space.stored;
    let more = [
        ("total_bytes", space.total_bytes.into()),
        ("total_to_live", ratio(space.total_bytes, space.owners.live_bytes).into()),
        ("groups", stored.groups.into()),
        ("group_bytes", stored.group_bytes.into()),
        ("cold_files", stored.cold_files.into()),
        ("cold_bytes", stored.cold_bytes.into()),
        ("available_bytes", space.available_bytes.into()),
        ("speed", speed_json(space.speed.as_ref())),
        ("limit_bytes", space.limit_bytes.into()),
        ("reserve_bytes", space.reserve_bytes.into()),
        ("logs", space.logs.iter().map(one).collect()),
    ];
    all.extend(more.map(|(name, value)| (name.to_owned(), value)));
    all.into()
}

/// Formats the space of the logs as text.
fn logs_text(space: &LogStoreSpace, screen: output::Screen) -> String {
    let mut text = parts_text(&space.parts(), space.total_bytes, space.owners.live_bytes, screen);
    let stored = &space.stored;
    let [groups, cold] = [stored.group_bytes, stored.cold_bytes].map(human_bytes);
    let _ = writeln!(
        text,
        "groups that are storage {}, {groups}; cold files {}, {cold}",
        human_count(stored.groups),
        human_count(stored.cold_files)
    );
    let mut logs: Vec<&LogSpace> = space.logs.iter().collect();
    logs.sort_by(|a, b| b.live_bytes.cmp(&a.live_bytes).then_with(|| a.name.cmp(&b.name)));
    let _ = writeln!(text, "\n{:>12} {:>14}  log", "live", "records");
    for log in logs.iter().take(LOGS_LISTED) {
        let (live, records) = (human_bytes(log.live_bytes), human_count(log.records));
        let _ = writeln!(text, "{live:>12} {records:>14}  {}", escape::escape(log.name.as_bytes()));
    }
    if let Some(more) = logs.len().checked_sub(LOGS_LISTED).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {}; --json lists all", counted(more as u64, "more log"));
    }
    let _ = writeln!(text, "\nfree on the volume {}", human_bytes(space.available_bytes));
    text + &speed_text(space.speed.as_ref())
}

/// Formats the fast tier as text, if there is one.
fn speed_text(speed: Option<&FastTierSpace>) -> String {
    speed.map_or_else(String::new, |speed| {
        let all = [speed.bytes, speed.table_bytes, speed.value_bytes, speed.available_bytes];
        let [bytes, tables, values, free] = all.map(human_bytes);
        format!(
            "on the fast tier {}: {bytes} of these, {tables} in tables, {values} in values; free there {free}\n",
            speed.place.display()
        )
    })
}

/// Formats the fast tier as JSON.
fn speed_json(speed: Option<&FastTierSpace>) -> Value {
    speed.map_or(Value::Null, |speed| {
        json!({
            "place": speed.place.display().to_string(),
            "bytes": speed.bytes,
            "table_bytes": speed.table_bytes,
            "value_bytes": speed.value_bytes,
            "available_bytes": speed.available_bytes,
        })
    })
}

/// Formats the space of the keys as JSON.
pub fn space_json(space: &Space) -> Value {
    let mut all: Map<String, Value> =
        space.parts().iter().map(|(k, v)| (format!("{k}_bytes"), (*v).into())).collect();
    let families: Vec<Value> = space.families.iter().map(family_json).collect();
    let more = [
        // Sum of the parts `live` and `hidden`.
        ("values_bytes", space.value_bytes.into()),
        ("total_bytes", space.total_bytes.into()),
        ("read_only", space.is_read_only.into()),
        ("live_bytes_min", space.live_bytes_min.into()),
        ("total_to_live", ratio(space.total_bytes, live_bytes(space)).into()),
        ("hidden_garbage_bytes", space.hidden_bytes.into()),
        ("hidden_garbage_bytes_min", space.hidden_bytes_min.into()),
        ("hidden_garbage_bytes_max", space.hidden_bytes_max.into()),
        ("index_space_amplification", space.index_amplification().into()),
        ("wal_in_use_bytes", space.wal_in_use_bytes.into()),
        ("wal_held_by", wal_json(space)),
        ("pinned_unheld_bytes", space.pinned_unheld_bytes.into()),
        ("memtable_bytes", space.memtable_bytes.into()),
        // Snapshots of another process are unknown: null is better than a wrong number.
        ("snapshots", unless_read_only(space, space.snapshots.into())),
        ("oldest_snapshot_ns", unless_read_only(space, space.oldest_snapshot_ns.into())),
        ("kept_for_snapshots_bytes", unless_read_only(space, space.kept_bytes.into())),
        ("holders", unless_read_only(space, space.holders.iter().map(holder_json).collect())),
        ("available_bytes", space.available_bytes.into()),
        ("speed", speed_json(space.speed.as_ref())),
        ("limit_bytes", space.limit_bytes.into()),
        ("reserve_bytes", space.reserve_bytes.into()),
        ("rest", unless_read_only(space, rest_json(&space.rest))),
        ("families", families.into()),
    ];
    all.extend(more.map(|(name, value)| (name.to_owned(), value)));
    all.into()
}

fn rest_json(rest: &RestReport) -> Value {
    json!({
        "state": rest.state.name(),
        "written_bytes": rest.written_bytes,
        "rewritten_bytes": rest.rewritten_bytes,
        "rewritten_per_written": rest.rewritten_per_written(),
        "leaves_deleted_data": rest.leaves_deleted_data,
    })
}

fn unless_read_only(space: &Space, value: Value) -> Value {
    if space.is_read_only { Value::Null } else { value }
}

fn wal_json(space: &Space) -> Value {
    let Some(holder) = &space.log_holder else { return Value::Null };
    json!({
        "family": holder.family,
        "oldest_sequence": holder.oldest_sequence,
        "bytes": holder.bytes,
        "alone_bytes": holder.alone_bytes,
    })
}

fn holder_json(holder: &Holder) -> Value {
    json!({
        "id": holder.id,
        "kind": holder.kind.name(),
        "name": holder.name,
        "family": holder.family,
        "sequence": holder.sequence,
        "age_ns": holder.age_ns,
        "file_bytes": holder.file_bytes,
        "file_alone_bytes": holder.file_alone_bytes,
        "kept_bytes": holder.kept_bytes,
        "kept_alone_bytes": holder.kept_alone_bytes,
        "hidden_bytes": holder.hidden_bytes,
        "hidden_bytes_max": holder.hidden_bytes_max,
    })
}

/// Formats one family as JSON.
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
        "log_bytes": family.log_bytes,
        "index_space_amplification": family.index_amplification(),
    })
}

fn ratio(bytes: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| bytes as f64 / of as f64)
}

/// Estimates the live data: tables, and values without unexposed garbage.
pub fn live_bytes(space: &Space) -> u64 {
    (space.table_bytes + space.value_bytes).saturating_sub(space.hidden_bytes)
}

/// Formats the space of the keys as text.
pub fn space_text(space: &Space, screen: output::Screen) -> String {
    let mut text = parts_text(&space.parts(), space.total_bytes, live_bytes(space), screen);
    text.push_str(&hidden_text(space));
    if space.job_bytes > 0 {
        text.push_str(
            "jobs: output files of running jobs, and obsolete files until the next clean-up or open\n",
        );
    }
    if let Some(ratio) = ratio(space.total_bytes, live_bytes(space)) {
        let [live, least] = [live_bytes(space), space.live_bytes_min].map(human_bytes);
        let _ = writeln!(
            text,
            "live data is about {live}, at least {least}: the store takes {ratio:.2} times the former"
        );
    }
    text.push_str(&index_text(space));
    text.push_str(&wal_text(space));
    for family in space.families.iter().filter(|f| !f.levels.is_empty() || f.vssts > 0) {
        text.push('\n');
        text.push_str(&family_text(family));
    }
    let (memory, available) = (human_bytes(space.memtable_bytes), human_bytes(space.available_bytes));
    let _ = writeln!(text, "\nin memtables {memory}; free on the volume {available}");
    text.push_str(&speed_text(space.speed.as_ref()));
    text.push_str(&rest_text(space));
    text.push_str(&holders_text(space));
    text
}

fn index_text(space: &Space) -> String {
    match space.index_amplification() {
        0.0 => String::new(),
        ratio => format!(
            "index space amplification {ratio:.3}: compensated bytes of all levels to those of the last\n"
        ),
    }
}

/// Describes whether deleted data leaves an idle store.
fn rest_text(space: &Space) -> String {
    let state = match space.rest.state {
        _ if space.is_read_only => return String::new(),
        RestState::Awake => "waits for a few seconds without writes",
        RestState::AtRest if space.rest.leaves_deleted_data => {
            "deleted data stays, because freeing it would rewrite more bytes than were written; run 'lava compact' to free it"
        }
        RestState::AtRest => "deleted data leaves the disk",
        RestState::SwitchedOff => "off, by the option `rest`",
        RestState::SnapshotOpen => "waits for snapshots to be dropped",
        RestState::BackupRunning => "waits for a checkpoint, or for the end of a pause of collection",
    };
    let ratio = space.rest.rewritten_per_written();
    let ratio = ratio.map_or(String::new(), |ratio| format!("; {ratio:.2} bytes rewritten per byte written"));
    format!("rest: {state}{ratio}\n")
}

/// Names the holder that keeps the log long.
fn wal_text(space: &Space) -> String {
    let Some(holder) = space.log_holder.as_ref().filter(|holder| holder.bytes > 0) else {
        return String::new();
    };
    let [all, alone] = [holder.bytes, holder.alone_bytes].map(human_bytes);
    format!(
        "wal: {all} are held by family {}, {alone} of them by it alone, since write {}; a flush frees them\n",
        holder.family, holder.oldest_sequence
    )
}

/// Formats a line for each snapshot and iterator.
fn holders_text(space: &Space) -> String {
    if space.is_read_only {
        return "snapshots and iterators: unknown, because the store is open read-only; Db::space and Db::metrics of the writing process have them\n"
            .to_owned();
    }
    let mut text = String::new();
    if !space.holders.is_empty() {
        let _ = writeln!(
            text,
            "\n{:<24} {:>10} {:>10} {:>12} {:>12} {:>12}",
            "held by", "since", "write", "files", "kept", "hidden, about"
        );
    }
    for h in &space.holders {
        let name = if h.name.is_empty() { format!("{} {}", h.kind.name(), h.id) } else { h.name.clone() };
        let [files, kept, hidden] = [h.file_bytes, h.kept_bytes, h.hidden_bytes].map(human_bytes);
        let since = format!("{:.1} s", h.age_ns as f64 / 1e9);
        let _ =
            writeln!(text, "{name:<24} {since:>10} {:>10} {files:>12} {kept:>12} {hidden:>12}", h.sequence);
    }
    if space.pinned_unheld_bytes > 0 {
        let unheld = human_bytes(space.pinned_unheld_bytes);
        let _ = writeln!(
            text,
            "{unheld} of obsolete files no iterator holds: reads or jobs hold them, or the next clean-up removes them"
        );
    }
    text
}

/// Formats a line for each part, and the bar.
fn parts_text(parts: &[(&'static str, u64)], total: u64, live: u64, screen: output::Screen) -> String {
    let mut text = format!("{:<12} {:>12} {:>8} {:>10}\n", "part", "size", "share", "to live");
    let share = |bytes: u64| 100.0 * bytes as f64 / total.max(1) as f64;
    let to_live = |bytes| ratio(bytes, live).map_or_else(|| "-".to_owned(), |r| format!("{r:.3}"));
    let mut line = |mark: &str, name: &str, bytes: u64| {
        let (size, share, to_live) = (human_bytes(bytes), share(bytes), to_live(bytes));
        let _ = writeln!(text, "{mark} {name:<10} {size:>12} {share:>6.1} % {to_live:>10}");
    };
    for (at, (name, bytes)) in parts.iter().enumerate() {
        line(&screen.mark(at, mark_of(name), 1), name, *bytes);
    }
    line(" ", "total", total);
    let _ = writeln!(text, "\n{}", bar(parts, screen));
    text
}

/// Symbol of a part on a screen without colors.
fn mark_of(name: &str) -> char {
    match name {
        "garbage" => '!',
        _ => name.chars().next().map_or('?', |c| c.to_ascii_uppercase()),
    }
}

/// Formats all parts as a bar of the screen's width; a non-empty part has at least one column.
fn bar(parts: &[(&'static str, u64)], screen: output::Screen) -> String {
    let widths = columns(parts, screen.width.saturating_sub(2).max(parts.len()));
    let runs = parts.iter().zip(widths).enumerate().filter(|(_, (_, width))| *width > 0);
    let runs: String = runs.map(|(at, ((name, _), width))| screen.mark(at, mark_of(name), width)).collect();
    format!("[{runs}]")
}

/// Distributes `width` columns in proportion: one column for each non-empty part, the rest by
/// largest remainder.
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
    format!("hidden garbage: about {likely} (between {low} and {high}); compaction exposes it\n")
}

/// Formats one family as text.
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
        let hold = if family.segments == 1 { "holds" } else { "hold" };
        let _ = writeln!(text, "  of these, {} {hold} one large value each", human_count(family.segments));
    }
    let _ = writeln!(
        text,
        "  records {records}, of which garbage {garbage} ({percent:.1} %; {} % in the worst vSST); {}; {}",
        family.garbage_percent_max,
        counted(family.references, "reference"),
        counted(family.aliases, "alias"),
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

    #[test]
    fn holders_are_named_and_unknown_holders_are_not_zero() {
        let backup = Holder { id: 3, name: "backup".to_owned(), kept_bytes: 5_000_000, ..Holder::default() };
        let nameless = Holder { id: 4, ..Holder::default() };
        let mut space = Space { holders: vec![backup, nameless], snapshots: 2, ..Space::default() };
        let text = holders_text(&space);
        assert!(text.contains("\nbackup") && text.contains("\nsnapshot 4"), "{text}");
        let json = space_json(&space);
        assert_eq!((&json["holders"][0]["name"], &json["snapshots"]), (&json!("backup"), &json!(2)));
        (space.is_read_only, space.holders) = (true, Vec::new());
        assert!(holders_text(&space).contains("unknown"));
        let json = space_json(&space);
        assert!(json["holders"].is_null() && json["snapshots"].is_null(), "{json}");
    }
}
