"""Tests the command line as users and scripts see it: what it prints, to which stream, and its exit code."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cluster import LocalCluster
from processes import PATIENCE_SECONDS, Ended, Process, Processes, binary, environment, run, until
from pyarrow import csv as arrow_csv
from pyarrow import feather
from pyarrow import json as arrow_json
from pyarrow import parquet as pq

import volary

pytestmark = pytest.mark.server

REPOSITORY = Path(__file__).resolve().parents[2]
TPCH = REPOSITORY / "tests" / "queries" / "tpch"
SMALLEST_SCALE = "0.001"
FEATHERS = 1_500


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the cluster `aviary`."""
    return tmp_path_factory.mktemp("aviary")


@pytest.fixture(scope="module")
def aviary(directory: Path) -> Iterator[LocalCluster]:
    """Two workers with the sharded table `birds` and the reference table `feathers`. Tests drop their own tables."""
    # With short intervals, the reports of the nodes are soon up to date.
    settings = {
        "VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "50ms",
        # All rows go to segments at once, whose sizes are compared with those of the files.
        "VOLARY_WORKER__STORAGE__LOGGED_WRITE": "1B",
    }
    with LocalCluster(directory, workers=2, settings=settings) as cluster:
        with cluster.connect() as connection:
            connection.sql(
                "CREATE TABLE birds (k BIGINT NOT NULL, name VARCHAR, price DECIMAL(10, 2), seen TIMESTAMP, day DATE, "
                "weight DOUBLE, rare BOOLEAN) WITH (shard_key = 'k', shards = 4)"
            )
            connection.sql(
                "INSERT INTO birds VALUES "
                "(1, 'kea', 1.50, TIMESTAMP '2026-01-02 03:04:05.678901', DATE '2026-01-02', 0.5, true), "
                "(2, 'say \"hi\", it''s; fine', -12345678.90, TIMESTAMP '1969-12-31 23:59:59', DATE '1969-12-31', "
                "-1.25, false), "
                "(3, NULL, NULL, NULL, NULL, NULL, NULL), "
                "(4, 'kākā 🦜', 0.00, TIMESTAMP '2026-01-02 00:00:00', DATE '0001-01-01', 100000, false)"
            )
            connection.sql("CREATE TABLE feathers (id BIGINT NOT NULL, colour VARCHAR) WITH (reference = true)")
            connection.sql(f"INSERT INTO feathers SELECT n, 'red' FROM generate_series(1, {FEATHERS}) t(n)")
        yield cluster


def sql(cluster: LocalCluster, *arguments: str | Path, stdin: str = "") -> Ended:
    """Runs `volary sql` on a cluster."""
    return run("volary", "sql", f"--gateway={cluster.uri}", *arguments, stdin=stdin)


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URI of a port at which nobody will listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"grpc://127.0.0.1:{taken.getsockname()[1]}"


# volary status


def sections(text: str) -> dict[str, list[tuple[str, ...]]]:
    """Returns the tables of `volary status` by their titles. Each has its header first and then its rows."""
    found = {}
    for section in text.rstrip("\n").split("\n\n"):
        title, head, *rest = section.split("\n")
        spans = [rule.span() for rule in re.finditer("─+", rest[0])] if rest else [(0, None)]
        lines = [head, *rest[1:]]
        found[title] = [tuple(line[begin:end].strip() for begin, end in spans) for line in lines]
    return found


def size(number: int) -> str:
    """Returns how the size of a small table is shown."""
    assert 1024 <= number < 1024**2
    return f"{number / 1024:.2f} KiB"


def answers(cluster: LocalCluster, statement: str) -> list[tuple[Any, ...]]:
    with cluster.connect() as connection:
        return connection.sql(statement).rows()


@pytest.fixture
def reported(aviary: LocalCluster) -> LocalCluster:
    """The cluster after its workers have reported all written rows and that they are idle."""
    query = (
        "SELECT sum(rows) = (SELECT sum(rows) FROM system.shards), sum(memory_reserved_bytes), sum(running_fragments) "
        "FROM system.nodes"
    )
    until(lambda: answers(aviary, query) == [(True, 0, 0)], "the workers have all rows and do nothing")
    return aviary


def test_status_shows_nodes_tables_and_shards_as_sql_has_them(reported: LocalCluster) -> None:
    code, out, err = run("volary", "status", f"--gateway={reported.uri}")
    assert (code, err) == (0, "")
    shown = sections(out)
    assert list(shown) == ["nodes", "tables", "shards"]

    tables = answers(reported, "SELECT * FROM system.tables ORDER BY name")
    assert [row[:7] for row in tables] == [
        ("birds", "sharded", "k", 4, "k", 2, 4),
        ("feathers", "reference", None, 1, None, 2, FEATHERS),
    ]
    assert shown["tables"] == [
        ("name", "kind", "shard_key", "shards", "sort_key", "workers", "rows", "size", "owner", "schema_name"),
        ("birds", "sharded", "k", "4", "k", "2", "4", size(tables[0][7]), "NULL", "public"),
        ("feathers", "reference", "NULL", "1", "NULL", "2", "1,500", size(tables[1][7]), "NULL", "public"),
    ]

    shards = answers(
        reported,
        "SELECT table_name, worker_id, count(*), sum(rows), sum(bytes) FROM system.shards GROUP BY 1, 2 ORDER BY 1, 2",
    )
    assert [(table, count) for table, _, count, _, _ in shards] == [("birds", 2)] * 2 + [("feathers", 1)] * 2
    assert [rows for _, _, _, rows, _ in shards[2:]] == [FEATHERS] * 2
    assert shown["shards"] == [
        ("table_name", "worker_id", "shards", "rows", "size", "schema_name"),
        *((table, worker, str(n), f"{rows:,}", size(length), "public") for table, worker, n, rows, length in shards),
    ]

    nodes = answers(
        reported, "SELECT id, address, segments, rows, bytes FROM system.nodes WHERE role = 'worker' ORDER BY id"
    )
    (version,) = {row[4] for row in shown["nodes"][1:]}
    assert run("volary", "--version").out == f"volary {version}\n"
    assert shown["nodes"][0] == (
        *("id", "role", "address", "state", "version", "zone", "running_fragments"),
        *("memory", "segments", "rows", "size", "heartbeat"),
    )
    gateway, *workers = shown["nodes"][1:]
    address = reported.uri.removeprefix("grpc://")
    assert gateway == ("gateway", "gateway", address, "alive", version, "NULL", "NULL", "0 B", *["NULL"] * 4)
    assert [row[:11] for row in workers] == [
        (worker, "worker", address, "alive", version, "NULL", "0", "0 B", str(segments), f"{rows:,}", size(length))
        for worker, address, segments, rows, length in nodes
    ]
    for row in workers:
        assert re.fullmatch(r"\d+ ms", row[11])


