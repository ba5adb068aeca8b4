use super::*;
use io::Rng;

fn records(format: Format, text: &[u8]) -> crate::Result<Vec<Record>> {
    Ok(format.read(Box::new(text), LINE_BYTES_MAX).collect::<Result<_, _>>()?)
}

/// Returns random bytes of all kinds: text, control characters, valid and broken UTF-8.
fn awkward(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.below(12) {
        match rng.below(6) {
            0 => bytes.push(rng.next_u64() as u8),
            1 => bytes.extend_from_slice("é漢\u{10ffff}".as_bytes()),
            2 => bytes.extend_from_slice(b"\\x\\t"),
            3 => bytes.extend_from_slice(b"\t\r\n\0"),
            4 => bytes.extend_from_slice(b"\"\\u0000\""),
            _ => bytes.extend_from_slice(b"plain"),
        }
    }
    bytes
}

#[test]
fn lines_round_trip_any_bytes() {
    let mut rng = Rng::new(11);
    for format in [Format::Tsv, Format::Jsonl] {
        let mut all = vec![(b"key".to_vec(), Vec::new()), (vec![0xff, 0xfe], b"\r".to_vec())];
        all.extend((0..500).map(|_| (awkward(&mut rng), awkward(&mut rng))));
        let mut text = Vec::new();
        for (key, value) in &all {
            format.write(&mut text, key, value).unwrap();
        }
        assert!(std::str::from_utf8(&text).is_ok(), "the text is UTF-8");
        assert_eq!(text.iter().filter(|b| **b == b'\n').count(), all.len());
        assert_eq!(records(format, &text).unwrap(), all);
    }
}

#[test]
fn lines_of_other_tools_are_read() {
    let tsv = records(Format::Tsv, b"a\tb\r\n\nc\td\te").unwrap();
    assert_eq!(tsv, vec![(b"a".to_vec(), b"b".to_vec()), (b"c".to_vec(), b"d\te".to_vec())]);
    let json = records(Format::Jsonl, b"{\"value\": \"\\u00e9\", \"key\": \"k\", \"n\": 1}\n \n").unwrap();
    assert_eq!(json, vec![(b"k".to_vec(), "é".as_bytes().to_vec())]);
}

#[test]
fn errors_name_the_line() {
    for (format, text, what) in [
        (Format::Tsv, "a\tb\nno tab\n", "line 2: no tab"),
        (Format::Tsv, "a\\q\tb\n", "line 1: key: \\q is no escape"),
        (Format::Tsv, "a\tb\\x4\n", "line 1: value: \\x must"),
        (Format::Tsv, "a\tb\\\n", "line 1: value: it ends in a single backslash"),
        (Format::Jsonl, "[]\n", "line 1: no JSON object"),
        (Format::Jsonl, "{\"key\":\"a\"}\n", "line 1: the object has neither value nor value_b64"),
        (Format::Jsonl, "{\"key\":1,\"value\":\"\"}\n", "line 1: key is no string"),
        (Format::Jsonl, "{\"key_b64\":\"a\",\"value\":\"\"}\n", "line 1: key_b64 is not base64"),
        (Format::Packages, "Package: a\n\n", "line 1: a stanza without Package and Version"),
        (Format::Packages, "Package: a\nVersion: 1\n\nVersion: 1\n", "line 4: a stanza without"),
    ] {
        let error = records(format, text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(what), "{error}");
    }
}

#[test]
fn base64_of_the_standard() {
    for (bytes, text) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("foobar", "Zm9vYmFy"),
    ] {
        assert_eq!(base64::encode(bytes.as_bytes()), text);
        assert_eq!(base64::decode(text).unwrap(), bytes.as_bytes());
    }
    for bad in ["Z", "Zg=", "Zg", "Z===", "Zh==", "Zm9=", "Zm 9", "=Zg="] {
        assert_eq!(base64::decode(bad), None, "{bad}");
    }
    let mut rng = Rng::new(3);
    for len in 0..200 {
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        assert_eq!(base64::decode(&base64::encode(&bytes)).unwrap(), bytes);
    }
}

