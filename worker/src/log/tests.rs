use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use volary_faulty_disk::FaultyDisk;
use volary_flight_proto::ErrorCode;
use volary_node::disk::LocalDisk;

use super::file::{HEADER_BLOCK, path_of};
use super::frame::frame_bytes;
use super::*;

/// Small files, so that a few frames fill them.
const SIZE: LogSize = LogSize {
    file_bytes: HEADER_BLOCK + 1024,
    bytes: 4 * (HEADER_BLOCK + 1024),
};

fn store() -> StoreId {
    StoreId(uuid::Uuid::from_u128(7))
}

fn open(dir: &Path, disk: SharedDisk) -> Result<(Log, Vec<Recovered>)> {
    Log::open(dir, disk, store(), SIZE, 0)
}

fn open_local(dir: &TempDir) -> (Log, Vec<Recovered>) {
    open(dir.path(), Arc::new(LocalDisk)).unwrap()
}

fn frame(text: &str) -> NewFrame {
    let (first, rest) = text.split_at(text.len() / 2);
    NewFrame {
        kind: 2,
        payload: vec![first.to_owned().into(), rest.to_owned().into()],
        context: None,
    }
}

fn append(log: &Log, frame: NewFrame) -> Appended {
    let (sender, receiver) = mpsc::channel();
    log.append(frame, move |appended| sender.send(appended).unwrap());
    receiver.recv().unwrap()
}

fn append_durably(log: &Log, text: &str) -> Position {
    match append(log, frame(text)) {
        Appended::Durable(position) => position,
        other => panic!("{text}: {other:?}"),
    }
}

fn texts(frames: &[Recovered]) -> Vec<String> {
    let texts = frames.iter();
    texts
        .map(|frame| String::from_utf8(frame.payload.to_vec()).unwrap())
        .collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join(DIRECTORY)).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn frames_survive_restarts_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..3 {
        let (log, found) = open_local(&dir);
        assert_eq!(texts(&found), expected);
        let numbers: Vec<_> = found.iter().map(|frame| frame.number).collect();
        assert_eq!(numbers, (1..=expected.len() as u64).collect::<Vec<_>>());
        for number in 0..3 {
            let text = format!("frame {number} of round {round}");
            let position = append_durably(&log, &text);
            expected.push(text);
            assert_eq!(position.number, expected.len() as u64);
        }
    }
}

#[test]
fn files_are_full_at_last_and_are_recycled_when_they_are_released() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open_local(&dir);
    let text = "x".repeat(300);
    let mut last = None;
    let mut written = 0;
    loop {
        match append(&log, frame(&text)) {
            Appended::Durable(position) => last = Some(position),
            Appended::Full => break,
            Appended::Failed(error) => panic!("{error}"),
        }
        written += 1;
    }
    let last = last.unwrap();
    assert_eq!((last.file, written), (4, 8));
    let size: u64 = files(dir.path())
        .iter()
        .map(|it| it.metadata().unwrap().len())
        .sum();
    assert_eq!(size, 4 * SIZE.file_bytes);
    log.release_before(last.file);
    let position = append_durably(&log, &text);
    assert_eq!(position, Position { file: 5, number: 9 });
    drop(log);
    let (_, found) = open_local(&dir);
    // The last file was not released, and the recycled one has one frame.
    let numbers: Vec<_> = found.iter().map(|frame| frame.number).collect();
    assert_eq!(numbers, [7, 8, 9]);
    assert_eq!(found[2].payload, text);
}

#[test]
fn a_frame_that_no_file_can_hold_is_refused_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open_local(&dir);
    append_durably(&log, "kea");
    let large = append(&log, frame(&"x".repeat(2000)));
    assert!(matches!(large, Appended::Full), "{large:?}");
    append_durably(&log, "weka");
    drop(log);
    assert_eq!(texts(&open_local(&dir).1), ["kea", "weka"]);
}