def test_the_sizes_that_status_shows_are_those_of_the_files(reported: LocalCluster, directory: Path) -> None:
    files = {path: path.stat().st_size for path in directory.glob("data/worker-*/tables/*/*.parquet")}
    out = json.loads(run("volary", "status", "--json", f"--gateway={reported.uri}").out)
    workers = [node for node in out["nodes"] if node["role"] == "worker"]
    assert sum(worker["segments"] for worker in workers) == len(files) > 0
    assert sum(worker["bytes"] for worker in workers) == sum(files.values())
    assert sum(shard["bytes"] for shard in out["shards"]) == sum(files.values())


def test_status_as_json_is_one_object_with_the_numbers_as_they_are(reported: LocalCluster) -> None:
    code, out, err = run("volary", "status", "--json", f"--gateway={reported.uri}")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    shown = json.loads(out)
    assert set(shown) == {"nodes", "tables", "shards"}
    with reported.connect() as connection:
        hidden = ["comment", "retention", "time_column"]
        tables = connection.sql("SELECT * FROM system.tables ORDER BY name").to_arrow().drop(hidden).to_pylist()
        nodes = connection.sql("SELECT * FROM system.nodes ORDER BY id").to_arrow().to_pylist()
        shards = connection.sql("SELECT * FROM system.shards ORDER BY table_name, worker_id").to_arrow().to_pylist()
    assert shown["tables"] == tables
    # The time of the last report has changed in the meantime.
    assert [{**node, "last_heartbeat_ms": 0} for node in shown["nodes"]] == [
        {**node, "last_heartbeat_ms": 0} for node in nodes
    ]
    assert sum(shard["shards"] for shard in shown["shards"]) == len(shards)
    assert sum(shard["rows"] for shard in shown["shards"]) == sum(shard["rows"] for shard in shards)


