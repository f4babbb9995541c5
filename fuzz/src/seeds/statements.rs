//! The texts contain at least one statement of each kind that our own code reads, and one for each
//! pattern that the planner's own rules look for.

use super::Seed;

const TEXTS: [(&str, &str); 47] = [
    (
        "filter",
        "SELECT k, s FROM t WHERE k = 7 AND s LIKE 'a%' OR at > TIMESTAMP '2026-01-01 00:00:00' -- ä",
    ),
    (
        "parameters",
        "SELECT * FROM t WHERE k = ? AND amount BETWEEN ? AND ? AND day IN (?, DATE '2026-02-03')",
    ),
    (
        "numbered",
        "SELECT $1 + k, $2::VARCHAR FROM u WHERE small = $1",
    ),
    (
        "aggregate",
        "SELECT s, count(*), sum(d), avg(amount) FILTER (WHERE flag) FROM t GROUP BY s HAVING count(*) > 1 ORDER BY 2 DESC LIMIT 10 OFFSET 3",
    ),
    (
        "join",
        "SELECT t.k, u.name, r.label FROM t JOIN u ON t.k = u.k LEFT JOIN r USING (k) WHERE u.small > 3",
    ),
    (
        "subqueries",
        "SELECT (SELECT max(d) FROM t) AS m FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.k) AND k NOT IN (SELECT k FROM r)",
    ),
    (
        "window",
        "SELECT k, row_number() OVER (PARTITION BY s ORDER BY at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t QUALIFY 1 = 1",
    ),
    (
        "ctes",
        "WITH a AS (SELECT k FROM t), b AS (SELECT a.k FROM a, a c) SELECT count(*) FROM b UNION ALL SELECT 1 EXCEPT SELECT 2",
    ),
    (
        "recursive",
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT * FROM n",
    ),
    (
        "cases",
        "SELECT CASE WHEN flag THEN CAST(k AS INT) ELSE TRY_CAST(s AS DOUBLE) END, coalesce(s, 'x') || 'y', -k % 3 FROM t",
    ),
    (
        "strings",
        "SELECT E'a\\n', U&'\\0061', X'00ff', $$dollar$$, $tag$a$tag$, 'it''s', \"S\", N'n' FROM t",
    ),
    (
        "types",
        "SELECT CAST(NULL AS STRUCT<a INT, b ARRAY<VARCHAR(3)>>), [1, 2][1], {a: 1}, MAP {'a': 1}, INTERVAL '1' DAY",
    ),
    (
        "lists",
        "SELECT items[1], pair.a, pair['b'], unnest(items), array_agg(items) FROM l GROUP BY items, pair",
    ),
    (
        "names",
        "SELECT volary.public.t.k, \"T\".\"K\" FROM volary.public.t AS \"T\"(\"K\") CROSS JOIN LATERAL (SELECT 1) x",
    ),
    (
        "schemas",
        "DROP SCHEMA IF EXISTS volary.staging, \"Raw\" CASCADE",
    ),
    (
        "schema",
        "CREATE SCHEMA IF NOT EXISTS staging AUTHORIZATION kea",
    ),
    (
        "grants_on_schemas",
        "GRANT SELECT, CREATE ON SCHEMA staging, raw TO kea, ROLE keas",
    ),
    (
        "times",
        "SELECT date_trunc('day', at AT TIME ZONE 'UTC'), extract(epoch FROM at), now() - INTERVAL '1 month', to_timestamp('x') FROM t",
    ),
    (
        "sets",
        "SELECT s, flag, grouping(s) FROM t GROUP BY GROUPING SETS ((s), ROLLUP (s, flag), CUBE (day))",
    ),
    (
        "values",
        "SELECT * FROM (VALUES (1, 'a'), (NULL, $1)) AS v(a, b) ORDER BY a NULLS FIRST FETCH FIRST 1 ROWS ONLY",
    ),
    (
        "system",
        "SELECT * FROM system.queries NATURAL JOIN information_schema.tables TABLESAMPLE (1)",
    ),
    (
        "full_join",
        "SELECT k FROM t FULL OUTER JOIN u USING (k) INTERSECT ALL SELECT k FROM r",
    ),
    (
        "view",
        "CREATE OR REPLACE VIEW w (a) AS SELECT * FROM v WHERE n > 1",
    ),
    (
        "saved_query",
        "CREATE OR REPLACE QUERY p(a BIGINT, \"b\" VARCHAR(20) DEFAULT 'x''y') AS SELECT s FROM t WHERE k = $A AND s = $b",
    ),
    ("call", "EXPLAIN ANALYZE CALL q(1, b => 'y')"),
    (
        "call_in_from",
        "SELECT * FROM q(a => (1 + 2)::BIGINT) AS c JOIN volary.public.q(2, $1) d ON c.k = d.k",
    ),
    ("drop_query", "DROP QUERY IF EXISTS public.q;"),
    (
        "create_table",
        "CREATE TABLE IF NOT EXISTS n (k BIGINT NOT NULL, a DECIMAL(5, 2) DEFAULT 1, PRIMARY KEY (k)) WITH (shard_key = 'k', shards = 8, sort_key = 'a, k')",
    ),
    (
        "create_as",
        "CREATE OR REPLACE TABLE n WITH (reference = true) AS SELECT s, count(*) AS n FROM t GROUP BY 1",
    ),
    ("drop", "DROP TABLE IF EXISTS t, u"),
    ("insert", "INSERT INTO t (k, s) VALUES (1, 'a'), ($1, ?)"),
    (
        "insert_query",
        "INSERT INTO r SELECT k, name FROM u ORDER BY k LIMIT 5",
    ),
    (
        "copy",
        "COPY t (k, s) FROM 's3://bucket/*.csv' WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL '\\N', QUOTE '\"', ESCAPE '\\')",
    ),
    (
        "copy_to",
        "COPY (SELECT k FROM t) TO 'file.parquet' STORED AS PARQUET OPTIONS ('a' 'b')",
    ),
    ("set", "SET statement_timeout = '5s'"),
    ("set_zone", "SET TIME ZONE '+02:00'; RESET timezone"),
    ("show", "SHOW volary.query_memory VERBOSE"),
    ("describe", "DESCRIBE t"),
    (
        "explain",
        "EXPLAIN VERBOSE FORMAT indent SELECT k FROM t WHERE k IN (1, 2, NULL) AND (k > 1 OR NOT flag)",
    ),
    ("kill", "KILL QUERY '01890a5d-ac96-774b-bcce-b302099a8057'"),
    ("begin", "BEGIN TRANSACTION READ ONLY; COMMIT"),
    ("use", "USE volary.public"),
    (
        "create_user",
        "CREATE USER IF NOT EXISTS kea WITH PASSWORD 'a long secret' ADMIN",
    ),
    (
        "alter_user",
        "ALTER USER \"Kea\" IDENTIFIED BY 'a long secret' NOADMIN",
    ),
    ("token", "CREATE TOKEN ci FOR kea VALID FOR '90 days'"),
    (
        "grant",
        "GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO kea, ROLE public; REVOKE ALL PRIVILEGES ON t FROM kea",
    ),
    ("owner", "ALTER TABLE volary.public.t OWNER TO kea"),
];

/// Returns each text unchanged.
pub fn texts() -> Vec<Seed> {
    let texts = TEXTS.into_iter();
    texts
        .map(|(name, sql)| (name.to_owned(), sql.as_bytes().to_vec()))
        .collect()
}
