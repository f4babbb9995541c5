use std::error::Error as StdError;
use std::sync::Arc;

use arrow::error::ArrowError;
use arrow_flight::error::FlightError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;
use tonic::Status;

use super::{Error, ErrorCode, io_cause, next_cause};
use crate::sqlstate::SqlState;

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
            other => from_datafusion(&other).with_hidden_source(library_error(other)),
        }
    }
}

/// Returns the error of a library that DataFusion has wrapped, or DataFusion's own error.
fn library_error(error: DataFusionError) -> Box<dyn StdError + Send + Sync> {
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
fn from_datafusion(error: &DataFusionError) -> Error {
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
        DataFusionError::SchemaError(source, _) => return from_schema_error(source),
        DataFusionError::ArrowError(source, _) => return from_arrow(source),
        DataFusionError::ParquetError(source) => return from_parquet(source),
        DataFusionError::ObjectStore(source) => return from_store(source),
        DataFusionError::ResourcesExhausted(text) => return from_resources_exhausted(text),
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

fn from_schema_error(error: &SchemaError) -> Error {
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

fn from_resources_exhausted(text: &str) -> Error {
    let sqlstate = if text.starts_with("The used disk space") {
        SqlState::DiskFull
    } else {
        SqlState::OutOfMemory
    };
    let text = first_part(text);
    Error::new(
        ErrorCode::ResourceExhausted,
        format!(
            "the memory or disk limit is reached: {text}; retry when fewer queries run, or raise the limit"
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
            return find_known(source.as_ref())
                .unwrap_or_else(|| Error::internal(source.to_string()));
        }
        ArrowError::CDataInterface(_) => ErrorCode::Internal,
    };
    let ours = Error::new(code, error.to_string());
    match code {
        ErrorCode::InvalidArgument | ErrorCode::ResourceExhausted => {
            ours.with_sqlstate(SqlState::of_arrow(error))
        }
        _ => ours,
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
        && let Some(ours) = find_known(source.as_ref())
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
        // The request failed, even after the store's own retries. (The enum is non-exhaustive.)
        _ => ErrorCode::Unavailable,
    };
    let ours = Error::new(code, error.to_string());
    match code {
        ErrorCode::NotFound => ours.with_sqlstate(SqlState::UndefinedFile),
        ErrorCode::Unavailable => ours.with_sqlstate(SqlState::IoError),
        _ => ours,
    }
}

/// Returns our own error if it travelled through DataFusion. An error that is not known here is a
/// bug to be reported.
fn from_external(source: Box<dyn StdError + Send + Sync>) -> Error {
    match source.downcast::<Error>() {
        Ok(ours) => *ours,
        Err(source) => match source.downcast::<DataFusionError>() {
            Ok(inner) => (*inner).into(),
            // The statement has an invalid regular expression. DataFusion compiles constant ones
            // while it plans.
            Err(source) if source.is::<regex::Error>() || source.is::<regex_syntax::Error>() => {
                Error::invalid(source.to_string()).with_hidden_source(source)
            }
            Err(source) => match find_known(source.as_ref()) {
                Some(ours) => ours.with_hidden_source(source),
                None => Error::with_source(ErrorCode::Internal, "an unexpected error", source),
            },
        },
    }
}

/// Converts an error that DataFusion shares between partitions. It cannot be moved out, so its code
/// and text are copied.
fn from_shared(shared: Arc<DataFusionError>) -> Error {
    find_known(shared.as_ref())
        .unwrap_or_else(|| from_datafusion(shared.find_root()))
        .with_hidden_source(shared)
}

/// Searches the causes for an error of ours, a gRPC status or an error of a store, and copies its
/// code and text.
fn find_known(error: &(dyn StdError + 'static)) -> Option<Error> {
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
