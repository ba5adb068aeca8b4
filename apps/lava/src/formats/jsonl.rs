//! JSON lines: one object per line with `key` or `key_b64`, and `value` or `value_b64`.

use super::{Lines, ReadError, Record, base64, streamed};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::io::Write;

/// Reads records. Empty lines are skipped, other members are ignored.
pub struct Reader<'a> {
    lines: Lines<'a>,
    line: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// Returns a reader of lines.
    pub fn new(lines: Lines<'a>) -> Self {
        Reader { lines, line: Vec::new() }
    }
}

/// The members of a record. Others are parsed but not kept, so that a line never takes more memory
/// than its length.
#[derive(Default)]
struct Members<'a> {
    key: Option<Member<'a>>,
    value: Option<Member<'a>>,
    key_b64: Option<Member<'a>>,
    value_b64: Option<Member<'a>>,
}

/// A string, or any other value.
enum Member<'a> {
    Text(Cow<'a, str>),
    Other,
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut all = Members::default();
        // The last one of duplicate members counts.
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            match &*name {
                "key" => all.key = Some(map.next_value()?),
                "value" => all.value = Some(map.next_value()?),
                "key_b64" => all.key_b64 = Some(map.next_value()?),
                "value_b64" => all.value_b64 = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for Member<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(MemberVisitor)
    }
}

struct MemberVisitor;

impl<'de> Visitor<'de> for MemberVisitor {
    type Value = Member<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Member<'de>, E> {
        Ok(Member::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Member<'de>, E> {
        Ok(Member::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Member<'de>, E> {
        Ok(Member::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Member<'de>, E> {
        Ok(Member::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Member<'de>, E> {
        Ok(Member::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Member<'de>, E> {
        Ok(Member::Other)
    }

    fn visit_unit<E>(self) -> Result<Member<'de>, E> {
        Ok(Member::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Member<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Member<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Member::Other)
    }
}

fn parse(line: &[u8]) -> Result<Record, String> {
    let all: Members<'_> = serde_json::from_slice(line).map_err(|e| format!("no JSON object: {e}"))?;
    Ok((bytes("key", all.key, all.key_b64)?, bytes("value", all.value, all.value_b64)?))
}

/// Returns the bytes of a string member or of its base64 variant.
fn bytes(name: &str, plain: Option<Member<'_>>, encoded: Option<Member<'_>>) -> Result<Vec<u8>, String> {
    match (encoded, plain) {
        (Some(Member::Text(text)), _) => base64::decode(&text).ok_or(format!("{name}_b64 is not base64")),
        (Some(Member::Other), _) => Err(format!("{name}_b64 is no string: it takes base64 in quotes")),
        (None, Some(Member::Text(text))) => Ok(text.into_owned().into_bytes()),
        (None, Some(Member::Other)) => Err(format!("{name} is no string: write it in quotes")),
        (None, None) => Err(format!("the object has neither {name} nor {name}_b64")),
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.line.clear();
            match self.lines.read(&mut self.line) {
                Ok(false) => return None,
                Ok(true) if self.line.trim_ascii().is_empty() => {}
                Ok(true) => return Some(parse(&self.line).map_err(|what| self.lines.malformed(what))),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Adds bytes to an object under `name`, or under `name_b64` if they are not UTF-8.
pub fn insert(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_b64"), base64::encode(bytes).into()),
    };
}

/// Writes a member like [`insert`], without copying its bytes.
fn write_member(out: &mut dyn Write, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            write!(out, "\"{name}\":")?;
            Ok(serde_json::to_writer(out, text)?)
        }
        Err(_) => {
            write!(out, "\"{name}_b64\":\"")?;
            base64::write(out, bytes)?;
            out.write_all(b"\"")
        }
    }
}

/// Writes a record with only a piece of its value in memory.
pub fn write_streamed(
    out: &mut dyn Write,
    key: &[u8],
    value: &mut streamed::Pieces<'_>,
) -> crate::Result<()> {
    out.write_all(b"{")?;
    write_member(out, "key", key)?;
    out.write_all(b",")?;
    streamed::write_member(out, "value", value)?;
    Ok(out.write_all(b"}\n")?)
}

/// Writes a record.
pub fn write(out: &mut dyn Write, key: &[u8], value: &[u8]) -> std::io::Result<()> {
    out.write_all(b"{")?;
    write_member(out, "key", key)?;
    out.write_all(b",")?;
    write_member(out, "value", value)?;
    out.write_all(b"}\n")
}
