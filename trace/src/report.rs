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

/// Prints each function once, in the order of the first calls.
pub fn summary(entries: &[Entry]) {
    let mut calls: BTreeMap<&Function, usize> = BTreeMap::new();
    entries.iter().for_each(|entry| *calls.entry(&entry.function).or_default() += 1);
    for Entry { function, .. } in entries {
        if let Some(count) = calls.remove(function) {
            println!("{count:7}  {}  ({})", function.name, function.file);
        }
    }
}

/// Prints the sums.
pub fn totals(entries: &[Entry], symbols: &Symbols) {
    let functions: BTreeSet<&Function> = entries.iter().map(|entry| &entry.function).collect();
    let files: BTreeSet<&str> = functions.iter().map(|function| function.file.as_str()).collect();
    println!(
        "{} functions, {} without accessors, in {} files, {} calls, {} calls out of commit.rs",
        functions.len(),
        functions.iter().filter(|function| !symbols.is_accessor(function)).count(),
        files.len(),
        entries.len(),
        calls_out_of(COMMIT, entries)
    );
}

/// Calls of functions elsewhere that functions in this file make.
fn calls_out_of(file: &str, entries: &[Entry]) -> usize {
    let mut callers: Vec<&str> = Vec::new();
    let mut calls = 0;
    for Entry { function, depth } in entries {
        callers.truncate(*depth);
        calls += usize::from(callers.last() == Some(&file) && function.file != file);
        callers.push(&function.file);
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_direct_calls_out_of_a_file_count() {
        let entry = |file: &str, depth| {
            let function = Function { name: String::new(), file: file.to_owned() };
            Entry { function, depth }
        };
        let entries =
            [entry("a", 0), entry("b", 1), entry("c", 2), entry("b", 1), entry("a", 1), entry("c", 2)];
        assert_eq!(calls_out_of("a", &entries), 3);
        assert_eq!(calls_out_of("b", &entries), 1);
    }
}
