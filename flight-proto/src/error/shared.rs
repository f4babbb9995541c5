use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::Error;

impl Error {
    /// Returns the error for one of several callers that it made fail. It has the same cause.
    pub fn shared(error: &Arc<Self>) -> Self {
        let source = error.source.as_ref().map(|_| {
            let cause: Box<dyn StdError + Send + Sync> = Box::new(SharedCause(Arc::clone(error)));
            cause
        });
        Self {
            code: error.code,
            message: error.message.clone(),
            source,
            is_source_hidden: error.is_source_hidden,
            retry_after: error.retry_after,
            sqlstate: error.sqlstate,
        }
    }
}

/// The cause of an error that several callers get.
#[derive(Debug)]
struct SharedCause(Arc<Error>);

impl fmt::Display for SharedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.source {
            Some(cause) => write!(f, "{cause}"),
            None => Ok(()),
        }
    }
}

impl StdError for SharedCause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref()?.source()
    }
}
