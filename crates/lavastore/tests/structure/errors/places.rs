//! The places in the sources that make errors, with the messages that each can make.
//!
//! No parser of Rust: it knows what this project writes. A message is the literal at the place; or that of a variable, a
//! constant or a `match` before it; or, where a function or a closure makes errors for others, what its callers hand it.

use super::text::{arguments, blanked, line_of, literal, literals, statement, without_tests, words};
use crate::sources;
use std::fs;
use std::ops::Range;

/// What an error is made by, and its kind where that is not an argument.
const MAKERS: [(&str, &str); 7] = [
    ("Error::corruption(", "Corruption"),
    ("Error::invalid(", "InvalidArgument"),
    ("Error::not_found(", "NotFound"),
    ("Error::from_io(", "Io"),
    ("Error::new(", ""),
    ("output::usage(", "Usage"),
    ("failure(", ""),
];

/// The same in `lava`, where many an error is a text in a box, and what stands before the message of an error from below. Where
/// no text is found, one only hands an error on.
const PERHAPS: [(&str, &str, &str); 8] = [
    ("", ".context(", "Before"),
    (LAVA, "Err(", "Failed"),
    (LAVA, "ok_or(", "Failed"),
    (LAVA, "ok_or_else(", "Failed"),
    (LAVA, "map_err(", "Failed"),
    (LAVA, "about(", "Failed"),
    (LAVA, "io::Error::other(", "Failed"),
    (LAVA, "io::Error::new(io::ErrorKind::InvalidData", "Failed"),
];

/// A hole that more texts fit stays one.
const PARTS_MAX: usize = 40;

/// Where the command line is.
pub const LAVA: &str = "apps/lava/src/";

/// Crates whose errors nobody meets but those who test.
const WITHOUT: [&str; 4] = ["torture", "fuzz", "bench", "sim"];

/// An error that somewhere is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub kind: String,
    /// With `{...}` for what is filled in.
    pub message: String,
    /// From the root of the sources.
    pub file: String,
    pub line: usize,
}

/// The code of a file.
pub struct Source {
    pub file: String,
    /// Without comments and without what is only for tests; every character where it was.
    code: String,
}

impl Source {
    pub fn new(file: &str, text: &str) -> Source {
        Source { file: file.to_owned(), code: without_tests(blanked(text)) }
    }
}

/// A function or closure that makes errors of what it is handed.
struct Helper {
    name: String,
    /// Which of its arguments.
    nth: usize,
    /// Who calls it: this file, this crate, or all.
    seen: Seen,
    /// Where in the file it can be called.
    within: Range<usize>,
}

/// How far a function is seen.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    File,
    Crate,
    All,
}

/// All sources of what users run.
pub fn sources() -> Vec<Source> {
    let mut out = Vec::new();
    for path in sources::all() {
        let shown = path.strip_prefix(sources::root()).unwrap().to_path_buf();
        let words: Vec<&str> = shown.components().filter_map(|word| word.as_os_str().to_str()).collect();
        let apart = |word: &&str| {
            WITHOUT.contains(word) || ["sim.rs", "examples"].contains(word) || word.ends_with("tests.rs")
        };
        if !sources::is_test(&path) && !words.iter().any(apart) {
            out.push(Source::new(shown.to_str().unwrap(), &fs::read_to_string(&path).unwrap()));
        }
    }
    out
}

/// Every place that makes errors, and what could not be understood.
pub fn all(sources: &[Source]) -> (Vec<Place>, Vec<String>) {
    let (mut places, mut unknown) = (Vec::new(), Vec::new());
    for source in sources {
        for (maker, kind) in MAKERS {
            made_by(sources, source, maker, kind, &mut places, Some(&mut unknown));
        }
        for (_, maker, kind) in PERHAPS.iter().filter(|(below, ..)| source.file.starts_with(below)) {
            made_by(sources, source, maker, kind, &mut places, None);
        }
    }
    places.sort();
    places.dedup();
    (places, unknown)
}

/// What a maker makes in a file.
fn made_by(
    all: &[Source],
    source: &Source,
    maker: &str,
    kind: &str,
    places: &mut Vec<Place>,
    mut unknown: Option<&mut Vec<String>>,
) {
    let code = &source.code;
    for (at, _) in code.match_indices(maker) {
        let before = &code[..at];
        let is_longer =
            before.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !maker.starts_with('.');
        if is_longer || before.ends_with("fn ") || before.ends_with("io::") {
            continue;
        }
        let open = at + maker.find('(').unwrap_or(0);
        let arguments = arguments(code, open);
        let first = arguments.first().map_or("", |a| code[a.clone()].trim());
        let (kind, nth) = match kind {
            "" => (first.rsplit("::").next().unwrap_or(""), 1),
            kind => (kind, usize::from(first.contains("ErrorKind::"))),
        };
        let line = line_of(code, at);
        let of = |a: &Range<usize>| messages(all, source, a.start, &code[a.clone()], 0);
        let found = arguments.get(nth).map(of).unwrap_or_default();
        if let (true, Some(unknown)) = (found.is_empty(), &mut unknown) {
            unknown.push(format!("{}:{line}", source.file));
        }
        for message in found {
            places.push(Place { kind: kind.to_owned(), message, file: source.file.clone(), line });
        }
    }
}

/// What an expression that begins at `at` may be.
fn messages(all: &[Source], source: &Source, at: usize, expression: &str, depth: usize) -> Vec<String> {
    let expression = expression.trim().trim_start_matches('&');
    // What a closure gives.
    let closure = expression.strip_prefix('|').and_then(|rest| rest.split_once('|'));
    let expression = closure.map_or(expression, |(_, body)| body.trim());
    if depth > 4 {
        return Vec::new();
    }
    let found = if let Some(text) =
        expression.strip_prefix("format!(").or_else(|| expression.strip_prefix("format_args!("))
    {
        literal(text).into_iter().collect()
    } else if let Some(text) = literal(expression) {
        vec![text]
    } else if expression.starts_with("match ") || expression.starts_with("if ") {
        literals(expression)
    } else {
        let name: String = expression.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        of_name(all, source, at, &name, depth)
    };
    found.into_iter().flat_map(|text| filled(all, source, at, text, depth)).collect()
}

