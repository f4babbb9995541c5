use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, Any,
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetPrimaryKeys,
    CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest,
    CommandStatementQuery, CommandStatementUpdate, ProstMessageExt, TableDefinitionOptions,
    TableExistsOption, TableNotExistOption,
};
use arrow_flight::{
    Action, Criteria, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    RenewFlightEndpointRequest, Ticket,
};
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::direct::DirectTicket;
use volary_flight_proto::ipc;
use volary_flight_proto::lookup::LookupRequest;
use volary_flight_proto::session::session_option_value::{OptionValue, StringListValue};
use volary_flight_proto::session::{
    CLOSE_SESSION_ACTION, GET_SESSION_OPTIONS_ACTION, SET_SESSION_OPTIONS_ACTION, SessionClaims,
    SessionOptionValue, SetSessionOptionsRequest,
};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::{PreparedStatementHandle, QueryTicket};

use super::{Seed, fragments, seed};
use crate::wire;
use crate::worker::{put, put_with};

const QUERY: &str = "SELECT k, s FROM t WHERE k = ?";
const QUERY_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

const SCHEMA: u8 = 0;
const LIST: u8 = 1;
const POLL: u8 = 2;
const INFO: u8 = 3;
const NATIVE_INFO: u8 = 4;

pub fn commands() -> Vec<Seed> {
    let tables = CommandGetTables {
        catalog: Some("volary".to_owned()),
        db_schema_filter_pattern: Some("pub%".to_owned()),
        table_name_filter_pattern: Some("_".to_owned()),
        table_types: vec!["TABLE".to_owned(), "VIEW".to_owned()],
        include_schema: true,
    };
    let schemas = CommandGetDbSchemas {
        catalog: None,
        db_schema_filter_pattern: Some("s\\_%".to_owned()),
    };
    let statement = CommandStatementQuery {
        query: "SELECT k, s, d FROM t WHERE k = 7".to_owned(),
        transaction_id: Some(Bytes::new()),
    };
    let path = FlightDescriptor::new_path(vec!["public".to_owned(), "t".to_owned()]);
    let keys = CommandGetPrimaryKeys {
        table: "t".to_owned(),
        ..CommandGetPrimaryKeys::default()
    };
    let reference = CommandGetCrossReference {
        pk_table: "t".to_owned(),
        fk_table: "u".to_owned(),
        ..CommandGetCrossReference::default()
    };
    let info = CommandGetSqlInfo {
        info: vec![0, 8, 503, 576, 10_000],
    };
    let xdbc = CommandGetXdbcTypeInfo { data_type: Some(4) };
    let ticket = Ticket::new("no ticket");
    let polled = FlightInfo::new().with_endpoint(FlightEndpoint::new().with_ticket(ticket));
    // A PollInfo message begins with a FlightInfo. This one has nothing else.
    let polled = wire::encode_list([polled.encode_to_vec()]);
    vec![
        seed("tables", INFO, command(&tables)),
        seed("native_tables", NATIVE_INFO, command(&tables)),
        seed("schemas", INFO, command(&schemas)),
        seed("catalogs", INFO, command(&CommandGetCatalogs {})),
        seed("table_types", INFO, command(&CommandGetTableTypes {})),
        seed("primary_keys", INFO, command(&keys)),
        seed("cross_reference", SCHEMA, command(&reference)),
        seed("sql_info", INFO, command(&info)),
        seed("types", INFO, command(&xdbc)),
        seed("statement", INFO, command(&statement)),
        seed("statement_schema", SCHEMA, command(&statement)),
        seed("native_statement", NATIVE_INFO, command(&statement)),
        seed(
            "text",
            SCHEMA,
            FlightDescriptor::new_cmd("SELECT 1").encode_to_vec(),
        ),
        seed("path", INFO, path.encode_to_vec()),
        seed("poll", POLL, polled),
        seed(
            "list",
            LIST,
            Criteria {
                expression: "t".into(),
            }
            .encode_to_vec(),
        ),
    ]
}

fn command(message: &impl ProstMessageExt) -> Vec<u8> {
    FlightDescriptor::new_cmd(message.as_any().encode_to_vec()).encode_to_vec()
}

