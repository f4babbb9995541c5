//! A statement about a login may contain a password, even if it is not understood.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::fold::fold_case;
use crate::sql::tokens::first_words;

/// Words that a password follows.
pub(super) const PASSWORD_WORDS: [&str; 2] = ["PASSWORD", "IDENTIFIED"];
/// Beginnings of these words and of misspellings of them.
pub(super) const PASSWORD_PREFIXES: [&str; 3] = ["PASSW", "PASW", "IDENTIF"];
/// Words for what a statement about logins creates or changes.
pub(super) const LOGIN_OBJECTS: [&str; 4] = ["USER", "ROLE", "LOGIN", "TOKEN"];
/// Verbs that stand before the words in [`LOGIN_OBJECTS`].
const CHANGE_VERBS: [&str; 3] = ["CREATE", "ALTER", "REPLACE"];
/// Words that may stand between a word in [`LOGIN_OBJECTS`] and the name.
const BEFORE_NAME: [&str; 3] = ["IF", "NOT", "EXISTS"];
/// Number of words, from the beginning of a statement, among which a word in [`LOGIN_OBJECTS`] is
/// searched for. This is enough for EXPLAIN ANALYZE VERBOSE, PREPARE name AS, or OR REPLACE.
const MAX_WORDS_BEFORE_OBJECT: usize = 8;
/// Number of words, from the beginning of a statement, among which its verb is searched for.
const MAX_WORDS_BEFORE_VERB: usize = 16;
/// Verbs of statements in which a column may be called `password`.
const ORDINARY_VERBS: [&str; 13] = [
    "SELECT", "WITH", "VALUES", "TABLE", "FROM", "INSERT", "UPDATE", "DELETE", "MERGE", "COPY",
    "CALL", "EXECUTE", "INGEST",
];
/// Verbs of statements that name users and roles without a password.
const NAMING_VERBS: [&str; 18] = [
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
/// Words for other objects that statements create or alter. In the definition of one, PASSWORD is
/// the name of a column.
const OTHER_OBJECTS: [&str; 8] = [
    "TABLE", "VIEW", "QUERY", "INDEX", "SCHEMA", "DATABASE", "FUNCTION", "SEQUENCE",
];
/// Words that may stand before the words in [`OTHER_OBJECTS`].
const OBJECT_MODIFIERS: [&str; 10] = [
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
pub(super) enum StatementKind {
    /// A query, a write or the definition of a table. PASSWORD is a column in it.
    Ordinary,
    /// A statement that names users and settings, or another one without a word for logins or
    /// passwords. A password in it would follow PASSWORD.
    Naming,
    /// A statement that creates or changes a login, or may be meant to.
    Login,
}

/// The beginning of a statement.
pub(super) struct StatementBeginning<'a> {
    pub(super) kind: StatementKind,
    /// The first words. A token that is no word, or is in quotes, is an empty text.
    words: Vec<&'a str>,
    folded_words: Vec<String>,
    /// Position of the verb.
    verb: usize,
}

impl<'a> StatementBeginning<'a> {
    /// Reads the beginning of a statement with these tokens.
    pub(super) fn of(statement: &'a [TokenWithSpan]) -> Self {
        let words = first_words(
            &statement[tokens_before_first_word(statement)..],
            MAX_WORDS_BEFORE_VERB,
        );
        let folded: Vec<_> = words.iter().map(|word| fold_case(word)).collect();
        let mut beginning = Self {
            kind: StatementKind::Login,
            verb: verb_position(&folded),
            words,
            folded_words: folded,
        };
        beginning.kind = beginning.kind(statement);
        beginning
    }

    fn kind(&self, statement: &[TokenWithSpan]) -> StatementKind {
        let verb = self.verb;
        let mut object = verb + 1;
        while self.is(object, &OBJECT_MODIFIERS) {
            object += 1;
        }
        let is_definition = self.is(verb, &["CREATE", "ALTER"]) && self.is(object, &OTHER_OBJECTS);
        // Other databases change a user with UPDATE USER.
        let is_update = self.is(verb, &["UPDATE"]) && self.is(verb + 1, &LOGIN_OBJECTS);
        let is_ordinary = self.is(verb, &ORDINARY_VERBS) || self.is_misspelt_query();
        let names_somebody =
            || (0..MAX_WORDS_BEFORE_OBJECT).any(|position| self.is(position, &LOGIN_OBJECTS));
        if is_definition || is_ordinary && !is_update {
            StatementKind::Ordinary
        } else if self.is(verb, &NAMING_VERBS) || !names_somebody() && !mentions_password(statement)
        {
            StatementKind::Naming
        } else {
            StatementKind::Login
        }
    }

    /// Returns whether the statement creates or changes a login, in this dialect or another one, or
    /// contains a statement that does.
    pub(super) fn is_about_logins(&self) -> bool {
        self.is(0, &["SET"]) && self.is(1, &["PASSWORD"])
            || self.kind == StatementKind::Login
                && changes_login(self.folded_words.iter().map(String::as_str))
    }

    /// Returns the part of a statement about a login that cannot be a password: the verb, and the
    /// name after USER, ROLE, LOGIN or TOKEN.
    pub(super) fn safe_text(&self) -> String {
        let mut end = self.verb + 1;
        while self.is(end, &["OR", "REPLACE"]) {
            end += 1;
        }
        let who = self.folded_words.get(end);
        if who.is_some_and(|word| begins_with_any(word, &LOGIN_OBJECTS)) {
            end += 1;
            while self.is(end, &BEFORE_NAME) {
                end += 1;
            }
            end += 1;
        }
        // EXPLAIN and PREPARE stand before the verb.
        let before = self.words.iter().take(self.verb.min(1));
        let words = self.words.iter().take(end).skip(self.verb);
        // A name in quotes is not shown: if a quote is missing, a password may be between the
        // quotes.
        let shown = before.chain(words).filter(|word| !word.is_empty());
        shown.copied().collect::<Vec<_>>().join(" ")
    }

    fn is(&self, position: usize, wanted: &[&str]) -> bool {
        let word = self.folded_words.get(position);
        word.is_some_and(|word| wanted.contains(&word.as_str()))
    }

    /// Returns whether the verb is a misspelt SELECT or INSERT. Columns called `password` are shown
    /// in such a query, too.
    fn is_misspelt_query(&self) -> bool {
        self.folded_words.get(self.verb).is_some_and(|word| {
            ["SELECT", "INSERT"]
                .iter()
                .any(|known| strsim::osa_distance(word, known) <= 1)
        })
    }
}

/// Returns whether a folded word begins with one of these texts.
pub(super) fn begins_with_any(word: &str, wanted: &[&str]) -> bool {
    wanted.iter().any(|wanted| word.starts_with(wanted))
}

/// Returns whether a word of [`CHANGE_VERBS`] stands directly before one of [`LOGIN_OBJECTS`]. The
/// words are folded.
pub(super) fn changes_login<'a>(words: impl Iterator<Item = &'a str>) -> bool {
    let mut follows_change = false;
    for word in words {
        if follows_change && LOGIN_OBJECTS.contains(&word) {
            return true;
        }
        follows_change = CHANGE_VERBS.contains(&word);
    }
    false
}

