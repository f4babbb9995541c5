//! Rows that clients send a gateway, with a DoPut or a DoExchange: parameters, and what is ingested.
//!
//! Input: which of the two calls it is, and whether its body follows or a list of its messages. In these, handles of prepared statements are what
//! they say; the target seals them.
#![no_main]

use arrow_flight::FlightData;
use arrow_flight::sql::{
    Any, Command, CommandPreparedStatementQuery, CommandPreparedStatementUpdate,
};
use bytes::Bytes;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use tonic::codegen::http::HeaderMap;
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
    if what & 1 == 1 {
        let body = Bytes::copy_from_slice(bytes);
        gateway.call_with_body(rpc, HeaderMap::new(), body);
        return;
    }
    let mut messages = wire::list(bytes);
    if let Some(first) = messages.first_mut()
        && let Some(sealed) = with_handle(first)
    {
        *first = sealed;
    }
    gateway.call(rpc, HeaderMap::new(), messages);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    wire::mutate(data, size, max_size, seed, 1)
});

/// The message with a sealed handle, if it has a handle.
fn with_handle(message: &[u8]) -> Option<Vec<u8>> {
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
