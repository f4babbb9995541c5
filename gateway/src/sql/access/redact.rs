//! Lists and logs must not show passwords. The rule is simple, so that it certainly holds. Of a
//! statement about a login, only the first words are shown, and nothing after them. Any other
//! statement is shown up to the first place where a password may stand.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};

use super::fold::fold_case;
use super::logins::{
    LOGIN_OBJECTS, PASSWORD_PREFIXES, PASSWORD_WORDS, StatementBeginning, StatementKind,
    begins_with_any, changes_login,
};
use crate::sql::tokens::is_text;

/// Mark in place of everything that is not shown.
const HIDDEN: &str = "…";

/// Returns the text of a statement without passwords.
pub fn without_passwords(sql: &str) -> Cow<'_, str> {
    redacted(sql).map_or(Cow::Borrowed(sql), Cow::Owned)
}

/// Returns whether a text contains what [`without_passwords`] hides. Errors must not repeat such a
/// text. This function is meant for statements that have failed, because it tokenizes the text
/// again.
pub(crate) fn has_passwords(sql: &str) -> bool {
    redacted(sql).is_some()
}

/// Returns the part of a text that is shown, or `None` if all of it is.
fn redacted(sql: &str) -> Option<String> {
    // Most statements have none of these words, and are not tokenized.
    let text = fold_case(sql);
    if !PASSWORD_PREFIXES
        .iter()
        .chain(&LOGIN_OBJECTS)
        .any(|word| text.contains(word))
    {
        return None;
    }
    let mut tokens = Vec::new();
    let mut tokenizer = Tokenizer::new(&GenericDialect {}, sql);
    let tokenized = tokenizer.tokenize_with_location_into_buf(&mut tokens);
    let text = TokenizedText {
        has_wrong_quotes: tokenized.is_err() || is_misquoted(&tokens),
        tokens: &tokens,
    };
    let mut begin = 0;
    for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        let beginning = StatementBeginning::of(statement);
        if beginning.kind == StatementKind::Login {
            return Some(text_with_mark(&tokens[..begin], &beginning.safe_text()));
        }
        let end = begin + statement.len();
        let password = |at| text.end_before_password(beginning.kind, at);
        if let Some(shown) = (begin..end).find_map(password) {
            return Some(text_with_mark(&tokens[..shown], ""));
        }
        begin = end;
    }
    // The text after these tokens could not be tokenized. It may contain anything.
    tokenized.is_err().then(|| text_with_mark(&tokens, ""))
}

/// Returns the text of these tokens, then `more`, and then [`HIDDEN`].
fn text_with_mark(tokens: &[TokenWithSpan], more: &str) -> String {
    let text: String = tokens.iter().map(|token| token.token.to_string()).collect();
    let parts = [text.trim(), more, HIDDEN];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

/// The tokens of a text.
struct TokenizedText<'a> {
    tokens: &'a [TokenWithSpan],
    /// True if quotes are missing or misplaced. Then a part of a statement may look like a literal.
    has_wrong_quotes: bool,
}

impl TokenizedText<'_> {
    /// Returns how many tokens of the text come before a password, if one may stand in or after the
    /// token at a position. The token belongs to a statement that is not about logins.
    fn end_before_password(&self, kind: StatementKind, at: usize) -> Option<usize> {
        match self.token(at)? {
            Token::Word(word) if word.quote_style.is_none() => {
                let next = self.next(at + 1);
                let words = [fold_case(&word.value), self.word(next)];
                if changes_login(words.iter().map(String::as_str)) {
                    return Some(next + 1);
                }
                let [word, _] = words;
                let is_telling = PASSWORD_WORDS.contains(&word.as_str());
                let is_naming = kind == StatementKind::Naming;
                // In an ordinary statement, PASSWORD is a column, and a literal may be its value.
                let is_followed = match is_telling {
                    true if is_naming || self.has_wrong_quotes => self.has_more(at + 1),
                    true => self.has_value(at + 1),
                    false => {
                        is_naming
                            && begins_with_any(&word, &PASSWORD_PREFIXES)
                            && self.has_value(at + 1)
                    }
                };
                is_followed.then_some(at + 1)
            }
            token if is_quoted(token) || is_comment(token) => {
                self.may_contain_login(token).then_some(at)
            }
            _ => None,
        }
    }

    fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at).map(|token| &token.token)
    }

    /// Returns the word at a position, folded. Returns an empty text if the token is no word, or is
    /// in quotes.
    fn word(&self, at: usize) -> String {
        match self.token(at) {
            Some(Token::Word(word)) if word.quote_style.is_none() => fold_case(&word.value),
            _ => String::new(),
        }
    }

    /// Returns the position of the first token from `from` on that is neither a space nor a
    /// comment.
    fn next(&self, from: usize) -> usize {
        let rest = self.tokens.iter().skip(from);
        let is_space = |token: &&TokenWithSpan| matches!(token.token, Token::Whitespace(_));
        from + rest.take_while(is_space).count()
    }

    /// Returns whether the text has more than spaces and semicolons from a position on.
    fn has_more(&self, from: usize) -> bool {
        self.tokens.iter().skip(from).any(|token| {
            let is_space = matches!(token.token, Token::Whitespace(_)) && !is_comment(&token.token);
            !is_space && token.token != Token::SemiColon
        })
    }

    /// Returns whether a value follows, such as `= 'text'` or `('text')`. A name in quotes counts
    /// as a value, too, unless it stands directly after a column: there it is an alias.
    fn has_value(&self, from: usize) -> bool {
        let first = self.next(from);
        let mut at = first;
        while let Some(Token::Eq | Token::LParen) = self.token(at) {
            at = self.next(at + 1);
        }
        match self.token(at) {
            Some(token) if is_text(token) => true,
            Some(Token::Number(..)) => at > first,
            Some(token) => at > first && is_quoted(token) || self.word(at) == "BY",
            None => false,
        }
    }

    /// Returns whether a text in quotes, or a comment, may be a statement with a password.
    fn may_contain_login(&self, token: &Token) -> bool {
        let text = fold_case(&token.to_string());
        if !PASSWORD_PREFIXES
            .iter()
            .any(|telling| text.contains(telling))
        {
            return false;
        }
        let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        self.has_wrong_quotes || changes_login(words.filter(|word| !word.is_empty()))
    }
}

