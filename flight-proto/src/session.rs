//! The field numbers and types of the session messages are those of Flight.proto (Apache Arrow).
//! The bodies travel raw, not as `Any`.

use std::collections::HashMap;

/// DoAction type of a [`SetSessionOptionsRequest`].
pub const SET_SESSION_OPTIONS_ACTION: &str = "SetSessionOptions";
/// DoAction type of a `GetSessionOptionsRequest`, which has no fields.
pub const GET_SESSION_OPTIONS_ACTION: &str = "GetSessionOptions";
/// DoAction type of a `CloseSessionRequest`, which has no fields.
pub const CLOSE_SESSION_ACTION: &str = "CloseSession";

/// The content of a gateway's bearer token: whose session it is. The token is sealed. This message
/// is Volary's own and not part of Flight.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionClaims {
    /// Name of the user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// Version of the user's credentials that the session was made with.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// The token that names the session.
    #[prost(string, tag = "3")]
    pub session: String,
    /// Time when the bearer token was made, in seconds since 1970.
    #[prost(uint64, tag = "4")]
    pub issued_at_s: u64,
}

/// Value of a session option.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionOptionValue {
    /// The value. `None` unsets the option.
    #[prost(oneof = "session_option_value::OptionValue", tags = "1, 2, 3, 4, 5")]
    pub option_value: Option<session_option_value::OptionValue>,
}

/// Defines the types of [`SessionOptionValue`].
pub mod session_option_value {
    /// A list of strings.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct StringListValue {
        /// The strings.
        #[prost(string, repeated, tag = "1")]
        pub values: Vec<String>,
    }

    /// A value of one of the types.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum OptionValue {
        /// A text.
        #[prost(string, tag = "1")]
        StringValue(String),
        /// True or false.
        #[prost(bool, tag = "2")]
        BoolValue(bool),
        /// A 64-bit integer of fixed size.
        #[prost(sfixed64, tag = "3")]
        Int64Value(i64),
        /// A double.
        #[prost(double, tag = "4")]
        DoubleValue(f64),
        /// A list of texts.
        #[prost(message, tag = "5")]
        StringListValue(StringListValue),
    }
}

/// Sets options of the session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetSessionOptionsRequest {
    /// The options, by name.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// Names the options that were not set, and says why.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetSessionOptionsResult {
    /// The errors, by the name of the option. Empty if all options were set.
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, set_session_options_result::Error>,
}

/// Defines the parts of [`SetSessionOptionsResult`].
pub mod set_session_options_result {
    /// The reason why an option was not set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum ErrorValue {
        /// No reason is given.
        Unspecified = 0,
        /// No option has this name.
        InvalidName = 1,
        /// The option does not take this value.
        InvalidValue = 2,
        /// The server could not set the option.
        Error = 3,
    }

    /// The error of one option.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Error {
        /// The reason.
        #[prost(enumeration = "ErrorValue", tag = "1")]
        pub value: i32,
    }
}

/// The session's options.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSessionOptionsResult {
    /// The options, by name.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// Says what became of the session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CloseSessionResult {
    /// State of the session.
    #[prost(enumeration = "close_session_result::Status", tag = "1")]
    pub status: i32,
}

/// Defines the parts of [`CloseSessionResult`].
pub mod close_session_result {
    /// The state of a session that a client wants to close.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum Status {
        /// No state is given.
        Unspecified = 0,
        /// The session is closed.
        Closed = 1,
        /// The session is being closed.
        Closing = 2,
        /// The session cannot be closed.
        NotCloseable = 3,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::session_option_value::{OptionValue, StringListValue};
    use super::*;

    fn request(value: OptionValue) -> Vec<u8> {
        let value = SessionOptionValue {
            option_value: Some(value),
        };
        SetSessionOptionsRequest {
            session_options: [("a".to_owned(), value)].into(),
        }
        .encode_to_vec()
    }

    #[test]
    fn options_of_every_type_have_the_bytes_of_flight() {
        let list = StringListValue {
            values: vec!["x".to_owned()],
        };
        let golden: [(OptionValue, &[u8]); 5] = [
            (OptionValue::StringValue("x".to_owned()), b"\x0a\x01x"),
            (OptionValue::BoolValue(true), b"\x10\x01"),
            (
                OptionValue::Int64Value(-2),
                b"\x19\xfe\xff\xff\xff\xff\xff\xff\xff",
            ),
            (OptionValue::DoubleValue(1.0), b"\x21\0\0\0\0\0\0\xf0\x3f"),
            (OptionValue::StringListValue(list), b"\x2a\x03\x0a\x01x"),
        ];
        for (value, bytes) in golden {
            let length = u8::try_from(bytes.len()).unwrap();
            let head = [0x0a, length + 5, 0x0a, 1, b'a', 0x12, length];
            assert_eq!(request(value), [head.as_slice(), bytes].concat());
        }
    }

    #[test]
    fn results_have_the_bytes_of_flight() {
        let error = set_session_options_result::Error {
            value: set_session_options_result::ErrorValue::InvalidValue.into(),
        };
        let refused = SetSessionOptionsResult {
            errors: [("a".to_owned(), error)].into(),
        };
        assert_eq!(
            refused.encode_to_vec(),
            b"\x0a\x07\x0a\x01a\x12\x02\x08\x02"
        );
        let closed = CloseSessionResult {
            status: close_session_result::Status::Closed.into(),
        };
        assert_eq!(closed.encode_to_vec(), b"\x08\x01");
    }
}
