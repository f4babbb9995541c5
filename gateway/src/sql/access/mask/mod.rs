//! Decides which tokens of a text are hidden because they may be a password.
//!
//! Wrong quotes turn a text inside out: what the tokenizer takes for a literal was meant to stand
//! between two literals, and the password appears as a sequence of plain words. So everything after
//! PASSWORD is hidden up to the end of the text, except for what can only be the rest of a
//! statement that is understood.

/// Hides passwords in statements about logins.
mod login;
/// Hides passwords in all other statements.
mod other;

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::logins::{Kind, TELLING_BEGINNINGS};
use super::text::{Text, contains_any, is_any, is_comment, is_space};

/// Words that may follow a password.
const AFTER_PASSWORD: [&str; 2] = ["ADMIN", "NOADMIN"];

/// How a token is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    AsItIs,
    /// Shown only as the mark of a comment, without its text.
    AsComment,
    Hidden,
}

/// How the tokens of a text are shown.
pub(super) struct Mask {
    pub(super) marks: Vec<Mark>,
    /// Whether the text behind the tokens is hidden.
    pub(super) hides_rest: bool,
}

impl Mask {
    /// Decides how the tokens are shown. `rest` is the text behind them that is not a token because
    /// its end is missing.
    pub(super) fn of(tokens: &[TokenWithSpan], rest: &str) -> Self {
        let mut masking = Masking {
            text: Text(tokens),
            marks: vec![Mark::AsItIs; tokens.len()],
            is_whole: rest.is_empty(),
            is_misquoted: Text(tokens).is_misquoted(rest),
            hides_rest: false,
        };
        let mut begin = 0;
        for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
            let end = begin + statement.len();
            let is_done = match Kind::of(statement) {
                Kind::Login => masking.login(begin, end),
                kind => masking.other(begin, end, kind),
            };
            if is_done {
                masking.hides_rest = true;
                break;
            }
            begin = end;
        }
        Self {
            hides_rest: masking.hides_rest || contains_any(rest, &TELLING_BEGINNINGS),
            marks: masking.marks,
        }
    }
}

struct Masking<'a> {
    text: Text<'a>,
    marks: Vec<Mark>,
    is_whole: bool,
    is_misquoted: bool,
    hides_rest: bool,
}

impl Masking<'_> {
    /// Hides a password that begins at or after a token. Returns `true`, because the rest of the
    /// text needs no more masking.
    fn hide_password(&mut self, mut from: usize) -> bool {
        let text = self.text;
        let mut value = text.next(from);
        let end = value + usize::from(text.token(value) == Some(&Token::SemiColon));
        if self.is_whole && text.token(text.next(end)).is_none() {
            self.hide_comments(from, text.0.len());
            return true;
        }
        // One space stays visible. More spaces may belong to the password.
        let space = text.token(from);
        from += usize::from(space.is_some_and(|token| is_space(token) && !is_comment(token)));
        while text.token(value) == Some(&Token::Eq) || is_any(text.word(value), &["BY"]) {
            value = text.next(value + 1);
        }
        self.hide_from(from);
        let rest = (value + 1).min(text.0.len());
        if self.is_whole && !self.is_misquoted && self.ends_statement(rest) {
            self.marks[rest..].fill(Mark::AsItIs);
            self.hide_comments(rest, text.0.len());
        }
        true
    }

    /// Returns whether the rest of the text contains only what may stand after a password.
    fn ends_statement(&self, from: usize) -> bool {
        (from..self.text.0.len()).all(|at| {
            let token = &self.text.0[at].token;
            is_space(token)
                || *token == Token::SemiColon
                || is_any(self.text.word(at), &AFTER_PASSWORD)
        })
    }

    /// Hides everything from a token on. Returns `true`, because the rest of the text needs no more
    /// masking.
    fn hide_from(&mut self, at: usize) -> bool {
        self.marks[at..].fill(Mark::Hidden);
        true
    }

    fn hide_comments(&mut self, from: usize, to: usize) {
        for at in from..to {
            if is_comment(&self.text.0[at].token) {
                self.marks[at] = Mark::AsComment;
            }
        }
    }
}

fn tells(token: &Token) -> bool {
    contains_any(&token.to_string(), &TELLING_BEGINNINGS)
}

