//! `docs/errors.md` lists every error of the sources under its kind, with cause and remedy, and
//! tests produce each one.
//!
//! The first paragraph of each section is written by hand. The messages come from the places in the
//! sources that make errors (`places`). A list of paragraphs (`causes.txt`) assigns cause and
//! remedy by kind, folder and text. `LAVASTORE_BLESS=1 cargo test -p lavastore --test structure
//! errors` rewrites the page.
//!
//! Test runs record the errors that they produce: with `LAVASTORE_ERRORS_MADE=FILE` (see
//! `base::error::made`) a run of all tests writes a record. `every_error_is_produced_by_a_test`
//! compares it with the page. `unmade.txt` lists the errors that no test produces, with reasons; it
//! may only get shorter.

mod causes;
mod places;
mod record;
mod text;

use crate::sources;
use causes::Paragraph;
use places::Place;
use record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A message and its kind.
type Message = (String, String);

/// Maximum number of messages without a test; lower it when a test covers one.
const UNMADE_MAX: usize = 18;

fn all_places() -> Vec<Place> {
    let (places, unknown) = places::all(&places::sources());
    assert!(unknown.is_empty(), "no message was found for errors that are made here: {unknown:#?}");
    places
}

fn message(place: &Place) -> Message {
    (place.kind.clone(), place.message.clone())
}

/// Returns the variants of an enum, as laid out by rustfmt.
fn variants(path: &Path, name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap();
    let body = text.split(&format!("pub enum {name} {{")).nth(1).unwrap().split("\n}").next().unwrap();
    let lines = body.lines().map(str::trim).filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    lines.map(|line| line.chars().take_while(|c| c.is_alphanumeric()).collect()).collect()
}

const BEGIN: &str = "<!-- messages: ";
const END: &str = "<!-- end of messages -->";

/// Formats the messages of a kind under their cause and remedy.
fn listed(kind: &str, places: &[Place], paragraphs: &[Paragraph]) -> String {
    let mut by_paragraph: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    for place in places.iter().filter(|place| place.kind == kind) {
        let nth = paragraphs.iter().position(|paragraph| paragraph.holds_for(place));
        let nth = nth.unwrap_or_else(|| panic!("errors/causes.txt has no paragraph for {place:?}"));
        by_paragraph.entry(nth).or_default().insert(&place.message);
    }
    let lines = by_paragraph.into_iter().map(|(nth, messages)| {
        let Paragraph { cause, way_out, .. } = &paragraphs[nth];
        let messages = messages.iter().map(|told| format!("* `{}`\n", told.replace('`', "'")));
        format!("\nCause: {cause}\n\nWay out: {way_out}\n\n{}", messages.collect::<String>())
    });
    lines.collect()
}

/// Inserts the messages of each kind into the page.
fn filled(page: &str, places: &[Place], paragraphs: &[Paragraph]) -> String {
    let mut pieces = page.split(BEGIN);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let kind = piece.split(' ').next().unwrap_or_default();
        let behind = piece.split_once(END).map_or("", |(_, behind)| behind);
        out += &format!("{BEGIN}{kind} -->\n{}{END}{behind}", listed(kind, places, paragraphs));
    }
    out
}

#[test]
fn error_page_matches_the_sources() {
    let path = sources::root().join("docs/errors.md");
    let page = fs::read_to_string(&path).unwrap();
    let (places, paragraphs) = (all_places(), causes::all());
    let filled = filled(&page, &places, &paragraphs);
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        fs::write(&path, &filled).unwrap();
    } else {
        assert!(
            page == filled,
            "docs/errors.md is not that of the sources: run this test with LAVASTORE_BLESS=1"
        );
    }
    let source = sources::root().join("crates/base/src/error.rs");
    let mut kinds = variants(&source, "ErrorKind");
    let source = fs::read_to_string(source).unwrap();
    for kind in &kinds {
        assert!(source.contains(&format!("        ErrorKind::{kind},\n")), "ErrorKind::ALL lacks {kind}");
    }
    kinds.extend(places.into_iter().map(|place| place.kind));
    for kind in kinds {
        assert!(page.contains(&format!("{BEGIN}{kind} -->")), "docs/errors.md has no section for {kind}");
    }
    for section in page.split("\n## ").skip(1).filter(|section| section.contains(BEGIN)) {
        let name = section.lines().next().unwrap_or_default();
        assert!(section.contains("\n**Cause.** ") && section.contains("\n**Way out.** "), "{name}");
    }
}

#[test]
fn every_error_has_a_cause_and_every_cause_an_error() {
    let (places, paragraphs) = (all_places(), causes::all());
    let mut used = vec![false; paragraphs.len()];
    for place in &places {
        match paragraphs.iter().position(|paragraph| paragraph.holds_for(place)) {
            Some(nth) => used[nth] = true,
            None => panic!("errors/causes.txt has no paragraph for {place:?}"),
        }
    }
    for (paragraph, used) in paragraphs.iter().zip(used) {
        assert!(used, "errors/causes.txt: no message takes the paragraph: {}", paragraph.cause);
    }
}

