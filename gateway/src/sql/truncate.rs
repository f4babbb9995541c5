use datafusion::sql::sqlparser::ast::{CascadeOption, Statement as Ast};
use volary_flight_proto::{Error, Result};

use super::names::WrittenName;

/// A TRUNCATE, which removes all rows of tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncateStatement {
    /// The tables.
    pub(crate) tables: Vec<WrittenName>,
    /// Says whether a table that does not exist is no error.
    pub(crate) if_exists: bool,
}

/// Converts a TRUNCATE. Returns `None` for other statements.
///
/// # Errors
/// `NOT_FOUND` for a name in another catalog. `INVALID_ARGUMENT` for clauses that are not
/// supported.
pub(super) fn convert(statement: &Ast) -> Result<Option<TruncateStatement>> {
    let Ast::Truncate(truncate) = statement else {
        return Ok(None);
    };
    let clauses = [
        ("PARTITION", truncate.partitions.is_some()),
        (
            "RESTART IDENTITY or CONTINUE IDENTITY",
            truncate.identity.is_some(),
        ),
        ("CASCADE", truncate.cascade == Some(CascadeOption::Cascade)),
        ("ON CLUSTER", truncate.on_cluster.is_some()),
    ];
    if let Some((clause, _)) = clauses.iter().find(|(_, is_there)| *is_there) {
        return Err(Error::unsupported(format!(
            "TRUNCATE with {clause} is not supported; write TRUNCATE and the names of tables"
        )));
    }
    let tables = truncate.table_names.iter();
    let tables = tables.map(|table| WrittenName::of_object(&table.name));
    Ok(Some(TruncateStatement {
        tables: tables.collect::<Result<_>>()?,
        if_exists: truncate.if_exists,
    }))
}

#[cfg(test)]
mod tests {
    use crate::sql::parse::{Statement, parse};

    #[test]
    fn several_tables_are_emptied_at_once() {
        for sql in ["TRUNCATE s.t, u", "TRUNCATE TABLE ONLY s.t, u RESTRICT"] {
            let Statement::Truncate(truncate) = parse(sql).unwrap() else {
                panic!("{sql}: another statement");
            };
            let names: Vec<_> = truncate.tables.iter().map(ToString::to_string).collect();
            assert_eq!(names, ["s.t", "u"]);
            assert!(!truncate.if_exists);
        }
        for clause in ["RESTART IDENTITY", "CASCADE"] {
            let error = parse(&format!("TRUNCATE t {clause}")).unwrap_err();
            assert!(error.message().contains("is not supported"), "{error}");
        }
    }
}
