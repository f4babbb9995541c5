//! Sessions and their settings.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use volary_flight_proto::ids::SessionId;

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

    /// Takes a setting back to its default.
    pub(crate) fn unset(&self, key: &str) {
        self.settings.write().remove(key);
    }

    /// Changes one setting; the engine checks key and value first.
    pub(crate) fn set(&self, key: String, value: String) {
        self.settings.write().insert(key, value);
    }
}