#[cfg(test)]
mod tests {
    use crate::sql::access::without_passwords;

    #[test]
    fn nothing_behind_what_a_password_follows_is_shown() {
        for (sql, shown) in [
            // Quotes that are wrong or missing.
            (
                "ALTER USER kea PASSWORD 'don't tell anyone'",
                "ALTER USER kea PASSWORD '…'",
            ),
            (
                "ALTER USER kea PASSWORD 'don't', I said' ADMIN",
                "ALTER USER kea PASSWORD '…'",
            ),
            (
                "ALTER USER kea PASSWORD my-secret-pass",
                "ALTER USER kea PASSWORD '…'",
            ),
            (
                "ALTER USER kea PASSWORD\n\n;x; SELECT 2",
                "ALTER USER kea PASSWORD\n'…'",
            ),
            (
                "CREATE USER o'brien PASSWORD 'secret123'",
                "CREATE USER o'…'",
            ),
            (
                "CREATE USER o'brien PASSWORD 'it's mine'",
                "CREATE USER o'…'",
            ),
            (
                "CRAETE USER kea PASSWORD 'don't tell'",
                "CRAETE USER kea PASSWORD '…'",
            ),
            ("CREATE USRE o'brien PASWORD 'don't'", "CREATE USRE o'…'"),
            (
                "GRANT x TO kea PASSWORD to-my-house",
                "GRANT x TO kea PASSWORD '…'",
            ),
            (
                "GRANT x TO kea IDENTIFIED BY q'[secret]'",
                "GRANT x TO kea IDENTIFIED '…'",
            ),
            // Words that are wrong or missing.
            (
                "ALTER USER kea PASSWORT 'secret' ADMIN",
                "ALTER USER kea '…'",
            ),
            ("ALTER USER kea hunter2", "ALTER USER kea '…'"),
            ("ALTER USER PASSWORD 'secret'", "ALTER USER PASSWORD '…'"),
            (
                "UPDATE USER kea PASSWORD secret",
                "UPDATE USER kea PASSWORD '…'",
            ),
            (
                "ALTER USER PASSWORD with ;hunter2",
                "ALTER USER PASSWORD '…'",
            ),
            // Comments.
            (
                "ALTER USER kea PASSWORD 'new' -- was 'old'",
                "ALTER USER kea PASSWORD '…' /*…*/",
            ),
            (
                "-- to hunter2\nALTER USER kea ADMIN",
                "/*…*/\nALTER USER kea ADMIN",
            ),
            (
                "SELECT 1 -- ALTER USER kea PASSWORD secret",
                "SELECT 1 /*…*/",
            ),
            (
                "SET PASSWORD /* no longer hunter2 */ FOR kea = 'a'",
                "SET PASSWORD /*…*/ FOR kea '…'",
            ),
            // Several statements, also if the quotes of another statement are wrong.
            (
                "BEGIN; ALTER USER kea PASSWORD don;t; COMMIT",
                "BEGIN; ALTER USER kea PASSWORD '…'",
            ),
            (
                "BEGIN ALTER USER kea PASSWORD secret",
                "BEGIN ALTER USER kea PASSWORD '…'",
            ),
            (
                "SELECT 'it's'; ALTER USER kea PASSWORD secret",
                "SELECT 'it's'…'",
            ),
            ("SELECT 'it; ALTER USER kea PASSWORD 'secret'", "SELECT '…'"),
            (
                "SELECT 'o'hara; ALTER USER kea PASSWORD 'secret",
                "SELECT 'o'hara; ALTER USER kea PASSWORD '…'",
            ),
            // Queries.
            (
                "SELECT 1 FROM t WHERE password = 'a''b' AND b = 'c'",
                "SELECT 1 FROM t WHERE password = '…' AND b = 'c'",
            ),
            (
                "SELECT 1 FROM t WHERE password = 'don't' AND b = 'c'",
                "SELECT 1 FROM t WHERE password = '…'",
            ),
            (
                "SELECT 1 FROM t WHERE password = nq'[a]' 'b'",
                "SELECT 1 FROM t WHERE password = '…' '…'",
            ),
        ] {
            assert_eq!(without_passwords(sql), shown);
        }
    }
}
