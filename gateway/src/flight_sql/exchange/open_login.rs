use std::sync::Arc;

use volary_flight_proto::Result;

use crate::login::{Credentials, Login};

/// The credentials of a client whose call goes on.
pub(super) struct OpenLogin {
    login: Arc<Login>,
    credentials: Credentials,
}

impl OpenLogin {
    /// Keeps the credentials with which the call was opened.
    pub(super) fn new(login: &Arc<Login>, credentials: &Credentials) -> Self {
        Self {
            login: Arc::clone(login),
            credentials: credentials.clone(),
        }
    }

    /// Refuses what the client sends if a new call with its credentials would be refused.
    ///
    /// # Errors
    /// The errors of [`Login::check_again`].
    pub(super) fn check(&self) -> Result<()> {
        self.login.check_again(&self.credentials)
    }
}
