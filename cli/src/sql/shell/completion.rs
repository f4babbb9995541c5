use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use parking_lot::Mutex;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::client::Client;

/// The words of SQL that are completed.
const KEYWORDS: [&str; 83] = [
    "ALL",
    "ALTER",
    "ANALYZE",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "CALL",
    "CASE",
    "CAST",
    "COPY",
    "CREATE",
    "CROSS",
    "DATE",
    "DECIMAL",
    "DEFAULT",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DOUBLE",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FALSE",
    "FILTER",
    "FROM",
    "FULL",
    "GRANT",
    "GROUP",
    "HAVING",
    "IF",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "KILL",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OVER",
    "OWNER",
    "PARTITION",
    "QUERY",
    "REFERENCE",
    "REPLACE",
    "RESET",
    "REVOKE",
    "RIGHT",
    "ROLE",
    "SELECT",
    "SET",
    "SHOW",
    "TABLE",
    "THEN",
    "TIMESTAMP",
    "TOKEN",
    "TRUE",
    "UNION",
    "USER",
    "USING",
    "VALUES",
    "VARCHAR",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
];

const COMMANDS: [&str; 13] = [
    "\\conninfo",
    "\\d",
    "\\dn",
    "\\dq",
    "\\dr",
    "\\format",
    "\\i",
    "\\o",
    "\\pager",
    "\\progress",
    "\\q",
    "\\timing",
    "\\x",
];

/// The known names, each with its columns.
pub(super) type Names = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// Fetches the names of tables, views and saved queries, and the names of their columns. Names that
/// cannot be fetched are not completed.
pub(super) async fn fetch_names(client: &mut Client, names: &Names) {
    let columns = "SELECT CASE table_schema WHEN 'public' THEN '' ELSE table_schema || '.' END || table_name, column_name \
                   FROM information_schema.columns";
    let queries = "SELECT CASE schema_name WHEN 'public' THEN '' ELSE schema_name || '.' END || name, '' \
                   FROM system.saved_queries";
    let mut fetched: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for question in [columns, queries] {
        let Ok(batch) = client.collect(question).await else {
            continue;
        };
        for (table, column) in pairs(&batch) {
            let known = fetched.entry(table).or_default();
            if !column.is_empty() {
                known.insert(column);
            }
        }
    }
    *names.lock() = fetched;
}

fn pairs(batch: &RecordBatch) -> Vec<(String, String)> {
    let texts = |column: usize| -> Vec<String> {
        let column = batch.columns().get(column);
        let texts = column.and_then(|column| cast(column, &DataType::Utf8).ok());
        let texts = texts.as_ref().map(|texts| texts.as_string::<i32>());
        let texts = texts.into_iter().flatten();
        texts
            .map(|text| text.unwrap_or_default().to_owned())
            .collect()
    };
    texts(0).into_iter().zip(texts(1)).collect()
}

/// Answers rustyline's requests for completions.
#[derive(Debug, Default)]
pub(super) struct Completion {
    names: Names,
}

impl Completion {
    /// Returns the names that are completed.
    pub(super) fn names(&self) -> Names {
        Arc::clone(&self.names)
    }

    /// Returns the start of the word before the cursor, and the words that complete it.
    fn candidates(&self, line: &str, cursor: usize) -> (usize, Vec<String>) {
        let before = &line[..cursor];
        if before.trim_start().starts_with('\\') && !before.contains(char::is_whitespace) {
            let commands = COMMANDS
                .iter()
                .filter(|command| command.starts_with(before));
            return (0, commands.map(|command| (*command).to_owned()).collect());
        }
        let is_word_character =
            |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
        let start = before
            .char_indices()
            .rev()
            .take_while(|(_, letter)| is_word_character(*letter))
            .last()
            .map_or(cursor, |(at, _)| at);
        let word = &before[start..];
        if word.is_empty() {
            return (start, Vec::new());
        }
        let names = self.names.lock();
        let mut found = BTreeSet::new();
        let qualified = word.rsplit_once('.').and_then(|(table, column)| {
            let columns = names.get(&table.to_lowercase())?;
            Some((table, column, columns))
        });
        if let Some((table, column, columns)) = qualified {
            let matching = columns.iter().filter(|it| has_prefix(it, column));
            found.extend(matching.map(|it| format!("{table}.{it}")));
        } else {
            found.extend(names.keys().filter(|it| has_prefix(it, word)).cloned());
            let columns = names.values().flatten();
            found.extend(columns.filter(|it| has_prefix(it, word)).cloned());
            let is_lower = word.chars().all(|letter| !letter.is_uppercase());
            let words = KEYWORDS.iter().filter(|it| has_prefix(it, word));
            found.extend(words.map(|it| {
                if is_lower {
                    it.to_lowercase()
                } else {
                    (*it).to_owned()
                }
            }));
        }
        (start, found.into_iter().collect())
    }
}

fn has_prefix(name: &str, with: &str) -> bool {
    name.get(..with.len())
        .is_some_and(|beginning| beginning.eq_ignore_ascii_case(with))
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, candidates) = self.candidates(line, cursor);
        let pairs = candidates.into_iter().map(|candidate| Pair {
            display: candidate.clone(),
            replacement: candidate,
        });
        Ok((start, pairs.collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> (usize, Vec<String>) {
        let completion = Completion::default();
        let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        completion.names.lock().extend([
            ("birds".to_owned(), columns(&["id", "name"])),
            ("system.nodes".to_owned(), columns(&["id", "state"])),
        ]);
        completion.candidates(line, line.len())
    }

    #[test]
    fn names_and_words_are_completed_where_the_cursor_is() {
        for (line, start, expected) in [
            ("SELECT na", 7, vec!["name"]),
            ("SEL", 0, vec!["SELECT"]),
            ("sel", 0, vec!["select"]),
            ("SELECT * FROM bi", 14, vec!["bigint", "birds"]),
            ("SELECT * FROM BIR", 14, vec!["birds"]),
            ("SELECT birds.n", 7, vec!["birds.name"]),
            ("SELECT * FROM system.", 14, vec!["system.nodes"]),
            (
                "SELECT (i",
                8,
                vec![
                    "id",
                    "if",
                    "in",
                    "inner",
                    "insert",
                    "intersect",
                    "interval",
                    "into",
                    "is",
                ],
            ),
            ("SELECT ", 7, vec![]),
            ("\\ti", 0, vec!["\\timing"]),
            ("SELECT 'ä' || na", 14 + 1, vec!["name"]),
        ] {
            assert_eq!(
                completed(line),
                (start, expected.into_iter().map(str::to_owned).collect()),
                "{line}"
            );
        }
    }
}
