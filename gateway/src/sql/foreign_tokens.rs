use datafusion::sql::sqlparser::keywords::{Keyword, RESERVED_FOR_COLUMN_ALIAS};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::tokens::{is_keyword, is_meant};

const SPACE: Token = Token::Whitespace(Whitespace::Space);

/// Names that the standard writes without parentheses, and other databases with them.
const WITHOUT_PARENTHESES: [Keyword; 3] = [
    Keyword::CURRENT_CATALOG,
    Keyword::CURRENT_USER,
    Keyword::SESSION_USER,
];

/// Words behind which a query may begin. It may also begin behind an opening parenthesis.
const BEFORE_QUERIES: [Keyword; 9] = [
    Keyword::ALL,
    Keyword::ANALYZE,
    Keyword::AS,
    Keyword::DISTINCT,
    Keyword::EXCEPT,
    Keyword::EXPLAIN,
    Keyword::INTERSECT,
    Keyword::UNION,
    Keyword::VERBOSE,
];

/// Words that may follow a relation in a FROM, beside those that may follow a column.
const AFTER_RELATIONS: [Keyword; 9] = [
    Keyword::CROSS,
    Keyword::FULL,
    Keyword::INNER,
    Keyword::JOIN,
    Keyword::LEFT,
    Keyword::NATURAL,
    Keyword::ON,
    Keyword::RIGHT,
    Keyword::USING,
];

/// Rewrites what sqlparser does not read:
///
/// - TABLE t, where a query may stand, to SELECT * FROM t.
/// - `current_user()` to `current_user`.
/// - `current_role` to `current_role()`, and `user`, where it is no column, to `current_user`.
/// - SET SCHEMA 'name' to SET search_path = 'name'.
/// - ODBC's `{oj …}` and `{escape …}` to what is within the braces.
/// - `TRIM(BOTH FROM x)` and `TRIM(FROM x)` to `TRIM(BOTH x)` and `TRIM(x)`.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    rewrite_set_schema(tokens);
    rewrite_tables(tokens);
    if tokens.iter().any(|token| token.token == Token::LBrace) {
        unwrap_braces(tokens);
    }
    rewrite_current_role(tokens);
    rewrite_user(tokens);
    for position in 0..tokens.len() {
        if is_keyword(&tokens[position].token, Keyword::TRIM) {
            remove_from(tokens, position);
        }
        let is_name = WITHOUT_PARENTHESES
            .iter()
            .any(|keyword| is_keyword(&tokens[position].token, *keyword));
        if is_name
            && let Some(open) = next(tokens, position)
            && tokens[open].token == Token::LParen
            && let Some(close) = next(tokens, open)
            && tokens[close].token == Token::RParen
        {
            tokens[open].token = SPACE;
            tokens[close].token = SPACE;
        }
    }
}

/// Adds the parentheses that sqlparser wants. Behind AS, before a point and behind one, the word is
/// the name of something.
fn rewrite_current_role(tokens: &mut Vec<TokenWithSpan>) {
    let all = tokens.as_slice();
    let is_rewritten = |position: &usize| {
        is_keyword(&all[*position].token, Keyword::CURRENT_ROLE)
            && is_called(all, *position)
            && next(all, *position).is_none_or(|next| all[next].token != Token::LParen)
    };
    let found: Vec<_> = (0..all.len()).filter(is_rewritten).collect();
    let called = [
        Token::make_word("current_role", None),
        Token::LParen,
        Token::RParen,
    ];
    replace(tokens, &found, &called);
}

/// Puts other tokens in the place of each token at these positions, which ascend.
fn replace(tokens: &mut Vec<TokenWithSpan>, positions: &[usize], others: &[Token]) {
    if positions.is_empty() {
        return;
    }
    let mut replaced = Vec::with_capacity(tokens.len() + positions.len() * others.len());
    let mut positions = positions.iter().peekable();
    for (position, token) in tokens.drain(..).enumerate() {
        if positions.next_if(|next| **next == position).is_some() {
            let others = others.iter().cloned();
            replaced.extend(others.map(|other| TokenWithSpan::new(other, token.span)));
        } else {
            replaced.push(token);
        }
    }
    *tokens = replaced;
}

/// Replaces USER with parentheses, and in a SELECT without FROM, which has no columns of this name.
/// The parser reads `{fn user()}`, and wants a call there.
fn rewrite_user(tokens: &mut [TokenWithSpan]) {
    let has_keyword = |keyword| tokens.iter().any(|it| is_keyword(&it.token, keyword));
    if !has_keyword(Keyword::USER) {
        return;
    }
    let first = tokens.iter().find(|token| is_meant(token));
    let is_without_columns = first.is_some_and(|it| is_keyword(&it.token, Keyword::SELECT))
        && !has_keyword(Keyword::FROM);
    for position in 0..tokens.len() {
        if !is_keyword(&tokens[position].token, Keyword::USER)
            || !is_called(tokens, position)
            || is_in_braces(tokens, position)
        {
            continue;
        }
        let open = next(tokens, position).filter(|open| tokens[*open].token == Token::LParen);
        let close = open.and_then(|open| next(tokens, open));
        let close = close.filter(|close| tokens[*close].token == Token::RParen);
        match (open, close) {
            (Some(open), Some(close)) => {
                tokens[open].token = SPACE;
                tokens[close].token = SPACE;
            }
            (None, _) if is_without_columns => {}
            _ => continue,
        }
        tokens[position].token = Token::make_word("current_user", None);
    }
}

