//! Which statements are about who logs in, or seem to be: such a one may have a password, also where it is not understood.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::text::contains_any;
use crate::sql::tokens::{first_words, is_one_of};

/// What a password follows.
pub(super) const TELLING_WORDS: [&str; 2] = ["PASSWORD", "IDENTIFIED"];
/// What these, and what is meant for them, begin with.
pub(super) const TELLING_BEGINNINGS: [&str; 3] = ["PASSW", "PASW", "IDENTIF"];
/// Whom a statement about logins is about.
pub(super) const WHO: [&str; 3] = ["USER", "ROLE", "LOGIN"];
/// What stands before them.
pub(super) const CHANGES: [&str; 3] = ["CREATE", "ALTER", "REPLACE"];
/// What stands before CREATE USER in statements that are refused, at most: EXPLAIN ANALYZE VERBOSE, PREPARE name AS, OR REPLACE.
const WORDS_BEFORE: usize = 8;
/// Among these is the word that says what is done.
const WORDS_BEFORE_VERB: usize = 16;
/// What a statement begins with that may be, or hold, one about who logs in.
const BEGINNINGS: [&str; 6] = ["CREATE", "ALTER", "EXPLAIN", "DESCRIBE", "DESC", "PREPARE"];
/// What begins a statement in which a column may be called `password`.
const ORDINARY: [&str; 13] = [
    "SELECT", "WITH", "VALUES", "TABLE", "FROM", "INSERT", "UPDATE", "DELETE", "MERGE", "COPY",
    "CALL", "EXECUTE", "INGEST",
];
/// What begins a statement in which users and roles are named without a password.
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
/// What is created and altered besides: it has columns, or a query.
const OBJECTS: [&str; 8] = [
    "TABLE", "VIEW", "QUERY", "INDEX", "SCHEMA", "DATABASE", "FUNCTION", "SEQUENCE",
];
/// What may stand before them.
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

/// What a statement seems to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A query, a write or the definition of a table: PASSWORD is a column there.
    Ordinary,
    /// It names users and settings: a password would follow PASSWORD.
    Naming,
    /// It creates or changes somebody who logs in, or may be meant to.
    Login,
}

impl Kind {
    /// Of one statement's tokens.
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
        // UPDATE USER is how others change a user.
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

/// Tokens before the first word.
fn opening(statement: &[TokenWithSpan]) -> usize {
    let opens =
        |token: &&TokenWithSpan| matches!(token.token, Token::Whitespace(_) | Token::LParen);
    statement.iter().take_while(opens).count()
}

/// Whether a statement creates or changes somebody who logs in, in this dialect or another one, or is a part of a statement that does.
pub(super) fn is_about_logins(tokens: &[TokenWithSpan]) -> bool {
    let words = first_words(tokens, WORDS_BEFORE);
    let is = |position, wanted| is_one_of(&words, position, wanted);
    if is(0, &["SET"]) {
        return is(1, &["PASSWORD"]);
    }
    is(0, &BEGINNINGS)
        && (1..words.len()).any(|position| is(position, &WHO) && is(position - 1, &CHANGES))
}

/// Where the word is that says what is done: behind EXPLAIN with its options, and PREPARE … AS.
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

/// Columns called `password` are left as they are in a query with a slip of the pen, too.
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

/// Within quotes, too: they may be wrong.
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
