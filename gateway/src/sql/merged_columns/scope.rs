use std::collections::{HashMap, HashSet};

use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Cte, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, Query,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins,
    Value, WildcardAdditionalOptions, With,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::ColumnsOf;
use super::replace::Replacer;
use crate::sql::names::{cte_name, identifier};
use crate::sql::syntax::{binary, call, parse_query};

/// Maximum number of relations that are planned to find their columns, each counted with the CTEs
/// that are planned with it.
const MAX_PLANNED: usize = 20_000;

/// A column of a FROM, by the name that it has without the name of a table.
#[derive(Debug, Clone)]
struct Column {
    name: String,
    /// The expression that stands for the column.
    value: Expr,
    is_merged: bool,
}

/// The columns of a FROM in the order of `*`.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    columns: Vec<Column>,
    /// The names of relations whose columns are unknown, because they cannot be planned by
    /// themselves: they read columns of another relation, or are wrong.
    unknown: Vec<Vec<Ident>>,
    /// Says whether a NATURAL JOIN is left to the planner, because a side has unknown columns.
    has_natural: bool,
}

impl Scope {
    /// Adds the columns of a relation that is written after those of this scope.
    pub(super) fn append(&mut self, mut other: Self) {
        self.columns.append(&mut other.columns);
        self.unknown.append(&mut other.unknown);
        self.has_natural |= other.has_natural;
    }

    /// Returns the merged columns by their names, without those whose names are ambiguous.
    pub(super) fn merged(&self) -> HashMap<String, Expr> {
        let merged = self.columns.iter().filter(|column| column.is_merged);
        let unique = merged.filter(|column| self.named(&column.name).count() == 1);
        unique
            .map(|column| (column.name.clone(), column.value.clone()))
            .collect()
    }

    /// Returns whether the name is that of a merged column that is not simply a column of one side.
    pub(super) fn is_computed(&self, name: &str) -> bool {
        let mut columns = self.named(name);
        columns.any(|column| column.is_merged && !is_column(&column.value))
    }

    /// Returns the items of a SELECT list that stand for `*`. Returns `None` if `*` is left to the
    /// planner.
    pub(super) fn columns_of_wildcard(
        &self,
        options: &WildcardAdditionalOptions,
    ) -> Option<Vec<SelectItem>> {
        if self.has_natural
            || options.opt_ilike.is_some()
            || options.opt_rename.is_some()
            || options.opt_alias.is_some()
        {
            return None;
        }
        let excluded = excluded_names(options);
        let replaced = options
            .opt_replace
            .iter()
            .flat_map(|replace| &replace.items);
        let replaced: HashMap<String, &Expr> = replaced
            .map(|item| (identifier(&item.column_name), &item.expr))
            .collect();
        let all_known = excluded
            .iter()
            .chain(replaced.keys())
            .all(|name| self.named(name).next().is_some());
        if !all_known {
            return None;
        }
        let columns = self
            .columns
            .iter()
            .filter(|column| !excluded.contains(&column.name));
        let items = columns.map(|column| {
            let expression = replaced.get(&column.name).copied().unwrap_or(&column.value);
            if is_column(expression) && !replaced.contains_key(&column.name) {
                return SelectItem::UnnamedExpr(expression.clone());
            }
            SelectItem::ExprWithAlias {
                expr: expression.clone(),
                alias: quoted(&column.name),
            }
        });
        let unknown = self.unknown.iter().map(|qualifier| {
            let name = ObjectName::from(qualifier.clone());
            let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
            SelectItem::QualifiedWildcard(kind, WildcardAdditionalOptions::default())
        });
        Some(items.chain(unknown).collect())
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Column> {
        self.columns
            .iter()
            .filter(move |column| column.name == name)
    }

    /// Returns the column of this name, which a join merges with that of the other side.
    fn merge_key(&self, name: &str, side: &str) -> Result<Expr> {
        let mut columns = self.named(name);
        match (columns.next(), columns.next()) {
            (Some(column), None) => Ok(column.value.clone()),
            (Some(_), Some(_)) => Err(Error::invalid(format!(
                "the {side} side of the join has several columns \"{name}\"; join ON the one that you mean"
            ))
            .with_sqlstate(SqlState::AmbiguousColumn)),
            (None, _) => match self.unknown.as_slice() {
                [qualifier] => Ok(column_of(qualifier, name)),
                _ => Err(Error::invalid(format!(
                    "the {side} side of the join has no column \"{name}\", by which USING joins"
                ))
                .with_sqlstate(SqlState::UndefinedColumn)),
            },
        }
    }

    /// Removes the columns of these names.
    fn without(mut self, names: &[String]) -> Self {
        self.columns.retain(|column| !names.contains(&column.name));
        self
    }
}

/// Finds the columns of relations, with the CTEs that they may read.
pub(super) struct Scopes<'a> {
    columns_of: ColumnsOf<'a>,
    /// The CTEs that can be read, from the outermost query to the innermost, each with whether it
    /// may be recursive.
    ctes: Vec<(Cte, bool)>,
    /// Number of relations that were given a name.
    named_relations: usize,
    /// Number of relations that were planned: see [`MAX_PLANNED`].
    planned: usize,
}

