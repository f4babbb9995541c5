//! Gives access to the tokens of a text, and checks how they follow each other.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::sql::tokens::is_text;

/// The tokens of a text. Methods address them by their positions.
#[derive(Clone, Copy)]
pub(super) struct Text<'a>(pub(super) &'a [TokenWithSpan]);

impl<'a> Text<'a> {
    pub(super) fn token(self, at: usize) -> Option<&'a Token> {
        self.0.get(at).map(|token| &token.token)
    }

    /// Returns the word at a position. Returns an empty text if the token is no word, or is in
    /// quotes.
    pub(super) fn word(self, at: usize) -> &'a str {
        match self.token(at) {
            Some(Token::Word(word)) if word.quote_style.is_none() => &word.value,
            _ => "",
        }
    }

    /// Returns the position of the first token from `from` on that is neither a space nor a
    /// comment. The position is past the last token if there is none.
    pub(super) fn next(self, from: usize) -> usize {
        let spaces = self.0.iter().skip(from);
        from + spaces.take_while(|token| is_space(&token.token)).count()
    }

    /// Returns the position of the last token before `before` that is neither a space nor a
    /// comment.
    pub(super) fn last(self, before: usize) -> Option<usize> {
        (0..before).rev().find(|&at| !is_space(&self.0[at].token))
    }

    /// Returns whether a quote ends too early, as in `'don't'`. `rest` is the text behind the
    /// tokens that is not a token because its end is missing.
    pub(super) fn is_misquoted(self, rest: &str) -> bool {
        let last = self.0.last();
        let is_at_word =
            last.is_some_and(|last| is_wordlike(&last.token) || is_quoted(&last.token));
        is_at_word && rest.starts_with(['\'', '"', '`'])
            || self.0.windows(2).any(|pair| match pair {
                [first, second] => is_misquoted(&first.token, &second.token),
                _ => false,
            })
    }
}

fn is_misquoted(first: &Token, second: &Token) -> bool {
    is_quoted(first) && (is_quoted(second) || is_wordlike(second))
        || is_wordlike(first) && is_quoted(second)
}

/// Returns whether a quote directly beside this token is a mistake.
fn is_wordlike(token: &Token) -> bool {
    match token {
        // A quote may stand beside a keyword, as in DATE'2026-01-01'.
        Token::Word(word) => word.keyword == Keyword::NoKeyword,
        Token::Number(..) | Token::Backslash => true,
        _ => false,
    }
}

/// Returns whether a token is text or a name in quotes.
pub(super) fn is_quoted(token: &Token) -> bool {
    is_text(token) || matches!(token, Token::Word(word) if word.quote_style.is_some())
}

pub(super) fn is_space(token: &Token) -> bool {
    matches!(token, Token::Whitespace(_))
}

pub(super) fn is_comment(token: &Token) -> bool {
    matches!(
        token,
        Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_))
    )
}

/// Returns whether a text contains one of these texts. Ignores case.
pub(super) fn contains_any(text: &str, wanted: &[&str]) -> bool {
    wanted.iter().any(|wanted| {
        text.as_bytes()
            .windows(wanted.len())
            .any(|window| window.eq_ignore_ascii_case(wanted.as_bytes()))
    })
}

/// Returns whether a text begins with one of these texts. Ignores case.
pub(super) fn begins_with_any(text: &str, wanted: &[&str]) -> bool {
    wanted.iter().any(|wanted| {
        let beginning = text.get(..wanted.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(wanted))
    })
}

/// Returns whether a word is one of these words. Ignores case.
pub(super) fn is_any(word: &str, wanted: &[&str]) -> bool {
    wanted
        .iter()
        .any(|wanted| word.eq_ignore_ascii_case(wanted))
}
