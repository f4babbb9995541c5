//! Fuzzes the log that a worker finds when it starts.
//!
//! Input: a byte that chooses the form, and then either what follows the header of a file, or a
//! list of frames. A frame is a byte for its kind, and its payload. The target adds the checksums.
//! The worker must start or refuse to, and a second start must find the same rows.
#![no_main]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use volary_flight_proto::ids::StoreId;
use volary_fuzz::directory::Directory;
use volary_fuzz::{guard, log_file, wire};
use volary_node::data_dir::{DataDir, NodeRole};
use volary_node::disk::LocalDisk;
use volary_worker::storage::Storage;

/// Size of the log. An input fits into it several times.
const LOG_BYTES: u64 = 8 << 20;

/// The name of a worker's store.
const STORE: &str = "store.redb";

static EMPTY: LazyLock<Empty> = LazyLock::new(Empty::new);

/// The data directory of a worker that holds nothing yet.
struct Empty {
    data_dir: DataDir,
    store_id: StoreId,
    /// The content of its store.
    store: Vec<u8>,
}

impl Empty {
    fn new() -> Self {
        let directory = Directory::new("log_files");
        let data_dir = DataDir::open(directory.path(), NodeRole::Worker);
        let data_dir = data_dir.expect("an empty directory");
        drop(start(&data_dir).expect("an empty directory"));
        let store_id = data_dir.identity().store_id;
        Self {
            store_id: store_id.expect("a storage names its store"),
            store: std::fs::read(data_dir.path().join(STORE)).expect("a storage has a store"),
            data_dir,
        }
    }

    /// Makes the directory empty again, and returns the directory of its log.
    fn restore(&self) -> PathBuf {
        let path = self.data_dir.path();
        std::fs::write(path.join(STORE), &self.store).expect("a file can be written");
        let log = path.join("log");
        for directory in [&log, &path.join("tables")] {
            let _ = std::fs::remove_dir_all(directory);
            std::fs::create_dir_all(directory).expect("a directory can be made");
        }
        log
    }
}

fn start(data_dir: &DataDir) -> volary_flight_proto::Result<Storage> {
    Storage::of_worker(data_dir, Arc::new(LocalDisk), LOG_BYTES)
}

fuzz_target!(init: guard::start("log_files", volary_fuzz::seeds::nodes::log_files), |data: &[u8]| {
    let Some((what, content)) = data.split_first() else {
        return;
    };
    let empty = &*EMPTY;
    let log = empty.restore();
    for (name, bytes) in files(*what, content, empty.store_id) {
        std::fs::write(log.join(name), bytes).expect("a file can be written");
    }
    guard::on_large_stack(|| {
        let Ok(storage) = start(&empty.data_dir) else {
            return;
        };
        let found = storage.list();
        drop(storage);
        let again = start(&empty.data_dir).expect("what was read once can be read again");
        assert_eq!(again.list(), found);
    });
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    wire::mutate(data, size, max_size, seed, 1)
});

/// Returns the names and the contents of one or two log files.
fn files(what: u8, content: &[u8], store: StoreId) -> Vec<(String, Vec<u8>)> {
    if what & 1 == 1 {
        let file = [&log_file::header(store, 1, 1), content].concat();
        return vec![(log_file::name(1), file)];
    }
    let frames = wire::decode_list(content);
    // The rest of the byte is the number of frames in the first file.
    let in_first = if what >> 1 == 0 {
        frames.len()
    } else {
        frames.len().min(usize::from(what >> 1))
    };
    let mut files = Vec::new();
    let mut number = 1;
    for (file, part) in [(1, &frames[..in_first]), (2, &frames[in_first..])] {
        if file > 1 && part.is_empty() {
            continue;
        }
        let mut bytes = log_file::header(store, file, number);
        for frame in part {
            let (kind, payload) = frame.split_first().unwrap_or((&0, &[]));
            bytes.extend(log_file::frame(file, number, *kind, payload));
            number += 1;
        }
        files.push((log_file::name(file), bytes));
    }
    files
}
