//! Hides passwords in statements that are not about logins. Mostly this hides the literal after
//! PASSWORD. It hides everything after PASSWORD where the word cannot be the name of a column.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Mark, Masking, tells};
use crate::sql::access::logins::{CHANGES, Kind, TELLING_WORDS, WHO};
use crate::sql::access::text::{contains_any, is_any, is_comment, is_quoted};
use crate::sql::tokens::is_text;

/// Words that may stand between PASSWORD and a literal.
const JOINING_WORDS: [&str; 4] = ["BY", "AS", "IS", "VALUES"];
/// Words before a name in a grant, and before the name of a token. `AFTER_NAME` lists the words
/// after such a name.
const BEFORE_NAME: [&str; 6] = ["GRANT", "REVOKE", "ON", "TO", "FROM", "TOKEN"];
const AFTER_NAME: [&str; 5] = ["ON", "TO", "FROM", "FOR", "VALID"];
/// Text in quotes that contains PASSWORD and one of these words may be a statement.
const VERBS: [&str; 5] = ["CREATE", "ALTER", "GRANT", "SET", "IDENTIFIED"];
/// A comment that contains PASSWORD and one of these texts may contain a password.
const MARKS: [&str; 6] = ["'", "\"", "`", "$", "=", ":"];

impl Masking<'_> {
    /// Masks the tokens of a statement of this kind. Returns whether the rest of the text needs no
    /// more masking.
    pub(super) fn other(&mut self, begin: usize, end: usize, kind: Kind) -> bool {
        // `comes_next` says whether a literal would be a password, and `goes_on` whether a literal
        // would continue one.
        let (mut comes_next, mut goes_on) = (false, false);
        for at in begin..end {
            let token = &self.text.0[at].token;
            let word = self.text.word(at);
            if is_any(word, &CHANGES) && is_any(self.text.word(self.text.next(at + 1)), &WHO) {
                return self.login(at, end);
            }
            if is_any(word, &TELLING_WORDS) && !self.is_name_in(kind, at) {
                let from = self.behind_name(at + 1);
                self.hide_comments(at + 1, from);
                return self.hide_password(from);
            }
            if is_quoted(token) && self.was_not_meant(kind, token) {
                return self.hide_from(at);
            }
            let is_hidden = match token {
                Token::Whitespace(_) => {
                    if is_comment(token) && tells_in_comment(token, comes_next || goes_on) {
                        self.marks[at] = Mark::AsComment;
                    }
                    continue;
                }
                Token::Eq | Token::LParen => false,
                Token::Word(_) if !word.is_empty() => {
                    comes_next =
                        is_any(word, &TELLING_WORDS) || comes_next && is_any(word, &JOINING_WORDS);
                    false
                }
                // A number may be a password. So may a name in quotes, because it may be meant to
                // be a literal.
                Token::Word(_) | Token::Number(..) => std::mem::take(&mut comes_next),
                _ => (std::mem::take(&mut comes_next) || goes_on) && is_text(token),
            };
            goes_on = is_hidden;
            if is_hidden && (self.is_misquoted || !self.is_whole) {
                return self.hide_from(at);
            }
            if is_hidden {
                self.marks[at] = Mark::Hidden;
            }
        }
        self.hides_rest = comes_next || goes_on;
        false
    }

    /// Returns whether PASSWORD at a token is the name of a column, or the name of what is granted
    /// or of who gets it.
    fn is_name_in(&self, kind: Kind, at: usize) -> bool {
        let text = self.text;
        let next = text.next(at + 1);
        if kind == Kind::Ordinary {
            return !is_any(text.word(next), &["BY"]);
        }
        let is_behind = text.last(at).is_some_and(|last| {
            matches!(text.0[last].token, Token::Comma | Token::Period)
                || is_any(text.word(last), &BEFORE_NAME)
        });
        let is_before = match text.token(next) {
            None => self.is_whole,
            Some(Token::Comma | Token::Period | Token::SemiColon) => true,
            Some(_) => is_any(text.word(next), &AFTER_NAME),
        };
        is_behind && is_before
    }

    /// Returns the position after the name in SET PASSWORD FOR name = …, where the password
    /// follows. Returns `from` for any other statement.
    fn behind_name(&self, from: usize) -> usize {
        let text = self.text;
        let preposition = text.next(from);
        let name = text.next(preposition + 1);
        let sign = text.next(name + 1);
        let is_named = is_any(text.word(preposition), &["FOR"]) && !text.word(name).is_empty();
        let is_set = text.token(sign) == Some(&Token::Eq) || is_any(text.word(sign), &["TO"]);
        if is_named && is_set { name + 1 } else { from }
    }

    /// Returns whether a token in quotes contains PASSWORD and was meant to stand outside of
    /// quotes.
    fn was_not_meant(&self, kind: Kind, token: &Token) -> bool {
        let is_doubtful = kind != Kind::Ordinary || !self.is_whole;
        (self.is_misquoted || is_doubtful)
            && tells(token)
            && (self.is_misquoted || contains_any(&token.to_string(), &VERBS))
    }
}

/// Returns whether a comment may contain a password. `is_behind` says whether the comment stands
/// after PASSWORD.
fn tells_in_comment(comment: &Token, is_behind: bool) -> bool {
    let text = comment.to_string();
    (is_behind || tells(comment)) && (contains_any(&text, &MARKS) || contains_any(&text, &VERBS))
}
