use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Name of the schema that always exists, and that names without a schema belong to unless a
/// session chooses another one.
pub const PUBLIC_SCHEMA: &str = "public";

/// The full name of a table, a view or a saved query: its schema, and its name within the schema.
/// Names are ordered by schema first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationName {
    schema: String,
    name: String,
}

impl RelationName {
    /// Creates a name within a schema.
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            schema: schema.into(),
            name: name.into(),
        }
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
    InSchema { schema: String, name: String },
}

impl Serialize for RelationName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { schema, name } = self.clone();
        let recorded = match self.is_in_public() {
            true => RecordedName::InPublic(name),
            false => RecordedName::InSchema { schema, name },
        };
        recorded.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RelationName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match RecordedName::deserialize(deserializer)? {
            RecordedName::InPublic(name) => Self::in_public(name),
            RecordedName::InSchema { schema, name } => Self::new(schema, name),
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
    fn a_name_has_the_same_record_for_ever() {
        for (name, text) in [
            (RelationName::in_public("eggs"), r#""eggs""#),
            (
                RelationName::new("staging", "eggs"),
                r#"{"schema":"staging","name":"eggs"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&name).unwrap(), text);
            assert_eq!(serde_json::from_str::<RelationName>(text).unwrap(), name);
        }
    }
}