/// Some test checks for each kind of error.
#[test]
fn every_kind_of_error_is_met_by_a_test() {
    let tests = sources::all().into_iter().filter(|path| sources::is_test(path));
    let texts: String = tests.map(|path| fs::read_to_string(path).unwrap()).collect();
    for kind in variants(&sources::root().join("crates/base/src/error.rs"), "ErrorKind") {
        assert!(texts.contains(&format!("ErrorKind::{kind}")), "no test meets an error of the kind {kind}");
    }
}

/// Parses `unmade.txt`: lines of kind and message; the first line of a paragraph gives the reason
/// for all its errors.
fn unmade() -> BTreeSet<Message> {
    let text = include_str!("errors/unmade.txt");
    let lines = text.split("\n\n").skip(1).flat_map(|paragraph| paragraph.trim().lines().skip(1));
    let split = |line: &str| line.split_once(": ").map(|(kind, told)| (kind.to_owned(), told.to_owned()));
    lines.map(|line| split(line).unwrap_or_else(|| panic!("unmade.txt: {line}"))).collect()
}

#[test]
fn list_of_untested_errors_only_shrinks() {
    let (all, unmade): (BTreeSet<Message>, _) = (all_places().iter().map(message).collect(), unmade());
    let gone: Vec<_> = unmade.difference(&all).collect();
    assert!(gone.is_empty(), "errors/unmade.txt: the sources make no such errors: {gone:#?}");
    assert!(unmade.len() <= UNMADE_MAX, "errors/unmade.txt gets shorter only: write a test for what is new");
    assert!(unmade.len() >= UNMADE_MAX, "lower UNMADE_MAX to {}", unmade.len());
}

/// `.ci/run` runs this test after all others. Errors that the machine cannot produce are reported
/// but are no failure unless `LAVASTORE_ERRORS_MUST_BE_MADE` is 1: some need the right to mount, or
/// root.
#[test]
#[ignore = "needs the record of a run of all tests, in the file that LAVASTORE_ERRORS_MADE names"]
fn every_error_is_produced_by_a_test() {
    let path = std::env::var_os("LAVASTORE_ERRORS_MADE").expect("LAVASTORE_ERRORS_MADE names a record");
    let record = Record::parse(&fs::read_to_string(path).unwrap());
    let places = all_places();
    let made: BTreeSet<Message> = places.iter().filter(|place| record.has(place)).map(message).collect();
    let all: BTreeSet<Message> = places.iter().map(message).collect();
    println!("{} of {} errors were produced", made.len(), all.len());
    let unmade = unmade();
    // Some errors occur by chance.
    let listed: Vec<_> = unmade.intersection(&made).collect();
    println!("errors/unmade.txt has {} of them, which may be taken off: {listed:#?}", listed.len());
    let missing: Vec<_> = all.iter().filter(|m| !made.contains(*m) && !unmade.contains(*m)).collect();
    if !missing.is_empty() {
        println!("{} errors were produced by no test of this run: {missing:#?}", missing.len());
    }
    let must = std::env::var("LAVASTORE_ERRORS_MUST_BE_MADE").is_ok_and(|value| value == "1");
    assert!(!must || missing.is_empty(), "{} errors were produced by no test", missing.len());
    // An empty record is no run of the tests.
    assert!(
        made.len() > all.len() / 2,
        "{} of {} errors: is this the record of all tests?",
        made.len(),
        all.len()
    );
}

mod parts {
    use super::*;
    use places::Source;

    fn found(text: &str) -> Vec<Message> {
        let (places, unknown) = places::all(&[Source::new("crates/a/src/b.rs", text)]);
        assert!(unknown.is_empty(), "{unknown:?}");
        places.iter().map(message).collect()
    }

    fn messages(expected: &[(&str, &str)]) -> Vec<Message> {
        expected.iter().map(|(kind, told)| ((*kind).to_owned(), (*told).to_owned())).collect()
    }

    #[test]
    fn error_messages_are_extracted_from_constructors() {
        let text = r#"
            #[cfg(test)]
            fn a_test() { Error::corruption("a test") }
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
            mod tests { fn b() { Error::corruption("a test") } }
        "#;
        let expected = [("InvalidArgument", "option {name}: \"{}\""), ("TooLarge", "two lines {n}")];
        assert_eq!(found(text), messages(&expected));
    }

    #[test]
    fn helper_functions_inherit_messages_of_their_callers() {
        let text = r#"
            const WHAT: &str = "by a constant";
            fn bad(what: &str) -> Error {
                Error::corruption(format!("block: {what}"))
            }
            fn a() {
                bad(if n { "one" } else { "two" });
                let fault = |why: &str| Err(Error::invalid(why));
                fault("three")
            }
            fn b() {
                bad(WHAT)
            }
        "#;
        let expected = [
            ("Corruption", "block: by a constant"),
            ("Corruption", "block: one"),
            ("Corruption", "block: two"),
            ("InvalidArgument", "three"),
        ];
        assert_eq!(found(text), messages(&expected));
    }

    #[test]
    fn generated_text_replaces_the_marked_section() {
        let page = "a <!-- messages: X -->\nold\n<!-- end of messages --> b";
        assert_eq!(filled(page, &[], &[]), "a <!-- messages: X -->\n<!-- end of messages --> b");
    }
}
