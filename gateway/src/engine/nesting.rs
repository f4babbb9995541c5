//! How deep a statement's syntax tree is, before there is one.
//!
//! The parser bounds parentheses and prefixes, and builds `a OR b OR c …` in a loop: a tree as deep as the chain is long, which
//! the visitors of the tree, the planner and the optimizer then walk recursively. A chain that is long enough would
//! overflow the stack, and that ends the process. So chains are counted in the tokens.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use volary_flight_proto::{Error, Result};

/// Operators of one chain, with those of the expressions around it. The stacks of the CPU runtime's threads hold several
/// times as many.
const MAX_DEPTH: usize = 2_000;

/// What a joined table counts: the planner takes far longer over a join than over an operator.
const JOIN: usize = 10;

/// How tightly an operator binds: a tree is at most as deep as the sum of the chains of its levels.
const SET: usize = 0;
const OR: usize = 1;
const AND: usize = 2;
const OTHER: usize = 3;
const LEVELS: usize = 4;

/// Refuses a statement whose tree would be too deep.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(super) fn check<'a>(tokens: impl IntoIterator<Item = &'a Token>) -> Result<()> {
    let mut chains = [0_usize; LEVELS];
    let (mut in_from, mut before) = (false, Keyword::NoKeyword);
    let mut around: Vec<([usize; LEVELS], bool)> = Vec::new();
    let mut depth_around = 0;
    for token in tokens {
        match token {
            Token::LParen | Token::LBracket => {
                around.push((chains, in_from));
                depth_around += sum(chains) + 1;
                chains = [0; LEVELS];
                in_from = false;
            }
            Token::RParen | Token::RBracket => {
                if let Some(outer) = around.pop() {
                    (chains, in_from) = outer;
                    depth_around -= sum(chains) + 1;
                }
            }
            Token::Comma if in_from => add(&mut chains, SET, JOIN),
            Token::Comma => end_chains(&mut chains, OR),
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
                    add(&mut chains, SET, 1);
                }
                Keyword::JOIN => add(&mut chains, SET, JOIN),
                Keyword::OR => add(&mut chains, OR, 1),
                Keyword::AND => add(&mut chains, AND, 1),
                Keyword::IS | Keyword::LIKE | Keyword::IN | Keyword::BETWEEN | Keyword::COLLATE => {
                    add(&mut chains, OTHER, 1);
                }
                // IS DISTINCT FROM names no tables.
                Keyword::FROM if before == Keyword::DISTINCT => {}
                Keyword::FROM => {
                    in_from = true;
                    end_chains(&mut chains, OR);
                }
                Keyword::SELECT
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::QUALIFY
                | Keyword::WINDOW
                | Keyword::ORDER => {
                    in_from = false;
                    end_chains(&mut chains, OR);
                }
                Keyword::ON | Keyword::WHEN | Keyword::THEN | Keyword::ELSE => {
                    end_chains(&mut chains, OR);
                }
                _ => {}
            },
            Token::Whitespace(_)
            | Token::Word(_)
            | Token::Number(_, _)
            | Token::SingleQuotedString(_)
            | Token::Period
            | Token::SemiColon
            | Token::Placeholder(_) => {}
            // What is left are operators, and kinds of literals that stand beside one.
            _ => add(&mut chains, OTHER, 1),
        }
        if let Token::Word(word) = token {
            before = word.keyword;
        }
        if depth_around + sum(chains) > MAX_DEPTH {
            return Err(Error::invalid(format!(
                "the statement is nested too deeply: more than {MAX_DEPTH} operators (a join counts as {JOIN}) follow each other; write it flatter, with IN (…) or a table of the values"
            )));
        }
    }
    Ok(())
}

fn sum(chains: [usize; LEVELS]) -> usize {
    chains.iter().sum()
}

/// An operator that counts so much; the chains of those that bind more tightly end.
fn add(chains: &mut [usize; LEVELS], level: usize, count: usize) {
    chains[level] += count;
    end_chains(chains, level + 1);
}

fn end_chains(chains: &mut [usize; LEVELS], from: usize) {
    for chain in &mut chains[from..] {
        *chain = 0;
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

    #[test]
    fn long_chains_are_refused() {
        for operator in ["+", " OR ", " AND ", "||", "=", "::INT "] {
            let sql = format!("SELECT {}", vec!["a"; 3_000].join(operator));
            assert!(is_refused(&sql), "{operator}");
        }
        assert!(is_refused(&vec!["SELECT 1"; 3_000].join(" UNION ALL ")));
        assert!(is_refused(&format!(
            "SELECT 1 FROM {}",
            vec!["t"; 300].join(" JOIN ")
        )));
        assert!(is_refused(&format!(
            "SELECT 1 FROM {}",
            vec!["t"; 300].join(", ")
        )));
        let nested = format!("SELECT {}{}", "(1+1+1+1+".repeat(500), "1)".repeat(500));
        assert!(is_refused(&nested));
    }

    #[test]
    fn long_lists_are_no_chains() {
        let values = vec!["(1, -2, 'x' || 'y')"; 10_000].join(", ");
        assert!(!is_refused(&format!("INSERT INTO t VALUES {values}")));
        assert!(!is_refused(&format!(
            "SELECT a FROM t GROUP BY {}",
            vec!["a"; 5_000].join(", ")
        )));
        assert!(!is_refused(&format!(
            "SELECT extract(day FROM t), {} FROM t",
            vec!["a"; 5_000].join(", ")
        )));
        let list = vec!["1"; 100_000].join(", ");
        assert!(!is_refused(&format!("SELECT * FROM t WHERE k IN ({list})")));
        let ors = vec!["a = 1 AND b < 2 + 3"; 1_500].join(" OR ");
        assert!(!is_refused(&format!("SELECT * FROM t WHERE {ors}")));
        let cases = vec!["WHEN a = 1 AND b = 2 THEN 3 * 4"; 5_000].join(" ");
        assert!(!is_refused(&format!("SELECT CASE {cases} END FROM t")));
    }
}
