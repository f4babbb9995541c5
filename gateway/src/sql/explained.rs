use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Tokenizer;

use super::text_position::TextPosition;
use super::tokens::{is_keyword, is_meant};

/// Returns the text of the statement that an EXPLAIN explains. Returns `None` for another statement
/// and for EXPLAIN ANALYZE, which runs the statement.
pub(crate) fn explained_statement(sql: &str) -> Option<&str> {
    let mut tokens = Tokenizer::new(&GenericDialect {}, sql);
    let tokens = tokens.tokenize_with_location().ok()?;
    let mut meant = tokens.iter().filter(|token| is_meant(token));
    let explain = meant.next()?;
    if !is_keyword(&explain.token, Keyword::EXPLAIN) {
        return None;
    }
    let first = meant.find(|token| !is_keyword(&token.token, Keyword::VERBOSE))?;
    if is_keyword(&first.token, Keyword::ANALYZE) {
        return None;
    }
    let start = TextPosition::offset_of(sql, first.span.start)?;
    sql.get(start..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_explained_statement_is_what_follows() {
        let explained = |sql| explained_statement(sql);
        assert_eq!(explained("EXPLAIN SELECT 1"), Some("SELECT 1"));
        let verbose = "/* ä */\nexplain -- why\n VERBOSE  SELECT 'ö';";
        assert_eq!(explained(verbose), Some("SELECT 'ö';"));
        assert_eq!(explained("EXPLAIN ANALYZE SELECT 1"), None);
        assert_eq!(explained("SELECT 1"), None);
        assert_eq!(explained("EXPLAIN"), None);
        assert_eq!(explained(""), None);
    }
}
