//! The metrics that a process serves over HTTP, as Prometheus reads them.

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Reads all metrics of the process at `host:port`, as text.
///
/// # Errors
/// Returns the errors of the connection, and an error for an answer without metrics.
pub async fn scrape(address: &str) -> Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    // With HTTP 1.0, the end of the connection is the end of the answer.
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, metrics) = answer
        .split_once("\r\n\r\n")
        .context("an answer without a body")?;
    let status = head.split_whitespace().nth(1);
    ensure!(status == Some("200"), "{head}");
    Ok(metrics.to_owned())
}

/// Returns the sum of all series with this name, or `None` if there is none.
pub fn sum(metrics: &str, name: &str) -> Option<f64> {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_whole_name = rest.starts_with(['{', ' ']);
        let value = rest.rsplit(' ').next()?;
        is_whole_name.then(|| value.parse::<f64>().ok())?
    });
    values.reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_metric_are_added_up() {
        let metrics = "# TYPE volary_writes_total counter\nvolary_writes_total{outcome=\"committed\"} 3\nvolary_writes_total{outcome=\"a b\"} 2\nvolary_writes_open 1\nvolary_writes 9\n";
        assert_eq!(sum(metrics, "volary_writes_total"), Some(5.0));
        assert_eq!(sum(metrics, "volary_writes_open"), Some(1.0));
        assert_eq!(sum(metrics, "volary_disk_syncs_total"), None);
    }
}
