use std::collections::BTreeMap;

use volary_catalog::{RelationName, TEMPORARY_SCHEMA};
use volary_flight_proto::ids::SessionId;
use volary_flight_proto::ticket::{QueryTicket, RelationRead};

/// Writes the versions of what a query reads into its ticket.
pub(super) fn put_reads(ticket: &mut QueryTicket, reads: &BTreeMap<RelationName, u64>) {
    let mut sessions = reads.keys().filter_map(RelationName::session);
    ticket.session = sessions.next().map(|session| session.to_string());
    for (name, version) in reads {
        if name.is_in_public() {
            ticket.reads.insert(name.name().to_owned(), *version);
        } else {
            ticket.reads_in_schemas.push(RelationRead {
                schema: name.schema().to_owned(),
                name: name.name().to_owned(),
                version: *version,
            });
        }
    }
}

/// Returns the versions of what the query of a ticket read when it was planned.
pub(super) fn reads_of(ticket: &QueryTicket) -> BTreeMap<RelationName, u64> {
    let in_public = ticket.reads.iter();
    let in_public =
        in_public.map(|(name, version)| (RelationName::in_public(name.as_str()), *version));
    let session = session_of(ticket);
    let in_schemas = ticket.reads_in_schemas.iter().map(|read| {
        let name = match session {
            Some(session) if read.schema == TEMPORARY_SCHEMA => {
                RelationName::temporary(session, read.name.as_str())
            }
            _ => RelationName::new(read.schema.as_str(), read.name.as_str()),
        };
        (name, read.version)
    });
    in_public.chain(in_schemas).collect()
}

/// Returns the session whose temporary tables the query of a ticket reads. Returns `None` if it
/// reads none.
pub(super) fn session_of(ticket: &QueryTicket) -> Option<SessionId> {
    ticket.session.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_says_what_its_query_read() {
        let reads: BTreeMap<_, _> = [
            (RelationName::in_public("eggs"), 1),
            (RelationName::new("staging", "eggs"), 2),
            (RelationName::temporary(SessionId::new(), "eggs"), 3),
        ]
        .into();
        let mut ticket = QueryTicket::default();
        put_reads(&mut ticket, &reads);
        assert_eq!(ticket.reads, [("eggs".to_owned(), 1)].into());
        assert_eq!(reads_of(&ticket), reads);
    }
}
