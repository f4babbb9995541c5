//! The scheduler reports over HTTP whether its executors have joined, on the port of its other
//! services.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The HTTP request. With HTTP 1.0, the end of the connection is the end of the answer.
const REQUEST: &[u8] = b"GET /readyz HTTP/1.0\r\n\r\n";

/// Asks the scheduler at `host:port` whether it has as many executors as it was told to wait for.
///
/// # Errors
/// Returns the errors of the connection. The connection is refused until the scheduler listens.
pub(super) async fn is_ready(address: &str) -> io::Result<bool> {
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await?;
    Ok(is_ok(&String::from_utf8_lossy(&answer)))
}

/// Returns whether an answer begins with the status 200, as in `HTTP/1.0 200 OK`. Any other status
/// means no.
fn is_ok(answer: &str) -> bool {
    answer.split_whitespace().nth(1) == Some("200")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports;

    #[test]
    fn the_status_is_the_answer() {
        assert!(is_ok("HTTP/1.0 200 OK\r\ncontent-length: 6\r\n\r\nready\n"));
        assert!(is_ok("HTTP/1.1 200\r\n\r\n"));
        assert!(!is_ok(
            "HTTP/1.0 503 Service Unavailable\r\n\r\nnot ready: 200 200\n"
        ));
        assert!(!is_ok("HTTP/1.0"));
        assert!(!is_ok(""));
    }

    #[tokio::test]
    async fn a_scheduler_that_does_not_listen_is_an_error() {
        let port = ports::free(1).unwrap()[0];
        let asked = is_ready(&format!("127.0.0.1:{port}")).await;
        let kind = asked.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::ConnectionRefused);
    }
}
