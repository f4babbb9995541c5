use std::fmt;
use std::str::FromStr;

use bytesize::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An amount of memory: bytes ("512MiB"), or a share of the machine's memory or of the limit of the
/// cgroup that the process runs in ("50%").
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum MemorySize {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the available memory.
    Percent(u8),
}

impl MemorySize {
    /// Returns the size in bytes on this machine.
    pub fn bytes(self) -> usize {
        let bytes = match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => total_memory_bytes() / 100 * u64::from(percent),
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// Returns the memory of the machine in bytes, or the limit of the cgroup that the process runs in.
pub fn total_memory_bytes() -> u64 {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    system
        .cgroup_limits()
        .map_or_else(|| system.total_memory(), |limits| limits.total_memory)
}

impl From<usize> for MemorySize {
    fn from(bytes: usize) -> Self {
        Self::Bytes(bytes as u64)
    }
}

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(number) = text.strip_suffix('%') {
            return match number.trim().parse::<u8>() {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                _ => Err(format!(
                    "\"{text}\" is not a share of the memory; write 1% to 100%"
                )),
            };
        }
        match text.parse::<ByteSize>() {
            Ok(size) if size.as_u64() > 0 => Ok(Self::Bytes(size.as_u64())),
            _ => Err(format!(
                "\"{text}\" is not a size; write for example 512MiB, 2GiB or 50%"
            )),
        }
    }
}

impl TryFrom<String> for MemorySize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{}", ByteSize(*bytes)),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl From<MemorySize> for String {
    fn from(size: MemorySize) -> Self {
        size.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_nonsense_is_refused() {
        assert_eq!("512MiB".parse(), Ok(MemorySize::Bytes(512 << 20)));
        assert_eq!("40%".parse(), Ok(MemorySize::Percent(40)));
        for nonsense in ["0%", "101%", "", "many", "0"] {
            assert!(nonsense.parse::<MemorySize>().is_err(), "{nonsense}");
        }
    }
}
