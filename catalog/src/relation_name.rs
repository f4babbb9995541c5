use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use volary_flight_proto::ids::SessionId;

/// Name of the schema that always exists, and that names without a schema belong to unless a
/// session chooses another one.
pub const PUBLIC_SCHEMA: &str = "public";

/// Name of the schema of temporary tables and views, as in PostgreSQL. Each session has its own.
pub const TEMPORARY_SCHEMA: &str = "pg_temp";

/// The full name of a table, a view or a saved query: its schema, and its name within the schema.
/// Names are ordered by schema first, and within the schema of temporary tables by session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationName {
    schema: String,
    /// The session that a temporary table or view belongs to. `None` for all others.
    session: Option<SessionId>,
    name: String,
}

impl RelationName {
    /// Creates a name within a schema.
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            schema: schema.into(),
            session: None,
            name: name.into(),
        }
    }

    /// Creates the name of a temporary table or view of a session.
    pub fn temporary(session: SessionId, name: impl Into<String>) -> Self {
        Self {
            session: Some(session),
            ..Self::new(TEMPORARY_SCHEMA, name)
        }
    }

    /// Returns another name in the same schema, and for a temporary name of the same session.
    #[must_use]
    pub fn sibling(&self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self.clone()
        }
    }

    /// Returns whether both names are in the same schema, and if they are temporary, of the same
    /// session.
    pub fn is_sibling_of(&self, other: &Self) -> bool {
        self.schema == other.schema && self.session == other.session
    }

    /// Returns the session that a temporary table or view belongs to. `None` for all others.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns whether this is the name of a temporary table or view.
    pub fn is_temporary(&self) -> bool {
        self.session.is_some()
    }

    /// Creates a name within the schema `public`.
    pub fn in_public(name: impl Into<String>) -> Self {
        Self::new(PUBLIC_SCHEMA, name)
    }

    /// Returns the schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Returns the name within the schema.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the name is in the schema `public`.
    pub fn is_in_public(&self) -> bool {
        self.schema == PUBLIC_SCHEMA
    }

    /// Returns the name as a statement writes it, with quotes. Only names outside of `public` have
    /// their schema before them.
    pub(crate) fn quoted(&self) -> String {
        let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        if self.is_in_public() {
            quote(&self.name)
        } else {
            format!("{}.{}", quote(&self.schema), quote(&self.name))
        }
    }
}

/// Writes the name for messages: `t` in the schema `public`, and `s.t` in any other schema.
impl fmt::Display for RelationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_in_public() {
            write!(f, "{}.", self.schema)?;
        }
        f.write_str(&self.name)
    }
}

/// The form of a name in a record. A name in the schema `public` is a text, as in records from
/// before there were other schemas.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RecordedName {
    InPublic(String),
    InSchema {
        schema: String,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
    },
}

impl Serialize for RelationName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            schema,
            session,
            name,
        } = self.clone();
        let recorded = match self.is_in_public() {
            true => RecordedName::InPublic(name),
            false => RecordedName::InSchema {
                schema,
                name,
                session,
            },
        };
        recorded.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RelationName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match RecordedName::deserialize(deserializer)? {
            RecordedName::InPublic(name) => Self::in_public(name),
            RecordedName::InSchema {
                schema,
                name,
                session,
            } => Self {
                schema,
                session,
                name,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_statements_name_the_schema_unless_it_is_public() {
        let public = RelationName::in_public("two \"words\"");
        assert_eq!(public.to_string(), "two \"words\"");
        assert_eq!(public.quoted(), "\"two \"\"words\"\"\"");
        let staging = RelationName::new("staging", "eggs");
        assert_eq!(staging.to_string(), "staging.eggs");
        assert_eq!(staging.quoted(), "\"staging\".\"eggs\"");
    }

    #[test]
    fn equal_texts_are_not_equal_names() {
        let (a, b) = (RelationName::new("a", "b.c"), RelationName::new("a.b", "c"));
        assert_eq!(a.to_string(), b.to_string());
        assert_ne!(a, b);
    }

    #[test]
    fn temporary_tables_of_two_sessions_are_two_tables_of_one_name() {
        let session = |number| SessionId(uuid::Uuid::from_u128(number));
        let eggs = |number| RelationName::temporary(session(number), "eggs");
        assert_eq!(eggs(1).to_string(), "pg_temp.eggs");
        assert_eq!(eggs(2).to_string(), "pg_temp.eggs");
        assert_ne!(eggs(1), eggs(2));
        assert!(eggs(1) < RelationName::temporary(session(2), "a"));
        assert!(eggs(1).is_sibling_of(&eggs(1).sibling("nests")));
        assert!(!eggs(1).is_sibling_of(&eggs(2)));
        assert!(!RelationName::new(TEMPORARY_SCHEMA, "eggs").is_temporary());
    }

    #[test]
    fn a_name_has_the_same_record_for_ever() {
        for (name, text) in [
            (RelationName::in_public("eggs"), r#""eggs""#),
            (
                RelationName::new("staging", "eggs"),
                r#"{"schema":"staging","name":"eggs"}"#,
            ),
            (
                RelationName::temporary(SessionId(uuid::Uuid::from_u128(7)), "eggs"),
                r#"{"schema":"pg_temp","name":"eggs","session":"00000000-0000-0000-0000-000000000007"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&name).unwrap(), text);
            assert_eq!(serde_json::from_str::<RelationName>(text).unwrap(), name);
        }
    }
}
