//! The codecs of blocks.
//!
//! A compressed payload is the raw length as a varint, then the codec's own bytes. A block that
//! compression shrinks by less than an eighth is stored uncompressed, so that reading it costs no
//! decompression. Codecs are features of this crate; the names of missing codecs are still known,
//! and lead to `Unsupported`.

use base::codec::{Reader, put_varint};
use base::{Compression, Error, ErrorKind, Result, limits};
use cache::Block;

/// Zstandard level: its own default.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

/// Checks that this build has a codec.
///
/// # Errors
/// `Unsupported` if the codec is missing.
pub fn require(compression: Compression) -> Result<()> {
    let present = match compression {
        Compression::None => true,
        Compression::Lz4 => cfg!(feature = "lz4"),
        Compression::Zstd => cfg!(feature = "zstd"),
    };
    if present {
        return Ok(());
    }
    let name = compression.name();
    let why = format!(
        "this build lacks the compression codec {name}, so it neither writes nor reads such data: rebuild \
         with the feature `{name}` enabled"
    );
    Err(Error::new(ErrorKind::Unsupported, why))
}

/// Compresses block after block, reusing its context and buffer.
#[derive(Default)]
pub struct Compressor {
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
    out: Vec<u8>,
}

impl Compressor {
    /// Returns the compressed payload of `raw`, or `None` if compression is not worthwhile.
    ///
    /// # Errors
    /// `Unsupported` if this build lacks the codec.
    pub fn compress(&mut self, compression: Compression, raw: &[u8]) -> Result<Option<&mut Vec<u8>>> {
        require(compression)?;
        if compression == Compression::None || raw.len() < 64 {
            return Ok(None);
        }
        self.out.clear();
        put_varint(&mut self.out, raw.len() as u64);
        let head = self.out.len();
        self.out.resize(head + bound(compression, raw.len()), 0);
        let Some(len) = self.run(compression, raw, head) else { return Ok(None) };
        self.out.truncate(head + len);
        let worth = self.out.len() <= raw.len() - raw.len() / 8;
        Ok(worth.then_some(&mut self.out))
    }

