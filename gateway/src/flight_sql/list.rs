use arrow_flight::{Criteria, FlightDescriptor, FlightInfo};
use futures::stream::{self, BoxStream, StreamExt};
use tonic::Status;
use volary_flight_proto::ticket::QueryTicket;
use volary_flight_proto::{Error, Result};

use super::FlightSql;
use super::call::ClientCall;
use super::descriptor::table_sql;
use crate::client_types::map_schema;
use crate::engine::TableListing;

/// Stream of flights.
pub(super) type FlightInfoStream = BoxStream<'static, Result<FlightInfo, Status>>;

impl FlightSql {
    /// Lists all tables, or those whose names contain the text of the criteria. The query of a
    /// table is planned when its ticket is redeemed.
    pub(super) fn list(&self, call: &ClientCall, criteria: &Criteria) -> Result<FlightInfoStream> {
        let wanted = std::str::from_utf8(&criteria.expression).map_err(|_| {
            Error::invalid(
                "the criteria are not UTF-8 text; send a part of the tables' names, or nothing",
            )
        })?;
        let infos = self
            .engine
            .tables(&call.session.engine)
            .iter()
            .filter(|table| table.name.contains(wanted))
            .map(|table| self.table_info(call, table))
            .collect::<Result<Vec<_>>>()?;
        Ok(stream::iter(infos).map(Ok).boxed())
    }

    fn table_info(&self, call: &ClientCall, table: &TableListing) -> Result<FlightInfo> {
        let path = vec![
            table.catalog.clone(),
            table.schema_name.clone(),
            table.name.clone(),
        ];
        let sql = table_sql(&path)?;
        let descriptor = FlightDescriptor::new_path(path);
        let ticket = QueryTicket {
            query_id: volary_flight_proto::ids::QueryId::new().to_string(),
            sql,
            settings: call.session.engine.settings(),
            session: table.session.map(|session| session.to_string()),
            ..QueryTicket::default()
        };
        let schema = map_schema(call.profile, &table.columns);
        self.flight_info(call, &schema, ticket, descriptor)
    }
}