impl<'a> Scopes<'a> {
    /// Creates the scopes of a statement.
    pub(super) fn new(columns_of: ColumnsOf<'a>) -> Self {
        Self {
            columns_of,
            ctes: Vec::new(),
            named_relations: 0,
            planned: 0,
        }
    }

    /// Adds a CTE that the next relations may read.
    pub(super) fn add_cte(&mut self, cte: Cte, may_recur: bool) {
        self.ctes.push((cte, may_recur));
    }

    /// Removes the CTE that was added last.
    pub(super) fn remove_cte(&mut self) {
        self.ctes.pop();
    }

    /// Writes the joins without USING and NATURAL, and returns their columns.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if a column of USING does not exist on both sides, or several times on
    /// one, and for too many joins.
    pub(super) fn of_joins(&mut self, from: &mut TableWithJoins) -> Result<Scope> {
        let mut left = self.of_relation(&mut from.relation)?;
        for join in &mut from.joins {
            let right = self.of_relation(&mut join.relation)?;
            left = self.join(left, right, &mut join.join_operator)?;
        }
        Ok(left)
    }

    /// Returns the names of the columns that a query can use without the name of a table: those of
    /// its FROMs, and those of its result, by which it sorts. Returns `None` if a relation has
    /// unknown columns.
    pub(super) fn names_in(&mut self, query: &Query) -> Option<HashSet<String>> {
        let ctes = query.with.iter().flat_map(|with| {
            let ctes = with.cte_tables.iter().cloned();
            ctes.map(|cte| (cte, with.recursive))
        });
        let outer = self.ctes.len();
        self.ctes.extend(ctes);
        let names = self.names_of_bodies(query);
        self.ctes.truncate(outer);
        names
    }

    fn names_of_bodies(&self, query: &Query) -> Option<HashSet<String>> {
        let mut names = HashSet::new();
        let mut bodies = vec![query.body.as_ref()];
        while let Some(body) = bodies.pop() {
            match body {
                SetExpr::Select(select) => {
                    for from in &select.from {
                        self.add_names(from, &mut names)?;
                    }
                    names.extend(select.projection.iter().filter_map(|item| match item {
                        SelectItem::ExprWithAlias { alias, .. } => Some(identifier(alias)),
                        _ => None,
                    }));
                }
                SetExpr::SetOperation { left, right, .. } => {
                    bodies.extend([left.as_ref(), right.as_ref()]);
                }
                _ => {}
            }
        }
        Some(names)
    }

    fn add_names(&self, from: &TableWithJoins, names: &mut HashSet<String>) -> Option<()> {
        let joined = from.joins.iter().map(|join| &join.relation);
        for relation in std::iter::once(&from.relation).chain(joined) {
            match relation {
                TableFactor::NestedJoin {
                    table_with_joins, ..
                } => self.add_names(table_with_joins, names)?,
                relation => names.extend(self.columns(relation)?),
            }
        }
        Some(())
    }

    fn of_relation(&mut self, relation: &mut TableFactor) -> Result<Scope> {
        if let TableFactor::NestedJoin {
            table_with_joins,
            alias,
        } = relation
        {
            let scope = self.of_joins(table_with_joins)?;
            if alias.is_none() {
                return Ok(scope);
            }
            *relation = derived(&scope, table_with_joins, alias.take())?;
        }
        self.planned += 1 + self.ctes.len();
        if self.planned > MAX_PLANNED {
            return Err(Error::invalid(
                "too many joins with USING or NATURAL read too many CTEs; join ON the columns",
            )
            .with_sqlstate(SqlState::StatementTooComplex));
        }
        let qualifier = self.qualifier(relation);
        Ok(match self.columns(relation) {
            Some(names) => Scope {
                columns: names
                    .into_iter()
                    .map(|name| Column {
                        value: column_of(&qualifier, &name),
                        name,
                        is_merged: false,
                    })
                    .collect(),
                ..Scope::default()
            },
            None => Scope {
                unknown: vec![qualifier],
                ..Scope::default()
            },
        })
    }

