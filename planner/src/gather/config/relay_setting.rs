use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use volary_flight_proto::Error;

/// Number of workers that merge the rows of other workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelaySetting {
    /// The number that is estimated to be fastest. If the gateway alone is estimated to be faster,
    /// there are no relays.
    Auto,
    /// No relays.
    Off,
    /// This many relays.
    Count(NonZeroUsize),
}

impl FromStr for RelaySetting {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            other => other.parse().map(Self::Count).map_err(|_| {
                Error::invalid(format!(
                    "\"{text}\" is not a number of relays; write auto, off, or a number of at least 1"
                ))
            }),
        }
    }
}

impl fmt::Display for RelaySetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

impl Serialize for RelaySetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RelaySetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = RelaySetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("auto, off, or a number of at least 1")
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<RelaySetting, E> {
                self.visit_str(&count.to_string())
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<RelaySetting, E> {
                self.visit_str(&count.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RelaySetting, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}

impl JsonSchema for RelaySetting {
    fn schema_name() -> Cow<'static, str> {
        "Relays".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_read_as_they_are_written() {
        for text in ["auto", "off", "1", "46"] {
            assert_eq!(text.parse::<RelaySetting>().unwrap().to_string(), text);
        }
        for nonsense in ["", "0", "-1", "many", "1.5"] {
            let refused = nonsense.parse::<RelaySetting>().unwrap_err();
            assert!(refused.message().contains("auto, off"), "{refused}");
        }
    }
}
