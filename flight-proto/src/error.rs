use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::error::ArrowError;
use arrow_flight::error::FlightError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Status};

use crate::sqlstate::SqlState;

/// Maximum length of a message that is sent, in bytes as gRPC encodes them. Clients on gRPC's C
/// core lose messages above 8 KiB, and report instead that the headers are too large.
const MAX_ENCODED_BYTES: usize = 4 * 1024;

/// gRPC's metadata key for the time after which a call may be sent again, in milliseconds (gRFC A6,
/// "Pushback").
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// gRPC's metadata key for the SQLSTATE code.
const SQLSTATE: &str = "volary-sqlstate";

/// The kind of an error: who can fix it, and whether the same call may succeed later.
///
/// The name of a code is part of the interface. Clients find it at the front of every message, such
/// as `NOT_FOUND: table …`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The statement, a parameter or a file is wrong, or asks for something that Volary does not
    /// do. The user fixes it.
    InvalidArgument,
    /// A table, column, worker, file or handle that was named does not exist. The user fixes it.
    NotFound,
    /// The thing that was to be created already exists. The user fixes it.
    AlreadyExists,
    /// The credentials are missing, wrong or expired. The user logs in again.
    Unauthenticated,
    /// The credentials are right, but do not allow this. An administrator fixes it.
    PermissionDenied,
    /// A limit is reached: memory, disk or a queue. The call may be retried later, or after the
    /// limit is raised.
    ResourceExhausted,
    /// A node cannot be reached, is shutting down or has not joined. The call may be retried.
    Unavailable,
    /// A deadline passed. The call may be retried with a longer deadline.
    DeadlineExceeded,
    /// The client cancelled the call. Nobody has to fix anything.
    Cancelled,
    /// Stored data is missing or damaged. The operator restores it.
    DataLoss,
    /// The feature of the protocol (not of SQL) does not exist here.
    Unimplemented,
    /// A bug in Volary. Please report it.
    Internal,
}

impl ErrorCode {
    /// All codes, for tests and documentation.
    pub const ALL: [ErrorCode; 12] = [
        Self::InvalidArgument,
        Self::NotFound,
        Self::AlreadyExists,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::Unavailable,
        Self::DeadlineExceeded,
        Self::Cancelled,
        Self::DataLoss,
        Self::Unimplemented,
        Self::Internal,
    ];

