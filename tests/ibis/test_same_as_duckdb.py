"""Compares expressions: Volary, with rows in seven shards, must return what DuckDB returns."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import ibis
import pyarrow as pa
import pytest
from cluster import LocalCluster
from ibis import _

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 400
TEXTS = ["kea", "Kaka", "tui bird", "", "ŕobin's", "weka\tweka", "a%b_c", "123", "12x", None]


def _birds() -> pa.Table:
    """Makes rows with all types, and with NULL in all columns but the key."""
    chosen = random.Random(7)

    def perhaps(make: Callable[[], Any]) -> list[Any]:
        return [None if chosen.random() < 0.1 else make() for _ in range(ROWS)]

    start = datetime.datetime(1999, 12, 30)

    def moment() -> datetime.datetime:
        return start + datetime.timedelta(microseconds=chosen.randint(0, 37 * 366 * 86_400_000_000))

    return pa.table(
        {
            "k": pa.array(range(ROWS), pa.int64()),
            "g": pa.array(perhaps(lambda: chosen.choice("abcde")), pa.string()),
            "i": pa.array(perhaps(lambda: chosen.randint(-50, 50)), pa.int32()),
            "n": pa.array(perhaps(lambda: chosen.randint(1, 9)), pa.int64()),
            "b": pa.array(perhaps(lambda: chosen.random() < 0.5), pa.bool_()),
            "f": pa.array(perhaps(lambda: round(chosen.uniform(-100, 100), 3)), pa.float64()),
            "p": pa.array(perhaps(lambda: round(chosen.uniform(0.01, 1), 3)), pa.float64()),
            "s": pa.array([chosen.choice(TEXTS) for _ in range(ROWS)], pa.string()),
            "d": pa.array(perhaps(lambda: moment().date()), pa.date32()),
            "ts": pa.array(perhaps(moment), pa.timestamp("us")),
            "tz": pa.array(perhaps(moment), pa.timestamp("us", "UTC")),
            "tm": pa.array(perhaps(lambda: moment().time()), pa.time64("us")),
            "dec": pa.array(perhaps(lambda: Decimal(chosen.randint(-99999, 99999)).scaleb(-3)), pa.decimal128(12, 3)),
            "xs": pa.array(
                perhaps(lambda: [chosen.choice([1, 2, 3, None]) for _ in range(chosen.randint(0, 4))]),
                pa.list_(pa.int64()),
            ),
            "ss": pa.array(
                perhaps(lambda: [chosen.choice("xyz") for _ in range(chosen.randint(0, 3))]), pa.list_(pa.string())
            ),
            "st": pa.array(
                perhaps(lambda: {"a": chosen.randint(0, 5), "b": chosen.choice("pq")}),
                pa.struct({"a": pa.int64(), "b": pa.string()}),
            ),
        }
    )


PLACES = pa.table({"g": ["a", "b", "c", "c", "z", None], "w": pa.array([1, 2, 3, 4, 5, 6], pa.int64())})


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """Volary and DuckDB, each with its two tables, whose rows are the same."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), workers=3) as cluster:
        backends = ibis.volary.connect(cluster.uri), ibis.duckdb.connect()
        backends[0].create_table("birds", _birds(), shard_key="k", shards=7)
        backends[0].create_table("places", PLACES, shards=3)
        for name, rows in {"birds": _birds(), "places": PLACES}.items():
            backends[1].con.register("rows", rows)  # not create_table, whose SQL DuckDB 2 does not parse
            backends[1].con.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
        yield tuple((backend, backend.table("birds"), backend.table("places")) for backend in backends)
        for backend in backends:
            backend.disconnect()


def _same(left: Any, right: Any) -> bool:
    # The server interpolates quantiles with six digits.
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    return type(left) is type(right) and left == right


