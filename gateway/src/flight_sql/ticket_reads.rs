use std::collections::BTreeMap;

use volary_catalog::RelationName;
use volary_flight_proto::ticket::{QueryTicket, RelationRead};

/// Writes the versions of what a query reads into its ticket.
pub(super) fn put_reads(ticket: &mut QueryTicket, reads: &BTreeMap<RelationName, u64>) {
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
    let in_schemas = ticket.reads_in_schemas.iter().map(|read| {
        let name = RelationName::new(read.schema.as_str(), read.name.as_str());
        (name, read.version)
    });
    in_public.chain(in_schemas).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_says_what_its_query_read() {
        let reads: BTreeMap<_, _> = [
            (RelationName::in_public("eggs"), 1),
            (RelationName::new("staging", "eggs"), 2),
        ]
        .into();
        let mut ticket = QueryTicket::default();
        put_reads(&mut ticket, &reads);
        assert_eq!(ticket.reads, [("eggs".to_owned(), 1)].into());
        assert_eq!(reads_of(&ticket), reads);
    }
}
