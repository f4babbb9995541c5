//! Texts of statements as they may be shown: lists and logs have no passwords.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::engine::tokens::{first_words, is_one_of, is_text};

const HIDDEN: &str = "'…'";
/// What stands before CREATE USER in statements that are refused, at most: EXPLAIN ANALYZE VERBOSE, PREPARE name AS, OR REPLACE.
const WORDS_BEFORE: usize = 8;
/// What a statement begins with that may be, or hold, one about who logs in.
const BEGINNINGS: [&str; 6] = ["CREATE", "ALTER", "EXPLAIN", "DESCRIBE", "DESC", "PREPARE"];
/// Whom it is about.
const WHO: [&str; 3] = ["USER", "ROLE", "LOGIN"];
/// What a password follows in such a statement.
const PASSWORD_WORDS: [&str; 3] = ["PASSWORD", "BY", "AUTH"];
/// What a password follows in any statement: in one that is misspelt, too.
const TELLING_WORDS: [&str; 2] = ["PASSWORD", "IDENTIFIED"];
/// What may stand between the two.
const JOINING_WORDS: [&str; 4] = ["BY", "AS", "IS", "VALUES"];

/// The statement, without its literals if it is about who logs in, and without what stands after PASSWORD in any other one.
pub fn without_passwords(sql: &str) -> Cow<'_, str> {
    // Most statements are read no further.
    let mut words = WHO.iter().chain(&TELLING_WORDS);
    if !words.any(|word| contains_ignoring_case(sql, word)) {
        return Cow::Borrowed(sql);
    }
    let mut tokens = Vec::new();
    let is_whole = Tokenizer::new(&GenericDialect {}, sql)
        .tokenize_with_location_into_buf(&mut tokens)
        .is_ok();
    let hidden = hidden(&tokens);
    if !hidden.tokens.contains(&true) && (is_whole || !hidden.goes_on) {
        return Cow::Borrowed(sql);
    }
    let mut shown: String = tokens
        .iter()
        .zip(hidden.tokens)
        .map(|(token, is_hidden)| match is_hidden {
            true => HIDDEN.to_owned(),
            false => token.token.to_string(),
        })
        .collect();
    if !is_whole {
        // What follows may be the rest of a password.
        shown.push_str(HIDDEN);
    }
    Cow::Owned(shown)
}

/// Whether tokens hold what [`without_passwords`] hides: errors must not repeat them.
pub(in crate::engine) fn have_passwords(tokens: &[TokenWithSpan]) -> bool {
    hidden(tokens).tokens.contains(&true)
}

/// Which tokens are not shown.
struct Hidden {
    tokens: Vec<bool>,
    /// What comes after the last token would not be shown.
    goes_on: bool,
}

fn hidden(tokens: &[TokenWithSpan]) -> Hidden {
    let mut hidden = Hidden {
        tokens: Vec::with_capacity(tokens.len()),
        goes_on: false,
    };
    for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        let opens =
            |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_) | Token::LParen);
        let begin = statement.iter().take_while(|token| opens(token)).count();
        if is_about_logins(&statement[begin..]) {
            hide_literals(statement, &mut hidden);
        } else {
            hide_after_telling_words(statement, &mut hidden);
        }
    }
    hidden
}

/// All but marks and words, and also a word in a password's place.
fn hide_literals(statement: &[TokenWithSpan], hidden: &mut Hidden) {
    let mut comes_next = false;
    for token in statement {
        let is_hidden = match &token.token {
            Token::Whitespace(_)
            | Token::Eq
            | Token::Comma
            | Token::Period
            | Token::LParen
            | Token::RParen
            | Token::SemiColon => false,
            Token::Word(word) if !comes_next => {
                comes_next = is_any(&word.value, &PASSWORD_WORDS);
                false
            }
            _ => {
                comes_next = false;
                true
            }
        };
        hidden.tokens.push(is_hidden);
    }
    hidden.goes_on = true;
}

fn hide_after_telling_words(statement: &[TokenWithSpan], hidden: &mut Hidden) {
    let mut comes_next = false;
    for token in statement {
        let mut is_hidden = false;
        match &token.token {
            Token::Whitespace(_) | Token::Eq | Token::LParen => {}
            Token::Word(word) if word.quote_style.is_none() => {
                comes_next = is_any(&word.value, &TELLING_WORDS)
                    || comes_next && is_any(&word.value, &JOINING_WORDS);
            }
            // A name in quotes may be one, and may be what was meant to be a literal.
            Token::Word(_) | Token::Number(..) => is_hidden = std::mem::take(&mut comes_next),
            literal => {
                is_hidden = comes_next && is_text(literal);
                comes_next = false;
            }
        }
        hidden.tokens.push(is_hidden);
    }
    hidden.goes_on = comes_next;
}

fn is_any(word: &str, known: &[&str]) -> bool {
    known.iter().any(|known| word.eq_ignore_ascii_case(known))
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
            "SELECT 1; CREATE USER kea PASSWORD 'secret'",
            "BEGIN; ALTER USER kea PASSWORD 'secret'; COMMIT",
            "GRANT admin TO kea; ALTER USER kea PASSWORD 'secret",
            "(CREATE USER kea PASSWORD 'secret')",
            "CRAETE USER kea PASSWORD 'secret'",
            "CREATE USERS kea PASSWORD = 'secret'",
            "CREATE USRE kea PASSWORD 'secret",
            "GRANT admin TO kea IDENTIFIED BY 'secret'",
            "GRANT admin TO kea IDENTIFIED BY PASSWORD U&'secret'",
            "SELECT * FROM kea WHERE password = 'secret'",
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
            "SELECT password, 'secret' FROM users WHERE password <> 'a' AND user = 'it",
            "INSERT INTO users VALUES ('create user', 'password')",
            "SET timezone = 'user'",
            "",
        ] {
            assert_eq!(without_passwords(sql), sql);
        }
    }
}