def _key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns what sorts rows equally, although floating-point numbers may differ in their last digits."""
    return tuple(f"{value:.6g}" if isinstance(value, float) else repr(value) for value in row)


def _rows(backend: Any, expression: Any) -> tuple[list[tuple[Any, ...]], pa.Schema]:
    table = backend.to_pyarrow(expression.as_table())
    return [tuple(row.values()) for row in table.to_pylist()], table.schema


def check(backends: tuple[Any, Any], make: Callable[..., Any], ordered: bool = False) -> None:
    """Fails unless both backends return the same rows."""
    (ours, types), (theirs, wanted) = (_rows(backend, make(birds, places)) for backend, birds, places in backends)
    if not ordered:
        ours, theirs = sorted(ours, key=_key), sorted(theirs, key=_key)
    assert types.types == wanted.types
    assert len(ours) == len(theirs)
    differing = [(left, right) for left, right in zip(ours, theirs, strict=True) if not _same(left, right)]
    assert not differing, differing[:5]


VALUES: dict[str, Callable[[Any], Any]] = {
    # Numbers.
    "add": lambda t: t.i + t.n,
    "subtract": lambda t: t.n - t.f,
    "multiply": lambda t: t.i.cast("int64") * t.n,
    "divide": lambda t: t.i / t.n,
    "divide integers": lambda t: t.k / 7,
    "floor divide": lambda t: t.i // t.n,
    "modulus": lambda t: t.i % t.n,
    "power": lambda t: t.n**2,
    "negate": lambda t: -t.f,
    "abs": lambda t: t.i.abs(),
    "sign": lambda t: t.f.sign(),
    "ceil": lambda t: t.f.ceil(),
    "floor": lambda t: t.f.floor(),
    "round": lambda t: t.f.round(),
    "round to digits": lambda t: (t.f + 0.0004).round(1),
    "sqrt": lambda t: t.n.sqrt(),
    "exp": lambda t: t.p.exp(),
    "ln": lambda t: t.p.ln(),
    "log2": lambda t: t.p.log2(),
    "log10": lambda t: t.p.log10(),
    "log of a base": lambda t: t.p.log(3),
    "sines": lambda t: t.f.sin() + t.f.cos() + t.f.tan(),
    "arcs": lambda t: t.p.asin() + t.p.acos() + t.p.atan() + t.p.atan2(t.n),
    "degrees": lambda t: t.p.degrees() + t.f.radians() + t.p.cot(),
    "pi and e": lambda t: t.p * ibis.pi + ibis.e,
    "bits": lambda t: (t.i & t.n) | (t.n ^ 5),
    "shifts": lambda t: (t.n << 3) + (t.k >> 1),
    "not of bits": lambda t: ~t.n,
    "clip": lambda t: t.f.clip(-10, 10),
    "is nan": lambda t: (t.f / 0).isnan(),
    "is infinite": lambda t: t.f.isinf(),
    "greatest": lambda t: ibis.greatest(t.i, 3),
    "least": lambda t: ibis.least(t.f, 0.5),
    "decimal sum": lambda t: t.dec + t.dec,
    "decimal negation": lambda t: -t.dec,
    "decimal comparison": lambda t: t.dec > Decimal("12.345"),
    "decimal literal": lambda t: t.dec + Decimal("0.001"),
    "bucket": lambda t: t.f.bucket([-50, 0, 50]),
    "cast to float": lambda t: t.i.cast("float32"),
    "cast to text": lambda t: t.k.cast("string"),
    "cast decimal to float": lambda t: t.dec.cast("float64"),
    "cast float to decimal": lambda t: t.f.cast("decimal(20, 3)"),
    "cast text to integer": lambda t: t.k.cast("string").cast("int64"),
    "try cast": lambda t: t.s.try_cast("int64"),
    "cast truth to integer": lambda t: t.b.cast("int64"),
    "cast integer to truth": lambda t: (t.n - 5).cast("boolean"),
    # Conditions.
    "comparison": lambda t: (t.i > t.n) | (t.f <= 0),
    "between": lambda t: t.i.between(-5, 5),
    "is in": lambda t: t.g.isin(["a", "b"]),
    "is not in": lambda t: t.i.notin([1, 2, 3]),
    "is in nothing": lambda t: t.i.isin([]),
    "null": lambda t: t.s.isnull() & ~t.i.notnull(),
    "identical": lambda t: t.i.identical_to(t.n),
    "xor": lambda t: t.b ^ (t.i > 0),
    "not": lambda t: ~t.b,
    "if": lambda t: t.b.ifelse(t.i, t.n),
    "case": lambda t: t.g.cases(("a", "first"), ("b", "second"), else_="other"),
    "searched case": lambda t: ibis.cases((t.i < 0, "less"), (t.i > 0, "more")),
    "coalesce": lambda t: ibis.coalesce(t.s, t.g, "none"),
    "fill": lambda t: t.i.fill_null(0),
    "null if": lambda t: t.n.nullif(5),
    # Text.
    "upper and lower": lambda t: t.s.upper() + t.s.lower(),
    "length": lambda t: t.s.length(),
    "capitalize": lambda t: t.s.capitalize(),
    "reverse": lambda t: t.s.reverse(),
    "substring": lambda t: t.s.substr(1, 2),
    "slice": lambda t: t.s[1:3],
    "left and right": lambda t: t.s.left(2) + t.s.right(2),
    "strip": lambda t: ("  " + t.s + "\n ").strip(),
    "left strip": lambda t: ("  " + t.s).lstrip(),
    "right strip": lambda t: (t.s + " \t").rstrip(),
    "pad": lambda t: t.s.lpad(12, "*") + t.s.rpad(12, "-"),
    "repeat": lambda t: t.s.repeat(2),
    "find": lambda t: t.s.find("k"),
    "find from": lambda t: t.s.fill_null("").find("k", 1),
    "contains": lambda t: t.s.contains("ka"),
    "starts and ends": lambda t: t.s.startswith("k") | t.s.endswith("a"),
    "like": lambda t: t.s.like("%k_a%"),
    "ilike": lambda t: t.s.ilike("K%"),
    "replace": lambda t: t.s.replace("k", "kk"),
    "translate": lambda t: t.s.translate("ke", "ab"),
    "concatenation with null": lambda t: t.s + "-" + t.g,
    "join": lambda t: ibis.literal("/").join([t.s, t.g]),
    "split": lambda t: t.s.split("a"),
    "ascii": lambda t: t.s.ascii_str(),
    "regex search": lambda t: t.s.re_search("^k.*a$"),
    "regex extract": lambda t: ("xa" + t.s).re_extract(r"x([a-z]+)", 1),
    "regex replace": lambda t: t.s.re_replace("[aeiou]", "<\\0>"),
    "levenshtein": lambda t: t.s.levenshtein("kea"),
    "hash": lambda t: t.s.hexdigest("md5") + t.s.hexdigest("sha256"),
    # Times.
    "parts of a date": lambda t: t.d.year() * 10000 + t.d.month() * 100 + t.d.day(),
    "quarter and week": lambda t: t.d.quarter() * 100 + t.d.week_of_year(),
    "day of year": lambda t: t.d.day_of_year(),
    "day of week": lambda t: t.d.day_of_week.index(),
    "name of day": lambda t: t.d.day_of_week.full_name(),
    "iso year": lambda t: t.d.iso_year(),
    "parts of a timestamp": lambda t: t.ts.hour() * 10000 + t.ts.minute() * 100 + t.ts.second(),
    "milliseconds": lambda t: t.ts.millisecond(),
    "microseconds": lambda t: t.ts.microsecond(),
    "epoch": lambda t: t.ts.truncate("s").epoch_seconds(),
    "parts of a time": lambda t: t.tm.hour() * 10000 + t.tm.minute() * 100 + t.tm.second(),
    "parts of an instant": lambda t: t.tz.hour() + t.tz.day(),
    **{f"truncate to {unit}": (lambda t, unit=unit: t.ts.truncate(unit)) for unit in "YQMWDhms"},
    **{f"truncate date to {unit}": (lambda t, unit=unit: t.d.truncate(unit)) for unit in "YQMW"},
    "truncate instant": lambda t: t.tz.truncate("D"),
    "bucket of time": lambda t: t.ts.bucket(minutes=15),
    "date of timestamp": lambda t: t.ts.date(),
    "time of timestamp": lambda t: t.ts.time(),
    "add days": lambda t: t.ts + ibis.interval(days=3),
    "add months": lambda t: t.ts + ibis.interval(months=1),
    "subtract seconds": lambda t: t.ts - ibis.interval(seconds=90),
    "add integers of days": lambda t: t.ts + t.n.as_interval("D"),
    "add to date": lambda t: (t.d + ibis.interval(days=1)).cast("date"),
    **{
        f"count {unit}s between": (lambda t, unit=unit: t.ts.delta(ibis.timestamp("2005-05-05 05:05:05"), unit=unit))
        # Not weeks: DuckDB 2 counts whole weeks, but the beginnings of the other units.
        for unit in ("year", "quarter", "month", "day", "hour", "minute", "second")
    },
    "format": lambda t: t.ts.strftime("%Y-%m-%d %H:%M:%S %j"),
    "parse timestamp": lambda t: t.ts.strftime("%Y%m%d %H%M%S").as_timestamp("%Y%m%d %H%M%S"),
    "parse date": lambda t: t.d.strftime("%d/%m/%Y").as_date("%d/%m/%Y"),
    "date from parts": lambda t: ibis.date(t.n + 2000, t.n, t.n),
    "timestamp from parts": lambda t: ibis.timestamp(t.n + 2000, t.n, t.n, t.n, t.n, t.n),
    "timestamp from seconds": lambda t: t.k.as_timestamp("s"),
    "timestamp from text": lambda t: t.ts.strftime("%Y-%m-%dT%H:%M:%S").cast("timestamp"),
    "date compared": lambda t: t.d >= datetime.date(2010, 1, 1),
    "timestamp compared": lambda t: t.ts.between("2003-01-01", "2013-01-01"),
    # Lists and structs.
    "length of list": lambda t: t.xs.length(),
    "element": lambda t: t.xs[0],
    "last element": lambda t: t.xs[-1],
    "slice of list": lambda t: t.xs[1:3],
    "end of list": lambda t: t.xs[-2:],
    "contains element": lambda t: t.ss.contains("x"),
    "position of element": lambda t: t.ss.index("y"),
    "concatenated lists": lambda t: t.ss + t.ss,
    "repeated list": lambda t: t.ss.repeat(2),
    "sorted list": lambda t: t.ss.sort(),
    "distinct list": lambda t: t.ss.unique().sort(),
    "joined list": lambda t: t.ss.join("-"),
    "list of columns": lambda t: ibis.array([t.i.cast("int64"), t.n]),
    "least of list": lambda t: t.xs.mins(),
    "greatest of list": lambda t: t.xs.maxs(),
    "sum of list": lambda t: t.xs.sums(),
    "mean of list": lambda t: t.xs.means(),
    "without element": lambda t: t.ss.remove("x"),
    "flattened list": lambda t: ibis.array([t.ss, t.ss]).flatten(),
    "range": lambda t: ibis.range(t.n),
    "range with step": lambda t: ibis.range(0, t.n, 2),
    "field": lambda t: t.st["a"] + 1,
    "struct of columns": lambda t: ibis.struct({"x": t.i, "y": t.s}),
    "map literal": lambda t: ibis.map({"a": 1, "b": 2}).get(t.g, 0),
}

AGGREGATES: dict[str, Callable[[Any], Any]] = {
    "count": lambda t: t.count(),
    "count values": lambda t: t.s.count(),
    "count distinct": lambda t: t.g.nunique(),
    "sum": lambda t: t.i.sum(),
    "sum of decimals": lambda t: t.dec.sum().cast("decimal(38, 3)"),
    "sum of truths": lambda t: t.b.sum(),
    "mean": lambda t: t.f.mean(),
    "least": lambda t: t.s.min(),
    "greatest": lambda t: t.ts.max(),
    "any and all": lambda t: t.b.any() & ~t.b.all(),
    "variance": lambda t: t.f.var() + t.f.var(how="pop"),
    "deviation": lambda t: t.f.std() + t.f.std(how="pop"),
    "covariance": lambda t: t.f.cov(t.p) + t.f.cov(t.p, how="pop"),
    "correlation": lambda t: t.f.corr(t.p, how="pop"),
    "median": lambda t: t.f.median(),
    "quantile": lambda t: t.f.quantile(0.25),
    "quantiles": lambda t: t.f.quantile([0.1, 0.5, 0.9]),
    "filtered": lambda t: t.i.sum(where=t.b),
    "filtered count": lambda t: t.k.count(where=t.n > 5),
    "value of the least": lambda t: t.k.argmin(t.k * 7 % 401),
    "value of the greatest": lambda t: t.s.fill_null("").argmax(t.k * 7 % 401),
    "first": lambda t: t.k.first(order_by=t.k),
    "last": lambda t: t.k.last(order_by=t.k),
    "collected": lambda t: t.k.collect(order_by=t.k),
    "collected where": lambda t: t.k.collect(where=t.b, order_by=t.k.desc()),
    "concatenated": lambda t: t.g.group_concat(",", order_by=t.k),
    "bits": lambda t: t.n.bit_and() + t.n.bit_or() + t.n.bit_xor(),
    "of an expression": lambda t: (t.i * 2 + t.n).sum() / t.count(),
}

WINDOWS: dict[str, Callable[[Any], Any]] = {
    "row number": lambda t: ibis.row_number().over(group_by=t.g, order_by=t.k),
    "rank": lambda t: t.n.rank().over(group_by=t.g),
    "dense rank": lambda t: t.n.dense_rank(),
    "percent rank": lambda t: t.k.percent_rank(),
    "cumulative distribution": lambda t: t.k.cume_dist(),
    "ntile": lambda t: t.k.ntile(4),
    "lag": lambda t: t.i.lag(2).over(order_by=t.k),
    "lead": lambda t: t.i.lead(default=0).over(group_by=t.g, order_by=t.k),
    "first": lambda t: t.k.first().over(group_by=t.g, order_by=t.k),
    "last": lambda t: t.k.last().over(group_by=t.g, order_by=t.k),
    "nth": lambda t: t.k.nth(2).over(group_by=t.g, order_by=t.k),
    "sum of a group": lambda t: t.i.sum().over(group_by=t.g),
    "running sum": lambda t: t.i.cumsum(order_by=t.k),
    "running mean": lambda t: t.f.cummean(group_by=t.g, order_by=t.k),
    "moving sum": lambda t: t.n.sum().over(ibis.window(preceding=2, following=1, order_by=t.k)),
    "range of values": lambda t: t.n.sum().over(ibis.range_window(preceding=10, following=0, order_by=t.k)),
    "share": lambda t: t.n / t.n.sum(),
}

TABLES: dict[str, Callable[[Any, Any], Any]] = {
    "filter": lambda t, u: t.filter(t.i > 0, t.g == "a"),
    "projection": lambda t, u: t.select("k", twice=t.i * 2),
    "mutate": lambda t, u: t.mutate(twice=_.i * 2).mutate(more=_.twice + 1).drop("i"),
    "group": lambda t, u: t.group_by("g").agg(n=_.count(), s=_.i.sum(), a=_.f.mean()),
    "group by expression": lambda t, u: t.group_by(year=t.d.year(), odd=t.k % 2 == 1).agg(n=_.count()),
    "group by truncated time": lambda t, u: t.group_by(month=t.ts.truncate("Y")).agg(n=_.k.nunique(), s=_.dec.max()),
    "having": lambda t, u: t.group_by("g").having(_.count() > 70).agg(n=_.count()),
    "group and mutate": lambda t, u: t.group_by("g").mutate(share=_.n - _.n.mean()).select("k", "share"),
    "count distinct rows": lambda t, u: t.select("g", "n").nunique(),
    "distinct": lambda t, u: t.select("g", "n").distinct(),
    "distinct on": lambda t, u: t.group_by("g").agg(first=_.k.min()),
    "value counts": lambda t, u: t.g.value_counts(),
    "top": lambda t, u: t.g.topk(3),
    "no rows": lambda t, u: t.filter(ibis.literal(False)).agg(n=_.count(), s=_.i.sum()),
    "join": lambda t, u: t.join(u, "g").select("k", "g", "w"),
    "left join": lambda t, u: t.left_join(u, "g").select("k", "g", "w"),
    "right join": lambda t, u: t.right_join(u, "g").select("k", "w"),
    "outer join": lambda t, u: t.outer_join(u, "g").select("k", "w"),
    "semi join": lambda t, u: t.semi_join(u, "g").select("k"),
    "anti join": lambda t, u: t.anti_join(u, "g").select("k"),
    "cross join": lambda t, u: t.select("k").cross_join(u).filter(_.k % 50 == _.w),
    "join by inequality": lambda t, u: t.join(u, t.n < u.w).select("k", "w"),
    "self join": lambda t, u: t.join(t.view(), "k", rname="{name}_r").select("k", "i_r"),
    "join of aggregates": lambda t, u: t.group_by("g").agg(n=_.count()).join(u, "g"),
    "join of three": lambda t, u: t.join(u, "g").join(u.view(), "g", rname="{name}_r").agg(n=_.count(), s=_.w_r.sum()),
    "union": lambda t, u: t.select("g").union(u.select("g")),
    "union of distinct": lambda t, u: t.select("g").union(u.select("g"), distinct=True),
    "intersection": lambda t, u: t.select("g").intersect(u.select("g")),
    "difference": lambda t, u: u.select("g").difference(t.select("g")),
    "in a query": lambda t, u: t.filter(t.g.isin(u.filter(u.w > 1).g)).select("k"),
    "not in a query": lambda t, u: t.filter(t.g.notin(u.filter(u.g.notnull()).g)).select("k"),
    "exists": lambda t, u: t.filter((t.g == u.g).any()).select("k"),
    "scalar of a query": lambda t, u: t.filter(t.n > t.n.mean()).select("k"),
    "above the mean of a table": lambda t, u: t.mutate(more=t.i - u.w.max()).select("k", "more"),
    "unnest": lambda t, u: t.select("k", x=t.ss.unnest()),
    "unnest a table": lambda t, u: t.select("k", "ss").unnest("ss"),
    "unnest with offset": lambda t, u: t.select("k", "ss").unnest("ss", offset="position"),
    "unnest and keep": lambda t, u: t.select("k", "ss").unnest("ss", offset="position", keep_empty=True),
    "unpack": lambda t, u: t.select("k", "st").unpack("st"),
    "pivot longer": lambda t, u: t.select("k", "i", "n").mutate(i=_.i.cast("int64")).pivot_longer(["i", "n"]),
    "pivot wider": lambda t, u: (
        t.select("k", "n", "g")
        .filter(_.g.notnull())
        .pivot_wider(names_from="g", names=["a", "b"], values_from="n", id_cols=["k"])
    ),
    "table in memory": lambda t, u: t.join(ibis.memtable({"n": [1, 2], "word": ["one", "two"]}), "n").select("word"),
    "large table in memory": lambda t, u: t.join(ibis.memtable({"k": range(300), "x": range(300)}), "k").agg(_.x.sum()),
    "fill and drop null": lambda t, u: t.select("k", "i", "s").drop_null("i").fill_null({"s": "none"}),
    "case of aggregates": lambda t, u: t.group_by("g").agg(r=(_.count() > 70).ifelse("many", "few")),
    "rename": lambda t, u: t.select("k", "g").rename(key="k", group="g"),
    "row number in query": lambda t, u: (
        t.mutate(r=ibis.row_number().over(group_by="g", order_by="k")).filter(_.r < 2).select("k", "r")
    ),
    "qualify": lambda t, u: t.filter(t.n == t.n.max().over(group_by=t.g)).select("k", "n"),
}

ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "order": lambda t, u: t.order_by("k").select("k", "s"),
    "order by several": lambda t, u: t.order_by(t.n.desc(nulls_first=True), t.k).select("n", "k"),
    "order by expression": lambda t, u: t.order_by(t.k % 7, t.k.desc()).select("k"),
    "null order": lambda t, u: t.order_by(t.i, t.k).select("i", "k"),
    "descending null order": lambda t, u: t.order_by(t.i.desc(), t.k).select("i", "k"),
    "limit": lambda t, u: t.order_by("k").limit(5, offset=3).select("k"),
    "offset": lambda t, u: t.order_by("k")[395:].select("k"),
    "limit of a join": lambda t, u: t.join(u, "g").order_by("k", "w").limit(10).select("k", "w"),
    "order in a union": lambda t, u: t.select("k").union(t.select("k")).order_by("k").limit(9),
    "limit then group": lambda t, u: t.order_by("k").limit(100).group_by("g").agg(n=_.count()).order_by("g"),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_the_same(backends, name):
    check(backends, lambda t, u: t.select("k", value=VALUES[name](t)))


@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregates_are_the_same(backends, name):
    check(backends, lambda t, u: t.agg(value=AGGREGATES[name](t)))
    check(backends, lambda t, u: t.group_by("g").agg(value=AGGREGATES[name]))


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_the_same(backends, name):
    check(backends, lambda t, u: t.select("k", value=WINDOWS[name](t)))


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_the_same(backends, name):
    check(backends, TABLES[name])


@pytest.mark.parametrize("name", ORDERED)
def test_the_order_is_the_same(backends, name):
    check(backends, ORDERED[name], ordered=True)