const INDEX: &[u8] = b"Package: a\nVersion: 1:2.0-1\nDescription: x\n more: of it\n .\n\n\
    Package: b\nVersion: 1\nDepends: a (>= 1)\n\n";

#[test]
fn a_package_index_round_trips_byte_for_byte() {
    let all = records(Format::Packages, INDEX).unwrap();
    let keys: Vec<_> = all.iter().map(|r| String::from_utf8_lossy(&r.0).into_owned()).collect();
    assert_eq!(keys, ["a/1:2.0-1", "b/1"]);
    let mut text = Vec::new();
    for (key, value) in &all {
        Format::Packages.write(&mut text, key, value).unwrap();
    }
    assert_eq!(text, INDEX);
}

#[test]
fn irregular_package_indexes_are_parsed() {
    let text = b"\n\nPackage: a\nVersion: 1\n \n\n\npackage:b\nVERSION:  2  \nLast: no newline";
    let all = records(Format::Packages, text).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(all[0], (b"a/1".to_vec(), b"Package: a\nVersion: 1\n".to_vec()));
    assert_eq!(all[1].0, b"b/2");
}

#[test]
fn file_extension_selects_the_format() {
    let of = |name: &str| Format::of_name(Path::new(name));
    assert_eq!(of("/x/deb_dists_main_binary-amd64_Packages.lz4"), Some(Format::Packages));
    assert_eq!(of("Packages.gz"), Some(Format::Packages));
    assert_eq!(of("a.jsonl.zst"), Some(Format::Jsonl));
    assert_eq!(of("a.tsv"), Some(Format::Tsv));
    assert_eq!(of("a.bin"), None);
}

/// Values longer than a piece, with characters at every position of its border.
#[test]
fn long_values_streamed_in_pieces_equal_whole_output() {
    let mut rng = Rng::new(5);
    for shift in 0..8 {
        let mut value = vec![b'a'; (16 << 10) - shift];
        value.extend_from_slice("\u{10ffff}é漢".repeat(9000).as_bytes());
        (0..shift).for_each(|_| value.push(rng.next_u64() as u8));
        for value in
            [value.clone(), value[..value.len() - 1].to_vec(), vec![0x80; 40_000], vec![0xc3; 40_000]]
        {
            let mut text = Vec::new();
            escape::write(&mut text, &value).unwrap();
            assert!(text == escape::escape(&value).as_bytes());
            let mut text = Vec::new();
            base64::write(&mut text, &value).unwrap();
            assert!(text == base64::encode(&value).as_bytes());
            let mut text = Vec::new();
            jsonl::write(&mut text, b"k", &value).unwrap();
            assert!(records(Format::Jsonl, &text).unwrap() == [(b"k".to_vec(), value)]);
        }
    }
}

#[test]
fn an_overlong_line_is_skipped() {
    let long = "x".repeat(100);
    for (format, text) in [
        (Format::Tsv, format!("a\t1\n{long}\t2\nb\t{}\nc\t\n", "v".repeat(30))),
        (
            Format::Jsonl,
            format!(
                "{{\"key\":\"a\",\"value\":\"\"}}\n{{\"key\":\"{long}\",\"value\":\"\"}}\n{{\"key\":\"c\",\"value\":\"\"}}\n"
            ),
        ),
        (
            Format::Packages,
            format!(
                "Package: a\nVersion: 1\n\nPackage: b\nX: {long}\nVersion: 1\n\nPackage: c\nVersion: 1\n"
            ),
        ),
        (
            Format::Packages,
            format!(
                "Package: a\nVersion: 1\n\nPackage: b\n{}Version: 1\n\nPackage: c\nVersion: 1\n",
                "X: y\n".repeat(30)
            ),
        ),
    ] {
        let all: Vec<_> = format.read(Box::new(text.as_bytes()), 32).collect();
        let keys: Vec<u8> = all.iter().filter_map(|record| Some(record.as_ref().ok()?.0[0])).collect();
        assert!(keys.starts_with(b"a") && keys.ends_with(b"c"), "{format:?}: {all:?}");
        let errors: Vec<_> = all.iter().filter_map(|record| record.as_ref().err()).collect();
        assert!(matches!(errors[..], [ReadError::Malformed(_)]), "{format:?}: {errors:?}");
    }
}