def test_status_of_an_empty_cluster_says_none(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        code, out, _ = run("volary", "status", settings={"VOLARY_URI": processes.gateway.uri})
        shown = sections(out)
        _, (gateway, *_) = shown.pop("nodes")
        assert (code, gateway, shown) == (0, "gateway", {"tables": [("none",)], "shards": [("none",)]})


def test_the_zone_of_a_worker_is_that_of_its_last_start(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_WORKER__ZONE": "eu-central-1a"}) as processes:
        worker = processes.add_worker()
        assert processes.nodes("zone") == {"w1": "eu-central-1a"}
        processes.gateway.kill()
        processes.gateway.start()
        assert processes.nodes("zone") == {"w1": "eu-central-1a"}
        worker.kill()
        processes.settings["VOLARY_WORKER__ZONE"] = "eu-central-1b"
        worker.start()
        assert processes.nodes("zone") == {"w1": "eu-central-1b"}
    code, out, err = run("volary", "worker", "--zone=here and there", f"--data-dir={tmp_path / 'new'}")
    assert (code, out) == (2, "")
    assert err == (
        'volary: INVALID_ARGUMENT: worker.zone is "here and there"; a zone has 1 to 63 letters, digits, "-", "_" and '
        '"."\n'
    )


# volary status --watch


def watched(process: Process, parts: int) -> list[str]:
    """Returns the first parts that a watching process has printed, each with three tables."""

    def shown() -> list[str]:
        found = process.output().split("nodes\n")[1:]
        return found if len(found) > parts else []

    return until(shown, f"{parts} parts are shown")[:parts]


def test_who_watches_sees_the_status_again_and_again_and_a_restart_of_the_gateway(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        uri = processes.gateway.uri
        people = processes.run("people", "status", "--watch=0.1", f"--gateway={uri}")
        machine = processes.run("machine", "status", "--watch", "0.1", "--json", f"--gateway={uri}")

        def objects() -> list[dict[str, Any]]:
            return [json.loads(line) for line in machine.output().splitlines(keepends=True) if line.endswith("\n")]

        for part in watched(people, 2):
            assert "gateway" in part
            assert "tables\n  none\n" in part
            assert "shards\n  none\n" in part
        assert "\x1b" not in people.output()
        until(lambda: len(objects()) >= 2, "two objects are shown")
        assert all(set(shown) == {"nodes", "tables", "shards"} for shown in objects())

        processes.gateway.kill()
        until(lambda: "error" in objects()[-1], "the machine is shown an error")
        assert objects()[-1]["error"].startswith("UNAVAILABLE: ")
        until(lambda: "UNAVAILABLE: " in people.output().splitlines()[-1], "people are shown an error")
        processes.gateway.start()
        until(lambda: "nodes" in objects()[-1], "the machine is shown the status again")
        seen = len(people.output())
        until(lambda: "nodes\n" in people.output()[seen:], "people are shown the status again")
        for process in (people, machine):
            process.stop()


def test_a_terminal_shows_the_status_in_place(reported: LocalCluster) -> None:
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [binary("volary"), "status", "--watch=0.1", f"--gateway={reported.uri}"],
        stdin=end,
        stdout=end,
        stderr=end,
        env=environment({}),
    )
    os.close(end)
    try:
        seen = b""
        while seen.count(b"\x1b[H") < 3:
            seen += os.read(terminal, 65_536)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):
            while os.read(terminal, 65_536):
                pass
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    first, second, *_ = seen.decode(errors="replace").split("\x1b[H")[1:]
    for shown in (first, second):
        assert shown.startswith("nodes\x1b[K\r\n")
        assert shown.endswith("\x1b[J")


@pytest.mark.parametrize("pause", ["0", "-1", "soon", "nan"])
def test_a_pause_that_is_none_is_refused(pause: str) -> None:
    code, out, err = run("volary", "status", f"--watch={pause}")
    assert (code, out) == (2, "")
    assert "write a number of seconds from 0.1 to 86400" in err


# volary config --check, volary completions and volary man


def test_settings_are_checked_without_starting_anything(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("[gateway]\nlisten = '127.0.0.1:7100'\n")
    assert run("volary", "config", "--check", f"--config={file}") == (0, "the settings are valid\n", "")
    file.write_text("[gateway]\nlisten = '127.0.0.1'\ndata_dirs = '/data'\n[gateway.query]\nmax_running = 0\n")
    settings = {"VOLARY_GATEWAY__SECRETS": "none"}
    code, out, err = run("volary", "config", "--check", f"--config={file}", settings=settings)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == 4, err
    assert lines[0].startswith(
        f"volary: INVALID_ARGUMENT: {file}: there is no setting gateway.data_dirs; [gateway] has "
    )
    assert lines[1].startswith("volary: INVALID_ARGUMENT: variable VOLARY_GATEWAY__SECRETS: there is no setting ")
    assert lines[2].startswith(f"volary: INVALID_ARGUMENT: {file}: gateway.listen: ")
    assert lines[3] == "volary: INVALID_ARGUMENT: gateway.query.max_running must be at least 1"
    none = tmp_path / "none.toml"
    refused = (2, "", f"volary: NOT_FOUND: the settings file {none} does not exist\n")
    assert run("volary", "config", "--check", f"--config={none}") == refused


def test_a_secret_file_is_checked_as_settings_are(tmp_path: Path) -> None:
    code, out, err = run("volary", "gateway", f"--secret-file={tmp_path / 'none'}")
    assert (code, out) == (2, "")
    assert err.startswith(f"volary: NOT_FOUND: cannot read --secret-file {tmp_path / 'none'}: ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "elvish", "powershell"])
def test_completions_know_the_commands_and_the_flags(shell: str) -> None:
    code, out, err = run("volary", "completions", shell)
    assert (code, err) == (0, "")
    for word in ("doctor", "recover", "secret-file", "allow-root"):
        assert word in out


def test_bash_completes_a_command(tmp_path: Path) -> None:
    script = tmp_path / "volary.bash"
    script.write_text(run("volary", "completions", "bash").out)
    asked = f"source {script}; COMP_WORDS=(volary doc); COMP_CWORD=1; _volary volary doc volary; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    assert done.stdout == "doctor\n"


def test_an_unknown_shell_is_refused() -> None:
    code, out, err = run("volary", "completions", "cmd")
    assert (code, out) == (2, "")
    assert "possible values: bash, elvish, fish, powershell, zsh" in err


def test_each_command_has_a_page_of_the_manual(tmp_path: Path) -> None:
    directory = tmp_path / "man" / "man1"
    assert run("volary", "man", directory) == (0, "", "")
    pages = {page.name: page.read_text() for page in directory.iterdir()}
    listed = re.findall(r"^  ([a-z]+) ", run("volary", "--help").out.split("Commands:\n")[1].split("\n\n")[0], re.M)
    assert {"gateway", "doctor", "man"} <= set(listed)
    expected = {f"volary-{command}.1" for command in listed if command != "help"}
    assert expected | {"volary.1", "volary-gateway-recover.1", "volary-doctor-worker.1"} <= set(pages)
    for name, page in pages.items():
        assert re.search(r"^\.TH volary", page, re.M), name
    file = tmp_path / "file"
    file.touch()
    code, _, err = run("volary", "man", file)
    assert code == 1
    assert f"cannot write the manual to {file}" in err


@pytest.mark.parametrize("command", [["status"], ["status", "--json"], ["sql", "SELECT 1"]])
def test_where_no_gateway_answers_is_said_with_what_to_do(nowhere: str, command: list[str]) -> None:
    advice = "start one (volary local) or name another one (--gateway)"
    expected = f"volary: UNAVAILABLE: no gateway answers at {nowhere}; {advice}"
    for arguments, settings in (([f"--gateway={nowhere}"], {}), ([], {"VOLARY_URI": nowhere})):
        code, out, err = run("volary", *command, *arguments, settings=settings)
        assert (code, out) == (1, "")
        assert err.startswith(expected)
        assert err.count("\n") == 1


def test_an_address_that_is_none_is_refused() -> None:
    code, out, err = run("volary", "status", "--gateway=postgres://127.0.0.1:7100")
    assert (code, out) == (1, "")
    assert err == (
        'volary: INVALID_ARGUMENT: "postgres://127.0.0.1:7100" is not the URI of a gateway; '
        "write grpc://host:port or grpc+tls://host:port\n"
    )


# volary sql: the source of statements

SCRIPT = """\
-- A comment; with a semicolon.
CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2);
/* Two; /* nested; */ statements */ INSERT INTO nests VALUES (1, 'a;b'), (2, NULL);
;;
SELECT k, name -- no; not here
FROM nests ORDER BY k; SELECT count(*) AS "n;" FROM nests;
DROP TABLE nests
-- The last one needs no semicolon.
"""


@pytest.mark.parametrize("way", ["argument", "--file", "standard input"])
def test_statements_come_from_argument_file_or_standard_input(aviary: LocalCluster, tmp_path: Path, way: str) -> None:
    file = tmp_path / "script.sql"
    file.write_text(SCRIPT)
    arguments, stdin = {
        # The argument begins like a flag.
        "argument": (["--", SCRIPT], "SELECT 'not read'"),
        "--file": ([f"--file={file}"], "SELECT 'not read'"),
        "standard input": ([], SCRIPT),
    }[way]
    assert sql(aviary, "--output=csv", *arguments, stdin=stdin) == (0, "k,name\n1,a;b\n2,\nn;\n2\n", "")
    # Messages about the rows go to standard error.
    code, out, err = sql(aviary, *arguments, stdin=stdin)
    assert (code, out) == (0, "k  name\n─  ────\n1  a;b\n2  NULL\nn;\n──\n 2\n")
    assert err == "(done)\n(2 rows written)\n(2 rows)\n(1 row)\n(done)\n"


@pytest.mark.parametrize("text", ["", " \n", "-- nothing\n;;", "/* SELECT 1; */"])
def test_nothing_to_run_is_an_error(aviary: LocalCluster, text: str) -> None:
    refused = (1, "", "volary: INVALID_ARGUMENT: there is no statement to run\n")
    assert sql(aviary, stdin=text) == refused
    assert sql(aviary, "--", text) == refused


def test_a_file_that_is_not_there_is_named(aviary: LocalCluster, tmp_path: Path) -> None:
    code, out, err = sql(aviary, "--file", tmp_path / "none.sql")
    assert (code, out) == (1, "")
    assert err.startswith(f"volary: NOT_FOUND: cannot read {tmp_path / 'none.sql'}: ")


def test_a_statement_and_a_file_are_not_taken_together(aviary: LocalCluster, tmp_path: Path) -> None:
    code, out, err = sql(aviary, "SELECT 1", f"--file={tmp_path / 'script.sql'}")
    assert (code, out) == (2, "")
    assert "cannot be used with" in err


# volary sql: the form of the rows

BIRDS = "SELECT * FROM birds ORDER BY k"


def test_rows_as_csv_have_a_header_and_nothing_for_null(aviary: LocalCluster) -> None:
    code, out, err = sql(aviary, "--output=csv", BIRDS)
    assert (code, err) == (0, "")
    assert out == (
        "k,name,price,seen,day,weight,rare\n"
        "1,kea,1.50,2026-01-02T03:04:05.678901,2026-01-02,0.5,true\n"
        '2,"say ""hi"", it\'s; fine",-12345678.90,1969-12-31T23:59:59,1969-12-31,-1.25,false\n'
        "3,,,,,,\n"
        "4,kākā 🦜,0.00,2026-01-02T00:00:00,0001-01-01,100000.0,false\n"
    )
    assert sql(aviary, "--output=csv", "SELECT k, name FROM birds WHERE k > 9") == (0, "k,name\n", "")


def test_a_line_break_within_a_value_is_one_value_of_csv_and_json(aviary: LocalCluster) -> None:
    statement = "SELECT 'two\nlines\t\"' AS a, '' AS b, 3 AS c"
    _, out, _ = sql(aviary, "--output=csv", statement)
    assert list(csv.reader(io.StringIO(out, newline=""))) == [["a", "b", "c"], ['two\nlines\t"', "", "3"]]
    _, out, _ = sql(aviary, "--output=json", statement)
    assert out == '{"a":"two\\nlines\\t\\"","b":"","c":3}\n'
    # A table is for people and shows each value on one line.
    _, out, _ = sql(aviary, statement)
    assert out == 'a            b  c\n───────────  ─  ─\ntwo lines "     3\n'


def test_rows_as_json_are_an_object_a_line_with_nulls(aviary: LocalCluster) -> None:
    code, out, err = sql(aviary, "--output=json", BIRDS)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        '{"k":1,"name":"kea","price":1.50,"seen":"2026-01-02T03:04:05.678901","day":"2026-01-02","weight":0.5,'
        '"rare":true}',
        '{"k":2,"name":"say \\"hi\\", it\'s; fine","price":-12345678.90,"seen":"1969-12-31T23:59:59",'
        '"day":"1969-12-31","weight":-1.25,"rare":false}',
        '{"k":3,"name":null,"price":null,"seen":null,"day":null,"weight":null,"rare":null}',
        '{"k":4,"name":"kākā 🦜","price":0.00,"seen":"2026-01-02T00:00:00","day":"0001-01-01","weight":100000.0,'
        '"rare":false}',
    ]
    assert sql(aviary, "--output=json", "SELECT k FROM birds WHERE k > 9") == (0, "", "")


def test_rows_as_a_table_are_aligned_numbers_to_the_right(aviary: LocalCluster) -> None:
    code, out, err = sql(aviary, "--output=table", "SELECT k, name, price, seen, rare FROM birds ORDER BY k")
    assert (code, err) == (0, "(4 rows)\n")
    assert out.splitlines() == [
        "k  name                         price  seen                        rare",
        "─  ────────────────────  ────────────  ──────────────────────────  ─────",
        "1  kea                           1.50  2026-01-02T03:04:05.678901  true",
        '2  say "hi", it\'s; fine  -12345678.90  1969-12-31T23:59:59         false',
        "3  NULL                          NULL  NULL                        NULL",
        "4  kākā 🦜                        0.00  2026-01-02T00:00:00         false",
    ]
    assert sql(aviary, "SELECT k, name FROM birds WHERE k > 9") == (0, "k  name\n─  ────\n", "(0 rows)\n")


def test_rows_that_a_format_has_no_form_for_are_refused_with_what_to_do(aviary: LocalCluster) -> None:
    code, _, err = sql(aviary, "--output=csv", "SELECT [1, 2] AS list")
    assert code == 1
    advice = "the rows cannot be written in this format; choose another --output, or CAST the column"
    assert err.startswith(f"volary: INVALID_ARGUMENT: {advice}")
    assert sql(aviary, "--output=json", "SELECT [1, 2] AS list") == (0, '{"list":[1,2]}\n', "")


def test_a_plan_is_shown_in_its_lines(aviary: LocalCluster) -> None:
    code, out, _ = sql(aviary, "EXPLAIN SELECT name FROM birds WHERE k = 1")
    assert code == 0
    assert out.startswith("logical_plan:\n")
    assert "\n\nphysical_plan:\n" in out
    (scan,) = [line for line in out.splitlines() if "ShardScanExec: table=birds" in line]
    assert "shards=1/4 workers=1/2" in scan


@pytest.mark.parametrize(
    ("max_rows", "shown", "hidden"),
    [("2", 2, "… 1,499 more rows; --max-rows 0 shows all"), ("1500", 1500, "… 1 more row; --max-rows 0 shows all")],
)
def test_a_table_shows_as_many_rows_as_wanted_and_says_how_many_are_left_out(
    aviary: LocalCluster, max_rows: str, shown: int, hidden: str
) -> None:
    statement = "SELECT n FROM generate_series(1, 1501) t(n) ORDER BY n"
    code, out, err = sql(aviary, f"--max-rows={max_rows}", statement)
    assert (code, err) == (0, "(1,501 rows)\n")
    _, _, *rows, last = out.splitlines()
    assert [int(row) for row in rows] == list(range(1, shown + 1))
    assert last == hidden


def test_a_table_shows_a_thousand_rows_and_all_only_if_wanted(aviary: LocalCluster) -> None:
    statement = "SELECT n FROM generate_series(1, 1501) t(n) ORDER BY n"
    assert sql(aviary, statement).out.splitlines()[-2:] == ["1000", "… 501 more rows; --max-rows 0 shows all"]
    assert sql(aviary, "--max-rows=0", statement).out.splitlines()[-2:] == ["1500", "1501"]
    # The output for programs is never cut.
    assert sql(aviary, "--max-rows=2", "--output=csv", statement).out.splitlines()[-1] == "1501"
    assert sql(aviary, "--max-rows=2", "--output=json", statement).out.splitlines()[-1] == '{"n":1501}'


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_the_time_of_each_statement_is_said_on_standard_error(aviary: LocalCluster, output: str) -> None:
    create = "CREATE TABLE eggs (k BIGINT) WITH (shard_key = 'k')"
    script = f"{create}; INSERT INTO eggs VALUES (7); SELECT k FROM eggs; DROP TABLE eggs"
    code, out, err = sql(aviary, "--timing", f"--output={output}", script)
    assert code == 0
    assert out == {"table": "k\n─\n7\n", "csv": "k\n7\n", "json": '{"k":7}\n'}[output]
    time = r"(\d+ ms|\d+\.\d s)"
    read = rf"{time}; 2 workers, 64 shards, 1 row of \d+ B read, \d+ B sent, planned in \d+\.\d ms"
    assert re.fullmatch(rf"\(done, {time}\)\n\(1 row written, {time}\)\n\(1 row, {read}\)\n\(done, {time}\)\n", err), (
        err
    )


def read_file(path: Path) -> pa.Table:
    readers = {
        ".parquet": pq.read_table,
        ".arrow": feather.read_table,
        ".csv": arrow_csv.read_csv,
        ".json": arrow_json.read_json,
    }
    return readers[path.suffix](path)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow", "rows.csv", "rows.json"])
def test_rows_go_into_a_file_whose_name_says_what_it_is(aviary: LocalCluster, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    statement = "SELECT n, 'egg ' || n AS name FROM generate_series(1, 30000) t(n) ORDER BY n"
    code, out, err = sql(aviary, f"--to={path}", statement)
    assert (code, out, err) == (0, "", f"(30,000 rows in {path})\n")
    rows = read_file(path)
    assert rows["n"].to_pylist() == list(range(1, 30_001))
    assert rows["name"].to_pylist()[-1] == "egg 30000"
    empty = sql(aviary, f"--to={path}", "SELECT n FROM generate_series(1, 3) t(n) WHERE n > 5")
    assert empty.code == 0
    if path.suffix in {".parquet", ".arrow"}:
        assert read_file(path).schema.names == ["n"]
        assert read_file(path).num_rows == 0


def test_files_go_through_a_pipe_too(aviary: LocalCluster) -> None:
    command = [binary("volary"), "sql", f"--gateway={aviary.uri}", "--output=parquet", "SELECT 7 AS n"]
    piped = subprocess.run(command, capture_output=True, check=True, env=environment({}), timeout=PATIENCE_SECONDS)
    assert pq.read_table(io.BytesIO(piped.stdout)).to_pylist() == [{"n": 7}]
    assert piped.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to=rows.xlsx", "SELECT 1"], "use .csv, .json, .parquet, .arrow or .txt, or give --output"),
        (["--to=/no/such/folder/rows.csv", "SELECT 1"], "cannot write /no/such/folder/rows.csv"),
        (["--to=rows.csv", "SELECT 1; SELECT 2"], "--to takes the rows of one query"),
    ],
)
def test_a_file_that_cannot_be_written_is_said(aviary: LocalCluster, arguments: list[str], words: str) -> None:
    code, out, err = sql(aviary, *arguments)
    assert (code, out) == (1, "")
    assert words in err


def test_rows_one_below_the_other(aviary: LocalCluster) -> None:
    code, out, _ = sql(aviary, "--output=vertical", "SELECT 1 AS n, 'kea' AS name UNION ALL SELECT 2, NULL ORDER BY n")
    assert (code, out) == (0, "── row 1\nn     1\nname  kea\n── row 2\nn     2\nname  NULL\n")


def test_a_reader_that_has_enough_is_no_error(aviary: LocalCluster) -> None:
    statement = "SELECT n FROM generate_series(1, 10000000) t(n)"
    command = [binary("volary"), "sql", f"--gateway={aviary.uri}", "--output=csv", statement]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment({})) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"n\n"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_SECONDS) == 0


