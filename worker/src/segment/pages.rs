use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::column::page_store::{
    InMemoryPageStore, PageKey, PageStore, PageStoreArgs, PageStoreFactory,
};
use parquet::errors::Result;

/// Lengths and checksums of what was written, in the order of the file. A page is two pieces: its
/// header and its content.
#[derive(Debug, Clone, Default)]
pub(super) struct WrittenPages(Arc<Mutex<Vec<WrittenPiece>>>);

#[derive(Debug, Clone)]
struct WrittenPiece {
    length: usize,
    crc: crc32fast::Hasher,
}

/// The size of a page in bytes, and its CRC-32.
pub(super) struct Page {
    pub(super) bytes: usize,
    pub(super) crc32: u32,
}

impl WrittenPages {
    /// Returns the pages that were written since the last call, in the order of the file.
    pub(super) fn take(&self) -> Vec<Page> {
        let pieces = std::mem::take(&mut *self.0.lock());
        let pages = pieces.chunks_exact(2).map(|page| {
            let mut crc = page[0].crc.clone();
            crc.combine(&page[1].crc);
            Page {
                bytes: page[0].length + page[1].length,
                crc32: crc.finalize(),
            }
        });
        pages.collect()
    }
}

impl PageStoreFactory for WrittenPages {
    fn create(&self, _: &PageStoreArgs<'_>) -> Result<Box<dyn PageStore>> {
        Ok(Box::new(Store {
            pages: InMemoryPageStore::default(),
            written: self.clone(),
        }))
    }
}

/// Keeps the pages of a column until they are written.
struct Store {
    pages: InMemoryPageStore,
    written: WrittenPages,
}

impl PageStore for Store {
    fn put(&mut self, value: Bytes) -> Result<PageKey> {
        self.pages.put(value)
    }

    fn take(&mut self, key: PageKey) -> Result<Bytes> {
        let piece = self.pages.take(key)?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&piece);
        self.written.0.lock().push(WrittenPiece {
            length: piece.len(),
            crc,
        });
        Ok(piece)
    }

    fn memory_size(&self) -> usize {
        self.pages.memory_size()
    }
}
