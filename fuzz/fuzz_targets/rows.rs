//! Fuzzes the rows that clients send a gateway with a DoPut or a DoExchange: parameters and
//! ingested rows.
//!
//! Input: a byte that chooses the call, the form of the input, and whether rows to ingest are a
//! stream of batches, and then the whole body or a list of messages. In a list, the handle of a
//! prepared statement is given by its content, and the target seals it.
#![no_main]

use arrow_flight::FlightData;
use arrow_flight::sql::{
    Any, Command, CommandPreparedStatementQuery, CommandPreparedStatementUpdate,
};
use bytes::Bytes;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use tonic::codegen::http::{HeaderMap, HeaderValue};
use volary_flight_proto::seal::Purpose;
use volary_fuzz::gateway::Gateway;
use volary_fuzz::seal::Raw;
use volary_fuzz::wire;

fuzz_target!(init: volary_fuzz::guard::start("rows", volary_fuzz::seeds::clients::rows), |data: &[u8]| {
    let Some((what, bytes)) = data.split_first() else {
        return;
    };
    let gateway = Gateway::open();
    let rpc = if what & 2 == 0 { "DoPut" } else { "DoExchange" };
    let mut headers = HeaderMap::new();
    if what & 4 != 0 {
        for name in ["volary-ingest-stream", "volary-ingest-continue"] {
            headers.insert(name, HeaderValue::from_static("on"));
        }
    }
    if what & 1 == 1 {
        let body = Bytes::copy_from_slice(bytes);
        gateway.call_with_body(rpc, headers, body);
        return;
    }
    let mut messages = wire::decode_list(bytes);
    if let Some(first) = messages.first_mut()
        && let Some(sealed) = seal_handle(first)
    {
        *first = sealed;
    }
    gateway.call(rpc, headers, messages);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    wire::mutate(data, size, max_size, seed, 1)
});

/// Returns the message with its handle sealed. Returns `None` if the message has no handle.
fn seal_handle(message: &[u8]) -> Option<Vec<u8>> {
    let mut message = FlightData::decode(message).ok()?;
    let descriptor = message.flight_descriptor.as_mut()?;
    let any = Any::decode(descriptor.cmd.clone()).ok()?;
    let sealed = |handle: &Bytes| Raw::sealed(handle, Purpose::PreparedStatement);
    let command = match Command::try_from(any).ok()? {
        Command::CommandPreparedStatementQuery(query) => {
            Command::CommandPreparedStatementQuery(CommandPreparedStatementQuery {
                prepared_statement_handle: sealed(&query.prepared_statement_handle),
            })
        }
        Command::CommandPreparedStatementUpdate(update) => {
            Command::CommandPreparedStatementUpdate(CommandPreparedStatementUpdate {
                prepared_statement_handle: sealed(&update.prepared_statement_handle),
            })
        }
        _ => return None,
    };
    descriptor.cmd = command.into_any().encode_to_vec().into();
    Some(message.encode_to_vec())
}
