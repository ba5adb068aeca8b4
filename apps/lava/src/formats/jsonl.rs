//! JSON lines: one object a line with `key` or `key_b64`, and `value` or `value_b64`.

use super::{Record, base64, next_line};
use crate::Result;
use serde_json::{Map, Value};
use std::io::{BufRead, Write};

/// Reads records; empty lines are skipped, other members are ignored.
pub struct Reader<'a> {
    input: Box<dyn BufRead + 'a>,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Reader<'a> {
    /// A reader of `input`.
    pub fn new(input: Box<dyn BufRead + 'a>) -> Self {
        Reader { input, line: Vec::new(), number: 0 }
    }

    fn parse(&self) -> Result<Record> {
        let line = self.number;
        let object: Map<String, Value> =
            serde_json::from_slice(&self.line).map_err(|e| format!("line {line}: no JSON object: {e}"))?;
        let key = member(&object, "key").map_err(|e| format!("line {line}: {e}"))?;
        let value = member(&object, "value").map_err(|e| format!("line {line}: {e}"))?;
        Ok((key, value))
    }
}

fn member(object: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    if let Some(encoded) = object.get(&format!("{name}_b64")) {
        let text = encoded.as_str().ok_or(format!("{name}_b64 is no string"))?;
        return base64::decode(text).ok_or(format!("{name}_b64 is not base64"));
    }
    match object.get(name) {
        Some(Value::String(text)) => Ok(text.clone().into_bytes()),
        Some(_) => Err(format!("{name} is no string")),
        None => Err(format!("neither {name} nor {name}_b64 is there")),
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match next_line(self.input.as_mut(), &mut self.line) {
                Ok(false) => return None,
                Ok(true) => self.number += 1,
                Err(error) => return Some(Err(error)),
            }
            if !self.line.trim_ascii().is_empty() {
                return Some(self.parse());
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

/// Writes one record.
pub fn write(out: &mut dyn Write, key: &[u8], value: &[u8]) -> std::io::Result<()> {
    let mut object = Map::new();
    insert(&mut object, "key", key);
    insert(&mut object, "value", value);
    writeln!(out, "{}", Value::Object(object))
}
