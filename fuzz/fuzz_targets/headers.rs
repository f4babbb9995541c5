//! Fuzzes the headers of a call: credentials, cookies, options and timeouts.
//!
//! Input: a byte with two flags, the length of the session's claims, the claims, and lines. The
//! first flag says whether the cluster has users. The second flag says whether the token of the
//! session is also sent as a cookie. Each line is a header: its first byte chooses the name, and
//! the rest is the value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use volary_flight_proto::seal::Purpose;
use volary_fuzz::gateway::Gateway;
use volary_fuzz::seal::{Raw, VALID_FOR};

const NAMES: [&str; 10] = [
    "authorization",
    "cookie",
    "volary-types",
    "volary-direct-results",
    "volary-query-tag",
    "grpc-timeout",
    "volary-ingest-shard_key",
    "volary-ingest-shards",
    "grpc-encoding",
    "volary-progress",
];

fuzz_target!(init: volary_fuzz::guard::start("headers", volary_fuzz::seeds::clients::headers), |data: &[u8]| {
    let Some(([has_users, rest @ ..], lines)) = data.split_first_chunk::<2>() else {
        return;
    };
    let gateway = if has_users & 1 == 0 {
        Gateway::open()
    } else {
        Gateway::with_users()
    };
    let mut headers = HeaderMap::new();
    let (claims, lines) = lines.split_at(usize::from(rest[0]).min(lines.len()));
    if !claims.is_empty() {
        let claims = Raw(claims.to_vec().into());
        let sealed = gateway.token_sealer().seal(Purpose::Session, &claims, VALID_FOR);
        let hex: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
        if has_users & 2 == 2 {
            let cookie = format!("volary-bearer=volary-bearer-{hex}");
            headers.insert("cookie", cookie.parse().expect("a value"));
        }
        let bearer = format!("Bearer volary-bearer-{hex}").parse().expect("a value");
        headers.insert("authorization", bearer);
    }
    for line in lines.split(|byte| *byte == b'\n') {
        let Some((name, value)) = line.split_first() else {
            continue;
        };
        let name = NAMES[usize::from(*name) % NAMES.len()];
        // Passwords are left out: checking a wrong one takes a twentieth of a second, and further
        // failures slow the login down.
        if has_users & 1 == 1 && value.trim_ascii_start().to_ascii_lowercase().starts_with(b"basic") {
            continue;
        }
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
    // Calls without a body are answered from their headers alone.
    for rpc in ["Handshake", "DoPut", "DoExchange"] {
        gateway.call::<&[u8]>(rpc, headers.clone(), []);
    }
    gateway.call("ListActions", headers, [b""]);
});