#[test]
fn a_context_is_written_once_in_each_file_that_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open_local(&dir);
    let context = ContextFrame {
        key: 5,
        kind: 1,
        payload: "columns".into(),
    };
    for _ in 0..4 {
        let with_context = NewFrame {
            context: Some(context.clone()),
            ..frame(&"x".repeat(300))
        };
        assert!(matches!(append(&log, with_context), Appended::Durable(_)));
    }
    drop(log);
    let (_, found) = open_local(&dir);
    let kinds: Vec<_> = found.iter().map(|frame| (frame.file, frame.kind)).collect();
    assert_eq!(kinds, [(1, 1), (1, 2), (1, 2), (2, 1), (2, 2), (2, 2)]);
}

#[test]
fn frames_that_wait_are_synced_together() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    let (log, _) = open(dir.path(), Arc::new(disk.clone())).unwrap();
    append_durably(&log, "the first one begins a file");
    let before = disk.syncs();
    let (sender, receiver) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (hold, held) = mpsc::channel();
    // The thread is held while it settles a frame.
    log.append(frame("held"), move |_| {
        hold.send(()).unwrap();
        released.recv().unwrap();
    });
    held.recv().unwrap();
    for number in 0..10 {
        let sender = sender.clone();
        log.append(frame("waits"), move |appended| {
            sender.send((number, appended)).unwrap();
        });
    }
    release.send(()).unwrap();
    for expected in 0..10 {
        let (number, appended) = receiver.recv().unwrap();
        assert_eq!(number, expected);
        assert!(matches!(appended, Appended::Durable(_)));
    }
    // Another thread may have prepared a file meanwhile.
    let synced = disk.syncs() - before;
    assert!((2..=3).contains(&synced), "{synced} syncs");
}

/// Writes frames to a disk on which a sync fails, and returns the durable ones.
fn write_some(log: &Log, from: u32) -> Vec<String> {
    let mut durable = Vec::new();
    for number in from..from + 8 {
        let text = format!("{number} {}", "x".repeat(number as usize * 37 % 200));
        if let Appended::Durable(_) = append(log, frame(&text)) {
            durable.push(text);
        }
    }
    durable
}

#[test]
fn after_a_power_loss_every_durable_frame_is_there_whichever_sync_fails() {
    for failing in 0..24 {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::over(dir.path()).unwrap();
        let (log, _) = open(dir.path(), Arc::new(disk.clone())).unwrap();
        disk.fail_sync_after(failing);
        let mut durable = write_some(&log, 0);
        let after = tempfile::tempdir().unwrap();
        disk.crash(after.path()).unwrap();
        drop(log);
        let (log, found) = open(after.path(), Arc::new(LocalDisk)).unwrap();
        assert_eq!(texts(&found), durable, "sync {failing} failed");
        durable.extend(write_some(&log, 8));
        drop(log);
        let (_, found) = open(after.path(), Arc::new(LocalDisk)).unwrap();
        assert_eq!(texts(&found), durable, "sync {failing} failed");
    }
}

#[test]
fn a_torn_end_is_cut_off_and_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open_local(&dir);
    for text in ["a durable frame", "a torn frame", "its successor"] {
        append_durably(&log, text);
    }
    drop(log);
    // The last group has the second and the third frame. The sectors of the second frame have not
    // arrived, and those of the third one have.
    let path = path_of(&dir.path().join(DIRECTORY), 1);
    let second = HEADER_BLOCK as usize + frame_bytes("a durable frame".len());
    let mut content = fs::read(&path).unwrap();
    let third = second + frame_bytes("a torn frame".len());
    content[second + 45] ^= 1;
    // When the third frame was written, the first one was durable.
    let group = frame::FrameHeader {
        file: 1,
        number: 3,
        synced: 1,
        kind: 2,
    };
    let mut encoded = Vec::new();
    frame::encode(group, &[b"its successor"], &mut encoded);
    content[third..third + encoded.len()].copy_from_slice(&encoded);
    fs::write(&path, &content).unwrap();
    let (log, found) = open_local(&dir);
    assert_eq!(texts(&found), ["a durable frame"]);
    // The new frame takes as much space as the torn one.
    append_durably(&log, "a next frame");
    drop(log);
    assert_eq!(
        texts(&open_local(&dir).1),
        ["a durable frame", "a next frame"]
    );
}

