use super::*;
use datadriven::TestCase;
use std::error::Error;

/// Bytes of a word: text, `-` for none, `len=7` for that many.
fn bytes_of(word: &str) -> Vec<u8> {
    match word.strip_prefix("len=") {
        Some(len) => vec![1; len.parse().unwrap()],
        None if word == "-" => Vec::new(),
        None => word.as_bytes().to_vec(),
    }
}

fn told(result: Result<()>) -> String {
    result.map_or_else(|e| e.to_string(), |()| "accepted".into())
}

/// A batch of the lines: `put KEY VALUE`, `merge KEY OPERAND`, `delete KEY`, `single-delete KEY`,
/// `delete-range START END`.
fn batch_of(input: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for line in input.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (first, second) =
            (bytes_of(words[1]), words.get(2).map(|word| bytes_of(word)).unwrap_or_default());
        match words[0] {
            "put" => batch.put(&first, &second),
            "delete" => batch.delete(&first),
            "merge" => batch.merge(&first, &second),
            "single-delete" => batch.single_delete(&first),
            "delete-range" => batch.delete_range(&first, &second),
            other => panic!("no change is called {other}"),
        }
    }
    batch
}

/// Encodes the batch from sequence 7 on and decodes it. Each truncated encoding has fewer changes.
fn round_trip(batch: &WriteBatch) -> std::result::Result<String, Box<dyn Error>> {
    let payload = [&header(7, batch.len() as u32)[..], batch.body()].concat();
    assert_eq!(payload.len(), batch.byte_len());
    let (seq, count, entries) = decode(&payload)?;
    let mut out = format!("sequence {seq}, {count} changes\n");
    for change in entries {
        let Change { kind, family, key, value } = change?;
        out += &format!("{kind:?} of family {family}: {} {}\n", key.escape_ascii(), value.escape_ascii());
    }
    for cut in HEADER_LEN..payload.len() {
        let (_, _, entries) = decode(&payload[..cut])?;
        assert!(entries.take_while(|entry| entry.is_ok()).count() < batch.len(), "cut to {cut}");
    }
    Ok(out)
}

fn run(case: &mut TestCase) -> std::result::Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "round-trip" => round_trip(&batch_of(&case.input))?,
        // The check for the log, and the check where large values have files of their own.
        "check" => {
            let mut batch = batch_of(&case.input);
            let (whole, changes) = (told(batch.check(0)), told(batch.check_changes()));
            let has_empty_key = batch.figures().has_empty_key;
            batch.clear();
            assert!(batch.is_empty() && !batch.figures().has_empty_key);
            format!("batch: {whole}\nchanges: {changes}\nhas an empty key: {has_empty_key}\n")
        }
        "check-logged" => {
            let (key, value) = (b"k", vec![1; case.take_arg("value-len")?]);
            told(Change { kind: ValueKind::Value, family: 0, key, value: &value }.validate()) + "\n"
        }
        // The first change of a payload, with this header and the bytes of the input in hex.
        "decode" => {
            let (seq, count) = (case.take_arg("sequence")?, case.take_arg("changes")?);
            let hex = case.input.split_whitespace().map(|hex| u8::from_str_radix(hex, 16).unwrap());
            let payload: Vec<u8> = header(seq, count).into_iter().chain(hex).collect();
            let first = decode(&payload).and_then(|(.., mut entries)| entries.next().transpose());
            first.map_or_else(|e| e.to_string(), |change| format!("{change:?}")) + "\n"
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/batch/scripts", |file| file.run(run));
}