/// A message with those of its parts filled in that are texts of the sources themselves.
fn filled(all: &[Source], source: &Source, at: usize, text: String, depth: usize) -> Vec<String> {
    let mut out = vec![text.clone()];
    for name in words(&text) {
        let parts = of_name(all, source, at, &name, depth + 1);
        let hole = format!("{{{name}}}");
        // What a message is set by may end in the error that is made.
        let is_itself = parts.contains(&text) || parts.iter().any(|part| part.contains(&hole));
        if !parts.is_empty() && !is_itself && parts.len() * out.len() <= PARTS_MAX {
            out = out.iter().flat_map(|text| parts.iter().map(|part| text.replace(&hole, part))).collect();
        }
    }
    out
}

/// What a name may be that is used at `at`.
fn of_name(all: &[Source], source: &Source, at: usize, name: &str, depth: usize) -> Vec<String> {
    if name.is_empty() || depth > 4 {
        return Vec::new();
    }
    let code = &source.code;
    if name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
        let set = code.find(&format!("const {name}: &str ="));
        return set.and_then(|set| literals(statement(code, set)).into_iter().next()).into_iter().collect();
    }
    let from = function_start(code, at);
    let body = &code[from..at];
    let set =
        [" =", ": &str =", ": String ="].iter().filter_map(|is| body.rfind(&format!("let {name}{is}"))).max();
    if let Some(set) = set {
        let set = from + set;
        let whole = statement(code, set);
        let value = whole.find(" =").map_or("", |eq| &whole[eq + 2..]);
        return messages(all, source, set, value, depth + 1);
    }
    let Some(helper) = helper(code, from, at, name) else { return Vec::new() };
    let mut out = Vec::new();
    let krate = |file: &str| file.split("/src/").next().unwrap_or_default().to_owned();
    let (own, at) = (krate(&source.file), all.iter());
    let name = format!("{}::", own.rsplit('/').next().unwrap_or_default());
    let callers = at.filter(|other| {
        other.file == source.file
            || helper.seen != Seen::File && krate(&other.file) == own
            || helper.seen == Seen::All && other.code.contains(&name)
    });
    for caller in callers {
        for (call, _) in caller.code.match_indices(&format!("{}(", helper.name)) {
            let before = &caller.code[..call];
            let is_out = caller.file == source.file && !helper.within.contains(&call);
            if is_out
                || before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
                || before.ends_with("fn ")
            {
                continue;
            }
            let handed = arguments(&caller.code, call + helper.name.len());
            if let Some(a) = handed.get(helper.nth) {
                out.extend(messages(all, caller, a.start, &caller.code[a.clone()], depth + 1));
            }
        }
    }
    out.sort();
    out.dedup();
    out
}

/// Where the function begins that `at` lies in.
fn function_start(code: &str, at: usize) -> usize {
    let starts = ["\nfn ", " fn "];
    starts.iter().filter_map(|start| code[..at].rfind(start)).max().unwrap_or(0)
}

/// Where the next one begins.
fn function_end(code: &str, at: usize) -> usize {
    ["\nfn ", " fn "]
        .iter()
        .filter_map(|start| code[at..].find(start))
        .min()
        .map_or(code.len(), |end| at + end)
}

/// The function, or the closure in it, that has `name` among its parameters.
fn helper(code: &str, from: usize, at: usize, name: &str) -> Option<Helper> {
    let typed = |parameter: &str| {
        let (own, kind) = parameter.split_once(':').unwrap_or((parameter, ""));
        let is_text =
            kind.is_empty() || ["&str", "String", "Display", "str"].iter().any(|t| kind.contains(t));
        own.trim() == name && is_text
    };
    // A closure: `let bad = |why: &str| ...`.
    let body = &code[from..at];
    for (start, _) in body.match_indices(" = |").collect::<Vec<_>>().into_iter().rev() {
        let closure = body[..start].rsplit("let ").next().unwrap_or_default().to_owned();
        let parameters: Vec<&str> =
            body[start + 4..].split('|').next().unwrap_or_default().split(',').collect();
        let is_name = closure.chars().all(|c| c.is_alphanumeric() || c == '_');
        if let (true, Some(nth)) = (is_name, parameters.iter().position(|p| typed(p))) {
            return Some(Helper {
                name: closure,
                nth,
                seen: Seen::File,
                within: from..function_end(code, at),
            });
        }
    }
    let head = &code[from..];
    let open = head.find('(')?;
    let called = head[..open].trim_start().strip_prefix("fn ")?.split('<').next()?.to_owned();
    let parameters = arguments(code, from + open);
    let parameters = parameters.iter().map(|p| code[p.clone()].trim()).filter(|p| !p.ends_with("self"));
    let (nth, parameter) = parameters.enumerate().find(|(_, p)| typed(p))?;
    // What makes errors only, of whatever is told, serves other crates too.
    let for_all = parameter.contains("Display");
    let line = code[..from + 1].rfind('\n').map_or(0, |at| at + 1);
    let head = code[line..].trim_start();
    let seen = match (head.starts_with("pub "), head.starts_with("pub(")) {
        (true, _) if for_all => Seen::All,
        (true, _) | (_, true) => Seen::Crate,
        _ => Seen::File,
    };
    Some(Helper { name: called, nth, seen, within: 0..code.len() })
}
