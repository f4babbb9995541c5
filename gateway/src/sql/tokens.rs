use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Returns whether a token is this keyword. A word within quotes is a name, and no keyword.
pub(crate) fn is_keyword(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword)
}

/// Returns whether a token is no space and no comment.
pub(crate) fn is_meant(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

/// Returns whether a token is text in quotes of any kind.
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

/// Returns the first tokens of a statement as words. A token that is no word, or is in quotes,
/// becomes an empty text. The result is text, because sqlparser has no keywords for some words.
pub(crate) fn first_words(tokens: &[TokenWithSpan], most: usize) -> Vec<&str> {
    tokens
        .iter()
        .filter(|token| is_meant(token))
        .take(most)
        .map(|token| match &token.token {
            Token::Word(word) if word.quote_style.is_none() => word.value.as_str(),
            _ => "",
        })
        .collect()
}

/// Returns whether the word at a position is one of these words. Ignores case.
pub(crate) fn is_one_of(words: &[&str], position: usize, wanted: &[&str]) -> bool {
    let word = words.get(position);
    word.is_some_and(|word| {
        wanted
            .iter()
            .any(|wanted| word.eq_ignore_ascii_case(wanted))
    })
}
