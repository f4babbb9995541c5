use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, Query,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use volary_flight_proto::{Error, Result, SqlState};

/// The deepest nesting that the parser follows. It refuses anything that is nested more deeply.
pub(crate) const RECURSION_LIMIT: usize = 200;

/// Parses a single expression.
///
/// # Errors
/// `INVALID_ARGUMENT` with the position of the error.
pub(crate) fn parse_expression(text: &str) -> Result<Expr> {
    Parser::new(&GenericDialect {})
        .with_recursion_limit(RECURSION_LIMIT)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(syntax_error)
}

/// Parses a query.
///
/// # Errors
/// `INVALID_ARGUMENT` with the position of the error.
pub(crate) fn parse_query(text: &str) -> Result<Box<Query>> {
    Parser::new(&GenericDialect {})
        .with_recursion_limit(RECURSION_LIMIT)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_query())
        .map_err(syntax_error)
}

/// Parses a data type as SQL writes it.
///
/// # Errors
/// `INVALID_ARGUMENT` with the position of the error.
pub(crate) fn parse_data_type(text: &str) -> Result<DataType> {
    Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_data_type())
        .map_err(syntax_error)
}

/// Builds a cast of an expression.
pub(crate) fn cast(kind: CastKind, expression: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind,
        expr: Box::new(expression),
        data_type,
        array: false,
        format: None,
    }
}

/// Builds an operator and its operands.
pub(crate) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

/// Puts an expression into parentheses.
pub(crate) fn nested(expression: Expr) -> Expr {
    Expr::Nested(Box::new(expression))
}

/// Builds a call of a function.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments.into_iter().map(FunctionArgExpr::Expr);
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.map(FunctionArg::Unnamed).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Converts an error of the parser into an error for the user.
pub(crate) fn syntax_error(error: ParserError) -> Error {
    let (sqlstate, message) = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            (SqlState::SyntaxError, message)
        }
        ParserError::RecursionLimitExceeded => (
            SqlState::StatementTooComplex,
            "the statement is nested too deeply; write it flatter".to_owned(),
        ),
    };
    Error::invalid(format!("SQL syntax: {message}")).with_sqlstate(sqlstate)
}
