//! Texts of statements as they may be shown: lists and logs have no passwords.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::engine::tokens::{first_words, is_one_of};

const HIDDEN: &str = "'…'";
/// What stands before CREATE USER in statements that are refused, at most: EXPLAIN ANALYZE VERBOSE, PREPARE name AS, OR REPLACE.
const WORDS_BEFORE: usize = 8;
/// What a statement begins with that may be, or hold, one about who logs in.
const BEGINNINGS: [&str; 6] = ["CREATE", "ALTER", "EXPLAIN", "DESCRIBE", "DESC", "PREPARE"];
/// Whom it is about.
const WHO: [&str; 3] = ["USER", "ROLE", "LOGIN"];
/// What a password follows.
const PASSWORD_WORDS: [&str; 3] = ["PASSWORD", "BY", "AUTH"];

/// The statement, without its literals if it is about who logs in.
pub fn without_passwords(sql: &str) -> Cow<'_, str> {
    // Most statements are read no further.
    let mut words = WHO.iter().chain(&PASSWORD_WORDS[..1]);
    if !words.any(|word| contains_ignoring_case(sql, word)) {
        return Cow::Borrowed(sql);
    }
    let mut tokens = Vec::new();
    let is_whole = Tokenizer::new(&GenericDialect {}, sql)
        .tokenize_with_location_into_buf(&mut tokens)
        .is_ok();
    if !is_about_logins(&tokens) {
        return Cow::Borrowed(sql);
    }
    let mut comes_next = false;
    let mut shown: String = tokens
        .iter()
        .map(|token| match &token.token {
            space @ Token::Whitespace(_) => space.to_string(),
            mark @ (Token::Eq | Token::Comma | Token::Period | Token::SemiColon) => {
                mark.to_string()
            }
            Token::Word(word) if !comes_next => {
                comes_next = PASSWORD_WORDS
                    .iter()
                    .any(|known| word.value.eq_ignore_ascii_case(known));
                word.to_string()
            }
            _ => {
                comes_next = false;
                HIDDEN.to_owned()
            }
        })
        .collect();
    if !is_whole {
        // What follows may be the rest of a password.
        shown.push_str(HIDDEN);
    }
    Cow::Owned(shown)
}

/// Whether a statement creates or changes somebody who logs in, in this dialect or another one, or is a part of a statement that does.
pub(super) fn is_about_logins(tokens: &[TokenWithSpan]) -> bool {
    let words = first_words(tokens, WORDS_BEFORE);
    let is = |position, wanted| is_one_of(&words, position, wanted);
    if is(0, &["SET"]) {
        return is(1, &["PASSWORD"]);
    }
    is(0, &BEGINNINGS)
        && (1..words.len())
            .any(|position| is(position, &WHO) && is(position - 1, &["CREATE", "ALTER", "REPLACE"]))
}

fn contains_ignoring_case(text: &str, word: &str) -> bool {
    text.as_bytes()
        .windows(word.len())
        .any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown_whatever_is_wrong_with_the_statement() {
        for sql in [
            "CREATE USER kea PASSWORD 'secret'",
            "/* a */ create user kea with password 'se''cret' admin",
            "CREATE OR REPLACE USER kea PASSWORD='secret'",
            "ALTER USER kea PASSWORT 'secret'",
            "ALTER USER kea PASSWORD \"secret\"",
            "ALTER USER kea PASSWORD $$secret$$",
            "ALTER USER kea PASSWORD 'secret",
            "ALTER USER kea PASSWORD secret",
            "ALTER USER kea IDENTIFIED BY 'secret'",
            "ALTER USER kea PASSWORD E'secret' 7",
            "CREATE USER kea PASSWORD U&'secret'",
            "ALTER ROLE kea PASSWORD 'secret'",
            "ALTER LOGIN kea IDENTIFIED BY 'secret'",
            "EXPLAIN ANALYZE VERBOSE CREATE USER kea PASSWORD 'secret'",
            "PREPARE kea AS CREATE USER kea PASSWORD 'secret'",
            "SET PASSWORD FOR kea = 'secret'",
        ] {
            let shown = without_passwords(sql);
            assert!(!shown.contains("cret"), "{shown}");
            assert!(shown.contains("kea"), "{shown}");
        }
    }

    #[test]
    fn other_statements_are_shown_as_they_are() {
        for sql in [
            "SELECT 'password' FROM users",
            " with users AS (SELECT 1) SELECT password FROM users",
            "CREATE TABLE users (password TEXT, age DECIMAL(3, 1))",
            "CREATE VIEW user AS SELECT 'secret' AS password",
            "INSERT INTO users VALUES ('create user', 'password')",
            "SET timezone = 'user'",
            "",
        ] {
            assert_eq!(without_passwords(sql), sql);
        }
    }
}
