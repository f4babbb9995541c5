//! Decides which statements are about logins, or seem to be. Such a statement may contain a
//! password, even if it is not understood.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::text::contains_any;
use crate::sql::tokens::{first_words, is_one_of};

/// Words that a password follows.
pub(super) const TELLING_WORDS: [&str; 2] = ["PASSWORD", "IDENTIFIED"];
/// Beginnings of these words and of misspellings of them.
pub(super) const TELLING_BEGINNINGS: [&str; 3] = ["PASSW", "PASW", "IDENTIF"];
/// Words for what a statement about logins creates or changes.
pub(super) const WHO: [&str; 3] = ["USER", "ROLE", "LOGIN"];
/// Words that stand before the words in `WHO`.
pub(super) const CHANGES: [&str; 3] = ["CREATE", "ALTER", "REPLACE"];
/// Number of words in which CREATE USER is searched for, in statements that are refused. This is
/// enough for EXPLAIN ANALYZE VERBOSE, PREPARE name AS, or OR REPLACE.
const WORDS_BEFORE: usize = 8;
/// Number of words in which the verb of a statement is searched for.
const WORDS_BEFORE_VERB: usize = 16;
/// First words of statements that may be about logins, or contain such a statement.
const BEGINNINGS: [&str; 6] = ["CREATE", "ALTER", "EXPLAIN", "DESCRIBE", "DESC", "PREPARE"];
/// Verbs of statements in which a column may be called `password`.
const ORDINARY: [&str; 13] = [
    "SELECT", "WITH", "VALUES", "TABLE", "FROM", "INSERT", "UPDATE", "DELETE", "MERGE", "COPY",
    "CALL", "EXECUTE", "INGEST",
];
/// Verbs of statements that name users and roles without a password.
const NAMING: [&str; 18] = [
    "GRANT",
    "REVOKE",
    "DROP",
    "SHOW",
    "SET",
    "RESET",
    "USE",
    "KILL",
    "BEGIN",
    "START",
    "COMMIT",
    "ROLLBACK",
    "END",
    "TRUNCATE",
    "ANALYZE",
    "COMMENT",
    "DEALLOCATE",
    "DISCARD",
];
/// Other objects that are created and altered. They have columns, or a query.
const OBJECTS: [&str; 8] = [
    "TABLE", "VIEW", "QUERY", "INDEX", "SCHEMA", "DATABASE", "FUNCTION", "SEQUENCE",
];
/// Words that may stand before the words in `OBJECTS`.
const OF_OBJECTS: [&str; 10] = [
    "OR",
    "REPLACE",
    "GLOBAL",
    "LOCAL",
    "TEMP",
    "TEMPORARY",
    "EXTERNAL",
    "UNLOGGED",
    "MATERIALIZED",
    "UNIQUE",
];

/// The kind of a statement, as far as its words show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A query, a write or the definition of a table. PASSWORD is a column in it.
    Ordinary,
    /// A statement that names users and settings. A password in it would follow PASSWORD.
    Naming,
    /// A statement that creates or changes a login, or may be meant to.
    Login,
}

impl Kind {
    /// Returns the kind of a statement with these tokens.
    pub(super) fn of(statement: &[TokenWithSpan]) -> Self {
        let statement = &statement[opening(statement)..];
        let words = first_words(statement, WORDS_BEFORE_VERB);
        let verb = verb(&words);
        let is = |position, wanted| is_one_of(&words, position, wanted);
        let mut object = verb + 1;
        while is(object, &OF_OBJECTS) {
            object += 1;
        }
        let is_change = is(verb, &["CREATE", "ALTER"]);
        // Other databases change a user with UPDATE USER.
        let is_update = is(verb, &["UPDATE"]) && is(verb + 1, &WHO);
        let is_ordinary = is(verb, &ORDINARY) || is_misspelt_query(&words, verb);
        if is_change && is(object, &OBJECTS) || is_ordinary && !is_update {
            Self::Ordinary
        } else if is(verb, &NAMING)
            || is_change && is(object, &["TOKEN"])
            || !names_somebody(&words) && !has_telling_word(statement)
        {
            Self::Naming
        } else {
            Self::Login
        }
    }
}

/// Returns the number of tokens before the first word.
fn opening(statement: &[TokenWithSpan]) -> usize {
    let opens =
        |token: &&TokenWithSpan| matches!(token.token, Token::Whitespace(_) | Token::LParen);
    statement.iter().take_while(opens).count()
}

