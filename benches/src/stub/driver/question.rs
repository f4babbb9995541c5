use arrow_flight::sql::{Any, CommandStatementQuery};
use arrow_flight::{Action, FlightData, FlightDescriptor};
use bytes::Bytes;
use prost::Message;

/// The question that all statements ask. No other question is empty, because each contains the name
/// of its message.
const STATEMENT: Bytes = Bytes::new();
const PREPARE: &str = "CreatePreparedStatement";
const TYPE_PREFIX: &str = "type.googleapis.com/";

/// Returns the question in a descriptor. It is the descriptor's command, unless that is a
/// statement.
pub(super) fn in_descriptor(descriptor: &FlightDescriptor) -> Bytes {
    match Any::decode(descriptor.cmd.clone()) {
        Ok(command) if command.is::<CommandStatementQuery>() => STATEMENT,
        Ok(command) if command.type_url.starts_with(TYPE_PREFIX) => descriptor.cmd.clone(),
        // The text of a statement, as pyarrow and the client `volary` send it.
        _ => STATEMENT,
    }
}

/// Returns the question in the first message of a stream. What follows are parameters, on which the
/// answer does not depend.
pub(super) fn in_stream(messages: &[FlightData]) -> Bytes {
    let first = messages.first();
    let descriptor = first.and_then(|message| message.flight_descriptor.as_ref());
    descriptor.map_or(STATEMENT, in_descriptor)
}

/// Returns the question in an action. It is the whole action, unless a statement is prepared.
pub(super) fn in_action(action: &Action) -> Bytes {
    if action.r#type == PREPARE {
        STATEMENT
    } else {
        action.encode_to_vec().into()
    }
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::{
        ActionCreatePreparedStatementRequest, CommandGetSqlInfo, ProstMessageExt,
    };

    use super::*;

    fn descriptor(command: impl Into<Bytes>) -> FlightDescriptor {
        FlightDescriptor::new_cmd(command)
    }

    #[test]
    fn statements_are_one_question_and_all_else_differs() {
        let statement = |key: u32| CommandStatementQuery {
            query: format!("SELECT {key}"),
            transaction_id: None,
        };
        let asked = in_descriptor(&descriptor(statement(1).as_any().encode_to_vec()));
        assert_eq!(
            asked,
            in_descriptor(&descriptor(statement(2).as_any().encode_to_vec()))
        );
        assert_eq!(
            asked,
            in_descriptor(&descriptor("SELECT name FROM birds WHERE id = 12"))
        );
        let infos = [1, 2].map(|id| {
            let info = CommandGetSqlInfo { info: vec![id] };
            in_descriptor(&descriptor(info.as_any().encode_to_vec()))
        });
        assert_ne!(infos[0], infos[1]);
        assert_ne!(infos[0], asked);
    }

    #[test]
    fn statements_are_prepared_alike_and_handles_differ() {
        let prepare = |query: &str| {
            let request = ActionCreatePreparedStatementRequest {
                query: query.to_owned(),
                transaction_id: None,
            };
            in_action(&Action::new(PREPARE, request.as_any().encode_to_vec()))
        };
        assert_eq!(prepare("SELECT 1"), prepare("SELECT 2"));
        let close =
            |handle: &'static str| in_action(&Action::new("ClosePreparedStatement", handle));
        assert_ne!(close("a"), close("b"));
        assert_ne!(close("a"), prepare("a"));
    }
}
