"""Generates the tables that Ibis' own tests read.

Ibis keeps them in a repository of their own, which its releases do not contain. `functional_alltypes` is equal to that
table, except for one hour of some days. The others have its columns and the values that tests look for. Their other
values are random, but always the same.
"""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta

import pyarrow as pa
from ibis.backends.conftest import TEST_TABLES

_LISTS = pa.schema(
    {
        "x": pa.list_(pa.int64()),
        "y": pa.list_(pa.string()),
        "z": pa.list_(pa.float64()),
        "grouper": pa.string(),
        "scalar_column": pa.float64(),
        "multi_dim": pa.list_(pa.list_(pa.int64())),
    }
)
_PLAYERS = 1200
_VETERANS = ("Ross, Jerry L.", "Chang-Diaz, Franklin R.")


def all_tables() -> dict[str, pa.Table]:
    """Returns the tables by name."""
    generated = {
        "functional_alltypes": _functional_alltypes(),
        "batting": _batting(),
        "awards_players": _awards_players(),
        "diamonds": _diamonds(),
        "astronauts": _astronauts(),
    }
    return generated | small_tables()


def small_tables() -> dict[str, pa.Table]:
    """Returns those that Ibis creates with statements."""
    return {
        "array_types": _array_types(),
        "struct": _structs(),
        "json_t": _documents(),
        "win": pa.table(
            {"g": ["a"] * 5, "x": [0, 1, 2, 3, 4], "y": [3, 2, 0, 1, 1]},
            schema=pa.schema(
                [pa.field("g", pa.string()), pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.int64())]
            ),
        ),
        "map": pa.table(
            {
                "idx": pa.array([1, 2], pa.int64()),
                "kv": pa.array(
                    [[("a", 1), ("b", 2), ("c", 3)], [("d", 4), ("e", 5), ("f", 6)]], pa.map_(pa.string(), pa.int64())
                ),
            }
        ),
        "topk": pa.table({"x": pa.array([1, 1, None], pa.int64())}),
    }


def _functional_alltypes() -> pa.Table:
    rows = []
    day = date(2009, 1, 1)
    while day.year < 2011:
        for digit in range(10):
            hundredths = 45 * (day.day - 1) + digit * (digit - 1) // 2
            past_midnight = timedelta(
                minutes=(day.day - 1) * 10 + digit,
                seconds=hundredths // 100,
                # Whoever made this table wrote 5 hundredths as .5
                microseconds=int(str(hundredths % 100).ljust(6, "0")),
            )
            rows.append(
                {
                    "id": len(rows),
                    "bool_col": digit % 2 == 0,
                    "tinyint_col": digit,
                    "smallint_col": digit,
                    "int_col": digit,
                    "bigint_col": 10 * digit,
                    "float_col": 1.1 * digit,
                    "double_col": round(10.1 * digit, 1),
                    "date_string_col": day.strftime("%m/%d/%y"),
                    "string_col": str(digit),
                    "timestamp_col": datetime(day.year, day.month, day.day) + past_midnight,
                    "year": day.year,
                    "month": day.month,
                }
            )
        day += timedelta(days=1)
    narrow = {"tinyint_col": pa.int8(), "smallint_col": pa.int16(), "int_col": pa.int32(), "float_col": pa.float32()}
    table = pa.Table.from_pylist(rows)
    return table.cast(pa.schema([field.with_type(narrow.get(field.name, field.type)) for field in table.schema]))


def _players() -> list[str]:
    """Returns ids such as `aaronha01`, sorted."""
    chosen = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return sorted(
        {f"{''.join(chosen.choices(letters, k=7))}{chosen.randint(1, 3):02}" for _ in range(_PLAYERS)} | {"aaronha01"}
    )


