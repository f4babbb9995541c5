//! The parser limits how deeply parentheses and prefix operators are nested, but it builds a chain
//! such as `a OR b OR c …` in a loop: the tree is as deep as the chain is long. The visitors of the
//! tree, the planner and the optimizer then walk it recursively. A chain that is long enough would
//! overflow the stack, and that ends the process. So this module counts chains in the tokens.
//!
//! A keyword that begins a clause ends the chains before it, but only where the parser takes it for
//! a keyword: almost every keyword is a name where the parser expects an operand, as in `window +
//! window`. In doubt, the scan counts too much: it counts words that may be operators, and it ends
//! chains only at words that cannot be names. [`depth`](super::depth) measures what the optimizer
//! then makes of the plan.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use volary_flight_proto::{Error, Result, SqlState};

use super::tokens::is_text;

/// Maximum number of operators of one chain, together with those of the expressions around it. The
/// stacks of the CPU runtime's threads hold several times as many.
const MAX_DEPTH: usize = 2_000;

/// Number of operators that a joined table counts as. The planner needs far more time for a join
/// than for an operator.
const JOIN: usize = 10;

/// Number of operators that each operator except AND and OR counts as. At each of them, the planner
/// computes the types of both sides again, so the time for planning grows with the third power of
/// the chain's length.
pub(crate) const TYPED: usize = 4;

/// Maximum number of nested parentheses, brackets and CASE expressions. The parser's own limit is
/// lower, but it does not apply everywhere: the parser reads types within types without counting
/// them.
const MAX_OPEN: usize = 250;

/// Maximum number of queries and joined tables of a whole statement. A chain of CTEs is not a chain
/// of tokens, but the plan of each CTE contains the plan of the CTE before it. The resulting plan
/// must not be too deep to be dropped.
const MAX_QUERIES: usize = 4_000;

/// Maximum number of levels that the parser descends without counting them, such as types in
/// `STRUCT<a STRUCT<…`.
const MAX_DESCENTS: usize = 500;

/// Number of descents that an EXPLAIN (which may explain another EXPLAIN) or a PRIOR counts as.
const LARGE_DESCENT: usize = 25;

/// Precedence levels of operators, the loosest first. The depth of a tree is at most the sum of the
/// lengths of its chains at all levels.
const SET_LEVEL: usize = 0;
const OR_LEVEL: usize = 1;
const AND_LEVEL: usize = 2;
const OTHER_LEVEL: usize = 3;
const LEVEL_COUNT: usize = 4;

/// Maximum number of parts of a name, as in `a.b.c`, that can stand for a column of a table. Each
/// further part reads a field of a struct, which adds one level.
const NAME_PARTS: usize = 4;

/// Refuses a statement whose tree would be too deep.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check<'a>(tokens: impl IntoIterator<Item = &'a Token>) -> Result<()> {
    let mut scan = NestingScan::default();
    for token in tokens {
        scan.add_token(token);
        scan.check_limits()?;
    }
    Ok(())
}

/// The role that the parser gives to a token. It decides what the next token can be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TokenRole {
    /// A clause begins.
    #[default]
    Start,
    /// An operator, or a word such as NOT. An operand follows.
    Operator,
    /// The end of an operand.
    Operand,
}

/// The chains of one level of parentheses.
#[derive(Debug, Default)]
struct Chains {
    lengths: [usize; LEVEL_COUNT],
    is_in_from: bool,
}

impl Chains {
    /// Adds `count` for an operator of this level, and ends the chains of the operators that bind
    /// more tightly.
    fn add(&mut self, level: usize, count: usize) {
        self.lengths[level] += count;
        self.end(level + 1);
    }

    fn end(&mut self, from: usize) {
        self.lengths[from..].fill(0);
    }

    fn begin_clause(&mut self, is_from: bool) {
        self.is_in_from = is_from;
        self.end(OR_LEVEL);
    }

    fn depth(&self) -> usize {
        self.lengths.iter().sum()
    }
}

/// An open parenthesis, bracket or brace, or an open CASE.
#[derive(Debug)]
struct Group {
    outside: Chains,
    is_case: bool,
    /// The role of the whole group for the token after it.
    role: TokenRole,
}

