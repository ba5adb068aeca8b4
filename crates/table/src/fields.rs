//! Fields: the encoding of the properties of a table or vSST.
//!
//! A list of fields, each `tag: varint, length: varint, bytes`, in ascending order of tags. A
//! reader skips tags that it does not know. Numbers are varints, and zeros are left out. Tags 1 to
//! 11 identify the writer and the store of a file of any kind. The others belong to
//! [`crate::properties`] and [`crate::vsst`], and a property that both have has the same tag in
//! both.

use crate::options::TableIdentity;
use base::codec::{Reader, put_bytes, put_varint};
use base::{Error, Result, Uid};

/// Writes fields, in any order.
pub(crate) struct FieldWriter(Vec<(u64, Vec<u8>)>);

impl FieldWriter {
    /// Starts with the identity of the file.
    pub(crate) fn new(identity: &TableIdentity) -> Self {
        let mut fields = FieldWriter(Vec::new());
        fields.number(1, identity.number);
        fields.bytes(2, &identity.uid.0);
        fields.number(3, u64::from(identity.family));
        fields.number(4, u64::from(identity.level));
        fields.number(5, identity.job);
        fields.varints(6, identity.inputs.iter().copied());
        fields.number(7, identity.edit);
        let store = &identity.store;
        if !store.family_name.is_empty() || !store.family_options.is_empty() {
            fields.bytes(8, store.family_name.as_bytes());
            fields.bytes(9, &store.family_options);
        }
        fields.number(10, store.log_floor);
        if !store.gone.is_empty() {
            let mut last = 0;
            fields.varints(11, store.gone.iter().map(|&n| n.wrapping_sub(std::mem::replace(&mut last, n))));
        }
        fields
    }

    /// Adds a number, unless it is 0.
    pub(crate) fn number(&mut self, tag: u64, v: u64) {
        if v != 0 {
            self.varints(tag, [v]);
        }
    }

    /// Adds a list of numbers.
    pub(crate) fn varints(&mut self, tag: u64, numbers: impl IntoIterator<Item = u64>) {
        let mut bytes = Vec::new();
        numbers.into_iter().for_each(|v| put_varint(&mut bytes, v));
        self.0.push((tag, bytes));
    }

    /// Adds bytes.
    pub(crate) fn bytes(&mut self, tag: u64, bytes: &[u8]) {
        self.0.push((tag, bytes.to_vec()));
    }

    /// Returns the encoded block.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.sort();
        let mut out = Vec::new();
        for (tag, bytes) in self.0 {
            put_varint(&mut out, tag);
            put_bytes(&mut out, &bytes);
        }
        out
    }
}

/// Reads the identity of the file, and passes every other field to `other`.
///
/// # Errors
/// `Corruption` if a field is malformed; the errors of `other`.
pub(crate) fn read_fields(
    bytes: &[u8],
    mut other: impl FnMut(u64, &mut Reader<'_>) -> Result<()>,
) -> Result<TableIdentity> {
    let mut identity = TableIdentity::default();
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let tag = reader.varint()?;
        let mut field = Reader::new(reader.bytes()?);
        match tag {
            1 => identity.number = field.varint()?,
            2 => identity.uid = Uid(field.array()?),
            3 => identity.family = small(field.varint()?)?,
            4 => identity.level = small(field.varint()?)?,
            5 => identity.job = field.varint()?,
            6 => {
                while !field.is_empty() {
                    identity.inputs.push(field.varint()?);
                }
            }
            7 => identity.edit = field.varint()?,
            8 => identity.store.family_name = String::from_utf8_lossy(field.rest()).into_owned(),
            9 => identity.store.family_options = field.rest().to_vec(),
            10 => identity.store.log_floor = field.varint()?,
            11 => {
                let mut last = 0u64;
                while !field.is_empty() {
                    last = last.wrapping_add(field.varint()?);
                    identity.store.gone.push(last);
                }
            }
            _ => other(tag, &mut field)?,
        }
    }
    Ok(identity)
}

/// Converts a number to a smaller type.
pub(crate) fn small<T: TryFrom<u64>>(v: u64) -> Result<T> {
    T::try_from(v).map_err(|_| {
        let bits = 8 * size_of::<T>();
        Error::corruption(format!(
            "a number in the properties of a table or value file is {v}, over its limit of {bits} bits"
        ))
    })
}
