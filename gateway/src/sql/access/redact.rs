//! Hides passwords in the texts of statements: lists and logs must not show them.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, TokenWithSpan, Tokenizer};

use super::logins::{TELLING_BEGINNINGS, WHO};
use super::mask::{Mark, Mask};
use super::text::contains_any;

const HIDDEN: &str = "'…'";
const COMMENT: &str = "/*…*/";

/// Returns the text of a statement without passwords.
///
/// For a statement that creates or changes a login, or seems to be meant to, the result shows only
/// what cannot be a password, up to the first token that is not understood, and no comments. In any
/// other statement, it hides the literal after PASSWORD.
pub fn without_passwords(sql: &str) -> Cow<'_, str> {
    // Most statements end here and are not tokenized.
    if !contains_any(sql, &WHO) && !contains_any(sql, &TELLING_BEGINNINGS) {
        return Cow::Borrowed(sql);
    }
    let (tokens, rest) = tokens_of(sql);
    let mask = Mask::of(&tokens, rest);
    let hides_rest = mask.hides_rest && !rest.is_empty();
    if !hides_rest && mask.marks.iter().all(|mark| *mark == Mark::AsItIs) {
        return Cow::Borrowed(sql);
    }
    let mut shown = String::new();
    let mut last = Mark::AsItIs;
    for (token, mark) in tokens.iter().zip(mask.marks) {
        match mark {
            Mark::AsItIs => shown.push_str(&token.token.to_string()),
            Mark::AsComment => {
                shown.push_str(COMMENT);
                shown.extend(token.token.to_string().ends_with('\n').then_some('\n'));
            }
            Mark::Hidden if last == Mark::Hidden => {}
            Mark::Hidden => shown.push_str(HIDDEN),
        }
        last = mark;
    }
    if !rest.is_empty() && last != Mark::Hidden {
        // Once any token is not shown as it is, the text behind the tokens is hidden, too.
        shown.push_str(HIDDEN);
    }
    Cow::Owned(shown)
}

/// Returns whether a text contains what [`without_passwords`] hides. Errors must not repeat such a
/// text. This function is meant for statements that have failed, because it tokenizes the text
/// again.
pub(crate) fn has_passwords(sql: &str) -> bool {
    let (tokens, _) = tokens_of(sql);
    Mask::of(&tokens, "").marks.contains(&Mark::Hidden)
}

/// Returns the tokens of a text, and the text behind them that is not a token because its end is
/// missing.
fn tokens_of(sql: &str) -> (Vec<TokenWithSpan>, &str) {
    let mut tokens = Vec::new();
    let mut tokenizer = Tokenizer::new(&GenericDialect {}, sql);
    let rest = match tokenizer.tokenize_with_location_into_buf(&mut tokens) {
        Ok(()) => "",
        Err(_) => behind(&tokens, sql),
    };
    (tokens, rest)
}

/// Returns the text behind the tokens.
fn behind<'a>(tokens: &[TokenWithSpan], sql: &'a str) -> &'a str {
    let end = tokens
        .last()
        .map_or(Location::new(1, 1), |last| last.span.end);
    let mut at = Location::new(1, 1);
    let is_behind = |character: char| {
        let is_behind = at >= end;
        at = match character {
            '\n' => Location::new(at.line + 1, 1),
            _ => Location::new(at.line, at.column + 1),
        };
        is_behind
    };
    sql.find(is_behind).map_or(sql, |from| &sql[from..])
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
    fn who_it_is_and_who_administers_is_shown() {
        for (sql, shown) in [
            (
                "CREATE USER IF NOT EXISTS \"O'Brien\" WITH PASSWORD 'a' ADMIN;",
                "CREATE USER IF NOT EXISTS \"O'Brien\" WITH PASSWORD '…' ADMIN;",
            ),
            (
                "ALTER USER mary-jane.2 NOADMIN PASSWORD hunter2",
                "ALTER USER mary-jane.2 NOADMIN PASSWORD '…'",
            ),
            (
                "CREATE USER password PASSWORD 'a' NOADMIN",
                "CREATE USER password PASSWORD '…' NOADMIN",
            ),
            ("CREATE USER password ADMIN", "CREATE USER password ADMIN"),
            ("SET PASSWORD FOR kea = 'a'", "SET PASSWORD FOR kea '…'"),
            (
                "CREATE ROLE a; ALTER USER kea PASSWORD 'a'",
                "CREATE ROLE a; ALTER USER kea PASSWORD '…'",
            ),
        ] {
            assert_eq!(without_passwords(sql), shown);
        }
    }

    #[test]
    fn errors_do_not_repeat_what_is_hidden() {
        for (sql, has) in [
            ("ALTER USRE kea PASSWORD my-secret", true),
            ("SELECT 'it's'; ALTER USER kea PASSWORD 's", true),
            ("SELCT password FROM users", false),
            ("GRANT password TO kea", false),
        ] {
            assert_eq!(has_passwords(sql), has, "{sql}");
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
            "SELECT password, 'a' -- of all users\nFROM users",
            "SELCT password, name FROM users",
            "INSERT INTO log VALUES ('ALTER USER kea PASSWORD ''a'''), ('it''s')",
            "GRANT SELECT ON password, users TO kea, password",
            "REVOKE password FROM kea",
            "DROP USER IF EXISTS password",
            "CREATE TOKEN password FOR kea VALID FOR '90 days'",
            "SHOW password;",
            "CREATE ROLE IF NOT EXISTS keas NOADMIN; SELECT 'users'",
            "",
        ] {
            assert_eq!(without_passwords(sql), sql);
        }
    }
}
