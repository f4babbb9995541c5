use std::fmt;
use std::str::FromStr;

use volary_flight_proto::{Error, Result};

use super::client_option::is_on;

/// Name of the header and of the session option that ask for direct results.
pub(super) const DIRECT_RESULTS_OPTION: &str = "volary-direct-results";

/// Says whether a client fetches rows from the workers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum DirectResults {
    /// All rows come from the gateway.
    #[default]
    Off,
    /// Rows come from the workers, where that is possible.
    On,
}

impl FromStr for DirectResults {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_on = is_on(DIRECT_RESULTS_OPTION, text)?;
        Ok(if is_on { Self::On } else { Self::Off })
    }
}

impl fmt::Display for DirectResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_on_or_off() {
        assert_eq!("on".parse::<DirectResults>().unwrap(), DirectResults::On);
        assert_eq!(
            "false".parse::<DirectResults>().unwrap(),
            DirectResults::Off
        );
        let error = "sometimes".parse::<DirectResults>().unwrap_err();
        assert_eq!(
            error.message(),
            "volary-direct-results is \"sometimes\"; write on or off"
        );
    }
}
