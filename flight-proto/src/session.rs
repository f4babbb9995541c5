//! Field numbers and types are those of Flight.proto (Apache Arrow); the bodies travel raw, not as `Any`.

use std::collections::HashMap;

/// DoAction type of [`SetSessionOptionsRequest`].
pub const SET_SESSION_OPTIONS_ACTION: &str = "SetSessionOptions";
/// DoAction type of [`GetSessionOptionsRequest`].
pub const GET_SESSION_OPTIONS_ACTION: &str = "GetSessionOptions";
/// DoAction type of [`CloseSessionRequest`].
pub const CLOSE_SESSION_ACTION: &str = "CloseSession";

/// Whose a session is: what a bearer token of a gateway says, sealed. It is Volary's own, not one of Flight's.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionClaims {
    /// The user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// Which version of what the user logs in with it was made for.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// The session.
    #[prost(string, tag = "3")]
    pub session: String,
    /// When it was made, in seconds since 1970.
    #[prost(uint64, tag = "4")]
    pub issued_at_s: u64,
}

/// A session option's value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionOptionValue {
    /// The value; none unsets the option.
    #[prost(oneof = "session_option_value::OptionValue", tags = "1, 2, 3, 4, 5")]
    pub option_value: Option<session_option_value::OptionValue>,
}

/// The types of [`SessionOptionValue`].
pub mod session_option_value {
    /// A list of strings.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct StringListValue {
        /// The strings.
        #[prost(string, repeated, tag = "1")]
        pub values: Vec<String>,
    }

    /// One value.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum OptionValue {
        /// Text.
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
        /// Several texts.
        #[prost(message, tag = "5")]
        StringListValue(StringListValue),
    }
}

/// Sets options of the session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetSessionOptionsRequest {
    /// By name.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// Names the options that were not set, and why.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetSessionOptionsResult {
    /// By name; empty if all were set.
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, set_session_options_result::Error>,
}

/// Parts of [`SetSessionOptionsResult`].
pub mod set_session_options_result {
    /// Why an option was not set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum ErrorValue {
        /// No reason is given.
        Unspecified = 0,
        /// There is no such option.
        InvalidName = 1,
        /// The option does not take this value.
        InvalidValue = 2,
        /// The server could not set it.
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

/// Asks for the session's options.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSessionOptionsRequest {}

/// The session's options.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSessionOptionsResult {
    /// By name.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// Ends the session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CloseSessionRequest {}

/// Says what became of the session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CloseSessionResult {
    /// The state.
    #[prost(enumeration = "close_session_result::Status", tag = "1")]
    pub status: i32,
}

/// Parts of [`CloseSessionResult`].
pub mod close_session_result {
    /// What became of the session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum Status {
        /// Nothing is said.
        Unspecified = 0,
        /// It is closed.
        Closed = 1,
        /// It is being closed.
        Closing = 2,
        /// It cannot be closed.
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
