use arrow_flight::FlightData;
use prometheus_client::metrics::counter::Counter;

/// Counts rows and the bytes of their messages since the start of the process.
#[derive(Debug, Default)]
pub struct RowCounts {
    rows: Counter,
    bytes: Counter,
}

impl RowCounts {
    /// Counts this many rows.
    pub fn add_rows(&self, rows: u64) {
        self.rows.inc_by(rows);
    }

    /// Counts this many bytes.
    pub fn add_bytes(&self, bytes: usize) {
        self.bytes.inc_by(bytes as u64);
    }

    /// Counts the bytes of a message.
    pub fn add_message(&self, message: &FlightData) {
        self.add_bytes(message.data_header.len() + message.data_body.len());
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows.get()
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }
}