/// Returns whether a quote ends too early, as in `'don't'`. A quote may stand beside a keyword, as
/// in DATE'2026-01-01'.
fn is_misquoted(tokens: &[TokenWithSpan]) -> bool {
    let is_name = |token: &Token| match token {
        Token::Word(word) => word.keyword == Keyword::NoKeyword,
        Token::Number(..) | Token::Backslash => true,
        _ => false,
    };
    tokens.windows(2).any(|pair| {
        let [first, second] = [&pair[0].token, &pair[1].token];
        is_quoted(first) && (is_quoted(second) || is_name(second))
            || is_name(first) && is_quoted(second)
    })
}

/// Returns whether a token is text or a name in quotes.
fn is_quoted(token: &Token) -> bool {
    is_text(token) || matches!(token, Token::Word(word) if word.quote_style.is_some())
}

fn is_comment(token: &Token) -> bool {
    matches!(
        token,
        Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown_whatever_is_wrong_with_the_statement() {
        for sql in [
            "CREATE USER kea PASSWORD 'secret'",
            "/* a */ create user kea with password 'se''cret' admin",
            "-- secret\nALTER USER kea ADMIN",
            "CREATE OR REPLACE USER kea PASSWORD='secret'",
            "ALTER USER kea PASSWORT 'secret'",
            "ALTER USER kea PASSWORD \"secret\"",
            "ALTER USER kea PASSWORD $$secret$$",
            "ALTER USER kea PASSWORD 'secret",
            "ALTER USER kea PASSWORD secret",
            "ALTER USER kea secret",
            "ALTER USER PASSWORD 'secret'",
            "ALTER USER PASSWORD with ;secret",
            "ALTER USER kea PASSWORD\n\n;x; SELECT secret",
            "ALTER USER kea PASSWORD 'don't tell the secret' ADMIN",
            "ALTER USER kea PASSWORD 'new' -- was 'secret'",
            "ALTER USER kea IDENTIFIED BY 'secret'",
            "ALTER USER kea PASSWORD E'secret' 7",
            "ALTER /* secret */ USER kea",
            "ALTER USER \"kea PASSWORD 'secret'; SELECT \"",
            "ALTER USER 'kea' secret",
            "CREATE USER o'brien PASSWORD 'secret'",
            "CREATE USER o'brien PASSWORD 'it's secret'",
            "CREATE USER kea PASSWORD U&'secret'",
            "CREATE TOKEN t FOR kea AS 'secret'",
            "ALTER ROLE kea PASSWORD 'secret'",
            "ALTER LOGIN kea IDENTIFIED BY 'secret'",
            "UPDATE USER kea PASSWORD secret",
            "EXPLAIN ANALYZE VERBOSE CREATE USER kea PASSWORD 'secret'",
            "PREPARE kea AS CREATE USER kea PASSWORD 'secret'",
            "PREPARE kea FROM 'ALTER USER kea PASSWORD secret'",
            "PREPARE CREATE USER kea PASSWORD secret AS secret",
            "EXECUTE IMMEDIATE 'ALTER USER kea PASSWORD secret'",
            "SET PASSWORD FOR kea = 'secret'",
            "SET PASSWORD /* no longer secret */ FOR kea = 'a'",
            "SELECT 1; CREATE USER kea PASSWORD 'secret'",
            "SELECT 1 -- ALTER USER kea PASSWORD secret",
            "BEGIN; ALTER USER kea PASSWORD 'secret'; COMMIT",
            "BEGIN ALTER USER kea PASSWORD secret",
            "GRANT admin TO kea; ALTER USER kea PASSWORD 'secret",
            "(CREATE USER kea PASSWORD 'secret')",
            "CRAETE USER kea PASSWORD 'secret'",
            "CRAETE USER kea PASSWORD 'don't tell the secret'",
            "CREATE USERS kea PASSWORD = 'secret'",
            "CREATE USRE kea PASWORD 'secret",
            "CREATE SECRET s (TYPE s3, PASSWORD 'secret')",
            "GRANT admin TO kea IDENTIFIED BY 'secret'",
            "GRANT admin TO kea IDENTIFIED BY PASSWORD U&'secret'",
            "GRANT admin TO kea IDENTIFIED BY q'[secret]'",
            "GRANT admin TO kea PASSWORD secret",
            "GRANT admin TO kea PASWORD 'secret'",
            "ＡＬＴＥＲ\u{3000}ＵＳＥＲ kea ＰＡＳＳＷＯＲＤ 'secret'",
            "alter uſer kea paſſword 'secret'",
            // The quotes of another statement are wrong, too.
            "SELECT 'it's'; ALTER USER kea PASSWORD secret",
            "SELECT 'it's'; ALTER USER kea PASSWORD 'it's secret'",
            "SELECT 'it's'; CRAETE USER kea PASSWORD 'it's secret'",
            "SELECT 'it; ALTER USER kea PASSWORD 'secret'",
            "SELECT 'it; SET PASSWORD FOR kea = 'secret'",
            "SELECT 'o'hara; ALTER USER kea PASSWORD 'secret",
            // Queries.
            "SELECT * FROM kea WHERE password = 'secret'",
            "SELECT * FROM kea WHERE password = ('a', 'secret')",
            "SELECT * FROM kea WHERE password = 'don't' AND b = 'secret'",
            "SELECT * FROM kea WHERE password = nq'[secret]' 'b'",
            "COPY kea FROM 's3://b' WITH (password 'secret')",
        ] {
            let shown = without_passwords(sql);
            assert!(!shown.contains("secret"), "{shown}");
            assert!(!shown.contains("cret'"), "{shown}");
            assert!(has_passwords(sql), "{sql}");
        }
    }

    #[test]
    fn what_is_done_and_to_whom_is_shown() {
        for (sql, shown) in [
            (
                "CREATE USER IF NOT EXISTS kea WITH PASSWORD 'a' ADMIN;",
                "CREATE USER IF NOT EXISTS kea …",
            ),
            ("/* a */ create user kea admin", "create user kea …"),
            ("CREATE USER \"O'Brien\" WITH PASSWORD 'a'", "CREATE USER …"),
            (
                "CREATE OR REPLACE USER kea PASSWORD 'a'",
                "CREATE OR REPLACE USER kea …",
            ),
            ("CREATE TOKEN t FOR kea", "CREATE TOKEN t …"),
            (
                "EXPLAIN ANALYZE VERBOSE CREATE ROLE kea",
                "EXPLAIN CREATE ROLE kea …",
            ),
            (
                "PREPARE p (INT) AS ALTER USER kea",
                "PREPARE ALTER USER kea …",
            ),
            ("CRAETE USERS kea PASSWORD 'a'", "CRAETE USERS kea …"),
            ("SET PASSWORD FOR kea = 'a'", "SET PASSWORD …"),
            (
                "SELECT 1; ALTER USER kea PASSWORD 'a'; COMMIT",
                "SELECT 1; ALTER USER kea …",
            ),
            ("BEGIN ALTER USER kea", "BEGIN ALTER USER …"),
            (
                "GRANT r TO kea IDENTIFIED BY 'a'",
                "GRANT r TO kea IDENTIFIED …",
            ),
            (
                "SELECT 1 FROM t WHERE password = 'a''b' AND b = 'c'",
                "SELECT 1 FROM t WHERE password …",
            ),
            ("SELECT 'it's'; ALTER USER kea PASSWORD a", "SELECT 'it's …"),
        ] {
            assert_eq!(without_passwords(sql), shown);
        }
    }

    #[test]
    fn other_statements_are_shown_as_they_are() {
        for sql in [
            "SELECT 'password' FROM users",
            " with users AS (SELECT 1) SELECT password FROM users",
            "SELECT password AS \"password\", password \"p\" FROM users",
            "CREATE TABLE users (password TEXT, age DECIMAL(3, 1))",
            "CREATE VIEW user AS SELECT 'secret' AS password",
            "SELECT password, 'secret' FROM users WHERE password <> 'a' AND user = 'it'",
            "SELECT message FROM log WHERE message LIKE '%wrong password of user%'",
            "SELECT action FROM log WHERE action = 'ALTER USER'",
            "INSERT INTO users VALUES ('create user', 'password')",
            "SET timezone = 'user'",
            "SELECT password, 'a' -- of all users\nFROM users",
            "SELECT * FROM users WHERE identifier = 'a' AND password_age = 5",
            "SELCT password, name FROM users",
            "GRANT SELECT ON users TO ROLE kea",
            "DROP USER IF EXISTS password",
            "SHOW password;",
            "",
        ] {
            assert_eq!(without_passwords(sql), sql);
            assert!(!has_passwords(sql), "{sql}");
        }
    }
}
