//! The planner reads the settings of a session, and SET and SHOW find them by their keys.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionConfig;
use humantime_serde::re::humantime;
use volary_exec::instants::UTC;
use volary_node::memory;
use volary_node::size::MemorySize;

use crate::gather::config::RelaySetting;

/// Key of the timeout of a statement.
pub const STATEMENT_TIMEOUT: &str = "volary.statement_timeout";
/// Key of the memory limit of a query.
pub const QUERY_MEMORY: &str = "volary.query_memory";
/// Key of the number of relays.
pub const RELAYS: &str = "volary.relays";
/// Key of the time zone.
pub const TIME_ZONE: &str = "volary.time_zone";
/// Key of the setting that refuses writes.
pub const READ_ONLY: &str = "volary.read_only";

/// Volary's own settings: what a statement may use, how its rows are gathered, the time zone, and
/// whether writes are refused. A session can only lower the limits of the gateway. SHOW returns the
/// limits that apply.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    gateway_timeout: Duration,
    gateway_memory: memory::ByteLimit,
    /// The timeout that the session has set. Zero if it has set none.
    statement_timeout: Duration,
    query_memory: Option<memory::ByteLimit>,
    relays: RelaySetting,
    time_zone: Arc<str>,
    is_read_only: bool,
    /// The user whose session it is. This is no setting: only the gateway sets it.
    user: Arc<str>,
}

impl SessionSettings {
    /// Creates the settings with the limits of the gateway.
    pub fn new(timeout: Duration, memory: memory::ByteLimit, relays: RelaySetting) -> Self {
        Self {
            gateway_timeout: timeout,
            gateway_memory: memory,
            statement_timeout: Duration::ZERO,
            query_memory: None,
            relays,
            time_zone: UTC.into(),
            is_read_only: false,
            user: "".into(),
        }
    }

    /// Creates settings without limits.
    pub fn unlimited() -> Self {
        let memory = memory::ByteLimit {
            bytes: usize::MAX,
            setting: "",
        };
        Self::new(Duration::MAX, memory, RelaySetting::Auto)
    }

    /// Returns the memory limit of each query of the session.
    pub fn memory(config: &SessionConfig) -> memory::ByteLimit {
        let limits = config.options().extensions.get::<Self>();
        limits.map_or_else(|| Self::unlimited().gateway_memory, Self::query_memory)
    }

    /// Returns the setting for the number of relays in queries of the session.
    pub fn relays(options: &ConfigOptions) -> RelaySetting {
        let limits = options.extensions.get::<Self>();
        limits.map_or(RelaySetting::Auto, |limits| limits.relays)
    }

    /// Returns the time zone in which statements of the session read and write instants.
    pub fn time_zone(options: &ConfigOptions) -> Arc<str> {
        let settings = options.extensions.get::<Self>();
        settings.map_or_else(|| UTC.into(), |settings| Arc::clone(&settings.time_zone))
    }

    /// Returns whether the session refuses writes.
    pub fn is_read_only(options: &ConfigOptions) -> bool {
        let settings = options.extensions.get::<Self>();
        settings.is_some_and(|settings| settings.is_read_only)
    }

    /// Sets the user whose session it is.
    pub fn set_user(options: &mut ConfigOptions, user: &str) {
        if let Some(settings) = options.extensions.get_mut::<Self>() {
            settings.user = user.into();
        }
    }

    /// Returns the user whose session it is.
    pub(crate) fn user(options: &ConfigOptions) -> Arc<str> {
        let settings = options.extensions.get::<Self>();
        settings.map_or_else(|| "".into(), |settings| Arc::clone(&settings.user))
    }

    /// Sets the time zone back to UTC.
    pub fn reset_time_zone(options: &mut ConfigOptions) {
        if let Some(settings) = options.extensions.get_mut::<Self>() {
            settings.time_zone = UTC.into();
        }
    }

    fn query_memory(&self) -> memory::ByteLimit {
        self.query_memory.map_or(self.gateway_memory, |session| {
            self.gateway_memory.min(session)
        })
    }

    fn statement_timeout(&self) -> Duration {
        if self.statement_timeout.is_zero() {
            self.gateway_timeout
        } else {
            self.statement_timeout.min(self.gateway_timeout)
        }
    }
}

impl ConfigExtension for SessionSettings {
    const PREFIX: &'static str = "volary";
}

impl ExtensionOptions for SessionSettings {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let refused = || DataFusionError::Configuration(format!("{key} cannot be set to {value}"));
        match key {
            "statement_timeout" => {
                self.statement_timeout = parse_timeout(value).ok_or_else(refused)?;
            }
            "query_memory" => {
                let size: MemorySize = value.parse().map_err(|_| refused())?;
                self.query_memory = Some(memory::ByteLimit {
                    bytes: size.bytes(),
                    setting: "the session's query_memory",
                });
            }
            "relays" => self.relays = value.parse().map_err(|_| refused())?,
            "time_zone" => self.time_zone = value.into(),
            "read_only" => self.is_read_only = value.parse().map_err(|_| refused())?,
            _ => return Err(refused()),
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let timeout = humantime::format_duration(self.statement_timeout());
        let memory = MemorySize::from(self.query_memory().bytes);
        vec![
            ConfigEntry {
                key: STATEMENT_TIMEOUT.to_owned(),
                value: Some(timeout.to_string()),
                description: "Maximum time that a statement may run: 5s, or a number of milliseconds. With 0, only the limit of the gateway applies.",
            },
            ConfigEntry {
                key: QUERY_MEMORY.to_owned(),
                value: Some(memory.to_string()),
                description: "Maximum memory that a query may hold on the gateway: 256MiB.",
            },
            ConfigEntry {
                key: RELAYS.to_owned(),
                value: Some(self.relays.to_string()),
                description: "Number of workers that merge the rows of other workers for the gateway, if the rows can be merged: auto, off, or a number.",
            },
            ConfigEntry {
                key: TIME_ZONE.to_owned(),
                value: Some(self.time_zone.to_string()),
                description: "Time zone in which TIMESTAMP WITH TIME ZONE is read from text and written as text: a name such as Europe/Berlin, or an offset such as +02:00.",
            },
            ConfigEntry {
                key: READ_ONLY.to_owned(),
                value: Some(self.is_read_only.to_string()),
                description: "Refuses statements that write: true or false.",
            },
        ]
    }
}

/// Parses a duration. A number alone is in milliseconds, as in PostgreSQL. Returns `None` if the
/// text is neither.
pub fn parse_timeout(text: &str) -> Option<Duration> {
    match text.trim().parse() {
        Ok(timeout_ms) => Some(Duration::from_millis(timeout_ms)),
        Err(_) => humantime::parse_duration(text).ok(),
    }
}
