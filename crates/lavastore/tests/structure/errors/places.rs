//! The places in the sources that make errors, with the messages that each can make.
//!
//! This is no Rust parser: it knows the style of this project. A message is the literal at the
//! place, or that of a variable, a constant or a `match` before it. Where a function or a closure
//! makes errors for its callers, the message is their argument.

use super::text::{arguments, blanked, line_of, literal, literals, statement, without_tests, words};
use crate::sources;
use std::fs;
use std::ops::Range;

/// Constructors of errors, and the kind where it is not an argument.
const MAKERS: [(&str, &str); 7] = [
    ("Error::corruption(", "Corruption"),
    ("Error::invalid(", "InvalidArgument"),
    ("Error::not_found(", "NotFound"),
    ("Error::from_io(", "Io"),
    ("Error::new(", ""),
    ("output::usage(", "Usage"),
    ("failure(", ""),
];

/// The same for `lava`, where many errors are a boxed text, and for texts that are prepended to a
/// lower error. A place without a text only passes an error on.
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

/// Maximum number of substitutions for a placeholder; with more, the placeholder stays.
const PARTS_MAX: usize = 40;

/// Path of the command line program.
pub const LAVA: &str = "apps/lava/src/";

/// Crates whose errors only tests encounter.
const WITHOUT: [&str; 4] = ["torture", "fuzz", "bench", "sim"];

/// A place in the sources that makes an error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub kind: String,
    /// Placeholders are written as `{...}`.
    pub message: String,
    /// Relative to the root of the sources.
    pub file: String,
    pub line: usize,
}

/// Code of a file.
pub struct Source {
    pub file: String,
    /// Without comments and test code; all other characters keep their positions.
    code: String,
}

impl Source {
    pub fn new(file: &str, text: &str) -> Source {
        Source { file: file.to_owned(), code: without_tests(blanked(text)) }
    }
}

/// A function or closure that makes errors from its arguments.
struct Helper {
    name: String,
    /// Index of the message argument.
    nth: usize,
    /// Visibility: this file, this crate, or all crates.
    seen: Seen,
    /// Range of the file in which it can be called.
    within: Range<usize>,
}

/// Visibility of a function.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    File,
    Crate,
    All,
}

/// Returns all sources of the programs and libraries for users.
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

/// Returns every place that makes errors, and the places that could not be parsed.
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

/// Finds the errors that a constructor makes in a file.
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

/// Returns the possible messages of an expression that begins at `at`.
fn messages(all: &[Source], source: &Source, at: usize, expression: &str, depth: usize) -> Vec<String> {
    let expression = expression.trim().trim_start_matches('&');
    // The value of a closure.
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

/// Substitutes those placeholders of a message whose values are texts in the sources.
fn filled(all: &[Source], source: &Source, at: usize, text: String, depth: usize) -> Vec<String> {
    let mut out = vec![text.clone()];
    for name in words(&text) {
        let parts = of_name(all, source, at, &name, depth + 1);
        let hole = format!("{{{name}}}");
        // The expression that sets a message may end in the error itself.
        let is_itself = parts.contains(&text) || parts.iter().any(|part| part.contains(&hole));
        if !parts.is_empty() && !is_itself && parts.len() * out.len() <= PARTS_MAX {
            out = out.iter().flat_map(|text| parts.iter().map(|part| text.replace(&hole, part))).collect();
        }
    }
    out
}

/// Returns the possible values of a name used at `at`.
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

/// Returns the start of the function around `at`.
fn function_start(code: &str, at: usize) -> usize {
    let starts = ["\nfn ", " fn "];
    starts.iter().filter_map(|start| code[..at].rfind(start)).max().unwrap_or(0)
}

/// Returns the start of the next function.
fn function_end(code: &str, at: usize) -> usize {
    ["\nfn ", " fn "]
        .iter()
        .filter_map(|start| code[at..].find(start))
        .min()
        .map_or(code.len(), |end| at + end)
}

/// Returns the function, or the closure in it, that has `name` among its parameters.
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
    // A public constructor of errors from any displayable value serves other crates too.
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
