//! Memory aligned to the page, as direct I/O demands.

/// The unit of alignment and of direct I/O, bytes.
pub const PAGE: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct AlignedPage([u8; PAGE]);

/// A buffer whose address and capacity are multiples of [`PAGE`].
pub struct AlignedBuf {
    pages: Vec<AlignedPage>,
    len: usize,
}

impl AlignedBuf {
    /// Returns `len` zero bytes (the capacity is rounded up to whole pages).
    pub fn zeroed(len: usize) -> Self {
        AlignedBuf { pages: vec![AlignedPage([0; PAGE]); len.div_ceil(PAGE)], len }
    }

    /// Returns the bytes in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no byte is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that fit without growing.
    pub fn capacity(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Changes the number of bytes in use; new bytes keep the former contents of the pages (zeros
    /// at first).
    pub fn resize(&mut self, len: usize) {
        self.pages.resize(len.div_ceil(PAGE).max(self.pages.len()), AlignedPage([0; PAGE]));
        self.len = len;
    }

    /// Returns the bytes in use.
    pub fn as_slice(&self) -> &[u8] {
        &self.pages.as_flattened_bytes()[..self.len]
    }

    /// Returns the bytes in use, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.pages.as_flattened_bytes_mut()[..len]
    }
}

/// Pages as one run of bytes.
trait Flatten {
    fn as_flattened_bytes(&self) -> &[u8];
    fn as_flattened_bytes_mut(&mut self) -> &mut [u8];
}

impl Flatten for [AlignedPage] {
    fn as_flattened_bytes(&self) -> &[u8] {
        // SAFETY: `AlignedPage` is `repr(C)` with one field of `PAGE` initialized bytes, alignment
        // equal to its size, so a slice of pages is exactly `len * PAGE` initialized bytes without
        // padding.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast::<u8>(), std::mem::size_of_val(self)) }
    }
    fn as_flattened_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast::<u8>(), std::mem::size_of_val(self)) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zeroed() {
        let mut b = AlignedBuf::zeroed(5000);
        assert_eq!(b.as_slice().as_ptr() as usize % PAGE, 0);
        assert_eq!((b.len(), b.capacity()), (5000, 8192));
        assert!(b.as_slice().iter().all(|&x| x == 0));
        b.as_mut_slice()[4999] = 7;
        b.resize(9000);
        assert_eq!((b.as_slice()[4999], b.len(), b.capacity()), (7, 9000, 12288));
    }
}
