//! The version's metadata of a new vSST.

use base::{Error, ErrorKind, Result};
use table::FinishedVsst;
use version::{VsstClass, VsstMeta};

/// Returns the description of a finished vSST: the same for flush, merge and garbage collection.
/// The caller fills in location and sharing.
///
/// # Errors
/// `Unsupported` if this release does not know its class.
pub fn vsst_meta(file: &FinishedVsst) -> Result<VsstMeta> {
    let p = &file.properties;
    Ok(VsstMeta {
        number: p.identity.number,
        uid: p.identity.uid,
        len: file.len,
        record_bytes: p.record_bytes,
        raw_bytes: p.raw_bytes,
        entries: p.entries,
        smallest: file.smallest.clone(),
        largest: file.largest.clone(),
        min_seq: p.min_seq,
        max_seq: p.max_seq,
        class: class_from(p.class)?,
        segment: p.segment,
        blob_ids: p.took_over.clone(),
        ..VsstMeta::default()
    })
}

/// Returns the class with the number `class` in a file.
fn class_from(class: u8) -> Result<VsstClass> {
    [VsstClass::Mixed, VsstClass::Hot, VsstClass::Cold].into_iter().find(|c| *c as u8 == class).ok_or_else(
        || {
            let why = format!(
                "the value file (vSST) has the unknown class {class}: use the release that wrote \
                         it, or a newer one"
            );
            Error::new(ErrorKind::Unsupported, why)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_vsst_class_is_unsupported() {
        assert_eq!(class_from(VsstClass::Cold as u8).unwrap(), VsstClass::Cold);
        let e = class_from(99).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        assert!(e.message().starts_with("the value file (vSST) has the unknown class 99"), "{e}");
    }
}