#[derive(Debug, Default)]
struct NestingScan {
    chains: Chains,
    open: Vec<Group>,
    /// Depth of the chains around the open groups.
    depth_outside: usize,
    last_role: TokenRole,
    /// The keyword of the last token, if that was a word without quotes.
    last_word: Option<Keyword>,
    /// Says whether the last token was a FROM where an operand was expected. The parser takes the
    /// FROM for a name, or for the beginning of a clause if the word before it is a name that looks
    /// like an operator. The token after the FROM tells which.
    is_after_from: bool,
    /// Says whether the scan is within IS [NOT] DISTINCT FROM.
    is_in_is_distinct: bool,
    /// Says whether the last words were DISTINCT ON.
    is_after_distinct_on: bool,
    name_parts: usize,
    queries: usize,
    descents: usize,
    /// Says whether the statement may have a CONNECT BY.
    has_connect: bool,
}

impl NestingScan {
    fn add_token(&mut self, token: &Token) {
        if matches!(token, Token::Whitespace(_)) {
            return;
        }
        let word = match token {
            Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
            _ => None,
        };
        match word {
            // A word after a period is a part of a name, and no keyword.
            Some(_) if self.name_parts > 0 && self.last_role == TokenRole::Operator => {
                self.last_role = TokenRole::Operand;
            }
            Some(word) => {
                self.name_parts = 0;
                self.add_word(word);
            }
            None => self.add_symbol(token),
        }
        // Parts of a name are counted until the token after the name.
        self.is_after_from = word == Some(Keyword::FROM)
            && self.name_parts == 0
            && self.last_role == TokenRole::Operand;
        self.is_in_is_distinct = match word {
            Some(Keyword::IS) => true,
            Some(Keyword::NOT | Keyword::DISTINCT) => self.is_in_is_distinct,
            _ => false,
        };
        self.is_after_distinct_on =
            word == Some(Keyword::ON) && self.last_word == Some(Keyword::DISTINCT);
        self.last_word = word;
    }

    fn add_symbol(&mut self, token: &Token) {
        if let Token::Period = token {
            self.name_parts += 1;
            if self.name_parts >= NAME_PARTS {
                self.chains.add(OTHER_LEVEL, TYPED);
            }
            self.last_role = TokenRole::Operator;
            return;
        }
        match token {
            Token::LParen | Token::LBrace => self.open_group(),
            Token::LBracket => {
                // The bracket begins a subscript after an operand, and an array elsewhere.
                if self.last_role == TokenRole::Operand {
                    self.add_operator(OTHER_LEVEL);
                }
                self.open_group();
            }
            Token::RParen | Token::RBracket | Token::RBrace => self.close_group(),
            Token::Comma if self.chains.is_in_from => self.add_join(),
            Token::Comma => {
                self.chains.end(OR_LEVEL);
                self.last_role = TokenRole::Start;
            }
            Token::SemiColon => self.last_role = TokenRole::Start,
            Token::VerticalBarRightAngleBracket => {
                self.chains.add(SET_LEVEL, 1);
                self.queries += 1;
                self.last_role = TokenRole::Start;
            }
            Token::Mul if self.is_all_columns() => self.last_role = TokenRole::Operand,
            Token::Lt if self.last_word.is_some_and(has_types_within) => {
                self.descents += 1;
                self.add_operator(OTHER_LEVEL);
            }
            _ if is_operand(token) => self.last_role = TokenRole::Operand,
            _ => self.add_operator(OTHER_LEVEL),
        }
        self.name_parts = 0;
    }

    /// Returns whether a `*` stands for all columns: it stands where a column or a clause begins,
    /// or after a table's name and a period.
    fn is_all_columns(&self) -> bool {
        match self.last_role {
            TokenRole::Start => true,
            TokenRole::Operator => self.name_parts > 0,
            TokenRole::Operand => false,
        }
    }

