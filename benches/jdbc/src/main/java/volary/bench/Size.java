package volary.bench;

import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/** How large a run is. */
enum Size {
  /** So small that figures mean nothing: shows that everything works. */
  SMOKE(List.of(200), List.of(Network.LOCAL, Network.ONE_MS), 1, 1, 1, Duration.ofMillis(10)),
  /** A few minutes. */
  QUICK(List.of(1, 100, 100_000), List.of(Network.values()), 1, 3, 3, Duration.ofMillis(200)),
  /** What the figures are from. */
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

  /** How many rows queries have. */
  List<Integer> rows() {
    return rows;
  }

  /** As many as the largest query has. */
  int rowsOfTable() {
    return Collections.max(rows);
  }

  List<Network> networks() {
    return networks;
  }

  /** How often everything is measured, in new processes each time. */
  int rounds() {
    return rounds;
  }

  /** Turns of a process that are not counted: until its code is compiled. */
  int warmUpTurns(int rows) {
    return isLong(rows) ? 1 : warmUpTurns;
  }

  /** Turns of a process that are. */
  int turns(int rows) {
    return isLong(rows) ? Math.min(turns, 4) : turns;
  }

  /** How long a turn of one mode lasts; at least one query. */
  Duration time() {
    return time;
  }

  /** Such a query outlasts the time of a turn, and compiles its code while it runs. */
  private static boolean isLong(int rows) {
    return rows >= 1_000_000;
  }
}