    /// Returns the stable name, which stands at the front of every message.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::Unavailable => "UNAVAILABLE",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::Cancelled => "CANCELLED",
            Self::DataLoss => "DATA_LOSS",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
        }
    }

    fn to_grpc(self) -> Code {
        match self {
            Self::InvalidArgument => Code::InvalidArgument,
            Self::NotFound => Code::NotFound,
            Self::AlreadyExists => Code::AlreadyExists,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::PermissionDenied => Code::PermissionDenied,
            Self::ResourceExhausted => Code::ResourceExhausted,
            Self::Unavailable => Code::Unavailable,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Cancelled => Code::Cancelled,
            Self::DataLoss => Code::DataLoss,
            Self::Unimplemented => Code::Unimplemented,
            Self::Internal => Code::Internal,
        }
    }

    fn from_grpc(code: Code) -> Self {
        match code {
            Code::InvalidArgument => Self::InvalidArgument,
            Code::NotFound => Self::NotFound,
            Code::AlreadyExists => Self::AlreadyExists,
            Code::Unauthenticated => Self::Unauthenticated,
            Code::PermissionDenied => Self::PermissionDenied,
            // tonic uses OUT_OF_RANGE for a message that is too large.
            Code::ResourceExhausted | Code::OutOfRange => Self::ResourceExhausted,
            // tonic uses UNKNOWN for a connection that broke in the middle of a stream.
            Code::Unavailable | Code::Unknown => Self::Unavailable,
            Code::DeadlineExceeded => Self::DeadlineExceeded,
            // A stream ends with ABORTED if its client has broken it off.
            Code::Cancelled | Code::Aborted => Self::Cancelled,
            Code::DataLoss => Self::DataLoss,
            Code::Unimplemented => Self::Unimplemented,
            Code::Ok | Code::FailedPrecondition | Code::Internal => Self::Internal,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error that a client, another node or an operator reads.
///
/// The message says *what* failed, *where* (table, shard, worker, file, column) and *what to do*.
///
/// `{}` formats what clients are sent. `{:#}` is for logs: it also has the causes that the message
/// leaves out.
#[derive(Debug)]
pub struct Error {
    code: ErrorCode,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// Whether only logs show the source.
    is_source_hidden: bool,
    retry_after: Option<Duration>,
    /// The code that is more precise than the one that follows from `code`.
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

    /// Creates an error with its cause. The cause is kept for logs and shown after the message.
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

    /// Says what went wrong more precisely than the code does.
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
        self.message = format!("{}; retry in about {}", self.message, about(after));
        self.retry_after = Some(after);
        self
    }

    /// Puts `place` (for example "worker w3 at 127.0.0.1:7001") in front of the message.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Adds the cause for logs. Clients do not see it, so the message must say what they need to
    /// know. An error that has a source keeps that one.
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

    /// Creates the error of a library that writes a file. If an I/O error is among its causes, or
    /// only in its text, this is the error of [`Error::io`]. Otherwise it is a bug.
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
            // The text of another error of ours has all of its causes but the hidden ones.
            cause = next_cause(current).filter(|_| !current.is::<Self>());
        }
        truncate(text)
    }

    /// Returns the causes that the text for clients does not have, each behind a colon.
    fn further_causes(&self, text: &str) -> String {
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

/// Returns the text of the innermost cause of an error. The errors that wrap it show it in a form
/// for programmers, as tonic does with the sources of a status.
pub fn innermost(error: &(dyn StdError + 'static)) -> String {
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
            // An error of the kind `Other` wraps another error. The text, which is searched below,
            // may name that one.
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

/// Formats a time for people: `300 ms`, `2 s`.
fn about(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis().div_ceil(100) * 100)
    } else {
        format!("{:.0} s", time.as_secs_f64())
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
            f.write_str(&self.further_causes(&text))?;
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
        // A Volary node puts the code in front of the text. It is removed, so that it is not said
        // twice.
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

/// Why a call broke on this side of the connection. A status that another node has sent has no such
/// cause.
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

/// Returns the time after which a call may be sent again. Returns `None` also for a negative
/// number, by which the server says that the call must not be sent again.
fn retry_pushback(status: &Status) -> Option<Duration> {
    let after_ms = status.metadata().get(RETRY_PUSHBACK)?.to_str().ok()?;
    after_ms.parse().map(Duration::from_millis).ok()
}

/// Returns the SQLSTATE code. Returns `None` also for a code that this release does not know.
fn sqlstate_in(status: &Status) -> Option<SqlState> {
    let code = status.metadata().get(SQLSTATE)?.to_str().ok()?;
    SqlState::of_code(code)
}

impl From<FlightError> for Error {
    fn from(error: FlightError) -> Self {
        match error {
            FlightError::Tonic(status) => (*status).into(),
            FlightError::ExternalError(source) => from_external(source),
            FlightError::Arrow(source) => DataFusionError::from(source).into(),
            FlightError::NotYetImplemented(message) => Self::new(ErrorCode::Unimplemented, message),
            FlightError::ProtocolError(message) => {
                Self::internal(format!("Flight protocol error: {message}"))
            }
            FlightError::DecodeError(message) => {
                Self::internal(format!("the stream could not be decoded: {message}"))
            }
        }
    }
}

/// Wraps an error so that it can travel through DataFusion's plans.
impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(source) => from_external(source),
            DataFusionError::Context(context, inner) => {
                let inner = Error::from(*inner);
                // DataFusion's contexts name its own rules. They help only if the error is a bug.
                if inner.code == ErrorCode::Internal {
                    inner.at(context)
                } else {
                    inner
                }
            }
            DataFusionError::Diagnostic(_, inner) => Error::from(*inner),
            DataFusionError::Collection(errors) => errors
                .into_iter()
                .next()
                .map_or_else(|| Self::internal("an empty list of errors"), Error::from),
            DataFusionError::Shared(shared) => from_shared(shared),
            DataFusionError::IoError(source) => Self::io("input or output failed", source),
            other => from_plain(&other).with_hidden_source(wrapped_in(other)),
        }
    }
}

