use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use tonic::Status;
use tonic::metadata::AsciiMetadataValue;

use crate::sqlstate::SqlState;

/// Defines the error codes, and maps them to and from gRPC.
mod code;
/// Maps the errors of libraries, such as DataFusion, to Volary's errors.
mod libraries;
/// Gives several callers the same error.
mod shared;
#[cfg(test)]
mod tests;

pub use code::ErrorCode;

/// Maximum length of a message that is sent, in bytes as gRPC encodes them. Clients on gRPC's C
/// core lose messages above 8 KiB, and report instead that the headers are too large.
const MAX_ENCODED_BYTES: usize = 4 * 1024;

/// gRPC's metadata key for the time after which a call may be sent again, in milliseconds (gRFC A6,
/// "Pushback").
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// gRPC's metadata key for the SQLSTATE code.
const SQLSTATE: &str = "volary-sqlstate";

/// An error that a client, another node or an operator reads.
///
/// The message says *what* failed, *where* (table, shard, worker, file, column) and *what to do*.
///
/// `{}` formats the text that clients get. `{:#}` is for logs: it adds the hidden causes.
#[derive(Debug)]
pub struct Error {
    code: ErrorCode,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// True if only logs show the source.
    is_source_hidden: bool,
    retry_after: Option<Duration>,
    /// An SQLSTATE code that is more precise than the one that follows from `code`.
    sqlstate: Option<SqlState>,
}

/// The result of an operation that may fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error without a cause.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            source: None,
            is_source_hidden: false,
            retry_after: None,
            sqlstate: None,
        }
    }

    /// Creates an error with its cause. Clients and logs show the cause after the message.
    pub fn with_source(
        code: ErrorCode,
        message: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            source: Some(source.into()),
            ..Self::new(code, message)
        }
    }

    /// Creates an error with the code [`ErrorCode::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    /// Creates an error with the code [`ErrorCode::InvalidArgument`], for a statement that asks for
    /// something that Volary does not do.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::invalid(message).with_sqlstate(SqlState::FeatureNotSupported)
    }

    /// Creates an error with the code [`ErrorCode::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    /// Creates an error with the code [`ErrorCode::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }

    /// Creates an error with the code [`ErrorCode::Internal`], which is only for bugs.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// Returns the code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// Returns the message without the code and without the causes.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the SQLSTATE code.
    pub fn sqlstate(&self) -> SqlState {
        self.sqlstate.unwrap_or_else(|| self.code.into())
    }

    /// Sets the SQLSTATE code, which is more precise than the error code.
    #[must_use]
    pub fn with_sqlstate(mut self, sqlstate: SqlState) -> Self {
        self.sqlstate = Some(sqlstate);
        self
    }

    /// Replaces the message, and keeps the rest of the error.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Adds the time to wait before the next try. Both the message and gRPC's metadata contain it.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.message = format!("{}; retry in about {}", self.message, format_rounded(after));
        self.retry_after = Some(after);
        self
    }

    /// Returns the time to wait before the next try, if it is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Puts `place` (for example "worker w3 at 127.0.0.1:7001") in front of the message.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Adds the cause for logs. Clients do not see it, so the message must say what they need to
    /// know. An error that already has a source keeps it.
    #[must_use]
    fn with_hidden_source(
        mut self,
        source: impl Into<Box<dyn StdError + Send + Sync + 'static>>,
    ) -> Self {
        if self.source.is_none() {
            self.source = Some(source.into());
            self.is_source_hidden = true;
        }
        self
    }

    /// Creates the error of a file or directory. A full disk and a refused permission have codes of
    /// their own.
    pub fn io(what: impl fmt::Display, source: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let (code, sqlstate, advice) = match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (
                ErrorCode::ResourceExhausted,
                SqlState::DiskFull,
                ": the disk is full; free space and retry",
            ),
            ErrorKind::NotFound => (ErrorCode::NotFound, SqlState::UndefinedFile, ""),
            ErrorKind::PermissionDenied => (
                ErrorCode::PermissionDenied,
                SqlState::InsufficientPrivilege,
                "",
            ),
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                (ErrorCode::DataLoss, SqlState::DataCorrupted, "")
            }
            _ => (ErrorCode::Unavailable, SqlState::IoError, ""),
        };
        Self::with_source(code, format!("{what}{advice}"), source).with_sqlstate(sqlstate)
    }

    /// Converts the error of a library that writes a file. If its causes or its text name an I/O
    /// error, the result is that of [`Error::io`]. Any other error is a bug (`INTERNAL`).
    pub fn io_within(
        what: impl fmt::Display,
        error: impl StdError + Send + Sync + 'static,
    ) -> Self {
        match io_cause(&error) {
            Some(source) => Self::io(what, source),
            None => Self::with_source(ErrorCode::Internal, what.to_string(), error),
        }
    }

    /// Returns the whole text for clients: code, message and causes, cut to
    /// [`MAX_ENCODED_BYTES`].
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}", self.code, self.message);
        let mut cause = self.source().filter(|_| !self.is_source_hidden);
        while let Some(current) = cause {
            let said = current.to_string();
            // Errors repeat the text of the errors that they wrap, so a text is added only once.
            if !said.is_empty() && !text.contains(&said) {
                text.push_str(": ");
                text.push_str(&said);
            }
            // The text of an `Error` already has all of its causes except the hidden ones.
            cause = next_cause(current).filter(|_| !current.is::<Self>());
        }
        truncate(text)
    }

    /// Returns the causes that are missing in `text`, the text for clients, each after a colon.
    fn hidden_causes(&self, text: &str) -> String {
        let mut further = String::new();
        let mut cause = self.source();
        while let Some(current) = cause {
            let said = current.to_string();
            // DataFusion puts the kind of an error in front of its text: `Arrow error: …`.
            let within = said
                .split_once(": ")
                .map_or(said.as_str(), |(_, rest)| rest);
            if !within.is_empty() && !text.contains(within) && !further.contains(within) {
                further.push_str(": ");
                further.push_str(&said);
            }
            cause = next_cause(current);
        }
        truncate(further)
    }
}

