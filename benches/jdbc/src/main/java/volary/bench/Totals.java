package volary.bench;

/** Reads each value of the rows, and measures when the first row comes. */
final class Totals implements RowConsumer {
  private final long start = System.nanoTime();
  private long firstRowNanos;
  private long rows;
  private long ids;
  private long characters;

  @Override
  public void accept(Row row) {
    if (rows == 0) {
      firstRowNanos = System.nanoTime() - start;
    }
    rows++;
    ids += row.id();
    characters += row.payload().length();
  }

  /** Returns the time from the creation of this object to the first row. */
  long firstRowNanos() {
    return firstRowNanos;
  }

  /** Fails unless the rows were the first {@code expected} rows of the table, each of them once. */
  void check(long expected) {
    boolean right = rows == expected && ids == expected * (expected + 1) / 2 && characters == expected * BenchRows.PAYLOAD_BYTES;
    if (!right) {
      throw new IllegalStateException(rows + " rows instead of " + expected + ", ids " + ids + ", characters " + characters);
    }
  }
}
