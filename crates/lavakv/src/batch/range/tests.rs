use super::*;
use datadriven::TestCase;

/// Parses a key of a script: text, `..` for the largest possible key, a last byte in hex after a
/// slash (`a/ff`). The parts of a long key are separated by `+` and have repeat counts:
/// `a*10+/ff*20`.
fn key(text: &str) -> Vec<u8> {
    let part = |text: &str| match text.split_once('/') {
        None => text.as_bytes().to_vec(),
        Some((start, byte)) => [start.as_bytes(), &[u8::from_str_radix(byte, 16).unwrap()]].concat(),
    };
    let repeated = |text: &str| match text.split_once('*') {
        None => part(text),
        Some((text, times)) => part(text).repeat(times.parse().unwrap()),
    };
    match text {
        ".." => LAST_KEY.to_vec(),
        text => text.split('+').flat_map(repeated).collect(),
    }
}

/// Formats a key; for a long key, runs of bytes with their lengths.
fn shown(key: &[u8]) -> String {
    match key {
        _ if key == LAST_KEY => "..".into(),
        _ if key.len() < 100 => key.escape_ascii().to_string(),
        _ => {
            let run = |run: &[u8]| format!("{}*{}", run[..1].escape_ascii(), run.len());
            key.chunk_by(|a, b| a == b).map(run).collect::<Vec<_>>().join("+")
        }
    }
}

/// Parses a bound of a range: `[a` or `a]` inclusive, `(a` or `a)` exclusive, `-` unbounded.
fn bound(text: &str) -> Bound<Vec<u8>> {
    let name = text.trim_matches(['[', ']', '(', ')']);
    match text {
        "-" => Bound::Unbounded,
        text if text.contains(['[', ']']) => Bound::Included(key(name)),
        _ => Bound::Excluded(key(name)),
    }
}

fn run(case: &mut TestCase) -> Result<String, String> {
    let line = |line: &str| match &*case.directive {
        "successor" => {
            let after = successor(&key(line)).map_or("none".into(), |key| shown(&key));
            Ok(format!("{line}: {after}\n"))
        }
        "range" => {
            let (start, end) = line.split_once(' ').ok_or("a range has two bounds")?;
            let (start, end) = (bound(start), bound(end));
            let slice = |bound: &Bound<Vec<u8>>| bound.as_ref().map(|key| key.clone());
            let (start, end) = (slice(&start), slice(&end));
            let of = Deletion::of((start.as_ref().map(|k| &k[..]), end.as_ref().map(|k| &k[..])));
            Ok(of.map_or(format!("{line}: nothing\n"), |deletion| {
                let last = if deletion.last.is_some() { ", and the last key" } else { "" };
                format!("{line}: from \"{}\" to \"{}\"{last}\n", shown(&deletion.start), shown(&deletion.end))
            }))
        }
        other => Err(format!("no command is called {other}")),
    };
    case.input.lines().map(line).collect()
}

#[test]
fn scripts() {
    datadriven::walk("src/batch/range/scripts", |file| file.run(run));
}
