//! `docs/errors.md` lists every error of the sources under its kind, with cause and way out.
//!
//! Causes and ways out are written by hand, one section for each kind; the messages in each section are taken from the sources,
//! where an error is made. `LAVASTORE_BLESS=1 cargo test -p lavastore --test structure errors` writes them anew.

use crate::sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What an error is made by, and its kind where that is not an argument.
const MAKERS: [(&str, &str); 7] = [
    ("Error::corruption(", "Corruption"),
    ("Error::invalid(", "InvalidArgument"),
    ("Error::not_found(", "NotFound"),
    ("Error::from_io(", "Io"),
    ("Error::new(ErrorKind::", ""),
    ("output::usage(", "Usage"),
    ("failure(Status::", ""),
];

/// The code of a file: without comments and without the tests at its end.
fn code(text: &str) -> String {
    let own = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = own.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut out = String::new();
    for line in lines {
        // What rustfmt put on lines of its own is one call all the same.
        let open = out.ends_with(['(', ',']);
        if !open && !out.is_empty() {
            out.push('\n');
        }
        out += if open { line.trim_start() } else { line };
    }
    out
}

/// The string literal at the beginning of some code.
fn literal(code: &str) -> Option<String> {
    let inside = code.trim_start().strip_prefix('"')?;
    let (mut out, mut chars) = (String::new(), inside.chars().peekable());
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => return Some(out),
            ('\\', Some('\n')) => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some(_)) => out.extend(chars.next()),
            (c, _) => out.push(c),
        }
    }
    None
}

/// The message that some code begins with: a literal, or the arguments of a `format!`.
fn message(code: &str) -> Option<String> {
    let code = code.trim_start();
    literal(code.strip_prefix("format!(").unwrap_or(code))
}

/// The message of a variable that was set not long before.
fn message_of(variable: &str, before: &str) -> Option<String> {
    let at = before.rfind(&format!("let {variable} = "))?;
    let set = &before[at..];
    let end = set.find(';').unwrap_or(set.len());
    // A choice between several: the first says what it is about.
    let quote = set[..end].find('"')?;
    literal(&set[quote..])
}

/// Kind and message of every error that is made in a file.
fn made_in(text: &str) -> BTreeSet<(String, String)> {
    let code = code(text);
    let mut out = BTreeSet::new();
    for (maker, kind) in MAKERS {
        for (at, _) in code.match_indices(maker) {
            let (before, rest) = code.split_at(at);
            let rest = &rest[maker.len()..];
            let (kind, rest) = match kind {
                "" => rest.split_once(',').unwrap_or((rest, "")),
                kind => (kind, rest),
            };
            let variable: String =
                rest.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let told = message(rest).or_else(|| message_of(&variable, before));
            if let Some(told) = told {
                out.insert((kind.trim().to_owned(), told));
            }
        }
    }
    out
}

/// Crates whose errors nobody meets but those who test.
const WITHOUT: [&str; 4] = ["torture", "fuzz", "bench", "sim"];

/// All messages, by kind.
fn all() -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in sources::all() {
        let words = path.strip_prefix(sources::root()).unwrap().components();
        let words: Vec<&str> = words.filter_map(|word| word.as_os_str().to_str()).collect();
        let apart = |word: &&str| WITHOUT.contains(word) || ["sim.rs", "examples"].contains(word);
        if sources::is_test(&path) || words.iter().any(apart) {
            continue;
        }
        for (kind, told) in made_in(&fs::read_to_string(&path).unwrap()) {
            all.entry(kind).or_default().insert(told);
        }
    }
    all
}

/// The variants of an enum, as rustfmt lays them out.
fn variants(path: &Path, name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap();
    let body = text.split(&format!("pub enum {name} {{")).nth(1).unwrap().split("\n}").next().unwrap();
    let lines = body.lines().map(str::trim).filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    lines.map(|line| line.chars().take_while(|c| c.is_alphanumeric()).collect()).collect()
}

const BEGIN: &str = "<!-- messages: ";
const END: &str = "<!-- end of messages -->";

/// The page with the messages of each kind in their place.
fn filled(page: &str, all: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut pieces = page.split(BEGIN);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let kind = piece.split(' ').next().unwrap_or_default();
        let behind = piece.split_once(END).map_or("", |(_, behind)| behind);
        let lines =
            all.get(kind).into_iter().flatten().map(|told| format!("* `{}`\n", told.replace('`', "'")));
        let lines: String = lines.collect();
        out += &format!("{BEGIN}{kind} -->\n{lines}{END}{behind}");
    }
    out
}

#[test]
fn the_page_of_errors_is_that_of_the_sources() {
    let path = sources::root().join("docs/errors.md");
    let page = fs::read_to_string(&path).unwrap();
    let all = all();
    let filled = filled(&page, &all);
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        fs::write(&path, &filled).unwrap();
    } else {
        assert!(
            page == filled,
            "docs/errors.md is not that of the sources: run this test with LAVASTORE_BLESS=1"
        );
    }
    let mut kinds = variants(&sources::root().join("crates/base/src/error.rs"), "ErrorKind");
    kinds.extend(all.into_keys());
    for kind in kinds {
        assert!(page.contains(&format!("{BEGIN}{kind} -->")), "docs/errors.md has no section for {kind}");
    }
    for section in page.split("\n## ").skip(1).filter(|section| section.contains(BEGIN)) {
        let name = section.lines().next().unwrap_or_default();
        assert!(section.contains("\n**Cause.** ") && section.contains("\n**Way out.** "), "{name}");
    }
}

/// No kind is only talked about: some test meets an error of it.
#[test]
fn every_kind_of_error_is_met_by_a_test() {
    let tests = sources::all().into_iter().filter(|path| sources::is_test(path));
    let texts: String = tests.map(|path| fs::read_to_string(path).unwrap()).collect();
    for kind in variants(&sources::root().join("crates/base/src/error.rs"), "ErrorKind") {
        assert!(texts.contains(&format!("ErrorKind::{kind}")), "no test meets an error of the kind {kind}");
    }
}

#[test]
fn messages_are_found_where_errors_are_made() {
    let text = r#"
        fn a() {
            // Error::invalid("a comment")
            Error::invalid(format!("option {name}: \"{}\"", 1));
            let why = format!(
                "two \
                 lines {n}"
            );
            Err(Error::new(
                ErrorKind::TooLarge,
                why,
            ))
        }
        #[cfg(test)]
        fn b() { Error::corruption("a test") }
    "#;
    let found = made_in(text);
    let expected = [("InvalidArgument", "option {name}: \"{}\""), ("TooLarge", "two lines {n}")];
    assert_eq!(found, expected.map(|(kind, told)| (kind.to_owned(), told.to_owned())).into());
    assert_eq!(
        filled("a <!-- messages: X -->\nold\n<!-- end of messages --> b", &BTreeMap::new()),
        "a <!-- messages: X -->\n<!-- end of messages --> b"
    );
}
