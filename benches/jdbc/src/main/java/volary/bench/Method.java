package volary.bench;

/** Describes the benchmark for readers of the results. */
final class Method {
  static final String TEXT =
      String.join(
          " ",
          "SELECT id, payload FROM bench_rows WHERE id <= 1 (to 1,000,000, which is all rows), prepared once and executed again and again on",
          "a connection of its own; rows are a BIGINT and a text of 200 bytes. JMH measures in processes of their own. Volary is `volary",
          "local`, a gateway and four workers in one process; the table has a shard on each. PostgreSQL is the installed one, as initdb makes",
          "it; the table has a primary key. Both listen on loopback, have loaded the same file, and have their defaults. At once: all rows",
          "are in memory before the first one is processed. Volary's driver always hands rows on as they come, so that the program collects",
          "them in a list; pgjdbc by itself reads all of them before it returns. Row by row: each row is processed as next() yields it.",
          "pgjdbc needs autocommit off, with a transaction that stays open, and a fetch size: 100 for up to 1,000 rows, 10,000 for more, as",
          "each fetch is a round trip. To process a row is to make a record of its values and to look at each. 1 ms, 10 ms: through a TCP",
          "proxy that adds this to a round trip, half of it each way, and does not limit how much flows, but needs processor time. Both modes",
          "take turns in one process, each after a full collection; another round has new processes. A turn's time is the median of its",
          "executions: last_row_ms until the last row has been processed, first_row_ms until the first one is. allocated_kib is what an",
          "execution allocates on the heap (JMH's gc profiler). Memory is measured in other processes, one for each mode, of which no time is",
          "taken: live_heap_mib is the most that a full collection leaves, at the first row, at each fifth of the rows and at the last one;",
          "outside_heap_mib is the peak of the real memory that is not heap: the JVM's own, code, and the driver's buffers.");

  private Method() {}
}