# volary sql: failures


@pytest.mark.parametrize(
    ("statement", "code", "what"),
    [
        ("SELEC 1", "INVALID_ARGUMENT", "SELEC"),
        ("SELECT k FROM brids", "NOT_FOUND", "brids"),
        ("SELECT colour FROM birds", "NOT_FOUND", "colour"),
        ("SELECT 1 / (k - k) FROM birds", "INVALID_ARGUMENT", "zero"),
        ("CREATE TABLE birds (k BIGINT) WITH (shard_key = 'k')", "ALREADY_EXISTS", "birds"),
        ("INSERT INTO nests VALUES ('x')", "INVALID_ARGUMENT", "x"),
    ],
    ids=["no SQL", "no table", "no column", "while it runs", "a table that exists", "a value of another kind"],
)
def test_a_statement_that_fails_ends_the_script_what_came_before_stays(
    aviary: LocalCluster, statement: str, code: str, what: str
) -> None:
    script = f"INSERT INTO nests VALUES (1); SELECT k FROM nests; {statement}; INSERT INTO nests VALUES (2)"
    with aviary.connect() as connection:
        connection.sql("CREATE TABLE nests (k BIGINT) WITH (shard_key = 'k', shards = 2)")
        try:
            exit_code, out, err = sql(aviary, "--output=csv", stdin=script)
            assert connection.sql("SELECT k FROM nests").rows() == [(1,)]
        finally:
            connection.sql("DROP TABLE nests")
    assert exit_code == 1
    assert out.startswith("k\n1\n")
    assert err.startswith(f"volary: {code}: query "), err
    assert what in err
    assert err.count("\n") == 1