/// Returns the seeds of `tickets`. The lowest bit of `what` is 1 for a ticket of a part of a query.
/// The other bits say how the ticket is used: 0 unsealed, 1 renewed, 2 cancelled, 3 redeemed.
pub fn tickets() -> Vec<Seed> {
    let query = QueryTicket {
        query_id: QUERY_ID.to_owned(),
        sql: QUERY.to_owned(),
        parameters: encoded_row(),
        snapshot: Some(Snapshot {
            high: 9,
            excluded_bounds: vec![2, 2],
            ..Snapshot::default()
        }),
        settings: [(
            "datafusion.execution.time_zone".to_owned(),
            "+02:00".to_owned(),
        )]
        .into(),
        reads: [("t".to_owned(), 1)].into(),
        columns: Some(7),
        ..QueryTicket::default()
    };
    let simple = QueryTicket {
        query_id: QUERY_ID.to_owned(),
        sql: "SELECT 1 AS a UNION ALL SELECT 2".to_owned(),
        settings: [("volary-types".to_owned(), "native".to_owned())].into(),
        ..QueryTicket::default()
    };
    let result = QueryTicket {
        query_id: QUERY_ID.to_owned(),
        result: Some(encoded_row()),
        ..QueryTicket::default()
    };
    let metadata = QueryTicket {
        command: Some(CommandGetTableTypes {}.as_any().encode_to_vec().into()),
        ..QueryTicket::default()
    };
    let direct = direct_ticket();
    vec![
        seed("unsealed", 0, query.encode_to_vec()),
        seed("query", 6, query.encode_to_vec()),
        seed("simple", 6, simple.encode_to_vec()),
        seed("result", 6, result.encode_to_vec()),
        seed("metadata", 6, metadata.encode_to_vec()),
        seed("renewed", 2, query.encode_to_vec()),
        seed("cancelled", 4, query.encode_to_vec()),
        seed("part", 7, direct.encode_to_vec()),
        seed("renewed_part", 3, direct.encode_to_vec()),
        seed("cancelled_part", 5, direct.encode_to_vec()),
    ]
}

/// Returns the ticket of a part of a query, as a client redeems it.
pub(super) fn direct_ticket() -> DirectTicket {
    let columns = Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
    ]);
    DirectTicket {
        query: Some(QueryTicket {
            query_id: QUERY_ID.to_owned(),
            sql: "SELECT k, s FROM t WHERE d > 1.5".to_owned(),
            ..QueryTicket::default()
        }),
        part: Some(fragments::sample_ticket()),
        announced: ipc::schema_to_bytes(&columns),
        timeout_ms: 500,
    }
}

/// Returns encoded parameters: one number.
fn encoded_row() -> Bytes {
    let row = numbers(&[7]);
    ipc::batches_to_bytes(&row.schema(), &[row]).expect("rows can be encoded")
}

fn numbers(values: &[i64]) -> RecordBatch {
    let column = Int64Array::from(values.to_vec());
    RecordBatch::try_from_iter([("0", std::sync::Arc::new(column) as _)]).expect("a column")
}

fn handle(sql: &str, parameters: Option<Bytes>) -> Vec<u8> {
    let handle = PreparedStatementHandle {
        sql: sql.to_owned(),
        parameters,
        user: String::new(),
    };
    handle.encode_to_vec()
}

/// Returns the seeds of `handles`. `what` says how the handle is used: 0 unsealed, 1 asked for its
/// schema, 2 planned, 3 bound, 4 run as an update.
pub fn handles() -> Vec<Seed> {
    let insert = "INSERT INTO t (k) VALUES (?)";
    vec![
        seed("unsealed", 0, handle(QUERY, None)),
        seed("schema", 1, handle(QUERY, None)),
        seed("schema_of_bound", 1, handle(QUERY, Some(encoded_row()))),
        seed("query", 2, handle(QUERY, Some(encoded_row()))),
        seed("bind", 3, handle(QUERY, Some(encoded_row()))),
        seed("update", 4, handle(insert, Some(encoded_row()))),
    ]
}

