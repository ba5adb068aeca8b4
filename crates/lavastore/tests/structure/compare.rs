//! The comparison in `docs/guide/compare`: the same program on four engines, in parts. This test
//! counts the lines of each part and compares the counts with the README of that folder.
//! LavaStore's part is never the longest.

use crate::sources;
use std::fs;

const ENGINES: [&str; 4] = ["lavastore", "rocksdb", "fjall", "redb"];

/// Parts with their lines of code.
type Parts = Vec<(String, usize)>;

#[test]
fn lavastore_parts_are_never_the_longest_in_the_comparison() {
    let folder = sources::root().join("docs/guide/compare");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let all: Vec<Parts> = ENGINES.iter().map(|engine| parts(&read(&format!("{engine}.rs")))).collect();
    assert!(all[0].len() >= 6, "the parts were found: {all:?}");
    let wrong = longest(&all);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (readme, table) = (read("README.md"), table(&all));
    if std::env::var_os("LAVASTORE_BLESS").is_some() && !readme.contains(&table) {
        let (before, rest) = readme.split_once("\n| ").expect("there is a table");
        let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
        fs::write(folder.join("README.md"), format!("{before}\n{table}\n{after}")).unwrap();
        return;
    }
    assert!(readme.contains(&table), "LAVASTORE_BLESS=1 writes the table into the README:\n{table}");
}

/// Splits a program at its `// part: NAME` lines. Sections with the same name count together.
fn parts(text: &str) -> Parts {
    let mut out = Parts::new();
    for part in text.split("// part: ").skip(1) {
        let (name, code) = part.split_once('\n').unwrap_or((part, ""));
        let code = code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
        let lines = code.count();
        match out.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += lines,
            None => out.push((name.to_owned(), lines)),
        }
    }
    out.retain(|(name, _)| name != "the end");
    out
}

/// Returns the parts of the first program that no other program has, or has with as many lines.
fn longest(all: &[Parts]) -> Vec<String> {
    let (ours, others) = all.split_first().expect("there are programs");
    let judge = |(name, lines): &(String, usize)| {
        let of = |parts: &Parts| parts.iter().find(|(known, _)| known == name).map(|(_, lines)| *lines);
        let theirs: Vec<usize> = others.iter().filter_map(of).collect();
        let longest = theirs.iter().max().copied().unwrap_or(0);
        let told = || format!("{name}: {lines} lines, the others {theirs:?}");
        (theirs.len() < others.len() || *lines >= longest).then(told)
    };
    ours.iter().filter_map(judge).collect()
}

/// Formats the table of the README.
fn table(all: &[Parts]) -> String {
    let mut text = format!("| | {} |\n|---|{}\n", ENGINES.join(" | "), "---:|".repeat(ENGINES.len()));
    for (nth, (name, _)) in all[0].iter().enumerate() {
        let lines: Vec<String> = all.iter().map(|parts| parts[nth].1.to_string()).collect();
        text += &format!("| {name} | {} |\n", lines.join(" | "));
    }
    text
}

#[test]
fn an_overlong_comparison_part_is_found() {
    let ours = parts(
        "fn main() {\n    // part: a\n    one();\n\n    // why\n    two();\n    // part: b\n    x();\n}\n// part: a\nthree();",
    );
    assert_eq!(ours, [("a".to_owned(), 4 - 1), ("b".to_owned(), 2)]);
    let other = |a: usize, b: usize| vec![("a".to_owned(), a), ("b".to_owned(), b)];
    assert!(longest(&[ours.clone(), other(4, 1), other(1, 3)]).is_empty());
    assert_eq!(longest(&[ours.clone(), other(3, 3)]).len(), 1, "as long is too long");
    assert_eq!(longest(&[ours, vec![("b".to_owned(), 9)]]).len(), 1, "a part that another lacks is none");
}
