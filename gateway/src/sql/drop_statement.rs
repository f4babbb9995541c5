use datafusion::sql::sqlparser::ast::{ObjectType, Statement as Ast};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::names::WrittenName;

/// A statement that drops tables or views.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropStatement {
    /// What is dropped.
    pub(crate) kind: DroppedKind,
    /// The names, without those of catalogs that do not exist where IF EXISTS allows that.
    pub(crate) names: Vec<WrittenName>,
    /// Says whether what does not exist is no error.
    pub(crate) if_exists: bool,
    /// Says whether only temporary tables are meant: DROP TEMPORARY TABLE.
    pub(crate) is_temporary: bool,
}

/// The kind of what a statement drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DroppedKind {
    /// Tables.
    Table,
    /// Views.
    View,
}

/// Converts a statement that drops tables or views. Returns `None` for other statements.
///
/// # Errors
/// `NOT_FOUND` for a name in another catalog. `INVALID_ARGUMENT` for forms that are not supported.
pub(super) fn convert(ast: &Ast) -> Result<Option<DropStatement>> {
    let Ast::Drop {
        object_type,
        if_exists,
        names,
        purge,
        temporary,
        table: None,
        ..
    } = ast
    else {
        return Ok(None);
    };
    let kind = match object_type {
        ObjectType::Table => DroppedKind::Table,
        ObjectType::View => DroppedKind::View,
        _ => return Ok(None),
    };
    if *purge {
        return Err(Error::unsupported(format!(
            "DROP {object_type} does not take PURGE: the rows of a dropped table are always deleted; leave it out"
        )));
    }
    let mut written = Vec::with_capacity(names.len());
    for name in names {
        match WrittenName::of_object(name) {
            Ok(name) => written.push(name),
            Err(error) if *if_exists && error.code() == ErrorCode::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(DropStatement {
        kind,
        names: written,
        if_exists: *if_exists,
        is_temporary: *temporary,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse::{Statement, parse};

    #[test]
    fn several_tables_or_views_are_dropped_at_once() {
        let drop = |sql: &str| match parse(sql).unwrap() {
            Statement::Drop(statement) => statement,
            other => panic!("another statement: {other:?}"),
        };
        let name = |schema: Option<&str>, name: &str| {
            WrittenName::new(schema.map(str::to_owned), name.to_owned())
        };
        let tables = drop("DROP TABLE IF EXISTS A, volary.s.\"B\", moon.s.c CASCADE");
        assert_eq!(tables.kind, DroppedKind::Table);
        assert_eq!(tables.names, [name(None, "a"), name(Some("s"), "B")]);
        assert!(tables.if_exists && !tables.is_temporary);
        let views = drop("DROP VIEW v, w");
        assert_eq!((views.kind, views.names.len()), (DroppedKind::View, 2));
        assert!(drop("DROP TEMPORARY TABLE t").is_temporary);
        for sql in [
            "DROP TABLE moon.s.c",
            "DROP TABLE a.b.c.d",
            "DROP TABLE t PURGE",
        ] {
            assert!(parse(sql).is_err(), "{sql}");
        }
    }
}
