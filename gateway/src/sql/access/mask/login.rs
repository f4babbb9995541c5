//! Hides passwords in statements about logins. Only the tokens that the grammar allows are shown:
//! in a statement that is not understood, nothing tells which token is the password.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Mark, Masking, tells};
use crate::sql::access::logins::{TELLING_BEGINNINGS, TELLING_WORDS, WHO};
use crate::sql::access::text::{begins_with_any, is_any, is_comment, is_quoted, is_space};

/// Words that may stand between CREATE USER and the name.
const BEFORE_NAME: [&str; 3] = ["IF", "NOT", "EXISTS"];
/// Words that may stand between the name and PASSWORD.
const BEFORE_PASSWORD: [&str; 5] = ["WITH", "SET", "ADMIN", "NOADMIN", "ENCRYPTED"];

/// How far a statement was read.
enum Read {
    Nothing,
    Who,
    /// The name was read up to this token.
    Name(usize),
}

impl Masking<'_> {
    /// Masks the tokens of a statement about a login. Returns whether the rest of the text needs no
    /// more masking.
    pub(super) fn login(&mut self, begin: usize, end: usize) -> bool {
        self.hides_rest = true;
        let mut read = Read::Nothing;
        for at in begin..end {
            let token = &self.text.0[at].token;
            if is_comment(token) {
                self.marks[at] = Mark::AsComment;
            }
            if is_space(token) || *token == Token::SemiColon {
                continue;
            }
            let word = self.text.word(at);
            match read {
                Read::Nothing if is_any(word, &WHO) => read = Read::Who,
                Read::Who if is_any(word, &BEFORE_NAME) => {}
                Read::Who if self.is_name(at) => read = Read::Name(at),
                _ if is_any(word, &TELLING_WORDS) => return self.hide_password(at + 1),
                // This is the verb, whatever it is or is meant to be.
                Read::Nothing
                    if !is_quoted(token) && !begins_with_any(word, &TELLING_BEGINNINGS) => {}
                Read::Name(last) if at == last + 1 && is_part_of_name(token) => {
                    read = Read::Name(at);
                }
                Read::Name(_) if is_any(word, &BEFORE_PASSWORD) => {}
                _ => return self.hide_from(at),
            }
        }
        false
    }

    /// Returns whether the token at a position is the name of a user or role. The word PASSWORD is
    /// such a name only if PASSWORD follows it, or if the statement ends after it.
    fn is_name(&self, at: usize) -> bool {
        let text = self.text;
        match &text.0[at].token {
            Token::Word(word) if word.quote_style.is_none() => {
                let mut next = text.next(at + 1);
                if is_any(text.word(next), &["WITH"]) {
                    next = text.next(next + 1);
                }
                !is_any(&word.value, &TELLING_WORDS)
                    || is_any(text.word(next), &["PASSWORD"])
                    || self.is_whole && self.ends_statement(next)
            }
            token @ Token::Word(_) => !self.is_misquoted && !tells(token),
            _ => false,
        }
    }
}

/// Returns whether a token can continue a name without quotes, as in mary-jane.
fn is_part_of_name(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.quote_style.is_none(),
        Token::Minus | Token::Period | Token::Number(..) => true,
        _ => false,
    }
}
