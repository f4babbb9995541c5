/// Splits text at the semicolons that are outside of quotes and comments.
///
/// Returns the statements without their semicolons, and the text after the last semicolon. Leaves
/// out statements that consist only of white space and comments.
pub(crate) fn split(text: &str) -> (Vec<&str>, &str) {
    let mut statements = Vec::new();
    let mut start = 0;
    let mut has_text = false;
    let mut position = 0;
    while position < text.len() {
        let token = token(&text[position..]);
        position += token.length;
        match token.kind {
            TokenKind::Blank => {}
            TokenKind::Text => has_text = true,
            TokenKind::Semicolon => {
                if has_text {
                    statements.push(text[start..position - token.length].trim());
                }
                start = position;
                has_text = false;
            }
        }
    }
    (statements, &text[start..])
}

/// Returns whether `text` contains nothing to run.
pub(super) fn is_blank(text: &str) -> bool {
    let mut position = 0;
    while position < text.len() {
        let token = token(&text[position..]);
        if token.kind == TokenKind::Text {
            return false;
        }
        position += token.length;
    }
    true
}

/// Returns whether a statement returns rows. Any other statement returns the number of rows that it
/// wrote.
pub(super) fn is_query(statement: &str) -> bool {
    const QUERIES: [&str; 10] = [
        "SELECT", "WITH", "VALUES", "TABLE", "FROM", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "CALL",
    ];
    let mut rest = statement;
    loop {
        let token = token(rest);
        if token.length == 0 {
            return false;
        }
        let (text, after) = rest.split_at(token.length);
        if token.kind == TokenKind::Text && text != "(" {
            return QUERIES.iter().any(|query| text.eq_ignore_ascii_case(query));
        }
        rest = after;
    }
}

#[derive(PartialEq)]
enum TokenKind {
    /// White space or a comment.
    Blank,
    /// A part of a statement.
    Text,
    Semicolon,
}

struct Token {
    kind: TokenKind,
    /// The length in bytes.
    length: usize,
}

/// Returns the token at the start of `text`. A quote or comment that is not closed extends to the
/// end of the text.
fn token(text: &str) -> Token {
    let (kind, length) = match text.chars().next() {
        None => (TokenKind::Blank, 0),
        Some(';') => (TokenKind::Semicolon, 1),
        Some(quote @ ('\'' | '"' | '`')) => (TokenKind::Text, quoted_length(text, quote)),
        Some('$') => (TokenKind::Text, dollar_quoted_length(text)),
        Some('-') if text.starts_with("--") => {
            (TokenKind::Blank, text.find('\n').unwrap_or(text.len()))
        }
        Some('/') if text.starts_with("/*") => (TokenKind::Blank, block_comment_length(text)),
        Some(other) if other.is_whitespace() => (TokenKind::Blank, other.len_utf8()),
        // The token is a whole word, so that a `$` within it does not begin a dollar quote.
        Some(other) if is_word_character(other) => {
            let end = text.find(|c: char| !is_word_character(c) && c != '$');
            (TokenKind::Text, end.unwrap_or(text.len()))
        }
        Some(other) => (TokenKind::Text, other.len_utf8()),
    };
    Token { kind, length }
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the length of a quoted text. A doubled quote in the text is read as the end of one
/// quoted text and the start of the next, which makes no difference for splitting.
fn quoted_length(text: &str, quote: char) -> usize {
    text[1..].find(quote).map_or(text.len(), |end| end + 2)
}

/// Returns the length of a text in dollar quotes, `$$…$$` or `$tag$…$tag$`. If no dollar quote
/// begins here, returns the length of the `$` and the word after it, such as the parameter `$1`.
fn dollar_quoted_length(text: &str) -> usize {
    let Some(end) = text[1..]
        .find(|c: char| !is_word_character(c))
        .map(|end| end + 1)
    else {
        return text.len();
    };
    let is_parameter = text[1..].starts_with(|c: char| c.is_ascii_digit());
    if is_parameter || !text[end..].starts_with('$') {
        return end;
    }
    let tag = &text[..=end];
    text[tag.len()..]
        .find(tag)
        .map_or(text.len(), |close| close + 2 * tag.len())
}

/// Returns the length of a block comment. Comments nest, as in PostgreSQL and DataFusion's dialect.
fn block_comment_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut position = 0;
    while let Some(next) = text[position..]
        .find(['*', '/'])
        .map(|next| position + next)
    {
        if text[next..].starts_with("/*") {
            depth += 1;
            position = next + 2;
        } else if text[next..].starts_with("*/") {
            depth = depth.saturating_sub(1);
            position = next + 2;
            if depth == 0 {
                return position;
            }
        } else {
            position = next + 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_split_at_semicolons() {
        assert_eq!(split("SELECT 1; SELECT 2"), (vec!["SELECT 1"], " SELECT 2"));
        assert_eq!(split("a;b;"), (vec!["a", "b"], ""));
        assert_eq!(split(" ; ;; -- nothing\n;"), (vec![], ""));
        assert_eq!(split(""), (vec![], ""));
    }

    #[test]
    fn semicolons_in_quotes_and_comments_do_not_split() {
        for statement in [
            "SELECT ';'",
            "SELECT 'it''s; fine'",
            "SELECT \"a;b\"",
            "SELECT 1 -- one; two\n+ 2",
            "SELECT /* a; /* b; */ c; */ 1",
            "SELECT $$a;b$$",
            "SELECT $x$a;$$;b$x$",
            "SELECT $1, a$b, 'ü;'",
        ] {
            let text = format!("{statement};x");
            assert_eq!(split(&text), (vec![statement], "x"));
        }
    }

    #[test]
    fn what_is_not_closed_goes_on_to_the_end() {
        for open in [
            "SELECT 'a;",
            "SELECT \"a;",
            "/* a;",
            "-- a;",
            "$$ a;",
            "$a",
            "$",
        ] {
            assert_eq!(split(open), (vec![], open));
        }
    }

    #[test]
    fn queries_are_told_by_their_first_word() {
        for query in [
            "select 1",
            "-- a\n((SELECT 1))",
            "/* a */ With x",
            "EXPLAIN DELETE",
        ] {
            assert!(is_query(query), "{query}");
        }
        for other in [
            "INSERT INTO t SELECT 1",
            "CREATE TABLE t",
            "",
            "-- SELECT",
            "selected",
        ] {
            assert!(!is_query(other), "{other}");
        }
    }

    #[test]
    fn white_space_and_comments_are_blank() {
        assert!(is_blank(" \n\t-- a 'quote\n/* b */"));
        assert!(!is_blank("-- a\nSELECT"));
        assert!(!is_blank("'"));
    }
}