pub fn actions() -> Vec<Seed> {
    let options = |values: Vec<(&str, Option<OptionValue>)>| SetSessionOptionsRequest {
        session_options: values
            .into_iter()
            .map(|(name, option_value)| (name.to_owned(), SessionOptionValue { option_value }))
            .collect(),
    };
    let text = |text: &str| Some(OptionValue::StringValue(text.to_owned()));
    let list = StringListValue {
        values: vec!["a".to_owned()],
    };
    let set = [
        ("set_zone", "timezone", text("+02:00")),
        ("set_timeout", "volary.statement_timeout", text("1500 ms")),
        ("set_memory", "query_memory", text("1 GiB")),
        (
            "set_number",
            "batch_size",
            Some(OptionValue::Int64Value(100)),
        ),
        (
            "set_bool",
            "parse_float_as_decimal",
            Some(OptionValue::BoolValue(true)),
        ),
        ("set_double", "relays", Some(OptionValue::DoubleValue(0.5))),
        (
            "set_list",
            "catalog",
            Some(OptionValue::StringListValue(list)),
        ),
        ("unset", "volary-types", None),
    ];
    let set = set.map(|(name, option, value)| {
        let request = options(vec![(option, value)]);
        (name, SET_SESSION_OPTIONS_ACTION, request.encode_to_vec())
    });
    let prepare = ActionCreatePreparedStatementRequest {
        query: QUERY.to_owned(),
        transaction_id: None,
    };
    let close = ActionClosePreparedStatementRequest {
        prepared_statement_handle: "h".into(),
    };
    let renew = RenewFlightEndpointRequest {
        endpoint: Some(
            FlightEndpoint::new()
                .with_ticket(Ticket::new("t"))
                .with_location("grpc://h:1"),
        ),
    };
    let polled = FlightInfo::new().with_app_metadata(QUERY_ID);
    let cancel = arrow_flight::CancelFlightInfoRequest::new(polled.clone());
    let cancel_query = arrow_flight::sql::ActionCancelQueryRequest {
        info: polled.encode_to_vec().into(),
    };
    let others = [
        ("get_options", GET_SESSION_OPTIONS_ACTION, Vec::new()),
        ("close_session", CLOSE_SESSION_ACTION, Vec::new()),
        (
            "prepare",
            "CreatePreparedStatement",
            prepare.as_any().encode_to_vec(),
        ),
        (
            "close",
            "ClosePreparedStatement",
            close.as_any().encode_to_vec(),
        ),
        ("renew", "RenewFlightEndpoint", renew.encode_to_vec()),
        ("cancel", "CancelFlightInfo", cancel.encode_to_vec()),
        (
            "cancel_query",
            "CancelQuery",
            cancel_query.as_any().encode_to_vec(),
        ),
        ("transaction", "BeginTransaction", Vec::new()),
    ];
    let all = set.into_iter().chain(others);
    all.map(|(name, action, body)| (name.to_owned(), Action::new(action, body).encode_to_vec()))
        .collect()
}

/// Returns the seeds of `headers`: a byte with flags, the length of the claims, the claims, and
/// lines.
pub fn headers() -> Vec<Seed> {
    let claims = SessionClaims {
        user: "admin".to_owned(),
        generation: 0,
        session: "volary-session-00000000000040008000000000000000".to_owned(),
        issued_at_s: 1_700_000_000,
    };
    let claims = claims.encode_to_vec();
    let input = |has_users: u8, claims: &[u8], lines: &str| {
        let length = u8::try_from(claims.len()).expect("claims are short");
        [&[has_users, length][..], claims, lines.as_bytes()].concat()
    };
    let token = format!("0Bearer volary-token-{}", "0a".repeat(32));
    let cookie = "1lb=7; volary-session=\"volary-session-00000000000040008000000000000000\"";
    [
        ("basic", input(0, &[], "0Basic dXNlcjpwYXNzdw==")),
        (
            "basic_without_padding",
            input(0, &[], "0basic dXNlcjpwYXNzdw"),
        ),
        ("session", input(0, &claims, "")),
        ("session_of_user", input(1, &claims, "")),
        ("session_as_cookie", input(3, &claims, "")),
        ("token", input(1, &[], &token)),
        ("cookie", input(0, &[], cookie)),
        ("options", input(0, &[], "2native\n3on\n4a tag\n5100m")),
        ("ingest", input(0, &[], "6k\n74\n599999999H\n8gzip\n9on")),
    ]
    .map(|(name, input)| (name.to_owned(), encode_header_names(input)))
    .into()
}

/// Converts lines whose first character is the digit of a header's name. In the input, the byte
/// modulo the number of names chooses the name.
fn encode_header_names(input: Vec<u8>) -> Vec<u8> {
    let start = 2 + usize::from(input[1]);
    let (head, lines) = input.split_at(start);
    let mut all = head.to_vec();
    for (number, line) in lines.split(|byte| *byte == b'\n').enumerate() {
        if number > 0 {
            all.push(b'\n');
        }
        if let Some((digit, value)) = line.split_first() {
            // 'F' is 70, and there are ten names, so the remainder is the digit.
            all.push(digit - b'0' + b'F');
            all.extend(value);
        }
    }
    all
}

