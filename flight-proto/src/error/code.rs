use std::fmt;

use tonic::Code;

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
    /// The node does not implement this feature of the protocol (not of SQL).
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

    pub(super) fn to_grpc(self) -> Code {
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

    pub(super) fn from_grpc(code: Code) -> Self {
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
            // A stream ends with ABORTED if its client has cancelled it.
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