    /// Handles a word without quotes. The words that this function itself counts are counted even
    /// where an operand is expected: the word before may be an alias that looks like an operator,
    /// and then no operand follows.
    fn add_word(&mut self, word: Keyword) {
        match word {
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
                self.chains.add(SET_LEVEL, 1);
                self.last_role = TokenRole::Start;
            }
            Keyword::JOIN => self.add_join(),
            Keyword::CASE => {
                self.push_group(true, TokenRole::Operand);
                self.last_role = TokenRole::Start;
            }
            _ => {
                match word {
                    Keyword::SELECT | Keyword::VALUES | Keyword::TABLE => self.queries += 1,
                    Keyword::CONNECT => self.has_connect = true,
                    // PRIOR is a name everywhere else.
                    Keyword::PRIOR if !self.has_connect => {}
                    Keyword::EXPLAIN | Keyword::PRIOR => self.descents += LARGE_DESCENT,
                    _ => {}
                }
                match operator_level(word) {
                    // The word may be a name. If names were not counted, a chain of operators could
                    // be written so that the scan takes each operator for a name.
                    Some(level) => self.add_operator(level),
                    None if self.last_role == TokenRole::Operator || self.is_after_from => {
                        self.add_operand(word);
                    }
                    None => self.add_keyword(word),
                }
            }
        }
    }

    /// Handles a word where an operand is expected. The word is a name, or it stands before the
    /// operand.
    fn add_operand(&mut self, word: Keyword) {
        let last = self.last_word;
        match word {
            // After the following words, the operand is still to come.
            Keyword::FROM if self.is_in_is_distinct && last == Some(Keyword::DISTINCT) => {}
            Keyword::DISTINCT if self.is_in_is_distinct => {}
            Keyword::TIME if last == Some(Keyword::AT) => {}
            Keyword::ZONE if last == Some(Keyword::TIME) => {}
            Keyword::TO if last == Some(Keyword::SIMILAR) => {}
            Keyword::OF if last == Some(Keyword::MEMBER) => {}
            Keyword::NOT | Keyword::ANY => {}
            Keyword::FROM => {
                self.chains.is_in_from = true;
                self.last_role = TokenRole::Operand;
            }
            // CREATE VIEW v AS SELECT
            Keyword::SELECT if last == Some(Keyword::AS) => self.last_role = TokenRole::Start,
            _ => self.last_role = TokenRole::Operand,
        }
    }

    /// Handles a word after an operand, or where a clause begins.
    fn add_keyword(&mut self, word: Keyword) {
        match word {
            Keyword::NOT if self.last_role == TokenRole::Operand => self.add_operator(OTHER_LEVEL),
            // Only a word after an operand begins a clause and ends chains. Elsewhere, it is a
            // name.
            _ if self.last_role == TokenRole::Start && !begins_at_start(word) => {
                self.last_role = TokenRole::Operand;
            }
            Keyword::GROUP if self.last_word == Some(Keyword::WITHIN) => {}
            Keyword::SELECT => {
                self.chains.begin_clause(false);
                self.last_role = TokenRole::Start;
            }
            Keyword::FROM => {
                self.chains.begin_clause(true);
                self.last_role = TokenRole::Operator;
            }
            Keyword::WHERE
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::QUALIFY
            | Keyword::WINDOW
            | Keyword::ORDER => {
                self.chains.begin_clause(false);
                self.last_role = TokenRole::Operator;
            }
            Keyword::ON | Keyword::WHEN | Keyword::THEN | Keyword::ELSE => {
                self.chains.end(OR_LEVEL);
                self.last_role = TokenRole::Operator;
            }
            Keyword::END if self.last_role == TokenRole::Operand => self.end_case(),
            Keyword::ALL
            | Keyword::DISTINCT
            | Keyword::EXPLAIN
            | Keyword::TABLE
            | Keyword::VALUES => self.last_role = TokenRole::Start,
            Keyword::AS | Keyword::NOT | Keyword::OVER => {
                self.last_role = TokenRole::Operator;
            }
            _ => self.last_role = TokenRole::Operand,
        }
    }

    fn add_operator(&mut self, level: usize) {
        self.chains
            .add(level, if level == OTHER_LEVEL { TYPED } else { 1 });
        self.last_role = TokenRole::Operator;
    }

    fn add_join(&mut self) {
        self.chains.add(SET_LEVEL, JOIN);
        self.queries += 1;
        self.last_role = TokenRole::Operator;
    }

    fn open_group(&mut self) {
        let after = match self.last_word {
            // a OPERATOR(+) b
            Some(Keyword::OPERATOR) => TokenRole::Operator,
            // SELECT DISTINCT ON (a) *
            _ if self.is_after_distinct_on => TokenRole::Start,
            _ => TokenRole::Operand,
        };
        self.push_group(false, after);
        self.last_role = TokenRole::Start;
    }

    fn push_group(&mut self, is_case: bool, after: TokenRole) {
        let outside = std::mem::take(&mut self.chains);
        self.depth_outside += outside.depth() + 1;
        self.open.push(Group {
            outside,
            is_case,
            role: after,
        });
    }

    /// Closes the innermost parenthesis, and each CASE without END within it: such a CASE was a
    /// name.
    fn close_group(&mut self) {
        while let Some(group) = self.open.pop() {
            let is_case = group.is_case;
            self.leave(group);
            if !is_case {
                break;
            }
        }
    }

    fn end_case(&mut self) {
        if let Some(group) = self.open.pop_if(|group| group.is_case) {
            self.leave(group);
        }
    }

    fn leave(&mut self, group: Group) {
        self.chains = group.outside;
        self.depth_outside -= self.chains.depth() + 1;
        self.last_role = group.role;
    }

    fn check_limits(&self) -> Result<()> {
        let what = if self.depth_outside + self.chains.depth() > MAX_DEPTH {
            format!(
                "it has a chain of more than {MAX_DEPTH} operators (a join counts as {JOIN}, every operator except AND and OR as {TYPED})"
            )
        } else if self.open.len() > MAX_OPEN {
            format!("more than {MAX_OPEN} parentheses are nested in each other")
        } else if self.queries > MAX_QUERIES {
            format!("it has more than {MAX_QUERIES} queries and joined tables")
        } else if self.descents > MAX_DESCENTS {
            format!(
                "it has more than {MAX_DESCENTS} types within types (an EXPLAIN counts as {LARGE_DESCENT})"
            )
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!(
            "the statement is nested too deeply: {what}; write it flatter, with IN (…) or with a table of the values"
        ))
        .with_sqlstate(SqlState::StatementTooComplex))
    }
}

