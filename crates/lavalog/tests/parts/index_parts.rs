//! Parts of an index: the blocks of a log in one file.

use lavalog::Source;
use lavalog::disk::directory::{Block, LogRows};
use lavalog::index::RecordsInFile;
use lavalog::lsn_set::LsnSet;

#[test]
fn invalid_blocks_are_refused() {
    let block = |offset, len| Block { first: 0, offset, len };
    let of = |blocks: &[Block]| {
        let rows = LogRows { log: 1, seqs: (1, 1), lsns: LsnSet::new(), blocks: blocks.to_vec() };
        RecordsInFile::of(Source::Group(1), &rows).map(drop)
    };
    of(&[block(5, 5)]).unwrap();
    for blocks in [&[][..], &[block(0, 1 << 16)], &[block(5, 5), block(1 << 48, 5)]] {
        assert!(of(blocks).unwrap_err().is_corruption());
    }
}
