package volary.bench;

/** Processes rows: looks at each value, and at the clock when the first row comes. */
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

  /** From when this was made until the first row came. */
  long firstRowNanos() {
    return firstRowNanos;
  }

  /** Fails unless the rows were the first ones, each once. */
  void check(long expected) {
    boolean right = rows == expected && ids == expected * (expected + 1) / 2 && characters == expected * BenchRows.PAYLOAD_BYTES;
    if (!right) {
      throw new IllegalStateException(rows + " rows instead of " + expected + ", ids " + ids + ", characters " + characters);
    }
  }
}
