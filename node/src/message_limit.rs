//! Messages that are larger than the node accepts are refused by tonic, most of them before a
//! service sees them. The error of tonic is OUT_OF_RANGE and does not name the setting.

use arrow_flight::FlightData;
use tonic::codegen::http::Response;
use tonic::{Code, Status};
use volary_flight_proto::compressed::uncompressed_bytes;
use volary_flight_proto::{Error, ErrorCode, Result};

const GRPC_STATUS: &str = "grpc-status";

/// The limit on the size of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLimit {
    /// Size of the largest message that is accepted, in bytes.
    pub bytes: usize,
    /// Name of the setting that sets the limit.
    pub setting: &'static str,
}

impl MessageLimit {
    /// Replaces tonic's error for a message that is too large by one that names the setting.
    /// Returns other statuses unchanged.
    pub fn explain(self, status: Status) -> Status {
        if status.code() == Code::OutOfRange {
            return self.error().into();
        }
        status
    }

    /// Returns the message, unless its rows are compressed and would be too large after
    /// decompression.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the decompressed rows would be too large.
    pub fn check_uncompressed(self, message: FlightData) -> Result<FlightData> {
        let bytes = uncompressed_bytes(&message.data_header, &message.data_body);
        if bytes.is_none_or(|bytes| bytes <= self.bytes) {
            return Ok(message);
        }
        Err(Error::new(
            ErrorCode::ResourceExhausted,
            format!(
                "the rows of a compressed message are larger than the {} bytes of {}; send less at once, or raise the setting",
                self.bytes, self.setting
            ),
        ))
    }

    /// Does what [`Self::explain`] does, for the response to a call that was refused as a whole.
    pub(crate) fn explain_response<B>(self, mut response: Response<B>) -> Response<B> {
        let refused = response
            .headers()
            .get(GRPC_STATUS)
            .is_some_and(|code| Code::from_bytes(code.as_bytes()) == Code::OutOfRange);
        // If the error cannot be written as headers, the response stays as it was.
        if refused
            && Status::from(self.error())
                .add_header(response.headers_mut())
                .is_err()
        {
            tracing::debug!("the reason for a refusal cannot be sent");
        }
        response
    }

    fn error(self) -> Error {
        Error::new(
            ErrorCode::ResourceExhausted,
            format!(
                "a message is larger than the {} bytes of {}; send less at once, or raise the setting",
                self.bytes, self.setting
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: MessageLimit = MessageLimit {
        bytes: 5,
        setting: "node.max_message",
    };

    #[test]
    fn only_what_is_too_large_is_explained() {
        let explained = LIMIT.explain(Status::out_of_range("found 6 bytes"));
        assert_eq!(explained.code(), Code::ResourceExhausted);
        assert!(explained.message().contains("5 bytes of node.max_message"));
        assert_eq!(LIMIT.explain(Status::not_found("x")).message(), "x");

        let explained = LIMIT.explain_response(Status::out_of_range("found 6").into_http::<()>());
        let status = Status::from_header_map(explained.headers()).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let other = LIMIT.explain_response(Status::not_found("x").into_http::<()>());
        let status = Status::from_header_map(other.headers()).unwrap();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "x"));
    }
}
