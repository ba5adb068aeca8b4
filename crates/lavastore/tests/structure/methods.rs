//! Limit on the number of methods of a type: few methods show its purpose.
//!
//! All inherent `impl` blocks of a type in a crate count, in any file. Trait methods and tests do
//! not.

use crate::sources;
use std::collections::BTreeMap;
use std::fs;

/// Maximum number of methods of a type.
const METHODS_MAX: usize = 25;

/// Crates of the engine.
const CRATES: [&str; 17] = [
    "base",
    "cache",
    "critbit",
    "io",
    "lavafs",
    "lavakv",
    "lavalog",
    "lsm",
    "memtable",
    "repair",
    "requests",
    "store",
    "table",
    "transactions",
    "values",
    "version",
    "wal",
];

/// Facade types for users and tests: they lead to the parts and have one method per operation.
const FACADES: [(&str, &str); 3] = [("io", "SimEnv"), ("lavakv", "Db"), ("lavalog", "LogStore")];

/// Returns the methods by type in a text, as laid out by rustfmt. Inner modules (tests) do not
/// count.
fn methods(text: &str) -> Vec<(&str, usize)> {
    let mut out: Vec<(&str, usize)> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("impl") {
            is_inside = false;
            if let Some(name) = own_type(head) {
                is_inside = true;
                out.push((name, 0));
            }
        } else if line == "}" {
            is_inside = false;
        } else if let Some((_, count)) = out.last_mut().filter(|_| is_inside && is_method(line)) {
            *count += 1;
        }
    }
    out
}

/// Returns the type of an inherent `impl` block; `head` is its first line after `impl`.
fn own_type(head: &str) -> Option<&str> {
    let mut rest = head;
    if head.starts_with('<') {
        let mut depth = 0;
        let end = head.char_indices().find(|(at, c)| {
            depth += i32::from(*c == '<');
            // Excludes the arrow of a function type.
            depth -= i32::from(*c == '>' && !head[..*at].ends_with('-'));
            depth == 0
        })?;
        rest = &head[end.0 + 1..];
    }
    let name = rest.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty() && !head.contains(" for ")).then_some(name)
}

/// Returns true for the first line of a function directly in an `impl` block.
fn is_method(line: &str) -> bool {
    let Some(own) = line.strip_prefix("    ").filter(|own| !own.starts_with(' ')) else { return false };
    let before = own.split("fn ").next().filter(|before| before.len() < own.len());
    let is_word =
        |word: &str| word.starts_with("pub") || ["const", "async", "unsafe", "super)"].contains(&word);
    before.is_some_and(|before| before.split_whitespace().all(is_word))
}

/// Returns the violations, from the numbers of methods by crate and type.
fn faults(counts: &BTreeMap<(String, String), usize>) -> Vec<String> {
    let large = counts.iter().filter(|((of, name), count)| {
        **count > METHODS_MAX && !FACADES.iter().any(|facade| *facade == (of, name))
    });
    let fault = |((of, name), count): (&(String, String), &usize)| {
        format!(
            "{of}: {name} has {count} methods, at most {METHODS_MAX}: give a part of it to a type of its own"
        )
    };
    large.map(fault).collect()
}

#[test]
fn types_of_the_engine_have_few_methods() {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (name, dir) in sources::members().into_iter().filter(|(name, _)| CRATES.contains(&&**name)) {
        let mut files = Vec::new();
        sources::below(&dir.join("src"), &mut files);
        for path in files.iter().filter(|path| !sources::is_test(path)) {
            for (of, count) in methods(&fs::read_to_string(path).unwrap()) {
                *counts.entry((name.clone(), of.to_owned())).or_default() += count;
            }
        }
    }
    assert!(counts.len() > 500, "the types were found: {}", counts.len());
    let faults = faults(&counts);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_type_with_many_methods_is_found_in_all_of_its_blocks() {
    let text = "impl Few {\n    pub fn a() {\n        fn inner() {}\n    }\n}\n\nimpl<T: Fn() -> u8> Other<T> {\n    const fn b() {}\n}\n\n\
                impl Clone for Few {\n    fn clone() {}\n}\n\nimpl Few {\n    pub(crate) async fn c() {}\n    pub(super) fn d() {}\n    // fn e\n}\n\n\
                mod tests {\n    fn f() {}\n}\n";
    assert_eq!(methods(text), [("Few", 1), ("Other", 1), ("Few", 2)]);
    let (of, facade) = FACADES[0];
    let counts = |name: &str, count: usize| BTreeMap::from([((of.to_owned(), name.to_owned()), count)]);
    assert_eq!(faults(&counts("Few", METHODS_MAX)), [""; 0]);
    assert_eq!(faults(&counts(facade, METHODS_MAX + 1)), [""; 0]);
    let faults = faults(&counts("Few", METHODS_MAX + 1));
    assert!(faults.len() == 1 && faults[0].contains("has 26 methods, at most 25"), "{faults:?}");
}