#[test]
fn any_bit_that_flips_in_a_frame_that_was_durable_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open_local(&dir);
    for text in ["kea", "weka", "takahe", "kaka"] {
        append_durably(&log, text);
    }
    append_durably(&log, &"x".repeat(900));
    drop(log);
    let whole: Vec<_> = files(dir.path())
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let in_frames = HEADER_BLOCK as usize..HEADER_BLOCK as usize + 4 * frame_bytes(6);
    for (number, found_if_torn) in [(0, None), (1, Some(4))] {
        for byte in (0..48).chain(in_frames.clone()) {
            for file in files(dir.path()) {
                fs::remove_file(file).unwrap();
            }
            for (path, content) in &whole {
                fs::write(path, content).unwrap();
            }
            let (path, content) = &whole[number];
            let mut flipped = content.clone();
            flipped[byte] ^= 0x10;
            fs::write(path, &flipped).unwrap();
            match open(dir.path(), Arc::new(LocalDisk)) {
                // Between the frames there are bytes that mean nothing.
                Ok((_, found)) if found.len() == 5 => {}
                // Nothing tells that the last frame was durable.
                Ok((_, found)) => assert_eq!(Some(found.len()), found_if_torn, "byte {byte}"),
                Err(error) => {
                    let is_damage = error.code() == ErrorCode::DataLoss;
                    let is_newer = error.code() == ErrorCode::InvalidArgument;
                    assert!(is_damage || (is_newer && byte < 48), "{error}");
                    assert!(error.message().contains(".log"), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_log_of_which_many_files_were_released_at_once_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open_local(&dir);
    let mut last = append_durably(&log, &"x".repeat(300));
    while last.file < 4 {
        last = append_durably(&log, &"x".repeat(300));
    }
    log.release_before(last.file);
    append_durably(&log, "kea");
    drop(log);
    // The store may not have heard yet which files are not needed any more, or it may have.
    for first_file in [0, last.file] {
        let disk = Arc::new(LocalDisk);
        let (_, frames) = Log::open(dir.path(), disk, store(), SIZE, first_file).unwrap();
        let found = texts(&frames);
        assert_eq!(found.last().unwrap(), "kea");
        assert!(found.len() <= 7, "{} frames", found.len());
    }
}

#[test]
fn a_log_without_files_goes_on_with_the_number_that_the_store_needs() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(LocalDisk);
    let (log, _) = Log::open(dir.path(), disk, store(), SIZE, 9).unwrap();
    assert_eq!(append_durably(&log, "kea").file, 9);
}

#[test]
fn a_file_that_was_closed_is_not_written_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open_local(&dir);
    let first = append_durably(&log, "kea");
    let (sender, receiver) = mpsc::channel();
    log.close_file(move |file| sender.send(file).unwrap());
    assert_eq!(receiver.recv().unwrap(), first.file);
    assert_eq!(append_durably(&log, "tui").file, first.file + 1);
    drop(log);
    assert_eq!(texts(&open_local(&dir).1), ["kea", "tui"]);
}

#[test]
fn a_missing_file_is_found_and_so_is_another_log() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open_local(&dir);
    for _ in 0..7 {
        append_durably(&log, &"x".repeat(300));
    }
    drop(log);
    let error = Log::open(dir.path(), Arc::new(LocalDisk), StoreId::new(), SIZE, 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
    assert!(error.message().contains("another worker's log"), "{error}");
    fs::remove_file(path_of(&dir.path().join(DIRECTORY), 2)).unwrap();
    let error = open(dir.path(), Arc::new(LocalDisk)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
    assert!(error.message().contains("a file is missing"), "{error}");
}
