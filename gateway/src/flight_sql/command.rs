use arrow_flight::sql::{Any, Command};
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Beginning of the type URL of an `Any`. All messages of Flight SQL travel in an `Any`.
const ANY_TYPE_PREFIX: &str = "type.googleapis.com/";

/// Returns the `Any` in `bytes`, if there is one.
pub(super) fn parse_any(bytes: &Bytes) -> Option<Any> {
    Any::decode(bytes.clone())
        .ok()
        .filter(|any| any.type_url.starts_with(ANY_TYPE_PREFIX))
}

/// Returns the message of Flight SQL in an `Any`.
///
/// # Errors
/// `INVALID_ARGUMENT` if the message is damaged. `UNIMPLEMENTED` for a message of another kind.
pub(super) fn command(any: Any) -> Result<Command> {
    let type_url = any.type_url.clone();
    match Command::try_from(any) {
        Ok(Command::Unknown(any)) => Err(unimplemented(&any.type_url)),
        Ok(command) => Ok(command),
        Err(source) => Err(Error::with_source(
            ErrorCode::InvalidArgument,
            format!("the message {type_url} cannot be decoded"),
            source,
        )),
    }
}

/// Creates the error for a part of the protocol that is not supported.
pub(super) fn unimplemented(what: &str) -> Error {
    let name = what.rsplit(['.', '/']).next().unwrap_or(what);
    Error::new(
        ErrorCode::Unimplemented,
        match name {
            "CommandStatementSubstraitPlan" | "ActionCreatePreparedSubstraitPlanRequest" => {
                "Substrait plans are not supported; send SQL".to_owned()
            }
            _ => format!("{name} is not supported here"),
        },
    )
}

/// Refuses a statement that claims to be part of a transaction. Transactions do not exist here:
/// each statement commits by itself.
///
/// # Errors
/// `INVALID_ARGUMENT` if the id of a transaction is given.
pub(super) fn refuse_transaction(id: Option<&Bytes>) -> Result<()> {
    match id {
        Some(id) if !id.is_empty() => Err(Error::unsupported(
            "there are no transactions: each statement commits by itself; connect with autocommit on",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_refused_and_an_empty_id_is_none() {
        assert!(refuse_transaction(None).is_ok());
        assert!(refuse_transaction(Some(&Bytes::new())).is_ok());
        assert!(refuse_transaction(Some(&Bytes::from_static(b"1"))).is_err());
    }
}
