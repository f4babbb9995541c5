//! The SQLSTATE codes are those of PostgreSQL ("Appendix A. PostgreSQL Error Codes"), so that
//! libraries and programs that know them need not read messages. Each error has a code. If an error
//! is created without one, the code follows from the [`ErrorCode`].

use arrow::error::ArrowError;

use crate::error::ErrorCode;

/// The SQLSTATE code of an error. The variants have the names of PostgreSQL's conditions.
///
/// The five characters of a code are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SqlState {
    /// The number of values differs from the number of the statement's parameters. (PostgreSQL has
    /// no such code; this is the one of the SQL standard.)
    ParameterCountMismatch,
    /// Volary does not do what the statement asks for.
    FeatureNotSupported,
    /// A subquery that is used as a value has returned several rows.
    CardinalityViolation,
    /// A function or an operator refuses a value.
    DataException,
    /// A number or a time is out of the range of its type.
    NumericValueOutOfRange,
    /// A number is divided by zero.
    DivisionByZero,
    /// A setting does not take the value.
    InvalidParameterValue,
    /// A text is no value of the wanted type.
    InvalidTextRepresentation,
    /// A file that COPY reads is malformed.
    BadCopyFileFormat,
    /// A column that is NOT NULL would get a NULL.
    NotNullViolation,
    /// A row for which the condition of a CHECK is false would be written.
    CheckViolation,
    /// The session or the transaction is read-only.
    ReadOnlySqlTransaction,
    /// The credentials are missing, have expired or belong to no user.
    InvalidAuthorizationSpecification,
    /// The user or the password is wrong.
    InvalidPassword,
    /// The catalog does not exist.
    InvalidCatalogName,
    /// The schema does not exist.
    InvalidSchemaName,
    /// The statement is wrong in a way that has no code of its own.
    SyntaxErrorOrAccessRuleViolation,
    /// The user lacks a right.
    InsufficientPrivilege,
    /// The text of the statement cannot be parsed.
    SyntaxError,
    /// A table or a result would have two columns of the same name.
    DuplicateColumn,
    /// A name matches several columns.
    AmbiguousColumn,
    /// The column does not exist.
    UndefinedColumn,
    /// A foreign key does not fit the table that it refers to.
    InvalidForeignKey,
    /// Something other than a table, a column or a function does not exist.
    UndefinedObject,
    /// Something other than a table exists already.
    DuplicateObject,
    /// The function does not exist, or not with these arguments.
    UndefinedFunction,
    /// The table or view does not exist, or the user may not see it.
    UndefinedTable,
    /// A table or view of this name exists already.
    DuplicateTable,
    /// A schema of this name exists already.
    DuplicateSchema,
    /// A table cannot be defined like this.
    InvalidTableDefinition,
    /// A limit is reached that has no code of its own.
    InsufficientResources,
    /// The disk or the space for spilled rows is full.
    DiskFull,
    /// The memory that may be used is full.
    OutOfMemory,
    /// Too many statements run or wait.
    TooManyConnections,
    /// The statement is nested too deeply.
    StatementTooComplex,
    /// A table or a statement has too many columns.
    TooManyColumns,
    /// The statement was cancelled, was killed, or took longer than it may.
    QueryCanceled,
    /// The node is shutting down.
    AdminShutdown,
    /// A node cannot be reached at present.
    CannotConnectNow,
    /// Reading or writing a file failed.
    IoError,
    /// The file does not exist.
    UndefinedFile,
    /// There is a bug in Volary.
    InternalError,
    /// Stored data is missing or damaged.
    DataCorrupted,
}

impl SqlState {
    /// All codes, in the order of their classes.
    pub const ALL: [SqlState; 43] = [
        Self::ParameterCountMismatch,
        Self::FeatureNotSupported,
        Self::CardinalityViolation,
        Self::DataException,
        Self::NumericValueOutOfRange,
        Self::DivisionByZero,
        Self::InvalidParameterValue,
        Self::InvalidTextRepresentation,
        Self::BadCopyFileFormat,
        Self::NotNullViolation,
        Self::CheckViolation,
        Self::ReadOnlySqlTransaction,
        Self::InvalidAuthorizationSpecification,
        Self::InvalidPassword,
        Self::InvalidCatalogName,
        Self::InvalidSchemaName,
        Self::SyntaxErrorOrAccessRuleViolation,
        Self::InsufficientPrivilege,
        Self::SyntaxError,
        Self::DuplicateColumn,
        Self::AmbiguousColumn,
        Self::UndefinedColumn,
        Self::UndefinedObject,
        Self::DuplicateObject,
        Self::InvalidForeignKey,
        Self::UndefinedFunction,
        Self::UndefinedTable,
        Self::DuplicateSchema,
        Self::DuplicateTable,
        Self::InvalidTableDefinition,
        Self::InsufficientResources,
        Self::DiskFull,
        Self::OutOfMemory,
        Self::TooManyConnections,
        Self::StatementTooComplex,
        Self::TooManyColumns,
        Self::QueryCanceled,
        Self::AdminShutdown,
        Self::CannotConnectNow,
        Self::IoError,
        Self::UndefinedFile,
        Self::InternalError,
        Self::DataCorrupted,
    ];