/// Returns the error of a library that DataFusion has wrapped, or DataFusion's own error.
fn wrapped_in(error: DataFusionError) -> Box<dyn StdError + Send + Sync> {
    match error {
        DataFusionError::ArrowError(source, _) => source,
        DataFusionError::ParquetError(source) => source,
        DataFusionError::ObjectStore(source) => source,
        DataFusionError::SQL(source, _) => source,
        DataFusionError::SchemaError(source, _) => source,
        other => other.into(),
    }
}

/// Converts an error of DataFusion that contains no error of ours. The caller adds the source.
fn from_plain(error: &DataFusionError) -> Error {
    let (code, text) = match error {
        DataFusionError::Plan(text) => return from_planner(text),
        DataFusionError::NotImplemented(text) => return Error::unsupported(first_part(text)),
        DataFusionError::Execution(text) => {
            return Error::invalid(first_part(text)).with_sqlstate(SqlState::DataException);
        }
        DataFusionError::Configuration(text) | DataFusionError::Substrait(text) => {
            (ErrorCode::InvalidArgument, first_part(text))
        }
        DataFusionError::SQL(source, _) => {
            return Error::invalid(source.to_string()).with_sqlstate(SqlState::SyntaxError);
        }
        DataFusionError::SchemaError(source, _) => return from_schema(source),
        DataFusionError::ArrowError(source, _) => return from_arrow(source),
        DataFusionError::ParquetError(source) => return from_parquet(source),
        DataFusionError::ObjectStore(source) => return from_store(source),
        DataFusionError::ResourcesExhausted(text) => return from_resources(text),
        DataFusionError::IoError(source) => {
            let cause = io_cause(error).unwrap_or_else(|| source.kind().into());
            return Error::io(source.to_string(), cause);
        }
        DataFusionError::Internal(_)
        | DataFusionError::ExecutionJoin(_)
        | DataFusionError::Ffi(_)
        | DataFusionError::External(_)
        | DataFusionError::Context(_, _)
        | DataFusionError::Diagnostic(_, _)
        | DataFusionError::Collection(_)
        | DataFusionError::Shared(_) => (ErrorCode::Internal, error.strip_backtrace()),
    };
    Error::new(code, text)
}

/// Converts an error of the planner, which has only a text.
fn from_planner(text: &str) -> Error {
    let error = Error::invalid(first_part(text));
    let lacks_function = text.starts_with("Invalid function '")
        || text.starts_with("table function '")
        || text.contains("No function matches the given name and argument types");
    if lacks_function {
        error.with_sqlstate(SqlState::UndefinedFunction)
    } else if text.starts_with("table '") {
        error.with_sqlstate(SqlState::UndefinedTable)
    } else {
        error
    }
}

fn from_schema(error: &SchemaError) -> Error {
    let (code, sqlstate) = match error {
        SchemaError::FieldNotFound { .. } => (ErrorCode::NotFound, SqlState::UndefinedColumn),
        SchemaError::AmbiguousReference { .. } => {
            (ErrorCode::InvalidArgument, SqlState::AmbiguousColumn)
        }
        SchemaError::DuplicateQualifiedField { .. }
        | SchemaError::DuplicateUnqualifiedField { .. } => {
            (ErrorCode::InvalidArgument, SqlState::DuplicateColumn)
        }
    };
    Error::new(code, error.to_string()).with_sqlstate(sqlstate)
}

fn from_resources(text: &str) -> Error {
    let sqlstate = if text.starts_with("The used disk space") {
        SqlState::DiskFull
    } else {
        SqlState::OutOfMemory
    };
    let text = first_part(text);
    Error::new(
        ErrorCode::ResourceExhausted,
        format!(
            "the memory or disk limit is reached: {text}; retry when less runs, or raise the limit"
        ),
    )
    .with_sqlstate(sqlstate)
}