/// Returns the request for rows of the table `t`.
pub(super) fn lookup() -> LookupRequest {
    LookupRequest {
        table: "t".to_owned(),
        columns: vec!["s".to_owned(), "k".to_owned()],
        ..LookupRequest::default()
    }
}

/// Returns the seeds of `rows`. `what` is a sum: 1 for a body instead of a list of messages, and 2
/// for a DoExchange instead of a DoPut.
pub fn rows() -> Vec<Seed> {
    let list = |descriptor: Vec<u8>, rows: &RecordBatch| wire::encode_list(put(descriptor, rows));
    let bind = CommandPreparedStatementQuery {
        prepared_statement_handle: handle(QUERY, None).into(),
    };
    let each = CommandPreparedStatementUpdate {
        prepared_statement_handle: handle("INSERT INTO t (k) VALUES (?)", None).into(),
    };
    let one_by_one = CommandPreparedStatementUpdate {
        prepared_statement_handle: handle("SET batch_size = ?", None).into(),
    };
    let update = CommandStatementUpdate {
        query: "INSERT INTO r VALUES (1, 'a')".to_owned(),
        transaction_id: None,
    };
    let ingest = CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: TableNotExistOption::Create.into(),
            if_exists: TableExistsOption::Append.into(),
        }),
        table: "u".to_owned(),
        schema: Some("public".to_owned()),
        options: [("shards".to_owned(), "2".to_owned())].into(),
        ..CommandStatementIngest::default()
    };
    let two = numbers(&[7, 8]);
    let texts = RecordBatch::try_from_iter([(
        "name",
        std::sync::Arc::new(StringArray::from(vec![Some("kea"), None])) as _,
    )]);
    let texts = texts.expect("a column");
    let zstd = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD));
    let compressed = put_with(
        ingest.as_any().encode_to_vec(),
        &numbers(&[7; 200]),
        zstd.expect("it is compiled in"),
    );
    let append = CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: TableNotExistOption::Fail.into(),
            if_exists: TableExistsOption::Append.into(),
        }),
        table: "t".to_owned(),
        options: [("stream", "on"), ("producer", "kea")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..CommandStatementIngest::default()
    };
    let stream = put(append.as_any().encode_to_vec(), &two)
        .into_iter()
        .map(|message| {
            let message = FlightData::decode(message.as_slice()).expect("it was encoded");
            let numbered = message.with_app_metadata(&br#"{"sequence":1,"more":false}"#[..]);
            numbered.encode_to_vec()
        });
    let stream: Vec<_> = stream.collect();
    let keys = Any {
        type_url: LookupRequest::TYPE_URL.to_owned(),
        value: lookup().encode_to_vec().into(),
    };
    let update = put(update.as_any().encode_to_vec(), &two);
    let length = u32::try_from(update[0].len()).expect("it is short");
    let body = [&[0][..], &length.to_be_bytes(), &update[0]].concat();
    vec![
        seed(
            "bind",
            0,
            list(bind.as_any().encode_to_vec(), &numbers(&[7])),
        ),
        seed("each", 0, list(each.as_any().encode_to_vec(), &two)),
        seed(
            "one_by_one",
            0,
            list(one_by_one.as_any().encode_to_vec(), &two),
        ),
        seed("update", 0, wire::encode_list(&update)),
        seed("ingest", 0, list(ingest.as_any().encode_to_vec(), &texts)),
        seed("compressed", 0, wire::encode_list(&compressed)),
        seed("body", 1, body),
        seed(
            "exchange",
            2,
            list(b"SELECT k FROM t WHERE k = ?".to_vec(), &numbers(&[7])),
        ),
        seed(
            "exchange_of_nothing",
            2,
            list(b"SELECT 1 AS a".to_vec(), &numbers(&[])),
        ),
        seed(
            "exchange_each",
            2,
            list(b"INSERT INTO t (k) VALUES (?)".to_vec(), &two),
        ),
        seed(
            "exchange_ingest",
            2,
            list(ingest.as_any().encode_to_vec(), &texts),
        ),
        seed("stream", 2, wire::encode_list(&stream)),
        seed("lookup", 2, list(keys.encode_to_vec(), &two)),
        seed(
            "exchange_list",
            2,
            list(CommandGetCatalogs {}.as_any().encode_to_vec(), &two),
        ),
    ]
}
