use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The number of logical processors that this process may use.
    pub cpus: usize,
    /// The name of the processor.
    pub model: String,
    /// The memory of the machine, in bytes.
    pub memory: u64,
    /// The distribution and the kernel.
    pub os: String,
}

impl Machine {
    /// Returns this machine as Linux describes it. A text that Linux does not report is "unknown",
    /// and an unreported memory size is 0.
    pub fn this() -> Self {
        let distribution = value_of("/etc/os-release", "PRETTY_NAME", '=');
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease");
        let kernel = kernel.map_or_else(|_| unknown(), |text| text.trim().to_owned());
        Self {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            model: value_of("/proc/cpuinfo", "model name", ':').unwrap_or_else(unknown),
            memory: value_of("/proc/meminfo", "MemTotal", ':')
                .and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok())
                .map_or(0, |kib| kib * 1024),
            os: format!(
                "{}, Linux {kernel}",
                distribution.unwrap_or_else(unknown).trim_matches('"')
            ),
        }
    }
}

/// Returns the versions of the measured software, by name.
pub fn versions() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("volary", env!("CARGO_PKG_VERSION")),
        ("datafusion", datafusion::DATAFUSION_VERSION),
        ("arrow", arrow::ARROW_VERSION),
    ])
}

/// Returns the first value of a key in a file with one key and value per line.
fn value_of(path: &str, key: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_processors_and_memory() {
        let machine = Machine::this();
        assert!(machine.cpus > 0 && machine.memory > 1 << 20, "{machine:?}");
        assert!(machine.os.contains("Linux "), "{machine:?}");
    }
}