/// Returns whether a statement creates or changes a login, in this dialect or another one, or
/// contains a statement that does.
pub(super) fn is_about_logins(tokens: &[TokenWithSpan]) -> bool {
    let words = first_words(tokens, WORDS_BEFORE);
    let is = |position, wanted| is_one_of(&words, position, wanted);
    if is(0, &["SET"]) {
        return is(1, &["PASSWORD"]);
    }
    is(0, &BEGINNINGS)
        && (1..words.len()).any(|position| is(position, &WHO) && is(position - 1, &CHANGES))
}

/// Returns the position of the verb of a statement. The verb comes after EXPLAIN with its options,
/// and after PREPARE … AS.
fn verb(words: &[&str]) -> usize {
    let is = |position, wanted| is_one_of(words, position, wanted);
    let mut at = 0;
    if is(at, &["PREPARE"]) {
        let preposition = words
            .iter()
            .position(|word| word.eq_ignore_ascii_case("AS"));
        return preposition.map_or(at, |preposition| preposition + 1);
    }
    if is(at, &["EXPLAIN", "DESCRIBE", "DESC"]) {
        at += 1;
        while is(at, &["", "ANALYZE", "VERBOSE", "FORMAT"]) {
            at += if is(at, &["FORMAT"]) { 2 } else { 1 };
        }
    }
    at
}

/// Returns whether the verb is a misspelt SELECT or INSERT. Columns called `password` are shown in
/// such a query, too.
fn is_misspelt_query(words: &[&str], verb: usize) -> bool {
    let word = words.get(verb).map(|word| word.to_ascii_uppercase());
    word.is_some_and(|word| {
        ["SELECT", "INSERT"]
            .iter()
            .any(|known| strsim::osa_distance(&word, known) <= 1)
    })
}

fn names_somebody(words: &[&str]) -> bool {
    (0..WORDS_BEFORE).any(|position| is_one_of(words, position, &WHO))
}

/// Returns whether a token contains the beginning of a word that a password follows. Tokens in
/// quotes count, too, because the quotes may be wrong.
fn has_telling_word(statement: &[TokenWithSpan]) -> bool {
    statement
        .iter()
        .any(|token| contains_any(&token.token.to_string(), &TELLING_BEGINNINGS))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    #[test]
    fn statements_are_what_they_seem_to_be() {
        for (sql, kind) in [
            ("SELECT password FROM users", Kind::Ordinary),
            ("((SELECT password FROM role))", Kind::Ordinary),
            ("SELCT password FROM users", Kind::Ordinary),
            (
                "EXPLAIN ANALYZE VERBOSE SELECT password FROM user",
                Kind::Ordinary,
            ),
            (
                "EXPLAIN FORMAT tree SELECT password FROM user",
                Kind::Ordinary,
            ),
            (
                "PREPARE p (INT, TEXT) AS SELECT password FROM user",
                Kind::Ordinary,
            ),
            (
                "CREATE OR REPLACE TEMPORARY TABLE user (password TEXT)",
                Kind::Ordinary,
            ),
            ("ALTER TABLE password OWNER TO kea", Kind::Ordinary),
            ("INGEST INTO password", Kind::Ordinary),
            ("UPDATE users SET password = 'x'", Kind::Ordinary),
            ("GRANT password TO USER kea", Kind::Naming),
            ("DROP ROLE kea", Kind::Naming),
            ("CREATE TOKEN t FOR kea", Kind::Naming),
            ("SET PASSWORD FOR kea = 'x'", Kind::Naming),
            ("VACUUM eggs", Kind::Naming),
            ("", Kind::Naming),
            ("CREATE USER kea", Kind::Login),
            ("EXPLAIN CREATE USER kea", Kind::Login),
            ("EXPLAIN CRAETE USER kea WITH PASSWORD 'x'", Kind::Login),
            ("PREPARE p AS ALTER LOGIN kea", Kind::Login),
            ("ATLER ROLE kea", Kind::Login),
            ("UPDATE USER kea PASSWORD 'x'", Kind::Login),
            ("CREATE USERS kea PASSWORD 'x'", Kind::Login),
            ("CREATE USRE kea PASWORD 'x'", Kind::Login),
            ("USER kea", Kind::Login),
        ] {
            let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
            assert_eq!(Kind::of(&tokens.unwrap()), kind, "{sql}");
        }
    }
}
