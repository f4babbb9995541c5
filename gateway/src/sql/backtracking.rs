//! Keywords such as `CAST`, `CASE` and `ARRAY` may also be names: if the parser meets an error
//! within such an expression, it goes back and reads the expression again as a name or a call. Each
//! level of nesting doubles this work: thirty nested expressions around a missing comma keep a core
//! busy for an hour, and nothing can stop the parser. So this module counts nested expressions in
//! the tokens.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use volary_flight_proto::{Error, Result, SqlState};

/// Maximum number of times that one error may double the parser's work. With so many doublings, the
/// parser needs less than a second.
const MAX_DOUBLINGS: usize = 18;

/// Refuses a statement that could keep the parser busy for long.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check<'a>(tokens: impl IntoIterator<Item = &'a Token>) -> Result<()> {
    // Open parentheses, brackets and braces, and open CASE expressions.
    let mut open: Vec<Group> = Vec::new();
    let mut doublings = 0;
    let mut last_keyword = Keyword::NoKeyword;
    for token in tokens {
        if matches!(token, Token::Whitespace(_)) {
            continue;
        }
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                let doubling = doublings_of_call(last_keyword);
                doublings += doubling;
                open.push(Group {
                    doubling,
                    is_case: false,
                });
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                // This also removes each CASE that is still open within the group: without an END,
                // the word is a name, or an error.
                while let Some(group) = open.pop() {
                    doublings -= group.doubling;
                    if !group.is_case {
                        break;
                    }
                }
            }
            Token::Word(word) if word.keyword == Keyword::CASE => {
                doublings += 1;
                open.push(Group {
                    doubling: 1,
                    is_case: true,
                });
            }
            Token::Word(word) if word.keyword == Keyword::END => {
                if let Some(group) = open.pop_if(|group| group.is_case) {
                    doublings -= group.doubling;
                }
            }
            _ => {}
        }
        last_keyword = match token {
            Token::Word(word) if word.quote_style.is_none() => word.keyword,
            _ => Keyword::NoKeyword,
        };
        if doublings > MAX_DOUBLINGS {
            return Err(Error::invalid(format!(
                "the statement is nested too deeply: more than {MAX_DOUBLINGS} expressions such as CASE, CAST and ARRAY are nested in each other; write it flatter, with more WHEN branches or with subqueries"
            ))
            .with_sqlstate(SqlState::StatementTooComplex));
        }
    }
    Ok(())
}

struct Group {
    doubling: usize,
    is_case: bool,
}

/// Returns how often an error within the parentheses after this word doubles the parser's work.
fn doublings_of_call(word: Keyword) -> usize {
    match word {
        // The parser tries POSITION in three ways.
        Keyword::POSITION => 2,
        Keyword::ARRAY
        | Keyword::CAST
        | Keyword::CEIL
        | Keyword::CONVERT
        | Keyword::EXISTS
        | Keyword::EXTRACT
        | Keyword::FLOOR
        | Keyword::INTERVAL
        | Keyword::LAMBDA
        | Keyword::MAP
        | Keyword::MATCH
        | Keyword::NOT
        | Keyword::OVERLAY
        | Keyword::SAFE_CAST
        | Keyword::STRUCT
        | Keyword::SUBSTR
        | Keyword::SUBSTRING
        | Keyword::TRIM
        | Keyword::TRY_CAST
        | Keyword::TRY_CONVERT => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn is_refused(sql: &str) -> bool {
        let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize().unwrap();
        check(&tokens).is_err()
    }

    fn nested(before: &str, after: &str, levels: usize) -> String {
        format!("SELECT {}1{}", before.repeat(levels), after.repeat(levels))
    }

    #[test]
    fn what_doubles_the_parsers_work_is_refused_when_it_is_nested() {
        for (before, after) in [
            ("CAST(", " AS INT)"),
            ("try_cast (", " AS INT)"),
            ("CASE WHEN a THEN ", " END"),
            ("ARRAY[", "]"),
            ("POSITION(", " IN 'a')"),
            ("NOT (", ")"),
            ("CASE CAST(", " AS INT) WHEN 1 THEN 2 END"),
        ] {
            assert!(is_refused(&nested(before, after, 19)), "{before}");
            assert!(!is_refused(&nested(before, after, 9)), "{before}");
        }
    }

    #[test]
    fn what_stands_side_by_side_is_not_refused() {
        let casts = vec!["CAST(a AS INT)"; 1_000].join(", ");
        assert!(!is_refused(&format!("SELECT {casts}")));
        let cases = vec!["CASE WHEN a THEN 1 END"; 1_000].join(" + ");
        assert!(!is_refused(&format!("SELECT {cases}")));
        assert!(!is_refused(&nested("abs((", "))", 60)));
        assert!(!is_refused("SELECT end, \"case\" FROM t WHERE (a OR end)"));
    }
}
