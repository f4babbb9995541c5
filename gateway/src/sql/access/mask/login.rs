//! Of a statement about who logs in, only that is shown which its grammar has. Where it is not understood, nothing says what is a password.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Mark, Masking, tells};
use crate::sql::access::logins::{TELLING_BEGINNINGS, TELLING_WORDS, WHO};
use crate::sql::access::text::{begins_with_any, is_any, is_comment, is_quoted, is_space};

/// What may stand between CREATE USER and the name.
const BEFORE_NAME: [&str; 3] = ["IF", "NOT", "EXISTS"];
/// What may stand between the name and PASSWORD.
const BEFORE_PASSWORD: [&str; 5] = ["WITH", "SET", "ADMIN", "NOADMIN", "ENCRYPTED"];

/// What of a statement was read.
enum Read {
    Nothing,
    Who,
    /// The name, up to this token.
    Name(usize),
}

impl Masking<'_> {
    /// Whether the text is done with.
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
                // Whatever is done, or meant to be.
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

    /// Whether a name is there. Who is called PASSWORD has it before the word itself, or before nothing more.
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

/// As in mary-jane.
fn is_part_of_name(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.quote_style.is_none(),
        Token::Minus | Token::Period | Token::Number(..) => true,
        _ => false,
    }
}
