//! Lexical helpers for source text.

use std::ops::Range;

/// Returns the text with comments and character literals blanked; all other characters keep their
/// positions.
pub fn blanked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let (mut at, mut quoted) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'/' if !quoted && bytes.get(at + 1) == Some(&b'/') => {
                while bytes.get(at).is_some_and(|&b| b != b'\n') {
                    out[at] = b' ';
                    at += 1;
                }
                continue;
            }
            b'\'' if !quoted => {
                let len = if bytes.get(at + 1) == Some(&b'\\') { 3 } else { 2 };
                if bytes.get(at + len) == Some(&b'\'') {
                    out[at + 1..at + len].fill(b' ');
                    at += len;
                }
            }
            _ => {}
        }
        at += 1;
    }
    String::from_utf8(out).unwrap()
}

/// Parses the string literal at the beginning of some code.
pub fn literal(code: &str) -> Option<String> {
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

/// Returns all string literals in some code.
pub fn literals(code: &str) -> Vec<String> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(start) = code[at..].find('"') {
        let begin = at + start;
        let mut end = begin + 1;
        let bytes = code.as_bytes();
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        out.extend(literal(&code[begin..]));
        at = (end + 1).min(code.len());
    }
    out
}

/// Returns the arguments between the parenthesis at `open` and its closing one.
pub fn arguments(code: &str, open: usize) -> Vec<Range<usize>> {
    let (mut commas, end) = list(code, open);
    commas.push(end);
    let starts = std::iter::once(open + 1).chain(commas.iter().map(|comma| comma + 1));
    let all = starts.zip(&commas).map(|(start, &end)| start.min(end)..end);
    all.filter(|a| !code[a.clone()].trim().is_empty()).collect()
}

/// Returns the commas between the bracket at `open` and its closing one, and the position of the
/// latter.
fn list(code: &str, open: usize) -> (Vec<usize>, usize) {
    let (mut commas, mut depth, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (i, c) in code[open..].char_indices().map(|(i, c)| (open + i, c)) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 1 => commas.push(i),
            _ => {}
        }
        if depth == 0 {
            return (commas, i);
        }
    }
    (commas, code.len())
}

/// Returns the names of the placeholders of a message.
pub fn words(message: &str) -> Vec<String> {
    let holes = message.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let names = holes.map(|(name, _)| name.to_owned());
    names.filter(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')).collect()
}

/// Returns the line of a position, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Returns the code without items that are only for tests.
pub fn without_tests(code: String) -> String {
    let mut out = code.clone().into_bytes();
    for (at, _) in code.match_indices("#[cfg(test)]").chain(code.match_indices("#[cfg(all(test")) {
        let line = at + code[at..].find('\n').unwrap_or(0);
        let item = statement(&code, line);
        let end = line + item.find('{').map_or(item.len(), |open| (list(item, open).1 + 1).min(item.len()));
        out[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    String::from_utf8(out).unwrap()
}

/// Returns the statement that begins at `at`, without its terminator.
pub fn statement(code: &str, at: usize) -> &str {
    let (mut depth, mut quoted, mut escaped) = (0_i32, false, false);
    for (i, c) in code[at..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ';' if depth == 0 => return &code[at..at + i],
            _ => {}
        }
        if depth < 0 {
            return &code[at..at + i];
        }
    }
    &code[at..]
}
