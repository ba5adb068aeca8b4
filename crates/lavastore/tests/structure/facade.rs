//! Documentation of the facade: every public item has an example, and every fallible call has an `#
//! Errors` section.
//!
//! `cargo test --doc` runs the examples. This test checks that they exist: for each item of
//! `crates/lavastore/src`, and for each re-export of an engine type (with the example at the
//! re-export). Methods of the re-exported types need an `# Errors` section wherever they are
//! defined.

use crate::sources;
use std::collections::BTreeSet;
use std::fs;

/// Exceptions, with the reason.
const WITHOUT_EXAMPLE: &[(&str, &str)] = &[
    ("pub use lavafs", "a crate of its own, with examples of its own"),
    ("pub trait Bounds", "what seals `KeyRange`: nobody outside can name it"),
];

/// Prefixes of public items.
const ITEMS: [&str; 8] = [
    "pub fn ",
    "pub struct ",
    "pub enum ",
    "pub trait ",
    "pub const ",
    "pub static ",
    "pub mod ",
    "pub use ",
];

#[test]
fn public_items_have_examples_and_error_sections() {
    let mut files = Vec::new();
    let src = sources::root().join("crates/lavastore/src");
    sources::below(&src, &mut files);
    let (mut wrong, mut items, mut exported) = (Vec::new(), 0, BTreeSet::new());
    for path in &files {
        let text = fs::read_to_string(path).unwrap();
        let found = public_items(&text);
        items += found.len();
        let name = path.strip_prefix(&src).unwrap().display();
        wrong.extend(found.iter().filter_map(fault).map(|why| format!("{name}: {why}")));
        exported.extend(found.iter().flat_map(|item| re_exported(&item.line)));
    }
    assert!(items > 100 && exported.len() > 30, "the facade was found: {items} items, {exported:?}");
    // Methods of types that are defined in lower crates.
    for (_, dir) in sources::members().iter().filter(|(name, _)| name != "lavastore") {
        let mut files = Vec::new();
        sources::below(&dir.join("src"), &mut files);
        for path in files.iter().filter(|path| !sources::is_test(path)) {
            let text = fs::read_to_string(path).unwrap();
            for block in impls(&text, &exported) {
                let silent = public_items(block).into_iter().filter(is_silent);
                wrong.extend(silent.map(|item| format!("{}: no `# Errors`: {}", path.display(), item.line)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A public item: its comment, and its first line or signature.
struct Item {
    docs: String,
    line: String,
    hidden: bool,
}

fn public_items(text: &str) -> Vec<Item> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut out = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !ITEMS.iter().any(|item| line.starts_with(item)) {
            continue;
        }
        let above = lines[..at].iter().rev().take_while(|l| l.starts_with("///") || l.starts_with('#'));
        let above: Vec<&str> = above.copied().collect();
        let docs = above.iter().rev().filter(|l| l.starts_with("///"));
        let ends = |l: &&&str| l.ends_with('{') || l.ends_with(';');
        let until = at + lines[at..].iter().position(|l| ends(&l)).unwrap_or(0);
        out.push(Item {
            docs: docs.map(|l| format!("{l}\n")).collect(),
            line: lines[at..=until].join(" "),
            hidden: above.contains(&"#[doc(hidden)]"),
        });
    }
    out
}

/// Returns the violation of an item of the facade, if any.
fn fault(item: &Item) -> Option<String> {
    let excused = WITHOUT_EXAMPLE.iter().any(|(line, _)| item.line.starts_with(line));
    // A module is documented at its top, and re-exports from the facade itself at their definition.
    let is_elsewhere = item.line.starts_with("pub mod ")
        || (item.line.starts_with("pub use ") && !item.line.starts_with("pub use lava"))
        || item.line.starts_with("pub use lavakv::sim::")
        || item.line.starts_with("pub use lavakv::dump::");
    if !item.hidden && !excused && !is_elsewhere && !item.docs.contains("```") {
        return Some(format!("no example: {}", item.line));
    }
    is_silent(item).then(|| format!("no `# Errors`: {}", item.line))
}

/// Returns true for a fallible function without an `# Errors` section.
fn is_silent(item: &Item) -> bool {
    let fails = item.line.starts_with("pub fn ")
        && item.line.split_once("->").is_some_and(|(_, result)| result.trim_start().starts_with("Result<"));
    fails && !item.hidden && !item.docs.contains("# Errors")
}

/// Returns the engine names that a line re-exports.
fn re_exported(line: &str) -> Vec<String> {
    let engine =
        ["pub use lavakv::", "pub use lavalog::"].iter().find_map(|prefix| line.strip_prefix(prefix));
    let Some(names) = engine else { return Vec::new() };
    let names = names.trim_end_matches(';').trim_matches(['{', '}']);
    let names = names
        .split(',')
        .map(|name| name.split(" as ").next().unwrap_or(name).trim())
        .filter(|name| name.starts_with(char::is_uppercase));
    names.map(str::to_owned).collect()
}

/// Returns the `impl Name { .. }` blocks of these names.
fn impls<'a>(text: &'a str, names: &BTreeSet<String>) -> Vec<&'a str> {
    let begins = text.match_indices("\nimpl ").filter_map(|(at, _)| {
        let block = &text[at + 1..];
        let name = block["impl ".len()..].split([' ', '<', '{']).next()?;
        let end = block.find("\n}").unwrap_or(block.len());
        names.contains(name).then_some(&block[..end])
    });
    begins.collect()
}

#[test]
fn missing_examples_and_error_sections_are_found() {
    let judged = |text: &str| public_items(text).iter().filter_map(fault).collect::<Vec<_>>();
    let good = "/// Does.\n///\n/// ```\n/// does();\n/// ```\n///\n/// # Errors\n/// Never.\n#[inline]\npub fn does() -> Result<()> {";
    assert!(judged(good).is_empty());
    assert!(judged(&good.replace("# Errors", "Errors"))[0].starts_with("no `# Errors`: pub fn does()"));
    assert!(judged(&good.replace("```", "``"))[0].starts_with("no example"));
    let wrapped = "/// ```\n/// ```\npub fn does(\n    &self,\n) -> Result<()> {";
    assert!(judged(wrapped)[0].starts_with("no `# Errors`"), "the signature may have several lines");
    assert_eq!(judged("/// A type.\npub struct Thing {\n    /// A field.\n    pub field: u8,\n}").len(), 1);
    assert!(judged("#[doc(hidden)]\npub fn engine(&self) -> &Engine {").is_empty());
    assert!(judged("pub use db::Db;\npub use lavafs;").is_empty());
    assert_eq!(judged("/// Nothing.\npub use lavakv::{\n    A, B,\n};").len(), 1);
    assert_eq!(re_exported("pub use lavakv::{ Options, dump };"), ["Options"]);
    assert_eq!(re_exported("pub use lavalog::Options as LogOptions;"), ["Options"]);
    let text = "\nimpl Options {\n    /// Checks.\n    pub fn check(&self) -> Result<()> {\n    }\n}\nimpl Other {\n    pub fn x() -> Result<()> {\n    }\n}";
    let blocks = impls(text, &BTreeSet::from(["Options".to_owned()]));
    assert_eq!(blocks.iter().flat_map(|block| public_items(block)).filter(is_silent).count(), 1);
}
