//! Sessions and their settings.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use volary_flight_proto::Result;
use volary_flight_proto::ids::SessionId;

use super::settings;

/// A client's session: its settings, shared by all calls that carry its token.
#[derive(Debug, Clone)]
pub struct Session {
    id: SessionId,
    settings: Arc<RwLock<HashMap<String, String>>>,
}

impl Session {
    /// A new one with these settings.
    pub fn new(settings: HashMap<String, String>) -> Self {
        Self {
            id: SessionId::new(),
            settings: Arc::new(RwLock::new(settings)),
        }
    }

    /// Its id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The settings that are not the default, by DataFusion's or Volary's key.
    pub fn settings(&self) -> HashMap<String, String> {
        self.settings.read().clone()
    }

    /// Whether there is a setting of this name.
    pub fn has_setting(name: &str) -> bool {
        settings::key(name).is_ok()
    }

    /// Changes a setting, by any of its names; `None` takes it back to its default.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a setting that does not exist, or a value that it does not take.
    pub fn change(&self, name: &str, value: Option<String>) -> Result<()> {
        let key = settings::key(name)?;
        match value {
            Some(value) => {
                settings::check(key, &value)?;
                self.settings.write().insert(key.to_owned(), value);
            }
            None => {
                self.settings.write().remove(key);
            }
        }
        Ok(())
    }
}