    /// Returns the name by which the columns of a relation are qualified. Gives it one if it has
    /// none.
    fn qualifier(&mut self, relation: &mut TableFactor) -> Vec<Ident> {
        let (alias, function) = match relation {
            TableFactor::Table {
                name, alias, args, ..
            } => {
                let parts: Vec<Ident> = name
                    .0
                    .iter()
                    .filter_map(|part| part.as_ident().cloned())
                    .collect();
                if alias.is_none() && args.is_none() {
                    return parts;
                }
                (alias, parts.last().cloned())
            }
            TableFactor::Function { name, alias, .. } => {
                let last = name.0.last().and_then(|part| part.as_ident().cloned());
                (alias, last)
            }
            TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::JsonTable { alias, .. }
            | TableFactor::OpenJsonTable { alias, .. }
            | TableFactor::NestedJoin { alias, .. }
            | TableFactor::Pivot { alias, .. }
            | TableFactor::Unpivot { alias, .. }
            | TableFactor::MatchRecognize { alias, .. } => (alias, None),
            _ => return Vec::new(),
        };
        let alias = alias.get_or_insert_with(|| {
            self.named_relations += 1;
            let numbered = || quoted(&format!("relation {}", self.named_relations));
            TableAlias {
                explicit: true,
                name: function.unwrap_or_else(numbered),
                columns: Vec::new(),
                at: None,
            }
        });
        vec![alias.name.clone()]
    }

    /// Returns the names of a relation's columns, or `None` if they are unknown.
    fn columns(&self, relation: &TableFactor) -> Option<Vec<String>> {
        let mut query = *parse_query("SELECT * FROM t").ok()?;
        if let SetExpr::Select(select) = query.body.as_mut() {
            select.from.first_mut()?.relation = relation.clone();
        }
        let mut ctes: Vec<Cte> = Vec::new();
        for (cte, _) in &self.ctes {
            // The innermost one of several CTEs of the same name is meant.
            let name = identifier(&cte.alias.name);
            ctes.retain(|other| identifier(&other.alias.name) != name);
            ctes.push(cte.clone());
        }
        let is_read = |name: &ObjectName| {
            let name = cte_name(name);
            ctes.iter()
                .any(|cte| Some(identifier(&cte.alias.name)) == name)
        };
        let needs_ctes = match relation {
            TableFactor::Table { name, .. } => is_read(name),
            _ => !ctes.is_empty(),
        };
        if needs_ctes {
            query.with = Some(With {
                with_token: AttachedToken::empty(),
                recursive: self.ctes.iter().any(|(_, may_recur)| *may_recur),
                cte_tables: ctes,
            });
        }
        (self.columns_of)(query).or_else(|| listed_columns(relation))
    }

    /// Writes a join without USING and NATURAL, and returns its columns.
    fn join(&mut self, left: Scope, right: Scope, operator: &mut JoinOperator) -> Result<Scope> {
        use JoinOperator as Op;
        let (kind, constraint) = match operator {
            Op::Join(constraint)
            | Op::Inner(constraint)
            | Op::StraightJoin(constraint)
            | Op::CrossJoin(constraint) => (Kind::Inner, constraint),
            Op::Left(constraint) | Op::LeftOuter(constraint) => (Kind::Left, constraint),
            Op::Right(constraint) | Op::RightOuter(constraint) => (Kind::Right, constraint),
            Op::FullOuter(constraint) => (Kind::Full, constraint),
            Op::Semi(constraint)
            | Op::LeftSemi(constraint)
            | Op::Anti(constraint)
            | Op::LeftAnti(constraint) => (Kind::OnlyLeft, constraint),
            Op::RightSemi(constraint) | Op::RightAnti(constraint) => (Kind::OnlyRight, constraint),
            Op::AsOf { constraint, .. } => (Kind::Left, constraint),
            Op::CrossApply
            | Op::OuterApply
            | Op::ArrayJoin
            | Op::LeftArrayJoin
            | Op::InnerArrayJoin => return Ok(kept(Kind::Inner, left, right)),
        };
        let names: Vec<String> = match constraint {
            JoinConstraint::Using(columns) => {
                let columns = columns.iter().filter_map(|name| name.0.last()?.as_ident());
                columns.map(identifier).collect()
            }
            JoinConstraint::Natural if !left.unknown.is_empty() || !right.unknown.is_empty() => {
                if matches!(kind, Kind::Right | Kind::Full) {
                    return Err(Error::unsupported(
                        "a NATURAL RIGHT or FULL JOIN needs the columns of both sides before the statement is planned, but one side reads columns of another relation, or is wrong; write USING or ON",
                    ));
                }
                let mut scope = kept(kind, left, right);
                scope.has_natural = true;
                return Ok(scope);
            }
            JoinConstraint::Natural => {
                let columns = left.columns.iter().map(|column| &column.name);
                let common = columns.filter(|name| right.named(name).next().is_some());
                common.cloned().collect()
            }
            JoinConstraint::On(condition) => {
                let mut both = left.clone();
                both.append(right.clone());
                Replacer::new(both.merged(), &mut |query| self.names_in(query)).replace(condition);
                return Ok(kept(kind, left, right));
            }
            JoinConstraint::None => return Ok(kept(kind, left, right)),
        };
        let mut columns = Vec::with_capacity(names.len());
        let mut conditions = Vec::with_capacity(names.len());
        for name in &names {
            let of_left = left.merge_key(name, "left")?;
            let of_right = right.merge_key(name, "right")?;
            conditions.push(binary(
                of_left.clone(),
                BinaryOperator::Eq,
                of_right.clone(),
            ));
            let value = match kind {
                Kind::Inner | Kind::Left | Kind::OnlyLeft => of_left,
                Kind::Right | Kind::OnlyRight => of_right,
                Kind::Full => call("coalesce", vec![of_left, of_right]),
            };
            columns.push(Column {
                name: name.clone(),
                value,
                is_merged: true,
            });
        }
        let conditions = conditions.into_iter();
        let condition = conditions.reduce(|all, next| binary(all, BinaryOperator::And, next));
        match condition {
            Some(condition) => *constraint = JoinConstraint::On(condition),
            // A NATURAL JOIN without common columns joins all rows.
            None if kind == Kind::Inner => *operator = Op::CrossJoin(JoinConstraint::None),
            None => *constraint = JoinConstraint::On(Expr::value(Value::Boolean(true))),
        }
        let mut scope = Scope {
            columns,
            ..Scope::default()
        };
        scope.append(kept(kind, left.without(&names), right.without(&names)));
        Ok(scope)
    }
}

