#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use super::*;

const PAGE: usize = 4096;

fn disk() -> (tempfile::TempDir, FaultyDisk) {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    (dir, disk)
}

fn after_crash(disk: &FaultyDisk) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    disk.crash(dir.path()).unwrap();
    dir
}

#[test]
fn a_file_survives_with_its_name_and_the_content_of_its_last_sync() {
    let (dir, disk) = disk();
    let path = dir.path().join("a");
    disk.write_file(&path, b"eggs").unwrap();
    assert!(!after_crash(&disk).path().join("a").exists());
    disk.sync_directory(dir.path()).unwrap();
    fs::write(&path, "chicks").unwrap();
    let after = after_crash(&disk);
    assert_eq!(fs::read(after.path().join("a")).unwrap(), b"eggs");
    fs::remove_file(&path).unwrap();
    assert!(after_crash(&disk).path().join("a").exists());
    disk.sync_directory(dir.path()).unwrap();
    assert!(!after_crash(&disk).path().join("a").exists());
}

#[test]
fn pages_of_a_failed_sync_are_lost_although_a_later_one_succeeds() {
    let (dir, disk) = disk();
    let path = dir.path().join("a");
    disk.write_file(&path, &[1; 2 * PAGE]).unwrap();
    disk.sync_directory(dir.path()).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[2; PAGE], 0).unwrap();
    disk.fail_sync_after(0);
    disk.sync_file(&file, &path).unwrap_err();
    file.write_all_at(&[3; PAGE], PAGE as u64).unwrap();
    disk.sync_file(&file, &path).unwrap();
    // The page cache has both changes, but the disk has only the second one.
    assert_eq!(fs::read(&path).unwrap()[0], 2);
    let after = fs::read(after_crash(&disk).path().join("a")).unwrap();
    assert_eq!((after[0], after[PAGE]), (1, 3));
    // Writing the page again makes it dirty again.
    file.write_all_at(&[4; PAGE], 0).unwrap();
    disk.sync_file(&file, &path).unwrap();
    let after = fs::read(after_crash(&disk).path().join("a")).unwrap();
    assert_eq!((after[0], after[PAGE]), (4, 3));
}

#[test]
fn what_is_there_at_first_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let path = dir.path().join("d/a");
    fs::write(&path, "eggs").unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    let after = after_crash(&disk);
    assert_eq!(fs::read(after.path().join("d/a")).unwrap(), b"eggs");
    // It has space, too.
    disk.set_room(Some(0));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    disk.write_at(&file, &path, 0, b"chicks").unwrap();
    disk.write_at(&file, &path, PAGE as u64, b"chicks")
        .unwrap_err();
}

#[test]
fn a_full_disk_has_room_again_when_a_file_is_removed() {
    let (dir, disk) = disk();
    let path = dir.path().join("a");
    disk.write_file(&path, b"eggs").unwrap();
    disk.set_room(Some(3));
    let full = disk.write_file(&dir.path().join("b"), b"eggs");
    assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
    disk.remove_file(&path).unwrap();
    disk.write_file(&dir.path().join("b"), b"eggs").unwrap();
}

#[test]
fn allocated_space_counts_once_until_the_file_is_emptied_or_removed() {
    let (dir, disk) = disk();
    let path = dir.path().join("a");
    let file = File::create(&path).unwrap();
    disk.set_room(Some(4 * PAGE as u64));
    let allocate = |pages: u64| disk.allocate(&file, &path, pages * PAGE as u64);
    let write = |page: u64| disk.write_at(&file, &path, page * PAGE as u64, b"eggs");
    allocate(3).unwrap();
    allocate(2).unwrap();
    write(2).unwrap();
    let full = allocate(5).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    write(9).unwrap();
    write(8).unwrap_err();
    disk.empty_file(&file, &path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    allocate(4).unwrap();
    write(4).unwrap_err();
    disk.remove_file(&path).unwrap();
    disk.write_file(&path, &[1; 4 * PAGE]).unwrap();
}