# volary sql: the shell

TYPED = r"""
SELECT k,
  name FROM birds WHERE k = 1; SELECT 'a;
b' AS x;
SELEC; SELECT 'not run';
\d feathers
\timing
SELECT 3 AS c;
\nothing
\q
"""


def test_the_shell_runs_what_is_typed_and_goes_on_after_an_error(aviary: LocalCluster, tmp_path: Path) -> None:
    keyboard, terminal = os.openpty()
    out, err = tmp_path / "out", tmp_path / "err"
    # "dumb" means no cursor movements. The history goes to a temporary directory.
    settings = {"TERM": "dumb", "HOME": str(tmp_path), "VOLARY_URI": aviary.uri}
    with out.open("wb") as output, err.open("wb") as errors:
        shell = subprocess.Popen(
            [binary("volary"), "sql"], stdin=terminal, stdout=output, stderr=errors, env=environment(settings)
        )
    try:
        os.write(keyboard, TYPED.encode())
        assert shell.wait(PATIENCE_SECONDS) == 0
    finally:
        shell.kill()
        os.close(keyboard)
        os.close(terminal)
    shown = re.sub(r"volary> |   \.\.\.> ", "", out.read_text())
    assert shown == (
        f"Connected to {aviary.uri}. \\? shows help, \\q leaves.\n"
        "k  name\n─  ────\n1  kea\n"
        "x\n────\na; b\n"
        "column_name  data_type  is_nullable\n"
        "───────────  ─────────  ───────────\n"
        "id           Int64      NO\n"
        "colour       Utf8View   YES\n"
        "Timing is on.\n"
        "c\n─\n3\n"
    )
    said = err.read_text().splitlines()
    assert said[:2] == ["(1 row)", "(1 row)"]
    assert re.match(r"INVALID_ARGUMENT: query [0-9a-f-]{36}: .*SELEC", said[2])
    assert said[3] == "(2 rows)"
    assert re.fullmatch(r"\(1 row, \d+ ms\)", said[4])
    assert said[5:] == ["There is no command \\nothing; \\? lists the commands."]