/// Says which sides of a join its rows have, and on which sides they may be NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
    /// Rows of the left side alone.
    OnlyLeft,
    /// Rows of the right side alone.
    OnlyRight,
}

/// Returns the columns of those sides of a join that its rows have.
fn kept(kind: Kind, mut left: Scope, right: Scope) -> Scope {
    match kind {
        Kind::Inner | Kind::Left | Kind::Right | Kind::Full => {
            left.append(right);
            left
        }
        Kind::OnlyLeft => left,
        Kind::OnlyRight => right,
    }
}

/// Returns the names that EXCLUDE and EXCEPT leave out of `*`.
fn excluded_names(options: &WildcardAdditionalOptions) -> HashSet<String> {
    let excluded: Vec<&ObjectName> = match &options.opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().collect(),
        None => Vec::new(),
    };
    let excluded = excluded
        .into_iter()
        .filter_map(|name| name.0.last()?.as_ident());
    let except = options.opt_except.iter().flat_map(|except| {
        std::iter::once(&except.first_element).chain(&except.additional_elements)
    });
    excluded.chain(except).map(identifier).collect()
}

/// Returns the names that the alias of a relation gives to its columns, if it does.
fn listed_columns(relation: &TableFactor) -> Option<Vec<String>> {
    let (TableFactor::Table { alias, .. }
    | TableFactor::Derived { alias, .. }
    | TableFactor::Function { alias, .. }
    | TableFactor::UNNEST { alias, .. }) = relation
    else {
        return None;
    };
    let columns = alias.as_ref()?.columns.iter();
    let names: Vec<_> = columns.map(|column| identifier(&column.name)).collect();
    (!names.is_empty()).then_some(names)
}

/// Returns the query that stands for joins in parentheses with an alias, which hides the names of
/// the joined tables.
fn derived(
    scope: &Scope,
    joins: &TableWithJoins,
    alias: Option<TableAlias>,
) -> Result<TableFactor> {
    let mut subquery = parse_query("SELECT * FROM t")?;
    if let SetExpr::Select(select) = subquery.body.as_mut() {
        select.from = vec![joins.clone()];
        if let Some(columns) = scope.columns_of_wildcard(&WildcardAdditionalOptions::default()) {
            select.projection = columns;
        }
    }
    Ok(TableFactor::Derived {
        lateral: false,
        subquery,
        alias,
        sample: None,
    })
}

fn column_of(qualifier: &[Ident], name: &str) -> Expr {
    let mut parts = qualifier.to_vec();
    parts.push(quoted(name));
    Expr::CompoundIdentifier(parts)
}

fn is_column(expression: &Expr) -> bool {
    matches!(expression, Expr::CompoundIdentifier(_))
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}
