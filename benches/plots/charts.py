"""Draws the plot of each table."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from marks import bars, legend, level, lines
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results import Results, Spread, Variant

_PANEL_INCHES = (4.2, 3.4)
_BUDGET_MIB = 256 + 64


def draw(results: Results) -> Figure:
    """Returns the plot of a table."""
    if results.table not in _CHARTS:
        raise SystemExit(f"the table {results.table} has no chart; there are charts of {', '.join(_CHARTS)}")
    figure = _CHARTS[results.table](results)
    legend(figure)
    return figure


def panels(count: int, *, columns: int = 3, inches: tuple[float, float] = _PANEL_INCHES) -> tuple[Figure, list[Axes]]:
    """Creates a figure with this number of panels."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(figsize=(columns * inches[0], rows * inches[1]), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def grouped(variants: Iterable[Variant], parameter: str) -> dict[object, list[Variant]]:
    """Groups variants by the value of a parameter, in the order of the variants."""
    groups: dict[object, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(variant.parameters[parameter], []).append(variant)
    return groups


def over(variants: Iterable[Variant], parameter: str, metric: str) -> list[tuple[float, Spread]]:
    """Returns the points of a line."""
    return [
        (variant.parameters[parameter], variant.spread(metric)) for variant in variants if metric in variant.samples
    ]


def chunks(results: Results) -> Figure:
    """Draws one line per row width over the rows of a message. Volary's own chunking is a level in the same colour."""
    figure, (axes,) = panels(1, inches=(7, 4.5))
    widths = {f"{row_bytes:,} bytes": of for row_bytes, of in grouped(results.variants, "row_bytes").items()}
    fixed = {
        name: over((variant for variant in variants if not variant.parameters["chunked"]), "rows", "mb_per_s")
        for name, variants in widths.items()
    }
    colours = lines(axes, fixed, log_y=True)
    for name, variants in widths.items():
        for chunked in (variant for variant in variants if variant.parameters["chunked"]):
            axes.axhline(chunked.spread("mb_per_s").median, color=colours[name], linestyle="--", linewidth=1)
    axes.plot([], [], color="gray", linestyle="--", linewidth=1, label="chunked by Volary")
    axes.set_xlabel("rows per message")
    axes.set_ylabel("payload, MB/s")
    return figure


def readers(results: Results) -> Figure:
    """Draws one bar per number of partitions."""
    figure, (axes,) = panels(1, inches=(5, 3.8))
    by_partitions = {str(variant.parameters["partitions"]): variant for variant in results.variants}
    bars(
        axes,
        list(by_partitions),
        {"gather": {name: variant.spread("mb_per_s") for name, variant in by_partitions.items()}},
    )
    axes.set_xlabel("partitions of the gather")
    axes.set_ylabel("payload, MB/s")
    return figure


def fanout(results: Results) -> Figure:
    """Draws one panel per metric. Its bars are the ways, grouped by the answer of a worker."""
    labels = {
        "open_ms": "until all are open, ms",
        "read_ms": "reading, ms",
        "total_ms": "total, ms",
        "processor_us_per_stream": "processor time per stream, µs",
        "switches_per_stream": "context switches per stream",
        "peak_mib": "peak of the memory, MiB",
    }
    figure, all_axes = panels(len(labels))
    answers = grouped(results.variants, "answer")
    names = {answer: str(answer).replace(" of ", "\nof ") for answer in answers}
    for axes, (metric, label) in zip(all_axes, labels.items(), strict=True):
        series = {
            str(way): {names[variant.parameters["answer"]]: variant.spread(metric) for variant in variants}
            for way, variants in grouped(results.variants, "way").items()
        }
        bars(axes, list(names.values()), series)
        axes.set_ylabel(label)
        axes.tick_params(axis="x", labelsize=7)
    workers = results.variants[0].parameters["workers"]
    all_axes[0].set_title(f"{workers:,} workers", loc="left")
    return figure


def floor(results: Results) -> Figure:
    """Draws the processor time and the time of a query, compared with the transport alone."""
    figure, all_axes = panels(2)
    labels = {"processor_ms": "processor time per query, ms", "total_ms": "time per query, ms"}
    for axes, (metric, label) in zip(all_axes, labels.items(), strict=True):
        spreads = {variant.name.replace(" ", "\n"): variant.spread(metric) for variant in results.variants}
        bars(axes, list(spreads), {"query": spreads})
        axes.set_ylabel(label)
    return figure


def relays(results: Results) -> Figure:
    """Draws one panel per metric. Its bars are the settings, grouped by statement, as ratios to the setting off."""
    labels = {
        "gateway_processor_ms": "processor time of the gateway",
        "workers_processor_ms": "processor time of the workers",
        "p50_ms": "median time on one machine",
    }
    figure, all_axes = panels(len(labels))
    compared = [variant for variant in results.variants if variant.baseline is not None]
    names = {statement: str(statement).replace(" ", "\n") for statement in grouped(compared, "statement")}
    for axes, (metric, label) in zip(all_axes, labels.items(), strict=True):
        series = {
            str(setting): {
                names[variant.parameters["statement"]]: results.ratio(variant, metric) for variant in variants
            }
            for setting, variants in grouped(compared, "setting").items()
        }
        bars(axes, list(names.values()), series)
        level(axes, 1, "off")
        axes.set_ylabel(f"{label}, relative to off")
        axes.tick_params(axis="x", labelsize=7)
    workers = results.variants[0].parameters["workers"]
    all_axes[0].set_title(f"{workers:,} workers", loc="left")
    return figure


def point(results: Results) -> Figure:
    """Draws the latency over the number of clients, without the first questions to workers."""
    variants = [variant for variant in results.variants if "questions" not in variant.parameters]
    figure, all_axes = panels(2)
    for axes, metric in zip(all_axes, ("p50_ms", "p99_ms"), strict=True):
        series = {str(side): over(of, "clients", metric) for side, of in grouped(variants, "side").items()}
        lines(axes, series, log_y=True)
        axes.set_xlabel("clients")
        axes.set_ylabel(f"{metric.removesuffix('_ms')}, ms")
    return figure


def lookups(results: Results) -> Figure:
    """Draws keys per second over the keys of a batch, with a panel per number of clients."""
    by_clients = grouped(_with(results, "clients"), "clients")
    figure, all_axes = panels(len(by_clients), inches=(4.8, 3.8))
    for axes, (clients, variants) in zip(all_axes, by_clients.items(), strict=True):
        series = {str(way): over(of, "keys", "keys_per_s") for way, of in grouped(variants, "way").items()}
        lines(axes, series, log_y=True)
        axes.set_title(f"clients: {clients}")
        axes.set_xlabel("keys of a batch")
        axes.set_ylabel("keys per second")
    return figure


def lookups_in_process(results: Results) -> Figure:
    """Draws the same for one client, with a line per engine."""
    return lookups(results)


def point_load(results: Results) -> Figure:
    """Draws the questions that are answered per second, and what each costs the server and the clients."""
    figure, all_axes = panels(2)
    by_side = {str(variant.parameters["side"]): variant for variant in _with(results, "side")}
    rates = {side: variant.spread("queries_per_s") for side, variant in by_side.items()}
    bars(all_axes[0], list(by_side), {"queries": rates})
    all_axes[0].set_ylabel("queries per second")
    labels = {"server_ms": "server", "generator_ms": "clients"}
    processor = {
        label: {side: variant.spread(metric) for side, variant in by_side.items()} for metric, label in labels.items()
    }
    bars(all_axes[1], list(by_side), processor)
    all_axes[1].set_ylabel("processor time per query, ms")
    return figure


def groups(results: Results) -> Figure:
    """Draws memory and time over the number of groups: unlimited, limited, and with freed memory given back."""
    figure, all_axes = panels(2)
    labels = {"bytes_per_group": "growth of the gateway, bytes per group", "total_s": "time, s"}
    counts = [f"{count:,}" for count in grouped(results.variants, "groups")]
    for axes, (metric, label) in zip(all_axes, labels.items(), strict=True):
        series = {
            str(memory): {f"{variant.parameters['groups']:,}": variant.spread(metric) for variant in variants}
            for memory, variants in grouped(results.variants, "memory").items()
        }
        bars(axes, counts, series)
        axes.set_xlabel("groups")
        axes.set_ylabel(label)
    return figure


def slow_client(results: Results) -> Figure:
    """Draws the memory over the number of workers."""
    figure, (axes,) = panels(1, inches=(5, 3.8))
    lines(axes, {"growth": over(results.variants, "workers", "growth_mib")})
    level(axes, _BUDGET_MIB, "budget + 64 MiB")
    axes.set_xlabel("workers")
    axes.set_ylabel("growth of the gateway's peak, MiB")
    return figure


def concurrency(results: Results) -> Figure:
    """Draws the throughput, and the latency by kind of question, over the number of clients."""
    figure, all_axes = panels(3)
    lines(all_axes[0], {"all kinds": over(results.variants, "clients", "queries_per_s")})
    all_axes[0].set_ylabel("queries per second")
    for axes, percentile in zip(all_axes[1:], ("p50", "p99"), strict=True):
        suffix = f"_{percentile}_ms"
        kinds = [metric.removesuffix(suffix) for metric in results.metrics() if metric.endswith(suffix)]
        lines(axes, {kind: over(results.variants, "clients", kind + suffix) for kind in kinds}, log_y=True)
        axes.set_ylabel(f"{percentile}, ms")
    for axes in all_axes:
        axes.set_xlabel("clients")
    return figure


def observed(results: Results) -> Figure:
    """Draws one bar per way of watching the cluster."""
    figure, all_axes = panels(2)
    by_watched = {str(variant.parameters["watched"]): variant for variant in results.variants}
    drawn = [
        ("queries_per_s", "queries per second"),
        ("server_processor_ms_per_query", "processor time of the cluster, ms per query"),
    ]
    for axes, (metric, label) in zip(all_axes, drawn, strict=True):
        bars(axes, list(by_watched), {"all kinds": {name: it.spread(metric) for name, it in by_watched.items()}})
        axes.set_ylabel(label)
    return figure


def writes(results: Results) -> Figure:
    """Draws one panel per number of clients and metric. Its lines are the ways of writing over the rows of a batch."""
    counts = grouped(_with(results, "clients"), "clients")
    labels = {"rows_per_s": "rows per second", "p50_ms": "p50 of a batch, ms"}
    figure, all_axes = panels(len(counts) * len(labels), columns=len(counts))
    drawn = [(metric, clients) for metric in labels for clients in counts]
    for axes, (metric, clients) in zip(all_axes, drawn, strict=True):
        series = {str(way): over(variants, "rows", metric) for way, variants in grouped(counts[clients], "way").items()}
        lines(axes, series, log_y=True)
        axes.set_xlabel("rows of a batch")
        axes.set_ylabel(f"{labels[metric]}, clients: {clients}")
    return figure


def reading_while_writing(results: Results) -> Figure:
    """Draws one panel per kind of question and percentile, with and without writes."""
    figure, all_axes = panels(4, columns=2)
    by_writes = {str(variant.parameters["writes"]): variant for variant in _with(results, "writes")}
    names = {name: name.replace(" at ", "\nat ") for name in by_writes}
    metrics = [f"{kind}_{percentile}_ms" for kind in ("point", "group_by") for percentile in ("p50", "p99")]
    for axes, metric in zip(all_axes, metrics, strict=True):
        spreads = {names[name]: variant.spread(metric) for name, variant in by_writes.items()}
        bars(axes, list(spreads), {"queries": spreads})
        axes.set_ylabel(f"{metric.removesuffix('_ms').replace('_', ' ')}, ms")
    return figure


def many_inserts(results: Results) -> Figure:
    """Draws the time of a scan, and the segments and rows of the log that it reads."""
    figure, all_axes = panels(3, columns=1, inches=(7, 3))
    by_state = {str(variant.parameters["state"]).replace(", ", ",\n"): variant for variant in _with(results, "state")}
    labels = {"scan_ms": "scan, ms", "segments": "segments", "log_rows": "rows in the log"}
    for axes, (metric, label) in zip(all_axes, labels.items(), strict=True):
        bars(axes, list(by_state), {"scan": {name: it.spread(metric) for name, it in by_state.items()}})
        axes.set_ylabel(label)
    return figure


def sustained_writes(results: Results) -> Figure:
    """Draws the rate of a short and of a long time, and what the long time wrote."""
    figure, all_axes = panels(2, inches=(5, 3.8))
    by_what = {str(variant.parameters["what"]): variant for variant in _with(results, "what")}
    bars(all_axes[0], list(by_what), {"writes": {name: it.spread("rows_per_s") for name, it in by_what.items()}})
    all_axes[0].set_ylabel("rows per second")
    kinds = ["logged", "flushed", "written", "compacted", "waiting"]
    written = {kind: by_what["sustained"].spread(f"{kind}_mib") for kind in kinds}
    bars(all_axes[1], kinds, {"writes": written})
    all_axes[1].set_ylabel("MiB")
    return figure


def wide_insert(results: Results) -> Figure:
    """Draws the latency of an insert and what the gateway allocates for it, over the number of workers."""
    figure, all_axes = panels(2)
    measured = _with(results, "workers")
    labels = {"p50_ms": "p50, ms", "allocated_kib_per_insert": "allocated, KiB per insert"}
    for axes, (metric, label) in zip(all_axes, labels.items(), strict=True):
        spreads = {f"{variant.parameters['workers']:,}": variant.spread(metric) for variant in measured}
        bars(axes, list(spreads), {"insert": spreads})
        axes.set_xlabel("workers")
        axes.set_ylabel(label)
    return figure


def tpch(results: Results) -> Figure:
    """Draws the time of each query as a ratio to DataFusion's time."""
    return _queries(results)


def ballista(results: Results) -> Figure:
    """Draws the time of each query as a ratio to Ballista's time."""
    return _queries(results)


def jdbc_streaming(results: Results) -> Figure:
    """Draws one panel per network and metric. Its lines are the modes of the databases over the number of rows."""
    figure, all_axes = panels(6)
    networks = grouped(results.variants, "network")
    drawn = [
        (variants, "last_row_ms", f"time to the last row, {network}, ms") for network, variants in networks.items()
    ]
    at_hand = next(iter(networks.values()))
    drawn += [
        (at_hand, "first_row_ms", "time to the first row, ms"),
        (at_hand, "live_heap_mib", "live heap, MiB"),
        (at_hand, "outside_heap_mib", "memory that is not heap, MiB"),
    ]
    for axes, (variants, metric, label) in zip(all_axes, drawn, strict=False):
        series = {
            f"{database}, {mode}": over(of_mode, "rows", metric)
            for database, of_database in grouped(variants, "database").items()
            for mode, of_mode in grouped(of_database, "mode").items()
        }
        lines(axes, series, log_y=metric.endswith("_ms"))
        axes.set_xlabel("rows")
        axes.set_ylabel(label)
    for unused in all_axes[len(drawn) :]:
        unused.remove()
    return figure


def python_concurrency(results: Results) -> Figure:
    """Draws one panel per metric. Its bars are the clients, grouped by kind of pool or by question."""
    pools = [variant for variant in results.variants if "pool" in variant.parameters]
    askers = grouped((variant for variant in results.variants if "who" in variant.parameters), "who")
    drawn = [
        (pools, "pool", "requests_per_s", "pool: requests per second"),
        (pools, "pool", "p99_ms", "pool: p99, ms"),
        (pools, "pool", "pss_mib", "pool: memory, MiB"),
        (askers["one caller"], "question", "p50_ms", "one caller: p50, ms"),
        (askers["fresh process"], "question", "first_ms", "fresh process: first query, ms"),
        (askers["fresh process"], "question", "import_ms", "fresh process: import, ms"),
    ]
    figure, all_axes = panels(len(drawn))
    for axes, (variants, parameter, metric, label) in zip(all_axes, drawn, strict=True):
        series = {
            str(client): {str(variant.parameters[parameter]): variant.spread(metric) for variant in of_client}
            for client, of_client in grouped(variants, "client").items()
        }
        bars(axes, [str(group) for group in grouped(variants, parameter)], series)
        axes.set_ylabel(label)
    return figure


def drivers(results: Results) -> Figure:
    """Draws a column per form of the key, and a row per number of clients. Bars are the servers, grouped by driver."""
    points = [variant for variant in _with(results, "question") if variant.parameters["question"] == "point query"]
    forms, counts = grouped(points, "form"), grouped(points, "clients")
    drawn = [("server_ms", "processor time of the server, ms", clients) for clients in counts]
    drawn.append(("p50_ms", "p50, ms", next(iter(counts))))
    figure, all_axes = panels(len(drawn) * len(forms), columns=len(forms), inches=(7, 2.6))
    places = [(form, *row) for row in drawn for form in forms]
    for axes, (form, metric, label, clients) in zip(all_axes, places, strict=True):
        shown = [variant for variant in forms[form] if variant.parameters["clients"] == clients]
        names = {driver: str(driver).replace(" ", "\n", 1) for driver in grouped(shown, "driver")}
        series = {
            str(server): {names[variant.parameters["driver"]]: variant.spread(metric) for variant in of_server}
            for server, of_server in grouped(shown, "server").items()
        }
        bars(axes, list(names.values()), series)
        axes.set_ylabel(label)
        axes.set_title(f"{form}, clients: {clients}", loc="left", fontsize=9)
    return figure


def result_transfer(results: Results) -> Figure:
    """Draws the throughput of each way, and the parts of its processor time."""
    figure, all_axes = panels(2, columns=1, inches=(11, 3.6))
    ways = {variant.name: variant.name.replace(", ", "\n") for variant in results.variants}
    throughput = {ways[variant.name]: variant.spread("mb_per_s") for variant in results.variants}
    bars(all_axes[0], list(ways.values()), {"throughput": throughput})
    all_axes[0].set_ylabel("MB/s")
    labels = {"server_s": "gateway or bare server", "workers_s": "workers", "client_s": "client"}
    processor = {
        label: {ways[variant.name]: variant.spread(metric) for variant in results.variants}
        for metric, label in labels.items()
    }
    bars(all_axes[1], list(ways.values()), processor)
    all_axes[1].set_ylabel("processor time of 1,000 MB, s")
    return figure


def load(results: Results) -> Figure:
    """Draws the rows per second."""
    figure, (axes,) = panels(1, inches=(5, 3.8))
    spreads = {variant.name: variant.spread("rows_per_s") for variant in results.variants}
    bars(axes, list(spreads), {"load": spreads})
    axes.set_ylabel("rows per second")
    return figure


def _with(results: Results, parameter: str) -> list[Variant]:
    """Returns the variants that have this parameter."""
    return [variant for variant in results.variants if parameter in variant.parameters]


def _queries(results: Results) -> Figure:
    """Draws one bar per query, as a ratio to the other engine's time."""
    figure, (axes,) = panels(1, inches=(10, 3.8))
    ours = [variant for variant in results.variants if variant.baseline is not None]
    (other,) = {variant.parameters["engine"] for variant in results.variants if variant.baseline is None}
    ratios = {variant.parameters["query"]: results.ratio(variant, "total_ms") for variant in ours}
    bars(axes, list(ratios), {"ratio": ratios})
    level(axes, 1, other)
    axes.set_ylabel(f"time, relative to {other}")
    return figure


_CHARTS: dict[str, Callable[[Results], Figure]] = {
    chart.__name__: chart
    for chart in (
        chunks,
        readers,
        fanout,
        floor,
        relays,
        point,
        lookups,
        point_load,
        groups,
        slow_client,
        concurrency,
        observed,
        writes,
        reading_while_writing,
        many_inserts,
        sustained_writes,
        wide_insert,
        tpch,
        ballista,
        jdbc_streaming,
        python_concurrency,
        result_transfer,
        drivers,
        lookups_in_process,
        load,
    )
}