/// Returns the number of tokens before the first word.
fn tokens_before_first_word(statement: &[TokenWithSpan]) -> usize {
    let opens =
        |token: &&TokenWithSpan| matches!(token.token, Token::Whitespace(_) | Token::LParen);
    statement.iter().take_while(opens).count()
}

/// Returns the position of the verb of a statement. The verb comes after EXPLAIN with its options,
/// and after PREPARE … AS.
fn verb_position(words: &[String]) -> usize {
    let is = |position: usize, wanted: &[&str]| {
        let word: Option<&String> = words.get(position);
        word.is_some_and(|word| wanted.contains(&word.as_str()))
    };
    let mut at = 0;
    // The types of parameters may stand before AS, in parentheses.
    if is(at, &["PREPARE"]) && is(2, &["AS", ""]) {
        let preposition = words.iter().position(|word| word == "AS");
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

/// Returns whether a token contains the beginning of a word that a password follows. Tokens in
/// quotes count, too, because the quotes may be wrong.
fn mentions_password(statement: &[TokenWithSpan]) -> bool {
    statement.iter().any(|token| {
        let text = fold_case(&token.token.to_string());
        PASSWORD_PREFIXES
            .iter()
            .any(|telling| text.contains(telling))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    #[test]
    fn statements_are_what_they_seem_to_be() {
        for (sql, kind) in [
            ("SELECT password FROM users", StatementKind::Ordinary),
            ("((SELECT password FROM role))", StatementKind::Ordinary),
            ("SELCT password FROM users", StatementKind::Ordinary),
            (
                "EXPLAIN ANALYZE VERBOSE SELECT password FROM user",
                StatementKind::Ordinary,
            ),
            (
                "EXPLAIN FORMAT tree SELECT password FROM user",
                StatementKind::Ordinary,
            ),
            (
                "PREPARE p (INT, TEXT) AS SELECT password FROM user",
                StatementKind::Ordinary,
            ),
            (
                "CREATE OR REPLACE TEMPORARY TABLE user (password TEXT)",
                StatementKind::Ordinary,
            ),
            ("ALTER TABLE password OWNER TO kea", StatementKind::Ordinary),
            ("INGEST INTO password", StatementKind::Ordinary),
            ("UPDATE users SET password = 'x'", StatementKind::Ordinary),
            ("GRANT password TO USER kea", StatementKind::Naming),
            ("DROP ROLE kea", StatementKind::Naming),
            ("CREATE TOKEN t FOR kea", StatementKind::Login),
            ("SET PASSWORD FOR kea = 'x'", StatementKind::Naming),
            ("VACUUM eggs", StatementKind::Naming),
            ("", StatementKind::Naming),
            ("CREATE USER kea", StatementKind::Login),
            ("EXPLAIN CREATE USER kea", StatementKind::Login),
            (
                "EXPLAIN CRAETE USER kea WITH PASSWORD 'x'",
                StatementKind::Login,
            ),
            ("PREPARE p AS ALTER LOGIN kea", StatementKind::Login),
            ("ATLER ROLE kea", StatementKind::Login),
            ("UPDATE USER kea PASSWORD 'x'", StatementKind::Login),
            ("CREATE USERS kea PASSWORD 'x'", StatementKind::Login),
            ("CREATE USRE kea PASWORD 'x'", StatementKind::Login),
            ("USER kea", StatementKind::Login),
            ("create user kea", StatementKind::Login),
            ("ＡＬＴＥＲ\u{3000}ＵＳＥＲ kea", StatementKind::Login),
        ] {
            let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
            assert_eq!(StatementBeginning::of(&tokens.unwrap()).kind, kind, "{sql}");
        }
    }
}