/// Returns the precedence level of a word that may be an operator between operands or after one.
fn operator_level(word: Keyword) -> Option<usize> {
    match word {
        Keyword::OR => Some(OR_LEVEL),
        Keyword::AND => Some(AND_LEVEL),
        // The parser descends at each INTERVAL without counting: INTERVAL INTERVAL … is nested.
        Keyword::INTERVAL => Some(OTHER_LEVEL),
        Keyword::AT
        | Keyword::BETWEEN
        | Keyword::COLLATE
        | Keyword::DIV
        | Keyword::ILIKE
        | Keyword::IN
        | Keyword::IS
        | Keyword::LIKE
        | Keyword::MATCH
        | Keyword::MEMBER
        | Keyword::NOTNULL
        | Keyword::OPERATOR
        | Keyword::OVERLAPS
        | Keyword::REGEXP
        | Keyword::RLIKE
        | Keyword::SIMILAR
        | Keyword::XOR => Some(OTHER_LEVEL),
        _ => None,
    }
}

/// Returns whether a word can begin a clause, or stand before an operand, where a clause or a list
/// item begins.
fn begins_at_start(word: Keyword) -> bool {
    matches!(
        word,
        Keyword::SELECT
            | Keyword::FROM
            | Keyword::ALL
            | Keyword::DISTINCT
            | Keyword::EXPLAIN
            | Keyword::TABLE
            | Keyword::VALUES
            | Keyword::NOT
    )
}

fn has_types_within(word: Keyword) -> bool {
    matches!(word, Keyword::ARRAY | Keyword::MAP | Keyword::STRUCT)
}

