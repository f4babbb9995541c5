package volary.bench;

import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/** The size of a run. */
enum Size {
  /** Shows that everything works. The figures mean nothing. */
  SMOKE(List.of(200), List.of(Network.LOCAL, Network.ONE_MS), 1, 1, 1, Duration.ofMillis(10)),
  /** Takes a few minutes. */
  QUICK(List.of(1, 100, 100_000), List.of(Network.values()), 1, 3, 3, Duration.ofMillis(200)),
  /** The size of the published figures. */
  NORMAL(List.of(1, 10, 100, 1_000, 1_000_000), List.of(Network.values()), 2, 4, 5, Duration.ofMillis(300));

  private final List<Integer> rows;
  private final List<Network> networks;
  private final int rounds;
  private final int warmUpTurns;
  private final int turns;
  private final Duration time;

  Size(List<Integer> rows, List<Network> networks, int rounds, int warmUpTurns, int turns, Duration time) {
    this.rows = rows;
    this.networks = networks;
    this.rounds = rounds;
    this.warmUpTurns = warmUpTurns;
    this.turns = turns;
    this.time = time;
  }

  String label() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Returns the numbers of rows of the queries. */
  List<Integer> rows() {
    return rows;
  }

  /** Returns the number of rows of the table, which is that of the largest query. */
  int rowsOfTable() {
    return Collections.max(rows);
  }

  List<Network> networks() {
    return networks;
  }

  /** Returns how often all times are measured, each time in new processes. */
  int rounds() {
    return rounds;
  }

  /** Returns the number of first turns of a process, which are not counted because code is still compiled. */
  int warmUpTurns(int rows) {
    return isLong(rows) ? 1 : warmUpTurns;
  }

  /** Returns the number of counted turns of a process. */
  int turns(int rows) {
    return isLong(rows) ? Math.min(turns, 4) : turns;
  }

  /** Returns the duration of a turn of one mode. A turn has at least one query. */
  Duration time() {
    return time;
  }

  /** Returns whether a query takes longer than a turn. Its code is compiled while it runs. */
  private static boolean isLong(int rows) {
    return rows >= 1_000_000;
  }
}