def _batting() -> pa.Table:
    """Makes several years for each player, and two teams in some of them. Early years lack some counts, as they do in
    reality.
    """
    chosen = random.Random(2)
    leagues = {"NL": ["CHN", "SFN", "CIN", "PIT"], "AL": ["BOS", "NYA", "DET", "CHA"], "NA": ["TRO", "RC1"]}
    rows = []
    for player in _players():
        first = chosen.randint(1871, 2010)
        for year in range(first, min(first + chosen.randint(1, 12), 2016)):
            for stint in range(1, 1 + chosen.choices([1, 2], [9, 1])[0]):
                league = "NA" if year < 1876 else chosen.choice(["NL", "AL"] if year > 1900 else ["NL"])
                games = chosen.randint(1, 160)
                at_bats = chosen.randint(0, 4 * games)
                hits = chosen.randint(0, at_bats // 2)
                row: dict[str, object] = {
                    "playerID": player,
                    "yearID": year,
                    "stint": stint,
                    "teamID": chosen.choice(leagues[league]),
                    "lgID": league,
                    "G": games,
                    "AB": at_bats,
                    "R": chosen.randint(0, hits),
                    "H": hits,
                    "X2B": hits // 5,
                    "X3B": hits // 40,
                    "HR": chosen.randint(0, hits // 4),
                    "RBI": chosen.randint(0, hits),
                    "SB": chosen.randint(0, 20),
                    "CS": chosen.randint(0, 9),
                    "BB": chosen.randint(0, 60),
                    "SO": chosen.randint(0, at_bats - hits),
                }
                late = ("IBB", "HBP", "SH", "SF", "GIDP")
                rows.append(row | {name: chosen.randint(0, 12) if year > 1954 else None for name in late})
    return pa.Table.from_pylist(rows)


def _awards_players() -> pa.Table:
    chosen = random.Random(3)
    awards = ("Gold Glove", "Most Valuable Player", "Triple Crown", "Silver Slugger", "Rookie of the Year")
    players = _players()
    rows = [
        {
            "playerID": chosen.choice(players),
            "awardID": chosen.choice(awards),
            "yearID": chosen.choice([1877, 1878, 1887, 1888, 1889, 1890, 1894, *range(1908, 2016)]),
            "lgID": chosen.choice(["NL", "AL", "ML"]),
            "tie": chosen.choices(["", "Y"], [9, 1])[0],
            "notes": chosen.choice(["", "P", "C", "1B", "SS", "OF"]),
        }
        for _ in range(3000)
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["yearID"]))


def _diamonds() -> pa.Table:
    chosen = random.Random(4)
    rows = []
    for _ in range(3000):
        carat = round(chosen.uniform(0.2, 3), 2)
        rows.append(
            {
                "carat": carat,
                "cut": chosen.choice(["Fair", "Good", "Very Good", "Premium", "Ideal"]),
                "color": chosen.choice("DEFGHIJ"),
                "clarity": chosen.choice(["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]),
                "depth": round(chosen.uniform(43, 79), 1),
                "table": round(chosen.uniform(43, 95), 1),
                "price": int(326 + 5000 * carat * chosen.random()),
                "x": round(3.7 + 2 * carat, 2),
                "y": round(3.6 + 2 * carat, 2),
                "z": round(2.3 + carat, 2),
            }
        )
    return pa.Table.from_pylist(rows)


def _astronauts() -> pa.Table:
    chosen = random.Random(5)
    rows = []
    for number in range(1, 501):
        row: dict[str, object] = {}
        for name, dtype in TEST_TABLES["astronauts"].items():
            if dtype.is_string():
                row[name] = f"{name} {chosen.randint(1, 40)}"
            elif dtype.is_floating():
                row[name] = round(chosen.uniform(0, 5000), 2)
            else:
                row[name] = chosen.randint(0, 9)
        born = chosen.randint(1921, 1983)
        rows.append(
            row
            | {
                "id": number,
                "number": number,
                # Two of them were on more missions than the others.
                "name": _VETERANS[number % 2] if number <= 60 else f"name {number % 100}",
                "sex": chosen.choice(["male", "female"]),
                "original_name": chosen.choice(["ГАГАРИН Юрий Алексеевич", "Ochoa, Ellen", "翟志刚"]),
                "year_of_birth": born,
                "year_of_selection": born + 30,
                "year_of_mission": born + 35,
            }
        )
    return pa.Table.from_pylist(rows)


def _array_types() -> pa.Table:
    rows = [
        ([1, 2, 3], ["a", "b", "c"], [1.0, 2.0, 3.0], "a", 1.0, [[], [1, 2, 3], None]),
        ([4, 5], ["d", "e"], [4.0, 5.0], "a", 2.0, []),
        ([6, None], ["f", None], [6.0, None], "a", 3.0, [None, [], None]),
        ([None, 1, None], [None, "a", None], [], "b", 4.0, [[1], [2], [], [3, 4, 5]]),
        ([2, None, 3], ["b", None, "c"], None, "b", 5.0, None),
        ([4, None, None, 5], ["d", None, None, "e"], [4.0, None, None, 5.0], "c", 6.0, [[1, 2, 3]]),
    ]
    return pa.Table.from_pylist([dict(zip(_LISTS.names, row, strict=True)) for row in rows], schema=_LISTS)


def _structs() -> pa.Table:
    values = [
        {"a": 1.0, "b": "banana", "c": 2},
        {"a": 2.0, "b": "apple", "c": 3},
        {"a": 3.0, "b": "orange", "c": 4},
        {"a": None, "b": "banana", "c": 2},
        {"a": 2.0, "b": None, "c": 3},
        None,
        {"a": 3.0, "b": "orange", "c": None},
    ]
    fields = pa.struct({"a": pa.float64(), "b": pa.string(), "c": pa.int64()})
    return pa.table({"abc": pa.array(values, fields)})


def _documents() -> pa.Table:
    documents = [
        '{"a": [1,2,3,4], "b": 1}',
        '{"a":null,"b":2}',
        '{"a":"foo", "c":null}',
        "null",
        "[42,47,55]",
        "[]",
        '"a"',
        '""',
        '"b"',
        None,
        "true",
        "false",
        "42",
        "37.37",
    ]
    return pa.table({"rowid": pa.array(range(1, len(documents) + 1), pa.int64()), "js": documents})