/// Returns the part of a text that is written for people. DataFusion appends a backtrace to some
/// texts.
fn first_part(text: &str) -> String {
    text.split(DataFusionError::BACK_TRACE_SEP)
        .next()
        .unwrap_or(text)
        .to_owned()
}

/// Converts an error of arrow. The caller adds the source.
fn from_arrow(error: &ArrowError) -> Error {
    let code = match error {
        ArrowError::CastError(_)
        | ArrowError::ParseError(_)
        | ArrowError::ComputeError(_)
        | ArrowError::DivideByZero
        | ArrowError::ArithmeticOverflow(_)
        | ArrowError::CsvError(_)
        | ArrowError::JsonError(_)
        | ArrowError::SchemaError(_)
        | ArrowError::InvalidArgumentError(_)
        | ArrowError::NotYetImplemented(_)
        | ArrowError::DictionaryKeyOverflowError
        | ArrowError::RunEndIndexOverflowError
        | ArrowError::OffsetOverflowError(_) => ErrorCode::InvalidArgument,
        ArrowError::ParquetError(_) | ArrowError::IpcError(_) | ArrowError::AvroError(_) => {
            ErrorCode::DataLoss
        }
        ArrowError::MemoryError(_) => ErrorCode::ResourceExhausted,
        ArrowError::IoError(text, source) => {
            let cause = io_cause(error).unwrap_or_else(|| source.kind().into());
            return Error::io(text, cause);
        }
        ArrowError::ExternalError(source) => {
            return find_ours(source.as_ref())
                .unwrap_or_else(|| Error::internal(source.to_string()));
        }
        ArrowError::CDataInterface(_) => ErrorCode::Internal,
    };
    let from_arrow = Error::new(code, error.to_string());
    match code {
        ErrorCode::InvalidArgument | ErrorCode::ResourceExhausted => {
            from_arrow.with_sqlstate(SqlState::of_arrow(error))
        }
        _ => from_arrow,
    }
}

/// Converts an error of parquet. The caller adds the source.
fn from_parquet(error: &ParquetError) -> Error {
    if let ParquetError::External(source) = error
        && let Some(failed @ ArrowError::ComputeError(_)) = source.downcast_ref::<ArrowError>()
    {
        // A filter runs within the file's reader. If it fails, for example with a division by zero,
        // the file is not at fault.
        return from_arrow(failed);
    }
    if let ParquetError::External(source) = error
        && let Some(ours) = find_ours(source.as_ref())
    {
        return ours;
    }
    Error::new(ErrorCode::DataLoss, error.to_string())
}

fn from_store(error: &object_store::Error) -> Error {
    use object_store::Error as Store;
    let code = match error {
        Store::NotFound { .. } => ErrorCode::NotFound,
        Store::AlreadyExists { .. } => ErrorCode::AlreadyExists,
        Store::PermissionDenied { .. } => ErrorCode::PermissionDenied,
        Store::Unauthenticated { .. } => ErrorCode::Unauthenticated,
        Store::InvalidPath { .. }
        | Store::NotSupported { .. }
        | Store::UnknownConfigurationKey { .. } => ErrorCode::InvalidArgument,
        // The store could not do it, even after its own retries. (The enum is non-exhaustive.)
        _ => ErrorCode::Unavailable,
    };
    let from_store = Error::new(code, error.to_string());
    match code {
        ErrorCode::NotFound => from_store.with_sqlstate(SqlState::UndefinedFile),
        ErrorCode::Unavailable => from_store.with_sqlstate(SqlState::IoError),
        _ => from_store,
    }
}

