use std::sync::Arc;

use datafusion::common::TableReference;
use volary_catalog::access::Privilege;
use volary_catalog::{ProducerName, ProducerRecord};
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;

use super::context::StatementContext;
use super::{Engine, Session};
use crate::sql::names::WrittenName;

impl Engine {
    /// Returns what a producer has written to a table, or `None` if nothing is remembered. `table`
    /// is its name as SQL writes it.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table does not exist, `PERMISSION_DENIED` for a user who may neither read
    /// it nor write to it.
    pub(crate) fn producer(
        &self,
        session: &Session,
        table: &str,
        producer: &ProducerName,
    ) -> Result<Option<Arc<ProducerRecord>>> {
        let context = StatementContext::new(self, session, QueryId::new(), None, false)?;
        let written = WrittenName::of_reference(&TableReference::parse_str(table))?;
        let name = context.user_relation(&written)?;
        let (catalog, rights) = (&context.catalog, &context.rights);
        let may = |privilege| catalog.check_privilege(privilege, &name, rights);
        may(Privilege::Select).or_else(|_| may(Privilege::Insert))?;
        let Some(table) = catalog.table(&name) else {
            return Err(catalog.no_such_table(&name, rights));
        };
        Ok(catalog.producer(table.id(), producer).cloned())
    }
}
