//! The entries of an operation as text.

use crate::steps::Entry;
use crate::symbols::{Function, Symbols};
use std::collections::{BTreeMap, BTreeSet};

/// The file that explains the order of a write.
const COMMIT: &str = "crates/lavakv/src/write/commit.rs";

/// Prints each entry on a line, indented by its depth.
pub fn sequence(entries: &[Entry]) {
    for Entry { function, depth } in entries {
        println!("{:indent$}{}  ({})", "", function.name, function.file, indent = 2 * depth);
    }
}

/// Prints each function once, in the order of the first calls. An accessor has a dot in front of its name.
pub fn summary(entries: &[Entry], symbols: &Symbols) {
    let mut calls: BTreeMap<&Function, usize> = BTreeMap::new();
    entries.iter().for_each(|entry| *calls.entry(&entry.function).or_default() += 1);
    for Entry { function, .. } in entries {
        if let Some(count) = calls.remove(function) {
            let mark = if symbols.is_accessor(function) { '.' } else { ' ' };
            println!("{count:7} {mark}{}  ({})", function.name, function.file);
        }
    }
}

/// Prints the sums, and returns the number of functions without accessors.
pub fn totals(entries: &[Entry], symbols: &Symbols) -> usize {
    let functions: BTreeSet<&Function> = entries.iter().map(|entry| &entry.function).collect();
    let files: BTreeSet<&str> = functions.iter().map(|function| function.file.as_str()).collect();
    let without_accessors = functions.iter().filter(|function| !symbols.is_accessor(function)).count();
    println!(
        "{} functions, {without_accessors} without accessors, in {} files, {} calls; commit.rs is left {} times",
        functions.len(),
        files.len(),
        entries.len(),
        calls_out_of(COMMIT, entries, |function| symbols.is_accessor(function))
    );
    without_accessors
}

/// Calls that functions in this file make of functions elsewhere, without those that run accessors only.
fn calls_out_of(file: &str, entries: &[Entry], is_accessor: impl Fn(&Function) -> bool) -> usize {
    let mut callers: Vec<&str> = Vec::new();
    let mut calls = 0;
    for (at, Entry { function, depth }) in entries.iter().enumerate() {
        callers.truncate(*depth);
        let leaves = callers.last() == Some(&file) && function.file != file;
        let below = entries[at + 1..].iter().take_while(|entry| entry.depth > *depth);
        let runs_more = || !is_accessor(function) || below.clone().any(|entry| !is_accessor(&entry.function));
        calls += usize::from(leaves && runs_more());
        callers.push(&function.file);
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(file: &str, depth: usize) -> Entry {
        let function = Function { name: String::new(), file: file.to_owned() };
        Entry { function, depth }
    }

    #[test]
    fn only_direct_calls_out_of_a_file_count() {
        let entries =
            [entry("a", 0), entry("b", 1), entry("c", 2), entry("b", 1), entry("a", 1), entry("c", 2)];
        assert_eq!(calls_out_of("a", &entries, |_| false), 3);
        assert_eq!(calls_out_of("b", &entries, |_| false), 1);
    }

    #[test]
    fn calls_that_run_accessors_only_do_not_count() {
        let entries = [entry("a", 0), entry("b", 1), entry("c", 2), entry("c", 1)];
        assert_eq!(calls_out_of("a", &entries, |function| function.file == "b"), 2);
        assert_eq!(calls_out_of("a", &entries, |function| function.file == "c"), 1);
        assert_eq!(calls_out_of("a", &entries, |_| true), 0);
    }
}