    /// Returns the five characters of the code.
    pub fn code(self) -> &'static str {
        match self {
            Self::ParameterCountMismatch => "07001",
            Self::FeatureNotSupported => "0A000",
            Self::CardinalityViolation => "21000",
            Self::DataException => "22000",
            Self::NumericValueOutOfRange => "22003",
            Self::DivisionByZero => "22012",
            Self::InvalidParameterValue => "22023",
            Self::InvalidTextRepresentation => "22P02",
            Self::BadCopyFileFormat => "22P04",
            Self::NotNullViolation => "23502",
            Self::CheckViolation => "23514",
            Self::ReadOnlySqlTransaction => "25006",
            Self::InvalidAuthorizationSpecification => "28000",
            Self::InvalidPassword => "28P01",
            Self::InvalidCatalogName => "3D000",
            Self::InvalidSchemaName => "3F000",
            Self::SyntaxErrorOrAccessRuleViolation => "42000",
            Self::InsufficientPrivilege => "42501",
            Self::SyntaxError => "42601",
            Self::DuplicateColumn => "42701",
            Self::AmbiguousColumn => "42702",
            Self::UndefinedColumn => "42703",
            Self::UndefinedObject => "42704",
            Self::DuplicateObject => "42710",
            Self::InvalidForeignKey => "42830",
            Self::UndefinedFunction => "42883",
            Self::UndefinedTable => "42P01",
            Self::DuplicateSchema => "42P06",
            Self::DuplicateTable => "42P07",
            Self::InvalidTableDefinition => "42P16",
            Self::InsufficientResources => "53000",
            Self::DiskFull => "53100",
            Self::OutOfMemory => "53200",
            Self::TooManyConnections => "53300",
            Self::StatementTooComplex => "54001",
            Self::TooManyColumns => "54011",
            Self::QueryCanceled => "57014",
            Self::AdminShutdown => "57P01",
            Self::CannotConnectNow => "57P03",
            Self::IoError => "58030",
            Self::UndefinedFile => "58P01",
            Self::InternalError => "XX000",
            Self::DataCorrupted => "XX001",
        }
    }

    /// Returns the variant with this code. Returns `None` for a code that another release may know.
    pub(crate) fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Returns the code for arrow's failure to compute or read a value.
    pub fn of_arrow(error: &ArrowError) -> Self {
        match error {
            ArrowError::DivideByZero => Self::DivisionByZero,
            ArrowError::ArithmeticOverflow(_) => Self::NumericValueOutOfRange,
            ArrowError::CastError(text) | ArrowError::ComputeError(text) => Self::of_text(text),
            ArrowError::ParseError(_) => Self::InvalidTextRepresentation,
            ArrowError::CsvError(_) | ArrowError::JsonError(_) => Self::BadCopyFileFormat,
            ArrowError::MemoryError(_) => Self::OutOfMemory,
            ArrowError::NotYetImplemented(_) => Self::FeatureNotSupported,
            _ => Self::DataException,
        }
    }

    /// Returns the code that follows from the text of an error. Arrow has one kind of error for
    /// casts of texts and of numbers. Of an error of a filter within the reader of a Parquet file,
    /// only the text is left.
    fn of_text(text: &str) -> Self {
        if text.contains("DivideByZero") {
            Self::DivisionByZero
        } else if text.contains("Cannot cast string") {
            Self::InvalidTextRepresentation
        } else if ["Can't cast value", "verflow", "is out of range"]
            .iter()
            .any(|part| text.contains(part))
        {
            Self::NumericValueOutOfRange
        } else {
            Self::DataException
        }
    }
}

impl From<ErrorCode> for SqlState {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::InvalidArgument => Self::SyntaxErrorOrAccessRuleViolation,
            ErrorCode::NotFound => Self::UndefinedObject,
            ErrorCode::AlreadyExists => Self::DuplicateObject,
            ErrorCode::Unauthenticated => Self::InvalidAuthorizationSpecification,
            ErrorCode::PermissionDenied => Self::InsufficientPrivilege,
            ErrorCode::ResourceExhausted => Self::InsufficientResources,
            ErrorCode::Unavailable => Self::CannotConnectNow,
            ErrorCode::DeadlineExceeded | ErrorCode::Cancelled => Self::QueryCanceled,
            ErrorCode::DataLoss => Self::DataCorrupted,
            ErrorCode::Unimplemented => Self::FeatureNotSupported,
            ErrorCode::Internal => Self::InternalError,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_five_characters_that_no_other_has() {
        let codes: BTreeSet<_> = SqlState::ALL.into_iter().map(SqlState::code).collect();
        assert_eq!(codes.len(), SqlState::ALL.len());
        for state in SqlState::ALL {
            let code = state.code();
            assert_eq!(code.len(), 5, "{code}");
            assert!(
                code.bytes()
                    .all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()),
                "{code}"
            );
            assert_eq!(SqlState::of_code(code), Some(state));
        }
        assert_eq!(SqlState::of_code("99999"), None);
    }

    #[test]
    fn codes_are_in_the_order_of_their_classes() {
        let codes = SqlState::ALL.map(SqlState::code);
        assert!(codes.is_sorted(), "{codes:?}");
    }
}
