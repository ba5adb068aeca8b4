//! Files and functions are short, and files begin with a module comment.

use crate::sources;
use std::fs;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// Exceptions, with the reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

#[test]
fn files_are_short_and_open_with_a_description() {
    for path in sources::all() {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        assert!(lines < FILE_LINES_MAX, "{} has {lines} lines, at most {FILE_LINES_MAX}", path.display());
        let opens = sources::is_test(&path) || text.starts_with("//!");
        assert!(opens, "{} must open with what it is", path.display());
        let name = path.file_stem().unwrap().to_str().unwrap();
        for banned in ["manager", "util", "utils", "helper", "helpers"] {
            assert_ne!(name, banned, "{} has a name that says nothing", path.display());
        }
    }
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for path in sources::all() {
        let text = fs::read_to_string(&path).unwrap();
        let over = functions(&text).into_iter().filter(|f| f.lines > FUNCTION_LINES_MAX);
        let over = over.filter(|f| !LONG_FUNCTIONS.iter().any(|(name, _)| *name == f.name));
        long.extend(over.map(|f| format!("{}:{} {}: {} lines", path.display(), f.line, f.name, f.lines)));
    }
    assert!(long.is_empty(), "functions over {FUNCTION_LINES_MAX} lines:\n{}", long.join("\n"));
}

struct Function<'a> {
    name: &'a str,
    /// First line, from 1.
    line: usize,
    lines: usize,
}

/// Returns the functions with a body, as laid out by rustfmt: from the line with `fn` to the
/// closing brace at the same indentation.
fn functions(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = declared(line) else { continue };
        let head_ends = lines[start..].iter().find(|l| l.ends_with(['{', ';', '}']));
        if head_ends.is_none_or(|l| !l.ends_with('{')) {
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = lines[start..].iter().position(|l| *l == format!("{indent}}}")).unwrap_or(0);
        out.push(Function { name, line: start + 1, lines: end + 1 });
    }
    out
}

/// Returns the name of the function whose signature begins in this line.
fn declared(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    loop {
        let word = rest.split_whitespace().next()?;
        match word {
            "fn" => {
                let name = rest[2..].trim_start();
                return name.split(['(', '<']).next().filter(|name| !name.is_empty());
            }
            "const" | "async" | "unsafe" | "extern" | "pub" => {}
            // The name of an ABI.
            _ if word.starts_with('"') => {}
            // `pub(crate)`, `pub(in path)`
            _ if word.starts_with("pub(") => {
                rest = rest[rest.find(')')? + 1..].trim_start();
                continue;
            }
            _ => return None,
        }
        rest = rest[word.len()..].trim_start();
    }
}

#[test]
fn functions_of_every_visibility_are_measured() {
    for head in [
        "fn long()",
        "pub fn long()",
        "pub(crate) fn long()",
        "pub(super) fn long<T>()",
        "pub(in crate::a) fn long()",
        "pub(crate) const unsafe fn long()",
        "unsafe extern \"C\" fn long()",
        "pub async fn long()",
    ] {
        let text = format!("    {head} {{\n{}    }}\n", "        call();\n".repeat(69));
        let found = functions(&text);
        assert_eq!((found.len(), found[0].name, found[0].lines), (1, "long", 71), "{head}");
    }
}

#[test]
fn non_functions_are_not_measured() {
    for line in [
        "    fn long(&self);",
        "// fn long() {",
        "let f = |fn_of| {",
        "type F = fn(u8) -> u8;",
        "short_fn() {",
    ] {
        assert!(functions(&format!("{line}\n{}}}\n", "call();\n".repeat(99))).is_empty(), "{line}");
    }
}
