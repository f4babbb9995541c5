//! Each sequence of choices gives one query over the tables of [`super::data`].

use volary_tests::cluster::Comparison;

use super::data::KeyType;

/// A sequence of choices, which are taken one after the other. When no more choices are left, the
/// first of the offered options is taken.
pub(super) struct Choices<'a>(std::slice::Iter<'a, u16>);

impl<'a> Choices<'a> {
    pub(super) fn new(choices: &'a [u16]) -> Self {
        Self(choices.iter())
    }

    fn below(&mut self, count: u16) -> u16 {
        self.0.next().copied().unwrap_or(0) % count
    }

    fn choose<'o>(&mut self, offered: &[&'o str]) -> &'o str {
        let count = u16::try_from(offered.len()).unwrap();
        offered[usize::from(self.below(count))]
    }
}

const JOINS: [&str; 4] = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"];

/// Returns a value for the setting `relays`: how many workers merge the rows of the others.
pub(super) fn relays(choices: &mut Choices<'_>) -> &'static str {
    choices.choose(&["off", "1", "2", "3"])
}

/// Returns a query, and what its answers must have in common.
pub(super) fn query(key: KeyType, choices: &mut Choices<'_>) -> (String, Comparison) {
    let mut query = Builder { key, choices };
    let rows = match query.choices.below(15) {
        0 => query.rows(),
        1 => query.groups(),
        2 => query.distinct(),
        3 => query.join("facts", "partners"),
        4 => query.join("facts", "kinds"),
        5 => query.join("kinds", "partners"),
        6 => query.grouped_join(),
        7 => query.semi_join(),
        8 => query.window(),
        9 => query.union(),
        10 => query.scalar_subquery(),
        11 => query.limit_in_subquery(),
        12 => return query.joins(),
        13 => return query.tagged_union(),
        _ => return (query.top(), Comparison::Sequence),
    };
    (rows, Comparison::Rows)
}

struct Builder<'c, 'a> {
    key: KeyType,
    choices: &'c mut Choices<'a>,
}

impl Builder<'_, '_> {
    fn literal(&mut self) -> String {
        let (value, form) = (self.choices.below(22), self.choices.below(2));
        self.key.literal(value, form)
    }

    /// Returns a condition on the key `k` and the column `o` of `table`.
    fn filter(&mut self, table: &str) -> String {
        let k = format!("{table}.k");
        let (a, b) = (self.literal(), self.literal());
        let o = self.choices.below(7);
        let ranges = [
            format!("{k} >= {a}"),
            format!("{k} BETWEEN {a} AND {b}"),
            format!("{k} < {a} OR {k} = {b}"),
        ];
        let mut conditions = vec![
            "true".to_owned(),
            format!("{k} = {a}"),
            format!("{k} IN ({a}, {b}, NULL)"),
            format!("{k} = {a} OR {k} = {b}"),
            format!("{k} IS NULL"),
            format!("{k} IS NULL OR {k} = {a}"),
            format!("{k} = {a} AND {k} = {b}"),
            format!("{k} IS NOT NULL"),
            format!("{k} <> {a}"),
            format!("{k} NOT IN ({a}, {b})"),
            format!("{k} IS NOT DISTINCT FROM {a}"),
            format!("{k} IS DISTINCT FROM {a}"),
            format!("{k} = {a} OR {table}.o = {o}"),
            format!("{k} = {a} AND {table}.o > {o}"),
            format!("({k} = {a} AND {table}.o < {o}) OR {k} IN ({b})"),
            format!("NOT ({k} = {a})"),
            format!("{table}.o < {o}"),
            format!("CASE WHEN {table}.o < {o} THEN {k} = {a} ELSE {k} IS NULL END"),
        ];
        if self.key.is_ordered() {
            conditions.extend(ranges);
        }
        let count = u16::try_from(conditions.len()).unwrap();
        conditions.swap_remove(usize::from(self.choices.below(count)))
    }

    fn aggregates(&mut self) -> String {
        let offered = [
            "count(*) AS a",
            "sum(v) AS a, count(v) AS b",
            "min(v) AS a, max(s) AS b, avg(f) AS c",
            "count(DISTINCT o) AS a",
            "count(DISTINCT k) AS a, sum(f) AS b",
            "count(DISTINCT v) AS a, count(DISTINCT s) AS b, sum(v) AS c",
            "sum(v) FILTER (WHERE o > 2) AS a",
        ];
        let aggregates = self.choices.choose(&offered);
        if self.key.is_ordered() && self.choices.below(4) == 3 {
            format!("{aggregates}, min(k) AS y, max(k) AS z")
        } else {
            aggregates.to_owned()
        }
    }

    fn rows(&mut self) -> String {
        let columns = self
            .choices
            .choose(&["*", "id, v", "k", "o, k, s", "id + 1 AS i"]);
        format!("SELECT {columns} FROM facts WHERE {}", self.filter("facts"))
    }

    fn groups(&mut self) -> String {
        let (aggregates, filter) = (self.aggregates(), self.filter("facts"));
        let by = self.choices.choose(&[
            "k",
            "o",
            "k, o",
            "",
            "s",
            "o, s",
            "ROLLUP (k, o)",
            "GROUPING SETS ((k), (o), ())",
        ]);
        if by.is_empty() {
            return format!("SELECT {aggregates} FROM facts WHERE {filter}");
        }
        let shown = match by {
            "ROLLUP (k, o)" | "GROUPING SETS ((k), (o), ())" => "k, o",
            columns => columns,
        };
        let having = self
            .choices
            .choose(&["", " HAVING count(*) > 1", " HAVING max(v) > 0"]);
        format!("SELECT {shown}, {aggregates} FROM facts WHERE {filter} GROUP BY {by}{having}")
    }

    fn distinct(&mut self) -> String {
        let columns = self.choices.choose(&["k", "o", "k, o", "s, o"]);
        let filter = self.filter("facts");
        format!("SELECT DISTINCT {columns} FROM facts WHERE {filter}")
    }

    fn on(&mut self, a: &str, b: &str) -> String {
        let offered = [
            format!("{a}.k = {b}.k"),
            format!("{a}.k = {b}.k AND {a}.o = {b}.o"),
            format!("{a}.o = {b}.o"),
            format!("{a}.k = {b}.k AND {a}.id < {b}.id"),
            format!("{a}.k IS NOT DISTINCT FROM {b}.k"),
            format!("{a}.o < {b}.o AND {a}.id < 10"),
        ];
        let count = u16::try_from(offered.len()).unwrap();
        offered[usize::from(self.choices.below(count))].clone()
    }

    fn join(&mut self, one: &str, other: &str) -> String {
        let (one, other) = match self.choices.below(4) {
            0 => (one, other),
            1 => (other, one),
            2 => (one, one),
            _ => (other, other),
        };
        let join = self.choices.choose(&JOINS);
        let on = self.on("a", "b");
        let (left, right) = (self.filtered(one), self.filtered(other));
        let filter = match self.choices.below(3) {
            0 => String::new(),
            1 => format!(" WHERE {}", self.filter("a")),
            _ => format!(" WHERE {}", self.filter("b")),
        };
        format!(
            "SELECT a.id, a.k, b.id AS j, b.k AS l, b.o FROM {left} a {join} {right} b ON {on}{filter}"
        )
    }

    /// Returns the table, or a subquery with some of its rows.
    fn filtered(&mut self, table: &str) -> String {
        match self.choices.below(3) {
            2 => format!("(SELECT * FROM {table} WHERE {})", self.filter(table)),
            _ => table.to_owned(),
        }
    }

    fn grouped_join(&mut self) -> String {
        let join = self.choices.choose(&JOINS);
        let on = self.on("f", "p");
        let other = self.choices.choose(&["partners", "kinds"]);
        let by = self
            .choices
            .choose(&["f.k", "p.k", "f.o", "f.k, p.o", "coalesce(f.k, p.k)"]);
        let filter = self.filter("f");
        match self.choices.below(4) {
            0 => format!(
                "SELECT {by}, count(*) AS n, sum(f.v) AS s, count(DISTINCT p.id) AS d \
                 FROM facts f {join} {other} p ON {on} WHERE {filter} GROUP BY {by}"
            ),
            1 => format!(
                "SELECT f.id, p.n FROM facts f {join} (SELECT k, count(*) AS n FROM {other} GROUP BY k) p \
                 ON f.k = p.k WHERE {filter}"
            ),
            2 => format!(
                "SELECT f.id, p.n FROM facts f {join} (SELECT o, count(*) AS n FROM {other} GROUP BY o) p \
                 ON f.o = p.o WHERE {filter}"
            ),
            _ => format!(
                "SELECT f.id, p.id AS j, x.id AS h FROM facts f {join} {other} p ON {on} \
                 JOIN kinds x ON x.o = f.o WHERE {filter}"
            ),
        }
    }

    fn semi_join(&mut self) -> String {
        let one = self.choices.choose(&["facts", "kinds", "partners"]);
        let other = self.choices.choose(&["partners", "facts", "kinds"]);
        let column = self.choices.choose(&["k", "o"]);
        let not = self.choices.choose(&["", "NOT "]);
        let filter = self.filter("b");
        match self.choices.below(3) {
            0 => format!(
                "SELECT a.id FROM {one} a WHERE {not}EXISTS \
                 (SELECT 1 FROM {other} b WHERE b.{column} = a.{column} AND ({filter}))"
            ),
            1 => format!(
                "SELECT a.id FROM {one} a WHERE a.{column} {not}IN \
                 (SELECT b.{column} FROM {other} b WHERE {filter})"
            ),
            // NULLs are left out, because DataFusion alone does not handle them for IN within OR.
            _ => format!(
                "SELECT a.id FROM {one} a WHERE a.id > 20 OR (a.{column} IS NOT NULL AND a.{column} {not}IN \
                 (SELECT b.{column} FROM {other} b WHERE b.{column} IS NOT NULL AND ({filter})))"
            ),
        }
    }

    fn window(&mut self) -> String {
        let partition = self.choices.choose(&[
            "PARTITION BY k ",
            "PARTITION BY o ",
            "",
            "PARTITION BY k, o ",
        ]);
        let function = self.choices.choose(&[
            "row_number()",
            "sum(v)",
            "lag(v)",
            "count(*)",
            "first_value(id)",
            "rank()",
        ]);
        let (filter, table) = (self.filter("facts"), "facts");
        let windowed = format!(
            "SELECT id, k, {function} OVER ({partition}ORDER BY id) AS w FROM {table} WHERE {filter}"
        );
        match self.choices.below(3) {
            0 => windowed,
            1 => format!("SELECT id, w FROM ({windowed}) WHERE w <= 3"),
            _ => format!("SELECT k, sum(w) AS s FROM ({windowed}) GROUP BY k"),
        }
    }

    fn union(&mut self) -> String {
        let other = self.choices.choose(&["partners", "kinds", "facts"]);
        let (one_filter, other_filter) = (self.filter("facts"), self.filter(other));
        let all = self
            .choices
            .choose(&["UNION ALL", "UNION", "INTERSECT", "EXCEPT"]);
        let union = format!(
            "SELECT k, o FROM facts WHERE {one_filter} {all} SELECT k, o FROM {other} WHERE {other_filter}"
        );
        match self.choices.below(4) {
            0 => union,
            1 => format!("SELECT k, count(*) AS n FROM ({union}) GROUP BY k"),
            2 => {
                format!("SELECT o, count(*) AS n, count(DISTINCT k) AS d FROM ({union}) GROUP BY o")
            }
            _ => format!("SELECT u.o, p.id FROM ({union}) u JOIN partners p ON p.k = u.k"),
        }
    }

    fn scalar_subquery(&mut self) -> String {
        let table = self.choices.choose(&["partners", "kinds", "facts"]);
        let filter = self.filter("p");
        match self.choices.below(5) {
            0 => format!(
                "SELECT id FROM facts WHERE id > (SELECT count(*) FROM {table} p WHERE {filter})"
            ),
            1 => format!(
                "SELECT id, (SELECT max(p.id) FROM {table} p WHERE {filter}) AS m FROM facts"
            ),
            2 => format!(
                "SELECT f.id, (SELECT sum(p.id) FROM {table} p WHERE p.k = f.k AND ({filter})) AS m FROM facts f"
            ),
            3 => format!(
                "SELECT id FROM facts WHERE o = (SELECT min(p.o) FROM {table} p WHERE {filter})"
            ),
            _ => format!(
                "SELECT f.id FROM facts f WHERE f.v > (SELECT avg(p.id) FROM {table} p WHERE p.o = f.o AND ({filter}))"
            ),
        }
    }

    fn limit_in_subquery(&mut self) -> String {
        let table = self.choices.choose(&["facts", "partners", "kinds"]);
        let (limit, offset) = (self.choices.below(30), self.choices.below(6));
        let filter = self.filter(table);
        let offset = if offset > 2 {
            format!(" OFFSET {offset}")
        } else {
            String::new()
        };
        let some = format!("SELECT id, k, o FROM {table} WHERE {filter}");
        let limited = format!("({some} ORDER BY id LIMIT {limit}{offset})");
        match self.choices.below(5) {
            0 => format!("SELECT count(*) AS n, sum(id) AS s FROM {limited}"),
            1 => format!("SELECT k, count(*) AS n FROM {limited} GROUP BY k"),
            2 => format!("SELECT f.id, l.id AS j FROM facts f JOIN {limited} l ON f.k = l.k"),
            3 => format!("SELECT x.id, l.id AS j FROM {limited} l LEFT JOIN kinds x ON x.o = l.o"),
            // The limit may keep any of the rows, but their number is fixed.
            _ => format!("SELECT count(*) AS n FROM ({some} LIMIT {limit}{offset})"),
        }
    }

    /// Returns a join of three tables whose columns have the same names. The last table is small.
    fn joins(&mut self) -> (String, Comparison) {
        let tables = ["facts", "partners", "kinds"];
        let (one, other) = (self.choices.choose(&tables), self.choices.choose(&tables));
        let last = self.filtered("partners");
        let (join, next) = (self.choices.choose(&JOINS), self.choices.choose(&JOINS));
        let on = self.on("a", "b");
        let (side, column) = (
            self.choices.choose(&["a", "b"]),
            self.choices.choose(&["k", "o", "id"]),
        );
        let filter = self.filter("c");
        let joined = format!(
            "SELECT a.id, b.id AS j, c.id AS h, a.o, b.o AS p, b.k FROM {one} a {join} {other} b ON {on} \
             {next} {last} c ON c.{column} = {side}.{column} WHERE {filter}"
        );
        let limit = self.choices.below(9);
        match self.choices.below(2) {
            0 => (joined, Comparison::Rows),
            _ => (
                format!("{joined} ORDER BY b.id, a.id, c.id LIMIT {limit}"),
                Comparison::Sequence,
            ),
        }
    }

    /// Returns a query over a union whose branches differ in a constant.
    fn tagged_union(&mut self) -> (String, Comparison) {
        let other = self.choices.choose(&["partners", "kinds", "facts"]);
        let (one_filter, other_filter) = (self.filter("facts"), self.filter(other));
        let union = format!(
            "(SELECT 2 AS c, id, o FROM facts WHERE {one_filter} UNION ALL SELECT 1 AS c, id, o FROM {other} WHERE {other_filter})"
        );
        let limit = self.choices.below(30);
        match self.choices.below(5) {
            0 => (
                format!("SELECT c, id FROM {union} ORDER BY c, id"),
                Comparison::Sequence,
            ),
            1 => (
                format!("SELECT c FROM {union} ORDER BY c LIMIT {limit}"),
                Comparison::Sequence,
            ),
            2 => (
                format!("SELECT c, count(*) AS n FROM {union} GROUP BY c"),
                Comparison::Rows,
            ),
            3 => (
                format!("SELECT DISTINCT c, o FROM {union}"),
                Comparison::Rows,
            ),
            _ => (
                format!(
                    "SELECT c, id, row_number() OVER (PARTITION BY c ORDER BY id) AS n FROM {union}"
                ),
                Comparison::Rows,
            ),
        }
    }

    fn top(&mut self) -> String {
        let filter = self.filter("facts");
        let (limit, offset) = (self.choices.below(20), self.choices.below(8));
        let order = self
            .choices
            .choose(&["id", "o DESC, id", "k, id", "s NULLS FIRST, id DESC"]);
        match self.choices.below(3) {
            0 => format!("SELECT id, k, v FROM facts WHERE {filter} ORDER BY {order}"),
            1 => format!("SELECT id, v FROM facts WHERE {filter} ORDER BY {order} LIMIT {limit}"),
            _ => format!(
                "SELECT id, o FROM facts WHERE {filter} ORDER BY {order} LIMIT {limit} OFFSET {offset}"
            ),
        }
    }
}