# volary config


def test_the_reference_of_the_settings_is_the_one_of_the_docs() -> None:
    expected = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert run("volary", "config", "--reference") == (0, expected, "")


def test_the_settings_in_effect_are_those_of_file_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "volary.toml"
    file.write_text('[local]\nworkers = 7\n[gateway.query]\nbatch_rows = 1000\ntimeout = "10m"\n')
    settings = {"VOLARY_CONFIG": str(file), "VOLARY_GATEWAY__QUERY__BATCH_ROWS": "2000"}
    code, out, err = run("volary", "config", "--log-filter=error", settings=settings)
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["local"]["workers"] == 7
    assert shown["gateway"]["query"]["batch_rows"] == 2000
    assert shown["gateway"]["query"]["timeout"] == "10m"
    assert shown["log"]["filter"] == "error"
    assert shown["worker"]["listen"] == "127.0.0.1:7200"


@pytest.mark.parametrize("command", ["gateway", "worker", "local", "demo", "status", "sql", "config"])
def test_a_wrong_setting_ends_every_command_before_it_does_anything(tmp_path: Path, command: str) -> None:
    settings = {"VOLARY_LOG__FILTER": "volary=loud"}
    code, out, err = run("volary", command, settings=settings)
    assert (code, out) == (2, "")
    assert err.startswith('volary: INVALID_ARGUMENT: log.filter "volary=loud" is not valid; write, for example, info')
    assert err.count("\n") == 1