fn is_operand(token: &Token) -> bool {
    matches!(
        token,
        Token::Word(_) | Token::Number(_, _) | Token::Placeholder(_)
    ) || is_text(token)
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
        for operator in ["+", "||", "=", "::INT "] {
            let sql = format!("SELECT {}", vec!["a"; 502].join(operator));
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
    fn chains_of_names_that_are_keywords_are_refused() {
        for (first, operand, operator) in [
            ("", "window", " + "),
            ("", "t.order", " + "),
            ("1 * ", "from", " * "),
            ("values * ", "from", " * "),
            ("a, distinct * ", "from", " * "),
            ("1 * ", "select * from", " * "),
            ("1 LIKE ", "from", " LIKE "),
            ("", "window", " XOR "),
            ("over XOR ", "window", " XOR "),
            ("", "where", " RLIKE "),
            ("a, ", "group", " OVERLAPS "),
            ("a MEMBER OF ", "window", " MEMBER OF "),
            ("", "INTERVAL", " "),
            ("", "INTERVAL year", " "),
            ("", "on (a)", " * "),
            ("", "t.from", " LIKE "),
            ("", "CASE WHEN a THEN b ELSE c END", " + "),
            ("", "sum(a) OVER window", " + "),
            ("", "median(a) WITHIN GROUP (ORDER BY a)", " + "),
            ("a + ", "INTERVAL window", " + "),
            ("a", "", " AT TIME ZONE window"),
            ("a", "", " IS DISTINCT FROM window"),
            ("a", "", " NOT LIKE window"),
            ("a", "", " NOT NULL"),
            ("a", "", " OPERATOR(+) window"),
            ("a", "", " ILIKE 'a'"),
            ("a", "", "[1]"),
            ("a", "", ".b"),
        ] {
            let chain = format!("SELECT {first}{}", vec![operand; 550].join(operator));
            assert!(is_refused(&chain), "{operator}{operand}");
        }
        for (first, operand, operator) in [
            ("", "t.from", " AND "),
            ("a AND ", "from", " AND "),
            ("a OR ", "from", " OR "),
            ("", "having", " OR "),
            ("table OR ", "table", " OR "),
        ] {
            let chain = format!("SELECT {first}{}", vec![operand; 3_000].join(operator));
            assert!(is_refused(&chain), "{operator}{operand}");
        }
    }

    #[test]
    fn tables_are_counted_behind_names_that_are_keywords() {
        for first in [
            "SELECT case FROM window",
            "SELECT over FROM t",
            "SELECT a, FROM window",
            "SELECT FROM window",
            "SELECT DISTINCT FROM t",
            "SELECT 1 + distinct FROM window",
            "SELECT 1 FROM t JOIN u ON window = 1",
            "SELECT 1 FROM t AS window",
        ] {
            let tables = ", t".repeat(300);
            assert!(is_refused(&format!("{first}{tables}")), "{first}");
        }
        assert!(is_refused(&format!(
            "SELECT 1 FROM t at{}",
            " JOIN t at".repeat(300)
        )));
    }

    #[test]
    fn what_the_parser_or_the_planner_would_descend_into_is_refused() {
        assert!(is_refused(&format!("{}SELECT 1", "EXPLAIN ".repeat(100))));
        assert!(is_refused(&format!(
            "SELECT CAST(1 AS {}INT",
            "STRUCT<a INT, b ".repeat(1_000)
        )));
        assert!(is_refused(&format!(
            "SELECT CAST(1 AS {}INT",
            "Nullable(".repeat(300)
        )));
        let views: Vec<_> = (1..5_000)
            .map(|n| format!("a{n} AS (SELECT * FROM a{})", n - 1))
            .collect();
        assert!(is_refused(&format!(
            "WITH a0 AS (SELECT 1), {} SELECT 1",
            views.join(", ")
        )));
    }

    #[test]
    fn what_people_write_is_not_refused() {
        let lines = vec![
            "SELECT DISTINCT t.a, count(*) FROM t, u WHERE t.time AT TIME ZONE 'UTC' IS NOT DISTINCT FROM u.time AND a NOT IN (1, 2) GROUP BY t.a ORDER BY 1";
            80
        ];
        assert!(!is_refused(&lines.join(" UNION ALL ")));
        let years = vec!["cur.a - prior.a"; 100].join(", ");
        assert!(!is_refused(&format!(
            "WITH prior AS (SELECT 1 AS a) SELECT {years} FROM cur, prior"
        )));
        let columns =
            vec!["CASE WHEN a NOT LIKE 'x' THEN \"end\" ELSE sum(a) OVER w END AS b"; 3_000];
        assert!(!is_refused(&format!(
            "SELECT {} FROM t WINDOW w AS (ORDER BY a)",
            columns.join(", ")
        )));
        assert!(!is_refused(&format!(
            "CREATE TABLE t ({})",
            vec!["a ARRAY<INT>"; 400].join(", ")
        )));
        let sums = vec!["a"; 490].join("+");
        assert!(!is_refused(&format!(
            "SELECT {sums} FROM t WHERE {sums} > 1"
        )));
        let ors = vec!["a = 1"; 1_900].join(" OR ");
        assert!(!is_refused(&format!("SELECT 1 FROM t WHERE {ors}")));
        assert!(!is_refused(&vec!["SELECT 1"; 1_900].join(" UNION ALL ")));
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
