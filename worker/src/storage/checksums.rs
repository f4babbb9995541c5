use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Number of bytes that are hashed at a time. They fit into a core's cache.
const STEP_BYTES: usize = 128 << 10;

/// The checksums of a segment's file, taken when the file was written. The pages have checksums of
/// their own, in the file's metadata; [`crate::segment`] compares these when it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentChecksums {
    /// The BLAKE3 hash of the whole file.
    pub blake3: blake3::Hash,
    /// Size of the end of the file that holds Parquet's indexes and metadata, in bytes.
    pub tail_bytes: u64,
    /// CRC-32 (as in zlib) of that end of the file.
    pub tail_crc32: u32,
}

impl SegmentChecksums {
    /// Compares the whole file with its hash. `pace` is called with the number of bytes of each
    /// step, and may wait. May block.
    ///
    /// # Errors
    /// Returns the errors of reading the file.
    pub(crate) fn matches_file(
        &self,
        path: &Path,
        mut pace: impl FnMut(usize),
    ) -> io::Result<bool> {
        let mut file = File::open(path)?;
        let mut hasher = blake3::Hasher::new();
        let mut step = vec![0; STEP_BYTES];
        loop {
            let read = file.read(&mut step)?;
            if read == 0 {
                break;
            }
            hasher.update(&step[..read]);
            pace(read);
        }
        Ok(hasher.finalize() == self.blake3)
    }

    /// Returns whether `tail` is the end of the file, as it was written.
    pub(crate) fn matches_tail(&self, tail: &[u8]) -> bool {
        tail.len() as u64 == self.tail_bytes && crc32fast::hash(tail) == self.tail_crc32
    }
}

/// A file that is written from its beginning to its end. Its checksums are taken while it is
/// written.
#[derive(Debug)]
pub(crate) struct ChecksummedFile {
    file: File,
    whole: blake3::Hasher,
    /// Length and CRC-32 of what was written since the tail began.
    tail: Option<(u64, crc32fast::Hasher)>,
}

impl ChecksummedFile {
    /// Builds the writer of an empty file.
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            whole: blake3::Hasher::new(),
            tail: None,
        }
    }

    /// Begins the tail: whatever is written from here on belongs to it.
    pub(crate) fn begin_tail(&mut self) {
        self.tail = Some((0, crc32fast::Hasher::new()));
    }

    /// Returns the checksums of what was written.
    pub(crate) fn checksums(&self) -> SegmentChecksums {
        let (tail_bytes, tail) = self.tail.clone().unwrap_or_default();
        SegmentChecksums {
            blake3: self.whole.finalize(),
            tail_bytes,
            tail_crc32: tail.finalize(),
        }
    }
}

impl Write for ChecksummedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        let bytes = &bytes[..written];
        self.whole.update(bytes);
        if let Some((length, crc)) = &mut self.tail {
            *length += written as u64;
            crc.update(bytes);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_file_and_of_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let mut file = ChecksummedFile::new(File::create(&path).unwrap());
        file.write_all(&[7; 300_000]).unwrap();
        file.begin_tail();
        file.write_all(b"metadata").unwrap();
        let checksums = file.checksums();
        let mut read = 0;
        assert!(
            checksums
                .matches_file(&path, |bytes| read += bytes)
                .unwrap()
        );
        assert_eq!(read, 300_008);
        assert!(checksums.matches_tail(b"metadata"));
        assert!(!checksums.matches_tail(b"metadatb"));
        assert!(!checksums.matches_tail(b"metadat"));
        let mut content = std::fs::read(&path).unwrap();
        content[200_000] ^= 4;
        std::fs::write(&path, &content).unwrap();
        assert!(!checksums.matches_file(&path, |_| ()).unwrap());
    }
}