/// Returns the cause of an error.
fn next_cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    // The source of an `io::Error` is not the error that it wraps, but the source of that one.
    let io = error.downcast_ref::<std::io::Error>();
    match io.and_then(std::io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

/// Returns the text of the innermost cause of an error. The errors around it may show it in `Debug`
/// format, as tonic does with the source of a status.
pub fn innermost_cause(error: &(dyn StdError + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Returns the I/O error among the causes of an error. Some libraries keep only its text, for
/// example parquet: `Could not write bloom filter …: No space left on device (os error 28)`.
fn io_cause(error: &(dyn StdError + 'static)) -> Option<std::io::Error> {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            if let Some(code) = io.raw_os_error() {
                return Some(std::io::Error::from_raw_os_error(code));
            }
            // An error of the kind `Other` wraps another error, which the search of the text below
            // may find.
            if io.kind() != std::io::ErrorKind::Other {
                return Some(io.kind().into());
            }
        }
        cause = current.source();
    }
    let text = error.to_string();
    let (_, code) = text.rsplit_once("(os error ")?;
    let code = code.split_once(')')?.0.parse().ok()?;
    Some(std::io::Error::from_raw_os_error(code))
}

/// Formats a time for people, rounded up: `300 ms`, `2 s`.
fn format_rounded(time: Duration) -> String {
    match time.as_millis() {
        millis @ ..=900 => format!("{} ms", millis.div_ceil(100) * 100),
        millis => format!("{} s", millis.div_ceil(1000)),
    }
}

/// Cuts a text that is too long. The cut is between two characters, and is marked.
fn truncate(mut text: String) -> String {
    const MARK: &str = " … (cut)";
    if encoded_bytes(&text) > MAX_ENCODED_BYTES {
        let room = MAX_ENCODED_BYTES - encoded_bytes(MARK);
        let mut bytes = 0;
        let end = text.char_indices().find_map(|(at, character)| {
            bytes += encoded_bytes_of(character);
            (bytes > room).then_some(at)
        });
        text.truncate(end.unwrap_or(text.len()));
        text.push_str(MARK);
    }
    text
}

fn encoded_bytes(text: &str) -> usize {
    text.chars().map(encoded_bytes_of).sum()
}

/// Returns how many bytes a character takes in the header `grpc-message`, as tonic writes it. Each
/// byte of a character that is not plain ASCII is written as `%` and two digits.
fn encoded_bytes_of(character: char) -> usize {
    let is_plain = character.is_ascii_graphic()
        && !matches!(
            character,
            '"' | '#' | '%' | '<' | '>' | '`' | '?' | '{' | '}'
        );
    if is_plain {
        1
    } else {
        3 * character.len_utf8()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.write_str(&text)?;
        if f.alternate() {
            f.write_str(&self.hidden_causes(&text))?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let mut status = Status::new(error.code.to_grpc(), error.text());
        if let Some(after) = error.retry_after {
            let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            status
                .metadata_mut()
                .insert(RETRY_PUSHBACK, after_ms.into());
        }
        let sqlstate = AsciiMetadataValue::from_static(error.sqlstate().code());
        status.metadata_mut().insert(SQLSTATE, sqlstate);
        status
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let code = ErrorCode::from_grpc(status.code());
        let text = status.message();
        // A Volary node puts the code in front of the text. It is removed here, because
        // `Error::text` adds it again.
        let message = text
            .strip_prefix(code.name())
            .and_then(|rest| rest.strip_prefix(": "))
            .unwrap_or(text);
        let message = if message.is_empty() {
            "no message was given".to_owned()
        } else {
            message.to_owned()
        };
        Self {
            // If a Volary node wrote the message, the message already contains this time.
            retry_after: retry_pushback(&status),
            sqlstate: sqlstate_in(&status),
            source: BrokenCall::of(status).map(Into::into),
            is_source_hidden: true,
            ..Self::new(code, message)
        }
    }
}

/// The cause of a call that broke on this side of the connection. A status that another node has
/// sent has no such cause.
struct BrokenCall(Status);

impl BrokenCall {
    fn of(mut status: Status) -> Option<Self> {
        // Answers of nodes may hold tokens, which no log should have.
        status.metadata_mut().clear();
        status.source().is_some().then_some(Self(status))
    }

    fn cause(&self) -> &(dyn StdError + 'static) {
        self.0.source().unwrap_or(&self.0)
    }
}

impl fmt::Debug for BrokenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.cause(), f)
    }
}

impl fmt::Display for BrokenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.cause(), f)
    }
}

impl StdError for BrokenCall {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause().source()
    }
}

/// Returns the time after which a call may be retried. Returns `None` also for a negative number,
/// with which the server forbids a retry.
fn retry_pushback(status: &Status) -> Option<Duration> {
    let after_ms = status.metadata().get(RETRY_PUSHBACK)?.to_str().ok()?;
    after_ms.parse().map(Duration::from_millis).ok()
}

/// Returns the SQLSTATE code. Returns `None` also for a code that this release does not know.
fn sqlstate_in(status: &Status) -> Option<SqlState> {
    let code = status.metadata().get(SQLSTATE)?.to_str().ok()?;
    SqlState::of_code(code)
}
