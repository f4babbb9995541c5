//! The file `/proc/<pid>/stat` counts time in ticks of 10 ms, and `/proc/<pid>/status` counts only
//! the context switches of the first thread. This module therefore reads the files of each thread.

/// Parses the texts of proc(5).
mod parse;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

/// The error number ESRCH. It means that the thread ended while its file was open.
const NO_SUCH_PROCESS: i32 = 3;
/// The text that resets the peak of the memory when it is written to `clear_refs`.
const RESET_PEAK: &str = "5";

/// A process that is observed.
#[derive(Debug, Clone)]
pub struct ObservedProcess {
    directory: PathBuf,
}

/// The work that each thread of a process had done at some time.
#[derive(Debug, Clone)]
pub struct WorkSnapshot {
    threads: BTreeMap<u32, ThreadWork>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ThreadWork {
    processor_time: Duration,
    switches: u64,
}

/// The work of a process between two times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkDelta {
    /// Processor time of all threads, in user and system mode.
    pub processor_time: Duration,
    /// Number of context switches, voluntary and involuntary.
    pub switches: u64,
}

/// The resident memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUsage {
    /// The current memory.
    pub resident_bytes: u64,
    /// The largest memory since the start of the process or the last
    /// [`ObservedProcess::reset_peak`].
    pub peak_bytes: u64,
}

impl ObservedProcess {
    /// Returns this process.
    pub fn this() -> Self {
        Self {
            directory: PathBuf::from("/proc/self"),
        }
    }

    /// Returns another process of the same user.
    pub fn of(pid: u32) -> Self {
        Self {
            directory: PathBuf::from(format!("/proc/{pid}")),
        }
    }

    /// Returns the work that the threads have done so far.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub fn work(&self) -> Result<WorkSnapshot> {
        let tasks = self.directory.join("task");
        let entries = fs::read_dir(&tasks)
            .with_context(|| format!("cannot list {}; this needs Linux", tasks.display()))?;
        let mut threads = BTreeMap::new();
        for entry in entries {
            let entry = entry?;
            let id = entry.file_name().to_string_lossy().parse::<u32>()?;
            if let Some(work) = thread_work(&entry.path())? {
                threads.insert(id, work);
            }
        }
        Ok(WorkSnapshot { threads })
    }

    /// Returns the memory of the process.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub fn memory(&self) -> Result<MemoryUsage> {
        let path = self.directory.join("status");
        let status = read(&path)?;
        let bytes = |key: &str| {
            let kib = parse::status_number(&status, key);
            kib.map(|kib| kib * 1024)
                .with_context(|| format!("{} has no {key}", path.display()))
        };
        Ok(MemoryUsage {
            resident_bytes: bytes("VmRSS")?,
            peak_bytes: bytes("VmHWM")?,
        })
    }

    /// Resets the peak of the memory.
    ///
    /// # Errors
    /// Returns an error if the process has ended or belongs to another user, or if the kernel does
    /// not support it.
    pub fn reset_peak(&self) -> Result<()> {
        let path = self.directory.join("clear_refs");
        fs::write(&path, RESET_PEAK).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl WorkSnapshot {
    /// Returns the work since `earlier`. The work of a thread that has ended in the meantime is not
    /// known, and is left out.
    pub fn since(&self, earlier: &Self) -> WorkDelta {
        let mut done = WorkDelta::default();
        for (id, now) in &self.threads {
            let then = earlier.threads.get(id).copied().unwrap_or_default();
            done.processor_time += now.processor_time.saturating_sub(then.processor_time);
            done.switches += now.switches.saturating_sub(then.switches);
        }
        done
    }
}

/// Measures how far the peak memory of a process rises above its memory at the beginning.
#[derive(Debug)]
pub struct PeakGrowth {
    observed: ObservedProcess,
    idle_bytes: u64,
}

impl PeakGrowth {
    /// Begins to measure.
    ///
    /// # Errors
    /// Returns the errors of [`ObservedProcess::memory`] and [`ObservedProcess::reset_peak`].
    pub fn begin(observed: ObservedProcess) -> Result<Self> {
        observed.reset_peak()?;
        let idle_bytes = observed.memory()?.resident_bytes;
        Ok(Self {
            observed,
            idle_bytes,
        })
    }

    /// Returns the growth so far, in bytes.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub fn bytes(&self) -> Result<u64> {
        let memory = self.observed.memory()?;
        Ok(memory.peak_bytes.saturating_sub(self.idle_bytes))
    }
}

/// Returns the work of a thread, or `None` if the thread has ended.
fn thread_work(directory: &Path) -> Result<Option<ThreadWork>> {
    let file = |name: &str| none_if_ended(fs::read_to_string(directory.join(name)));
    let (Some(stat), Some(status)) = (file("stat")?, file("status")?) else {
        return Ok(None);
    };
    // `schedstat` counts in nanoseconds, but only some kernels are built with it.
    let exact = file("schedstat")?.and_then(|text| parse::schedstat(&text));
    let processor_time = exact.or_else(|| parse::stat(&stat));
    let switches = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
        .map(|key| parse::status_number(&status, key).unwrap_or_default());
    Ok(Some(ThreadWork {
        processor_time: processor_time
            .with_context(|| format!("cannot parse the files in {}", directory.display()))?,
        switches: switches.iter().sum(),
    }))
}

fn none_if_ended(text: io::Result<String>) -> io::Result<Option<String>> {
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error)
            if error.kind() == ErrorKind::NotFound
                || error.raw_os_error() == Some(NO_SUCH_PROCESS) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .with_context(|| format!("cannot read {}; this needs Linux", path.display()))
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn this_process_has_memory_and_its_work_grows() {
        let this = ObservedProcess::this();
        this.reset_peak().unwrap();
        let memory = this.memory().unwrap();
        assert!(memory.resident_bytes > 0 && memory.peak_bytes > 0);
        let before = this.work().unwrap();
        let growth = PeakGrowth::begin(this.clone()).unwrap();
        let filled = black_box(vec![1u8; 64 << 20]);
        assert!(growth.bytes().unwrap() >= 32 << 20, "{}", filled.len());
        let mut number = filled.len();
        // The kernel counts the time of a running thread when its time slice ends.
        while this.work().unwrap().since(&before).processor_time < Duration::from_millis(1) {
            number = black_box(number.rotate_left(1));
        }
        assert_eq!(before.since(&before), WorkDelta::default());
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        // Process ids are below 2^22.
        assert!(ObservedProcess::of(u32::MAX).work().is_err());
        assert!(ObservedProcess::of(u32::MAX).memory().is_err());
    }
}
