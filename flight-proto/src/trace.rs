use std::fmt;

/// The span of a distributed trace that a call continues, as W3C's Trace Context defines it. It
/// travels in the header `traceparent` of clients, and in the tickets of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Id of the trace. It is not zero.
    pub trace_id: [u8; 16],
    /// Id of the span that the call belongs to. It is not zero.
    pub span_id: [u8; 8],
    /// The flags. The lowest bit says that the caller records the trace.
    pub flags: u8,
}

/// Number of bytes of the short form.
const BYTES: usize = 25;

impl TraceParent {
    /// Name of the header in which clients send it.
    pub const HEADER: &str = "traceparent";

    /// Parses the header. Returns `None` if it is not valid: the standard says that the call then
    /// begins a trace of its own.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let version = parse_hex::<1>(parts.next()?)?;
        let trace_id = parse_hex(parts.next()?)?;
        let span_id = parse_hex(parts.next()?)?;
        let [flags] = parse_hex(parts.next()?)?;
        // Later versions may add parts at the end. Version 255 is forbidden.
        let is_complete = version != [0] || parts.next().is_none();
        (version != [0xff] && is_complete)
            .then_some(Self {
                trace_id,
                span_id,
                flags,
            })
            .filter(Self::is_valid)
    }

    /// Returns the short form, for tickets.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..16].copy_from_slice(&self.trace_id);
        bytes[16..24].copy_from_slice(&self.span_id);
        bytes[24] = self.flags;
        bytes
    }

    /// Reads the short form. Returns `None` if there is none, or if it is not valid: a trace never
    /// makes a call fail.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; BYTES] = bytes.try_into().ok()?;
        let [ids @ .., flags] = bytes;
        let (trace_id, span_id) = ids.split_first_chunk::<16>()?;
        Some(Self {
            trace_id: *trace_id,
            span_id: span_id.try_into().ok()?,
            flags,
        })
        .filter(Self::is_valid)
    }

    fn is_valid(&self) -> bool {
        self.trace_id != [0; 16] && self.span_id != [0; 8]
    }
}

/// Writes the header.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace_id = u128::from_be_bytes(self.trace_id);
        let span_id = u64::from_be_bytes(self.span_id);
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", self.flags)
    }
}

/// Parses exactly `N` bytes of hexadecimal digits, which the standard wants in lower case.
fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the standard.
    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_example_of_the_standard_is_read_and_written() {
        let parent = TraceParent::parse(EXAMPLE).unwrap();
        assert_eq!(parent.flags, 1);
        assert_eq!(parent.to_string(), EXAMPLE);
        assert_eq!(TraceParent::from_bytes(&parent.to_bytes()), Some(parent));
    }

    #[test]
    fn the_short_form_has_its_bytes() {
        let bytes = TraceParent::parse(EXAMPLE).unwrap().to_bytes();
        let ids = EXAMPLE.replace('-', "");
        let expected: Vec<_> = (2..ids.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&ids[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(bytes[..], expected);
    }

    #[test]
    fn a_later_version_may_have_more_parts() {
        let later = EXAMPLE.replacen("00", "cc", 1) + "-what-the-future-will-be-like";
        assert!(TraceParent::parse(&later).is_some());
    }

    #[test]
    fn what_is_not_valid_is_no_parent() {
        let zero_trace = EXAMPLE.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let zero_span = EXAMPLE.replace("b7ad6b7169203331", &"0".repeat(16));
        let upper = EXAMPLE.replace("0af7", "0AF7");
        let more = format!("{EXAMPLE}-00");
        let forbidden = EXAMPLE.replacen("00", "ff", 1);
        let short = &EXAMPLE[..EXAMPLE.len() - 1];
        for header in [
            &zero_trace,
            &zero_span,
            &upper,
            &more,
            &forbidden,
            short,
            "",
            "ä",
        ] {
            assert_eq!(TraceParent::parse(header), None, "{header}");
        }
        assert_eq!(TraceParent::from_bytes(&[0; 25]), None);
        assert_eq!(TraceParent::from_bytes(&[1; 24]), None);
    }
}