/// Returns our own error if it travelled through DataFusion. An error that is not known here is a
/// bug to be reported.
fn from_external(source: Box<dyn StdError + Send + Sync>) -> Error {
    match source.downcast::<Error>() {
        Ok(ours) => *ours,
        Err(source) => match source.downcast::<DataFusionError>() {
            Ok(inner) => (*inner).into(),
            // The statement has an invalid regular expression: DataFusion looks at constant ones
            // while it plans.
            Err(source) if source.is::<regex::Error>() || source.is::<regex_syntax::Error>() => {
                Error::invalid(source.to_string()).with_hidden_source(source)
            }
            Err(source) => match find_ours(source.as_ref()) {
                Some(ours) => ours.with_hidden_source(source),
                None => Error::with_source(ErrorCode::Internal, "an unexpected error", source),
            },
        },
    }
}

/// Converts an error that DataFusion shares between partitions. It cannot be moved out, so its code
/// and text are copied.
fn from_shared(shared: Arc<DataFusionError>) -> Error {
    find_ours(shared.as_ref())
        .unwrap_or_else(|| from_plain(shared.find_root()))
        .with_hidden_source(shared)
}

/// Searches the causes for an error of ours, a gRPC status or an error of a store, and copies its
/// code and text.
fn find_ours(error: &(dyn StdError + 'static)) -> Option<Error> {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(ours) = current.downcast_ref::<Error>() {
            let text = ours.text();
            let message = text
                .strip_prefix(ours.code.name())
                .and_then(|rest| rest.strip_prefix(": "))
                .unwrap_or(&text);
            return Some(Error {
                retry_after: ours.retry_after,
                sqlstate: ours.sqlstate,
                ..Error::new(ours.code, message)
            });
        }
        if let Some(status) = current.downcast_ref::<Status>() {
            return Some(status.clone().into());
        }
        if let Some(store) = current.downcast_ref::<object_store::Error>() {
            return Some(from_store(store));
        }
        cause = next_cause(current);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_way_over_grpc() {
        for code in ErrorCode::ALL {
            let status = Status::from(Error::new(code, "what, where, what to do"));
            let back = Error::from(status);
            assert_eq!(back.code(), code);
            assert_eq!(back.message(), "what, where, what to do");
        }
    }

    #[test]
    fn what_went_wrong_survives_the_way_over_grpc_and_through_plans() {
        for sqlstate in SqlState::ALL {
            let error = Error::invalid("it failed").with_sqlstate(sqlstate);
            let status = Status::from(error.at("worker w3"));
            let sent = status.metadata().get("volary-sqlstate").unwrap();
            assert_eq!(sent, sqlstate.code());
            let wrapped = DataFusionError::from(Error::from(status)).context("while gathering");
            let shared = DataFusionError::Shared(Arc::new(wrapped));
            assert_eq!(Error::from(shared).sqlstate(), sqlstate);
        }
    }

    #[test]
    fn what_went_wrong_follows_from_the_code_if_nobody_says_more() {
        for code in ErrorCode::ALL {
            let status = Status::from(Error::new(code, "x"));
            let sent = status.metadata().get(SQLSTATE).unwrap();
            assert_eq!(sent, SqlState::from(code).code());
        }
        // A node of another release may say nothing, or something new.
        let mut status = Status::not_found("x");
        assert_eq!(
            Error::from(status.clone()).sqlstate(),
            SqlState::UndefinedObject
        );
        let new = "99999".parse().unwrap();
        status.metadata_mut().insert(SQLSTATE, new);
        assert_eq!(Error::from(status).sqlstate(), SqlState::UndefinedObject);
    }

    #[test]
    fn errors_of_libraries_say_what_went_wrong() {
        let cast = |text: &str| ArrowError::CastError(text.to_owned());
        for (error, sqlstate) in [
            (ArrowError::DivideByZero, SqlState::DivisionByZero),
            (
                cast("Cannot cast string 'one' to value of Int32 type"),
                SqlState::InvalidTextRepresentation,
            ),
            (
                cast("Can't cast value 70000 to type Int16"),
                SqlState::NumericValueOutOfRange,
            ),
            (
                ArrowError::CsvError("x".to_owned()),
                SqlState::BadCopyFileFormat,
            ),
            (
                ArrowError::ComputeError("in a filter: ArrowError(DivideByZero, None)".to_owned()),
                SqlState::DivisionByZero,
            ),
        ] {
            let error = DataFusionError::from(error).context("while gathering");
            assert_eq!(Error::from(error).sqlstate(), sqlstate);
        }
        let plan = |text: &str| Error::from(DataFusionError::Plan(text.to_owned())).sqlstate();
        assert_eq!(
            plan("Invalid function 'smu'.\nDid you mean 'sum'?"),
            SqlState::UndefinedFunction
        );
        assert_eq!(plan("table 'a.b.c' not found"), SqlState::UndefinedTable);
        assert_eq!(plan("x"), SqlState::SyntaxErrorOrAccessRuleViolation);
    }

    #[test]
    fn when_to_retry_survives_the_way_over_grpc_and_is_said_once() {
        let error = Error::new(ErrorCode::ResourceExhausted, "256 statements run")
            .with_retry_after(Duration::from_millis(2400))
            .at("worker w3");
        let status = Status::from(error);
        assert_eq!(status.metadata().get(RETRY_PUSHBACK).unwrap(), "2400");
        let wrapped = DataFusionError::from(Error::from(status)).context("while gathering");
        let shared = DataFusionError::Shared(std::sync::Arc::new(wrapped));
        let back = Error::from(shared);
        assert_eq!(back.retry_after, Some(Duration::from_millis(2400)));
        assert_eq!(
            back.message(),
            "worker w3: 256 statements run; retry in about 2 s"
        );
        let mut never = Status::unavailable("x");
        never
            .metadata_mut()
            .insert(RETRY_PUSHBACK, "-1".parse().unwrap());
        assert_eq!(Error::from(never).retry_after, None);
    }

    #[test]
    fn a_long_message_is_cut_to_what_every_client_reads() {
        for part in ["ä", "abc ", "%", "x", "🦜"] {
            let text = Error::invalid(part.repeat(20 << 10)).text();
            assert!(text.ends_with("(cut)"), "{text}");
            let status = Status::from(Error::invalid(part.repeat(20 << 10)));
            let response: tonic::codegen::http::Response<()> = status.into_http();
            let sent = response.headers()["grpc-message"].len();
            assert!(sent <= MAX_ENCODED_BYTES, "{part}: {sent}");
            assert!(sent > MAX_ENCODED_BYTES - 20, "{part}: {sent}");
        }
        let short = "x".repeat(MAX_ENCODED_BYTES / 2);
        assert!(Error::invalid(&short).text().ends_with(&short));
    }

    #[test]
    fn an_error_of_ours_comes_back_out_of_datafusion() {
        let ours = Error::unavailable("worker w3 at 127.0.0.1:1 is gone");
        let wrapped = DataFusionError::from(ours).context("while gathering");
        let shared = DataFusionError::Shared(std::sync::Arc::new(wrapped));
        let back = Error::from(shared);
        assert_eq!(back.code(), ErrorCode::Unavailable);
        assert_eq!(back.message(), "worker w3 at 127.0.0.1:1 is gone");
    }

    /// Returns the texts of all causes.
    fn causes(error: &Error) -> Vec<String> {
        let causes = std::iter::successors(error.source(), |cause| next_cause(*cause));
        causes.map(ToString::to_string).collect()
    }

    #[test]
    fn the_cause_of_a_librarys_error_is_kept_and_clients_are_not_sent_it() {
        let arrow = || ArrowError::ParseError("no date".to_owned());
        let parquet = || ParquetError::External("of the reader".into());
        let store = || object_store::Error::NotFound {
            path: "a.csv".to_owned(),
            source: "of the store".into(),
        };
        let pattern = String::from("(");
        let regex = || regex::Regex::new(&pattern).unwrap_err();
        let shared = DataFusionError::Shared(Arc::new(arrow().into()));
        for (error, cause) in [
            (arrow().into(), arrow().to_string()),
            (parquet().into(), parquet().to_string()),
            (store().into(), store().to_string()),
            (shared, DataFusionError::from(arrow()).to_string()),
            (
                DataFusionError::External(regex().into()),
                regex().to_string(),
            ),
            (
                DataFusionError::Execution("it failed".to_owned()),
                "Execution error: it failed".to_owned(),
            ),
        ] {
            let error = Error::from(error);
            assert_eq!(causes(&error)[0], cause, "{error:?}");
            // The message does not say it again, and neither do logs.
            assert_eq!(
                error.text(),
                format!("{}: {}", error.code(), error.message())
            );
            assert_eq!(format!("{error:#}"), error.text());
        }
    }

    #[test]
    fn only_logs_show_hidden_causes_also_below_other_errors() {
        let hidden = std::io::Error::other(ArrowError::SchemaError("of a reader".to_owned()));
        let error = Error::invalid("the file cannot be read").with_hidden_source(hidden);
        let said = "INVALID_ARGUMENT: the file cannot be read";
        assert_eq!(error.to_string(), said);
        assert_eq!(
            format!("{error:#}"),
            format!("{said}: Schema error: of a reader")
        );
        assert_eq!(Status::from(error).message(), said);

        let error = || Error::invalid("no file").with_hidden_source("the cause");
        let around = Error::with_source(ErrorCode::Unavailable, "no answer", error());
        let said = "UNAVAILABLE: no answer: INVALID_ARGUMENT: no file";
        assert_eq!(around.text(), said);
        assert_eq!(format!("{around:#}"), format!("{said}: the cause"));
        let within = std::io::Error::other(error());
        let around = Error::with_source(ErrorCode::Unavailable, "no answer", within);
        assert_eq!(around.text(), said);
        let copied = Error::from(DataFusionError::from(ArrowError::from_external_error(
            error().into(),
        )));
        assert_eq!(copied.text(), "INVALID_ARGUMENT: no file");
        assert_eq!(causes(&copied).last().unwrap(), "the cause");
    }

    #[test]
    fn why_a_call_broke_is_kept_without_what_the_answer_holds() {
        let mut broken = Status::unknown("the connection broke");
        broken.set_source(Arc::new(std::io::Error::from_raw_os_error(104)));
        let token = "Bearer a-secret".parse().unwrap();
        broken.metadata_mut().insert("authorization", token);
        let error = Error::from(broken);
        assert_eq!(error.text(), "UNAVAILABLE: the connection broke");
        let logged = format!("{error:#} {error:?}");
        assert!(logged.contains("Connection reset by peer"), "{logged}");
        assert!(!logged.contains("a-secret"), "{logged}");
        assert!(Error::from(Status::unknown("x")).source().is_none());
    }

    #[test]
    fn the_causes_in_a_log_are_cut_like_a_message() {
        let cause = "x".repeat(20 << 10);
        let error = Error::invalid("it failed").with_hidden_source(cause);
        let logged = format!("{error:#}");
        assert!(logged.len() < 2 * MAX_ENCODED_BYTES, "{}", logged.len());
        assert!(logged.starts_with("INVALID_ARGUMENT: it failed: x"));
    }

    #[test]
    fn a_full_disk_is_found_below_a_librarys_error_and_in_its_text() {
        let full = std::io::Error::from_raw_os_error(28);
        let text = ParquetError::General(format!("Could not write bloom filter bit set: {full}"));
        for error in [text, ParquetError::from(full)] {
            let error = Error::io_within("cannot write a.parquet", error);
            assert_eq!(error.code(), ErrorCode::ResourceExhausted);
            assert_eq!(error.sqlstate(), SqlState::DiskFull);
        }
        // The writer of Arrow IPC, which also writes spill files, wraps the error like this.
        let full = std::io::Error::from_raw_os_error(28);
        let wrapped = ArrowError::IoError(full.to_string(), std::io::Error::other(full));
        let error = Error::from(DataFusionError::from(wrapped));
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert!(error.message().contains("free space"), "{error}");
        let other = Error::io_within("x", ParquetError::General("y".to_owned()));
        assert_eq!(other.code(), ErrorCode::Internal);
    }
}
