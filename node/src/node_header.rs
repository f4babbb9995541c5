use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use tonic::codegen::http::{HeaderMap, HeaderValue};
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::{Error, Result};

use crate::gate::CallHeaders;

const HEADER_NAME: &str = "volary-node";

/// Time for which a sealed header is valid. It allows for clocks of two machines that differ by
/// seconds.
const LIFETIME: Duration = Duration::from_secs(60);
/// Time for which a node uses the same header. The header stays valid for some time after that.
const RENEWED_AFTER: Duration = Duration::from_secs(20);

/// Makes the header with the cluster's key.
#[derive(Debug)]
pub struct NodeHeader {
    sealer: Sealer,
    cached: Mutex<Option<(HeaderValue, Instant)>>,
}

impl NodeHeader {
    /// Creates the maker of headers. `sealer` has the cluster's key.
    pub fn new(sealer: Sealer) -> Self {
        Self {
            sealer,
            cached: Mutex::default(),
        }
    }

    /// Adds the header to the headers of a call.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        match self.value() {
            Ok(value) => _ = headers.insert(HEADER_NAME, value),
            Err(error) => tracing::error!(%error, "a call is sent without the node header"),
        }
    }

    fn value(&self) -> Result<HeaderValue> {
        let mut newest = self.cached.lock();
        if let Some((value, made_at)) = newest.as_ref()
            && made_at.elapsed() < RENEWED_AFTER
        {
            return Ok(value.clone());
        }
        let sealed = self.sealer.seal(Purpose::Node, &(), LIFETIME);
        let text = BASE64_URL_SAFE_NO_PAD.encode(sealed);
        let mut value = HeaderValue::try_from(text)
            .map_err(|_| Error::internal("the node header is not text"))?;
        value.set_sensitive(true);
        *newest = Some((value.clone(), Instant::now()));
        Ok(value)
    }
}

/// Returns whether a node has made a call.
///
/// # Errors
/// `PERMISSION_DENIED` if the certificate does not belong to a node, and the errors of
/// [`Sealer::open`] for a header that was not sealed with this key or has expired.
pub fn is_from_node(sealer: &Sealer, call: &CallHeaders<'_>) -> Result<bool> {
    let Some(value) = call.headers.get(HEADER_NAME) else {
        return Ok(false);
    };
    call.peer_kind.check_is_node()?;
    let sealed = BASE64_URL_SAFE_NO_PAD.decode(value.as_bytes());
    let sealed = sealed.map_err(|_| {
        Error::invalid(format!(
            "the header {HEADER_NAME} is not a valid node header"
        ))
    })?;
    sealer.open::<()>(Purpose::Node, &sealed)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use volary_flight_proto::ErrorCode;
    use volary_flight_proto::seal::Key;

    use super::*;
    use crate::tls::PeerKind;

    fn sealer(secret: &str) -> Sealer {
        Sealer::new(Key::from_secret(secret))
    }

    fn call(headers: &HeaderMap, peer_kind: PeerKind) -> CallHeaders<'_> {
        CallHeaders {
            path: "/a/call",
            headers,
            peer: None,
            peer_kind,
        }
    }

    #[test]
    fn a_node_is_known_by_the_key_and_by_its_certificate() {
        let is_of_node = |sealer: &Sealer, headers: &HeaderMap| {
            is_from_node(sealer, &call(headers, PeerKind::Node))
        };
        let mut headers = HeaderMap::new();
        assert!(!is_of_node(&sealer("ours"), &headers).unwrap());
        let header = NodeHeader::new(sealer("ours"));
        header.add_to(&mut headers);
        assert!(is_of_node(&sealer("ours"), &headers).unwrap());
        let error = is_of_node(&sealer("another"), &headers).unwrap_err();
        assert_eq!(error.code(), ErrorCode::PermissionDenied);
        let error = is_from_node(&sealer("ours"), &call(&headers, PeerKind::Client));
        assert_eq!(error.unwrap_err().code(), ErrorCode::PermissionDenied);
        for nonsense in ["", "nonsense", "ä"] {
            let value = HeaderValue::from_bytes(nonsense.as_bytes()).unwrap();
            headers.insert(HEADER_NAME, value);
            let error = is_of_node(&sealer("ours"), &headers).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{nonsense}");
        }
    }

    #[test]
    fn one_header_serves_many_calls() {
        let header = NodeHeader::new(sealer("ours"));
        assert_eq!(header.value().unwrap(), header.value().unwrap());
    }
}