# volary demo

DEMO_TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]
QUERY = re.compile(
    r"^(?P<title>[^\n:]+): [^\n]+\n"
    r"  (?P<rows>[\d,]+) rows? in (?:\d+ ms|\d+\.\d s), "
    r"asked (?P<workers>\d+) of 2 workers and (?P<shards>\d+) of (?P<all>\d+) shards$",
    re.MULTILINE,
)


def demo_arguments(data: Path) -> list[str]:
    return ["demo", f"--scale={SMALLEST_SCALE}", "--workers=2", "--listen=127.0.0.1:0", f"--data-dir={data}"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """The data directory and the output of a demo that has ended."""
    data = tmp_path_factory.mktemp("demo") / "data"
    return data, run("volary", *demo_arguments(data), "--exit", seconds=5 * PATIENCE_SECONDS)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_demo_makes_and_loads_tpch_and_says_how_fast(demo: tuple[Path, Ended]) -> None:
    data, (code, out, err) = demo
    assert (code, err) == (0, "")
    assert re.search(r"^volary: listening on grpc://127\.0\.0\.1:\d+$", out, re.MULTILINE)
    assert f"A gateway and 2 workers in one process, data in {data} (" in out
    generated = re.search(
        r"^Generated TPC-H data at scale 0\.001: ([\d,]+) rows in .*, .* \(([\d,]+) rows/s\)$", out, re.MULTILINE
    )
    assert generated
    assert "\nLoading 8 tables with COPY\n" in out
    loaded = re.findall(r"^  (\w+) +([\d,]+) rows +(?:\d+ ms|\d+\.\d s)  ([\d,]+) rows/s$", out, re.MULTILINE)
    assert [name for name, _, _ in loaded] == [*DEMO_TABLES, "all"]
    rows = {name: number(count) for name, count, _ in loaded}
    total = rows.pop("all")
    assert total == sum(rows.values()) == number(generated[1])
    assert (rows["region"], rows["nation"], rows["supplier"], rows["orders"]) == (5, 25, 10, 1500)
    assert all(number(rate) > 0 for _, _, rate in loaded)


def test_the_demo_shows_what_its_queries_found_and_asked(demo: tuple[Path, Ended]) -> None:
    _, (_, out, _) = demo
    queries = {found["title"]: found for found in QUERY.finditer(out)}
    assert list(queries) == ["Key lookup", "GROUP BY", "Co-located join", "TPC-H Q1", "TPC-H Q3", "TPC-H Q18"]
    assert {title: (found["workers"], found["shards"], found["all"]) for title, found in queries.items()} == {
        # The key lookup asks only one worker and one shard.
        "Key lookup": ("1", "1", "64"),
        "GROUP BY": ("2", "64", "64"),
        "Co-located join": ("2", "128", "128"),
        "TPC-H Q1": ("2", "64", "64"),
        "TPC-H Q3": ("2", "192", "192"),
        "TPC-H Q18": ("2", "256", "256"),
    }
    # The first five rows of a result are shown below its query.
    lines = out.splitlines()
    (lookup,) = [line for line in lines if re.match(r" +7  1996-01-10  ", line)]
    assert lookup.split()[:3] == ["7", "1996-01-10", "2-HIGH"]
    assert "1-URGENT" in out


@contextlib.contextmanager
def started(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Starts a process. Yields it with the file of its output."""
    path = directory / "demo.out"
    with (
        path.open("wb") as output,
        subprocess.Popen([binary("volary"), *arguments], stdout=output, env=environment({})) as process,
    ):
        try:
            yield process, path
        finally:
            process.kill()


def test_the_demo_serves_on_until_it_is_interrupted(demo: tuple[Path, Ended], tmp_path: Path) -> None:
    data, before = demo
    with started(tmp_path, *demo_arguments(data)) as (process, path):
        until(lambda: process.poll() is not None or "useEncryption=false\n" in path.read_text(), "all is said")
        assert process.poll() is None
        out = path.read_text()
        assert "Using the tables of an earlier run (1,500 orders)\n" in out
        assert "The cluster keeps running; Ctrl-C stops it." in out
        # The line for Python
        python = re.search(
            r'^  Python +import volary; volary\.connect\("(.*)"\)\.sql\("SHOW TABLES"\)', out, re.MULTILINE
        )
        assert python
        uri = python[1]
        assert f"volary: listening on {uri}\n" in out
        with volary.connect(uri) as connection:
            assert connection.tables() == sorted(DEMO_TABLES)
            rows = {
                f"TPC-H Q{n}": connection.sql((TPCH / f"q{n:02}.sql").read_text()).to_arrow().num_rows
                for n in (1, 3, 18)
            }
            (orders,) = connection.sql("SELECT count(*) FROM orders").rows()
        assert orders == (1500,)
        for text in (before.out, out):
            assert {found["title"]: number(found["rows"]) for found in QUERY.finditer(text)} == {
                **{"Key lookup": 1, "GROUP BY": 5, "Co-located join": 5},
                **rows,
            }
        # The lines for the other clients
        address = uri.removeprefix("grpc://")
        assert f"shell    volary sql --gateway {uri}\n" in out
        assert f'  ADBC     adbc_driver_flightsql.dbapi.connect("{uri}")\n' in out
        assert f"  JDBC     jdbc:arrow-flight-sql://{address}?useEncryption=false\n" in out

        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    with pytest.raises(volary.UnavailableError):
        volary.connect(uri)


# Logs


@contextlib.contextmanager
def logging_pair(directory: Path, **settings: str) -> Iterator[Processes]:
    """A gateway and two workers as processes, with a table whose rows are on both workers."""
    with Processes(directory, settings) as processes:
        processes.add_worker()
        processes.add_worker()
        processes.sql("CREATE TABLE birds (k BIGINT NOT NULL, v BIGINT) WITH (shard_key = 'k', shards = 4)")
        processes.sql("INSERT INTO birds SELECT n AS k, n AS v FROM generate_series(1, 100) t(n)")
        yield processes


def log(processes: Processes, name: str) -> list[str]:
    return (processes.directory / f"{name}.log").read_text().splitlines()


def who_logged(processes: Processes, query_id: str) -> set[str]:
    nodes = [processes.gateway, *processes.workers]
    return {node.name for node in nodes if any(query_id in line for line in log(processes, node.name))}


def analyse(processes: Processes, query: str) -> tuple[str, int, str]:
    """Runs a query. Returns its id, the number of workers that it asked, and the name of the slowest of them."""
    ((_, plan),) = processes.sql(f"EXPLAIN ANALYZE {query}")
    query_id = re.search(r"^query: ([0-9a-f-]{36}) rows=", plan, re.MULTILINE)
    asked = re.search(r"ShardScanExec: table=birds, .* workers=(\d)/2", plan)
    slowest = re.search(r"slowest: (\w+) ", plan)
    assert query_id, plan
    assert asked, plan
    assert slowest, plan
    names = {worker.id: worker.name for worker in processes.workers}
    return query_id[1], int(asked[1]), names[slowest[1]]


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_query_is_found_in_the_logs_of_all_nodes_that_were_asked(tmp_path: Path, format: str) -> None:
    settings = {"VOLARY_LOG__FILTER": "volary_gateway=debug,volary_worker=debug", "VOLARY_LOG__FORMAT": format}
    with logging_pair(tmp_path, **settings) as processes:
        query_id, asked, _ = analyse(processes, "SELECT sum(v) FROM birds")
        assert asked == 2
        everybody = {"gateway", "worker1", "worker2"}
        until(lambda: who_logged(processes, query_id) == everybody, "all nodes have logged the query")

        lookup_id, asked, worker = analyse(processes, "SELECT v FROM birds WHERE k = 7")
        assert asked == 1
        assert lookup_id != query_id
        until(lambda: who_logged(processes, lookup_id) == {"gateway", worker}, "both nodes have logged the lookup")

        for node in (processes.gateway, *processes.workers):
            lines = [line for line in log(processes, node.name) if query_id in line]
            if format == "json":
                entries = [json.loads(line) for line in log(processes, node.name)]
                spans = [span for entry in entries for span in entry.get("spans", [])]
                assert any(span.get("query_id") == query_id for span in spans)
                assert {entry["level"] for entry in entries} == {"DEBUG", "INFO"}
            else:
                assert all(f"query_id={query_id}" in line for line in lines)
                assert any(" DEBUG " in line for line in lines)


FAILS = "SELECT v / (k - 7) FROM birds WHERE k = 7"


def failure_of(processes: Processes) -> tuple[str, str]:
    """Returns the query's id and the worker's name from the text of an error that a worker raises."""
    with pytest.raises(volary.InvalidArgumentError, match="Divide by zero") as caught:
        processes.sql(FAILS)
    found = re.match(r"query ([0-9a-f-]{36}): worker (\w+) at ", caught.value.message)
    assert found, caught.value.message
    return found[1], {worker.id: worker.name for worker in processes.workers}[found[2]]


def test_the_id_in_the_text_of_an_error_is_in_the_gateways_log_by_default(tmp_path: Path) -> None:
    with logging_pair(tmp_path) as processes:
        query_id, _ = failure_of(processes)
        (line,) = [line for line in log(processes, "gateway") if query_id in line]
        assert " INFO " in line
        assert f"query_id={query_id}" in line
        assert "Divide by zero" in line
        # The error of a statement that cannot be planned has the query's id, too.
        with pytest.raises(volary.NotFoundError, match=r"query [0-9a-f-]{36}: "):
            processes.sql("SELECT k FROM brids")


def test_the_id_in_the_text_of_an_error_is_in_the_log_of_the_worker_where_it_happened(tmp_path: Path) -> None:
    with logging_pair(tmp_path, VOLARY_LOG__FILTER="volary_worker=debug") as processes:
        query_id, worker = failure_of(processes)
        until(lambda: who_logged(processes, query_id) == {worker}, "the worker has logged the query")


def test_a_node_logs_what_it_is_told_to(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_LOG__FILTER": "error"}) as processes:
        worker = processes.add_worker()
        assert (log(processes, "gateway"), log(processes, worker.name)) == ([], [])
    usual = tmp_path / "usual"
    usual.mkdir()
    with Processes(usual) as processes:
        worker = processes.add_worker()
        assert processes.sql("SELECT 1") == [(1,)]
        assert any(" INFO " in line and "gateway serves" in line for line in log(processes, "gateway"))
        assert any(" INFO " in line and "joined" in line for line in log(processes, worker.name))
        assert not any(" DEBUG " in line for node in ("gateway", worker.name) for line in log(processes, node))
