use arrow_flight::sql::Command;
use arrow_flight::{Action, ActionType};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use prost::Message;
use tonic::Status;
use volary_flight_proto::session::{
    CLOSE_SESSION_ACTION, GET_SESSION_OPTIONS_ACTION, SET_SESSION_OPTIONS_ACTION,
};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::FlightSql;
use super::batch_status::BATCH_STATUS_ACTION;
use super::call::ClientCall;
use super::command::{command, parse_any};

const CREATE_PREPARED_STATEMENT: &str = "CreatePreparedStatement";
const CLOSE_PREPARED_STATEMENT: &str = "ClosePreparedStatement";
const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";
const CANCEL_QUERY: &str = "CancelQuery";
const RENEW_FLIGHT_ENDPOINT: &str = "RenewFlightEndpoint";
const TRANSACTION_ACTIONS: [&str; 4] = [
    "BeginTransaction",
    "EndTransaction",
    "BeginSavepoint",
    "EndSavepoint",
];

/// The actions that clients may send, each with a description of its request and its result. Other
/// names that begin with `volary.` belong to calls between nodes, which `worker_actions` handles.
const CLIENT_ACTIONS: [(&str, &str); 9] = [
    (
        CREATE_PREPARED_STATEMENT,
        "Prepares a statement. Request: ActionCreatePreparedStatementRequest. Result: ActionCreatePreparedStatementResult.",
    ),
    (
        CLOSE_PREPARED_STATEMENT,
        "Closes a prepared statement. Request: ActionClosePreparedStatementRequest. Result: none.",
    ),
    (
        SET_SESSION_OPTIONS_ACTION,
        "Sets options of the session. Request: SetSessionOptionsRequest. Result: SetSessionOptionsResult.",
    ),
    (
        GET_SESSION_OPTIONS_ACTION,
        "Gets the options of the session. Request: GetSessionOptionsRequest. Result: GetSessionOptionsResult.",
    ),
    (
        CLOSE_SESSION_ACTION,
        "Closes the session. Request: CloseSessionRequest. Result: CloseSessionResult.",
    ),
    (
        CANCEL_FLIGHT_INFO,
        "Cancels a query. Request: CancelFlightInfoRequest. Result: CancelFlightInfoResult.",
    ),
    (
        CANCEL_QUERY,
        "Cancels a query (deprecated). Request: ActionCancelQueryRequest. Result: ActionCancelQueryResult.",
    ),
    (
        RENEW_FLIGHT_ENDPOINT,
        "Makes a ticket valid for longer. Request: RenewFlightEndpointRequest. Result: FlightEndpoint.",
    ),
    (
        BATCH_STATUS_ACTION,
        "Says whether a batch of a producer was committed. Request: JSON with table, producer and sequence. Result: JSON.",
    ),
];

/// Stream of an action's results.
pub(super) type ResultStream = BoxStream<'static, Result<arrow_flight::Result, Status>>;

/// Stream of the action types that ListActions returns.
pub(super) type ActionTypeStream = BoxStream<'static, Result<ActionType, Status>>;

/// Returns the types of the actions that clients may send.
pub(super) fn action_types() -> ActionTypeStream {
    let types = CLIENT_ACTIONS.map(|(name, description)| {
        Ok(ActionType {
            r#type: name.to_owned(),
            description: description.to_owned(),
        })
    });
    stream::iter(types).boxed()
}

impl FlightSql {
    /// Runs an action and returns its results.
    pub(super) async fn run_action(
        &self,
        call: &ClientCall,
        action: Action,
    ) -> Result<ResultStream> {
        let body = match action.r#type.as_str() {
            CREATE_PREPARED_STATEMENT => match decode_command(&action)? {
                Command::ActionCreatePreparedStatementRequest(request) => {
                    self.prepare(call, request).await?
                }
                other => return Err(wrong_body(&action, &other)),
            },
            // A handle holds no state on the gateway, so nothing has to be closed. Closing a handle
            // twice is no error.
            CLOSE_PREPARED_STATEMENT => return Ok(stream::empty().boxed()),
            SET_SESSION_OPTIONS_ACTION => self.set_session_options(call, &action.body)?,
            GET_SESSION_OPTIONS_ACTION => Self::session_options(call),
            CLOSE_SESSION_ACTION => self.close_session(call).await,
            RENEW_FLIGHT_ENDPOINT => self.renew(call, &action.body)?,
            BATCH_STATUS_ACTION => self.batch_status(call, &action.body)?,
            CANCEL_FLIGHT_INFO => self.cancel_flight_info(call, &action.body)?,
            CANCEL_QUERY => match decode_command(&action)? {
                Command::ActionCancelQueryRequest(request) => self.cancel_query(call, &request)?,
                other => return Err(wrong_body(&action, &other)),
            },
            other => return Err(unknown_action(other)),
        };
        Ok(single_result(body))
    }
}

/// Returns a stream with the only result of an action.
pub(super) fn single_result(body: Bytes) -> ResultStream {
    stream::iter([Ok(arrow_flight::Result { body })]).boxed()
}

fn decode_command(action: &Action) -> Result<Command> {
    let any = parse_any(&action.body).ok_or_else(|| {
        Error::invalid(format!(
            "the body of {} is not a Flight SQL message",
            action.r#type
        ))
    })?;
    command(any)
}

/// Decodes the body of an action as a message that is not wrapped in an `Any`.
///
/// # Errors
/// `INVALID_ARGUMENT` if the body is not such a message.
pub(super) fn decode_body<M: Message + Default>(action: &str, body: &Bytes) -> Result<M> {
    M::decode(body.clone()).map_err(|source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            format!("the body of {action} cannot be decoded"),
            source,
        )
    })
}

fn wrong_body(action: &Action, found: &Command) -> Error {
    Error::invalid(format!(
        "the action {} does not take the message {}",
        action.r#type,
        found.type_url().rsplit('.').next().unwrap_or_default()
    ))
}

fn unknown_action(action: &str) -> Error {
    let text = if TRANSACTION_ACTIONS.contains(&action) {
        "there are no transactions: each statement commits by itself; connect with autocommit on"
            .to_owned()
    } else {
        let names: Vec<_> = CLIENT_ACTIONS.iter().map(|(name, _)| *name).collect();
        format!(
            "there is no action \"{action}\"; the actions are {}",
            names.join(", ")
        )
    };
    Error::new(ErrorCode::Unimplemented, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_flight::sql::{
        ActionBeginTransactionRequest, ActionCancelQueryRequest, ProstMessageExt,
    };

    #[test]
    fn transactions_are_refused_with_what_to_do() {
        let error = unknown_action("BeginTransaction");
        assert_eq!(error.code(), ErrorCode::Unimplemented);
        assert!(error.message().contains("autocommit"));
        assert!(
            unknown_action("Nonsense")
                .message()
                .contains("CreatePreparedStatement")
        );
    }

    #[test]
    fn an_action_with_the_body_of_another_is_refused() {
        let body = ActionBeginTransactionRequest {}.as_any().encode_to_vec();
        let action = Action::new(CANCEL_QUERY, body);
        let error = wrong_body(&action, &decode_command(&action).unwrap());
        assert_eq!(
            error.message(),
            "the action CancelQuery does not take the message ActionBeginTransactionRequest"
        );
        assert!(decode_command(&Action::new(CANCEL_QUERY, "garbage")).is_err());
        let right = ActionCancelQueryRequest::default().as_any().encode_to_vec();
        assert!(matches!(
            decode_command(&Action::new(CANCEL_QUERY, right)),
            Ok(Command::ActionCancelQueryRequest(_))
        ));
    }
}
