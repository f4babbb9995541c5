//! What tokens are.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Whether a token is this keyword; a word within quotes is a name.
pub(crate) fn is_word(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword)
}

/// Whether a token is text in quotes of any kind.
pub(crate) fn is_text(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::TripleSingleQuotedString(_)
            | Token::TripleDoubleQuotedString(_)
            | Token::DollarQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::QuoteDelimitedStringLiteral(_)
            | Token::NationalQuoteDelimitedStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
            | Token::DoubleQuotedByteStringLiteral(_)
            | Token::TripleSingleQuotedByteStringLiteral(_)
            | Token::TripleDoubleQuotedByteStringLiteral(_)
            | Token::SingleQuotedRawStringLiteral(_)
            | Token::DoubleQuotedRawStringLiteral(_)
            | Token::TripleSingleQuotedRawStringLiteral(_)
            | Token::TripleDoubleQuotedRawStringLiteral(_)
    )
}

/// The first tokens of a statement as words; what is none, or stands in quotes, is empty. Words that sqlparser does not know are no keywords.
pub(crate) fn first_words(tokens: &[TokenWithSpan], most: usize) -> Vec<&str> {
    tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .take(most)
        .map(|token| match &token.token {
            Token::Word(word) if word.quote_style.is_none() => word.value.as_str(),
            _ => "",
        })
        .collect()
}

/// Whether the word at a position is one of these, in whatever case.
pub(crate) fn is_one_of(words: &[&str], position: usize, wanted: &[&str]) -> bool {
    let word = words.get(position);
    word.is_some_and(|word| {
        wanted
            .iter()
            .any(|wanted| word.eq_ignore_ascii_case(wanted))
    })
}
