use datafusion::sql::sqlparser::ast::{CommentObject, ObjectType, SchemaName, Statement as Ast};
use volary_flight_proto::{Error, Result};

use super::names::{identifier, schema_name};

/// A statement that creates or drops schemas, or comments on one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaStatement {
    /// CREATE SCHEMA.
    Create {
        /// Name of the schema.
        name: String,
        /// The owner that AUTHORIZATION names. `None` stands for the user who runs the statement.
        owner: Option<String>,
        /// Says whether an existing schema is left as it is.
        if_not_exists: bool,
    },
    /// DROP SCHEMA.
    Drop {
        /// Names of the schemas.
        names: Vec<String>,
        /// Says whether schemas that do not exist are no error.
        if_exists: bool,
        /// Says whether everything in the schemas is dropped, too.
        is_cascade: bool,
    },
    /// COMMENT ON SCHEMA.
    Comment {
        /// Name of the schema.
        schema: String,
        /// The comment. `None` removes it.
        text: Option<String>,
    },
}

/// Converts a statement that creates or drops schemas, or comments on one. Returns `None` for other
/// statements.
///
/// # Errors
/// `INVALID_ARGUMENT` for forms that are not supported. `NOT_FOUND` for another catalog.
pub(super) fn convert(ast: &Ast) -> Result<Option<SchemaStatement>> {
    match ast {
        Ast::CreateSchema {
            schema_name: written,
            if_not_exists,
            with: None,
            options: None,
            default_collate_spec: None,
            clone: None,
        } => {
            let (name, owner) = match written {
                SchemaName::Simple(name) => (schema_name(name)?, None),
                // PostgreSQL names the schema after its owner, too.
                SchemaName::UnnamedAuthorization(owner) => {
                    (identifier(owner), Some(identifier(owner)))
                }
                SchemaName::NamedAuthorization(name, owner) => {
                    (schema_name(name)?, Some(identifier(owner)))
                }
            };
            Ok(Some(SchemaStatement::Create {
                name,
                owner,
                if_not_exists: *if_not_exists,
            }))
        }
        Ast::Comment {
            object_type: CommentObject::Schema,
            object_name,
            comment,
            if_exists: false,
        } => Ok(Some(SchemaStatement::Comment {
            schema: schema_name(object_name)?,
            text: comment.clone(),
        })),
        Ast::Comment {
            object_type: CommentObject::Schema,
            ..
        } => Err(Error::unsupported(
            "COMMENT ON SCHEMA takes no IF EXISTS; leave it out",
        )),
        Ast::CreateSchema { .. } => Err(Error::unsupported(
            "CREATE SCHEMA has no options; write CREATE SCHEMA [IF NOT EXISTS] name [AUTHORIZATION user]",
        )),
        Ast::Drop {
            object_type: ObjectType::Schema,
            if_exists,
            names,
            cascade,
            ..
        } => Ok(Some(SchemaStatement::Drop {
            names: names.iter().map(schema_name).collect::<Result<_>>()?,
            if_exists: *if_exists,
            is_cascade: *cascade,
        })),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse::{Statement, parse};

    fn converted(sql: &str) -> SchemaStatement {
        match parse(sql).unwrap() {
            Statement::Schema(statement) => statement,
            other => panic!("another statement: {other:?}"),
        }
    }

    #[test]
    fn schemas_are_created_and_dropped_as_in_postgresql() {
        let create = |name: &str, owner: Option<&str>, if_not_exists| SchemaStatement::Create {
            name: name.to_owned(),
            owner: owner.map(str::to_owned),
            if_not_exists,
        };
        for (sql, expected) in [
            ("CREATE SCHEMA Staging", create("staging", None, false)),
            (
                "CREATE SCHEMA IF NOT EXISTS volary.\"Staging\" AUTHORIZATION kea",
                create("Staging", Some("kea"), true),
            ),
            (
                "CREATE SCHEMA AUTHORIZATION kea;",
                create("kea", Some("kea"), false),
            ),
        ] {
            assert_eq!(converted(sql), expected, "{sql}");
        }
        for (sql, is_cascade) in [
            ("DROP SCHEMA IF EXISTS a, volary.b", false),
            ("DROP SCHEMA IF EXISTS a, b RESTRICT", false),
            ("DROP SCHEMA IF EXISTS a, b CASCADE", true),
        ] {
            let expected = SchemaStatement::Drop {
                names: vec!["a".to_owned(), "b".to_owned()],
                if_exists: true,
                is_cascade,
            };
            assert_eq!(converted(sql), expected, "{sql}");
        }
        for sql in [
            "CREATE SCHEMA a.b.c",
            "CREATE SCHEMA moon.a",
            "CREATE SCHEMA a WITH (b = 1)",
            "DROP SCHEMA moon.a",
        ] {
            assert!(parse(sql).is_err(), "{sql}");
        }
    }
}
