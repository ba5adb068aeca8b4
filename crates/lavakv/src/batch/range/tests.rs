use super::*;
use datadriven::TestCase;

/// Bytes of a script: text, `..` for the longest key there is, and the last byte of a key in hex behind a slash (`a/ff`).
fn key(text: &str) -> Vec<u8> {
    match text.split_once('/') {
        None if text == ".." => LAST_KEY.to_vec(),
        None => text.as_bytes().to_vec(),
        Some((start, byte)) => [start.as_bytes(), &[u8::from_str_radix(byte, 16).unwrap()]].concat(),
    }
}

fn shown(key: &[u8]) -> String {
    if key == LAST_KEY { "..".into() } else { key.escape_ascii().to_string() }
}

/// A bound of a range: `[a` or `a]` with the key, `(a` or `a)` without it, `-` for none.
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

#[test]
fn no_key_lies_between_a_long_key_and_its_successor() {
    assert_eq!(successor(b""), Some(vec![0]));
    let mut long = vec![b'a'; KEY_LEN_MAX];
    assert_eq!(successor(&long).unwrap().last(), Some(&b'b'));
    long[10..].fill(0xff);
    assert_eq!(successor(&long), Some(b"aaaaaaaaab".to_vec()));
    assert_eq!(successor(&[7; KEY_LEN_MAX + 1]).unwrap().len(), KEY_LEN_MAX + 2);
}