    #[allow(unused_variables)]
    fn run(&mut self, compression: Compression, raw: &[u8], head: usize) -> Option<usize> {
        let space = self.out.get_mut(head..).unwrap_or_default();
        match compression {
            #[cfg(feature = "lz4")]
            Compression::Lz4 => lz4_flex::block::compress_into(raw, space).ok(),
            #[cfg(feature = "zstd")]
            Compression::Zstd => {
                if self.zstd.is_none() {
                    // Fails only without memory for the context: then the block stays uncompressed.
                    self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                self.zstd.as_mut().and_then(|context| context.compress_to_buffer(raw, space).ok())
            }
            _ => None,
        }
    }
}

fn bound(compression: Compression, raw_len: usize) -> usize {
    match compression {
        #[cfg(feature = "lz4")]
        Compression::Lz4 => lz4_flex::block::get_maximum_output_size(raw_len),
        // Output that does not fit the raw length is not worth keeping anyway.
        _ => raw_len,
    }
}

/// Decompresses a payload.
///
/// # Errors
/// `Corruption` if it does not decompress to the length it states, `Unsupported` if this build
/// lacks the codec.
pub fn decompress(compression: Compression, payload: &[u8]) -> Result<Block> {
    if compression == Compression::None {
        return Ok(Block::from(payload));
    }
    decompress_behind(&[], compression, payload)
}

/// Returns a block of `head` followed by the raw bytes of a compressed payload.
///
/// # Errors
/// As [`decompress`].
pub(crate) fn decompress_behind(head: &[u8], compression: Compression, payload: &[u8]) -> Result<Block> {
    require(compression)?;
    let mut reader = Reader::new(payload);
    let raw_len = reader.length(limits::BLOCK_LEN_MAX)?;
    let mut block: Block = std::iter::repeat_n(0, head.len() + raw_len).collect();
    let (before, raw) = Block::get_mut(&mut block).unwrap_or_default().split_at_mut(head.len());
    before.copy_from_slice(head);
    let len = decompress_into(compression, reader.rest(), raw);
    if len != Some(raw_len) {
        return Err(Error::corruption(format!(
            "a block or record with {} compression cannot be decompressed to its {raw_len} bytes: only its \
             keys and values are unreadable",
            compression.name()
        )));
    }
    Ok(block)
}

#[allow(unused_variables)]
fn decompress_into(compression: Compression, data: &[u8], raw: &mut [u8]) -> Option<usize> {
    match compression {
        #[cfg(feature = "lz4")]
        Compression::Lz4 => lz4_flex::block::decompress_into(data, raw).ok(),
        #[cfg(feature = "zstd")]
        Compression::Zstd => {
            use std::cell::RefCell;
            // Creating a context costs more than decompressing a block.
            thread_local!(static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
                const { RefCell::new(None) });
            CONTEXT.with(|context| {
                let mut context = context.try_borrow_mut().ok()?;
                if context.is_none() {
                    *context = zstd::bulk::Decompressor::new().ok();
                }
                context.as_mut()?.decompress_to_buffer(data, raw).ok()
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    #[test]
    fn compression_round_trips_or_declines() {
        let mut rng = io::Rng::new(41);
        let mut compressor = Compressor::default();
        for compression in ALL {
            if require(compression).is_err() {
                continue;
            }
            for len in [0usize, 1, 63, 64, 500, 4096, 70_000, 1 << 20] {
                let mut noise = vec![0; len];
                rng.fill(&mut noise);
                assert!(compressor.compress(compression, &noise).unwrap().is_none(), "noise is not worth it");
                let words: Vec<u8> = noise.iter().map(|b| b"lava"[(b & 3) as usize]).collect();
                if let Some(payload) = compressor.compress(compression, &words).unwrap() {
                    assert!(payload.len() <= len - len / 8);
                    assert_eq!(&decompress(compression, payload).unwrap()[..], &words[..]);
                } else {
                    assert!(compression == Compression::None || len < 500);
                }
            }
        }
    }

    /// `.ci/run` also runs this test in a build without codecs.
    #[test]
    fn a_codec_that_is_not_built_in_is_named() {
        let built = [true, cfg!(feature = "lz4"), cfg!(feature = "zstd")];
        for (compression, is_built) in ALL.into_iter().zip(built) {
            let long = [7; 100];
            let told = [Compressor::default().compress(compression, &long).err(), require(compression).err()];
            let told = told.map(|e| e.map(|e| (e.kind(), e.message().to_owned())));
            let name = compression.name();
            let lacks = format!(
                "this build lacks the compression codec {name}, so it neither writes nor reads such data: \
                 rebuild with the feature `{name}` enabled"
            );
            let expected = (!is_built).then_some((ErrorKind::Unsupported, lacks));
            assert_eq!(told, [expected.clone(), expected]);
            assert_eq!(decompress(compression, &[]).is_err(), compression != Compression::None);
        }
    }

    #[test]
    fn hostile_payloads_are_corruption() {
        let mut rng = io::Rng::new(42);
        let mut compressor = Compressor::default();
        let words: Vec<u8> = (0..900u32).map(|i| (i % 13) as u8).collect();
        for compression in ALL {
            if compression == Compression::None || require(compression).is_err() {
                continue;
            }
            let payload = compressor.compress(compression, &words).unwrap().unwrap().clone();
            for _ in 0..3000 {
                let mut damaged = payload.clone();
                if rng.one_in(3) {
                    rng.fill(&mut damaged);
                }
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] ^= 1 << rng.below(8);
                if let Err(e) = decompress(compression, &damaged) {
                    assert!(e.is_corruption());
                }
            }
            // A length over the limit is rejected before anything is allocated.
            assert!(decompress(compression, &[0xff, 0xff, 0xff, 0x7f, 0]).unwrap_err().is_corruption());
        }
    }
}