/// Returns whether the word at this position may be a call, and not a name behind AS or with a
/// point.
fn is_called(tokens: &[TokenWithSpan], position: usize) -> bool {
    let before = tokens[..position].iter().rev().find(|it| is_meant(it));
    let is_named = before.is_some_and(|before| {
        before.token == Token::Period || is_keyword(&before.token, Keyword::AS)
    });
    let after = next(tokens, position);
    !is_named && after.is_none_or(|after| tokens[after].token != Token::Period)
}

/// Returns whether the word at this position follows `{fn`.
fn is_in_braces(tokens: &[TokenWithSpan], position: usize) -> bool {
    let mut before = tokens[..position].iter().rev().filter(|it| is_meant(it));
    let is_fn = before.next().is_some_and(
        |it| matches!(&it.token, Token::Word(word) if word.value.eq_ignore_ascii_case("fn")),
    );
    is_fn && before.next().is_some_and(|it| it.token == Token::LBrace)
}

/// Returns the position of the next token that is no space and no comment.
fn next(tokens: &[TokenWithSpan], after: usize) -> Option<usize> {
    let found = tokens[after + 1..].iter().position(is_meant);
    found.map(|found| after + 1 + found)
}

/// Removes the FROM that follows `TRIM(`, or a word in it that says at which end.
fn remove_from(tokens: &mut [TokenWithSpan], trim: usize) {
    let ends = [Keyword::BOTH, Keyword::LEADING, Keyword::TRAILING];
    let Some(open) = next(tokens, trim) else {
        return;
    };
    if tokens[open].token != Token::LParen {
        return;
    }
    let mut first = next(tokens, open);
    if let Some(end) = first
        && ends
            .iter()
            .any(|word| is_keyword(&tokens[end].token, *word))
    {
        first = next(tokens, end);
    }
    if let Some(from) = first
        && is_keyword(&tokens[from].token, Keyword::FROM)
    {
        tokens[from].token = SPACE;
    }
}

fn rewrite_set_schema(tokens: &mut Vec<TokenWithSpan>) {
    let Some(first) = tokens.iter().position(is_meant) else {
        return;
    };
    let span = tokens[first].span;
    let with_span = |token: Token| TokenWithSpan::new(token, span);
    if is_keyword(&tokens[first].token, Keyword::SET)
        && let Some(schema) = next(tokens, first)
        && is_keyword(&tokens[schema].token, Keyword::SCHEMA)
        && let Some(name) = next(tokens, schema)
        && matches!(
            tokens[name].token,
            Token::SingleQuotedString(_) | Token::Word(_)
        )
        && !is_keyword(&tokens[name].token, Keyword::TO)
    {
        let assigned = [Token::make_word("search_path", None), Token::Eq];
        tokens.splice(schema..=schema, assigned.map(with_span));
    }
}

/// Rewrites TABLE at the start of the statement, and after the words after which a query begins.
fn rewrite_tables(tokens: &mut Vec<TokenWithSpan>) {
    let begins_query = |before: &Token| {
        *before == Token::LParen
            || BEFORE_QUERIES
                .iter()
                .any(|keyword| is_keyword(before, *keyword))
    };
    let mut found = Vec::new();
    let mut before: Option<&Token> = None;
    for (position, token) in tokens.iter().enumerate().filter(|(_, it)| is_meant(it)) {
        let is_query = before.is_none_or(begins_query)
            && is_keyword(&token.token, Keyword::TABLE)
            && !before.is_some_and(|before| is_alias(tokens, before, position));
        if is_query {
            found.push(position);
        }
        before = Some(&token.token);
    }
    let selected = [
        Token::make_keyword("SELECT"),
        SPACE,
        Token::Mul,
        SPACE,
        Token::make_keyword("FROM"),
    ];
    replace(tokens, &found, &selected);
}

/// Returns whether the word at this position is the name behind an AS, as in `SELECT x AS table
/// FROM t`: no name of a table follows it.
fn is_alias(tokens: &[TokenWithSpan], before: &Token, position: usize) -> bool {
    if !is_keyword(before, Keyword::AS) {
        return false;
    }
    let after = next(tokens, position).map(|after| &tokens[after].token);
    match after {
        Some(Token::Word(word)) => {
            RESERVED_FOR_COLUMN_ALIAS.contains(&word.keyword)
                || AFTER_RELATIONS.contains(&word.keyword)
        }
        _ => true,
    }
}

/// Removes the braces of `{oj …}` and `{escape …}`, and the word OJ.
fn unwrap_braces(tokens: &mut [TokenWithSpan]) {
    // Says for each open brace whether it is removed.
    let mut open = Vec::new();
    let mut removed = Vec::new();
    for position in 0..tokens.len() {
        match tokens[position].token {
            Token::LBrace => {
                let word = next(tokens, position);
                let is =
                    |keyword| word.is_some_and(|word| is_keyword(&tokens[word].token, keyword));
                let is_join = word.is_some_and(|word| {
                    matches!(&tokens[word].token, Token::Word(word)
                        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("oj"))
                });
                let is_removed = is_join || is(Keyword::ESCAPE);
                if is_removed {
                    removed.push(position);
                }
                if is_join {
                    removed.extend(word);
                }
                open.push(is_removed);
            }
            Token::RBrace if open.pop() == Some(true) => removed.push(position),
            _ => {}
        }
    }
    for position in removed {
        tokens[position].token = SPACE;
    }
}
