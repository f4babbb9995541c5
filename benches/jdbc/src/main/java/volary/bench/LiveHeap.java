package volary.bench;

import java.lang.management.ManagementFactory;
import java.lang.management.MemoryMXBean;

/** Measures the heap after full collections, a few times from the first row to the last. */
final class LiveHeap implements RowConsumer {
  private static final int LOOKS = 5;
  private static final MemoryMXBean MEMORY = ManagementFactory.getMemoryMXBean();

  private final long rows;
  private final long rowsBetween;
  private long row;
  private long peakBytes;

  LiveHeap(long rows) {
    this.rows = rows;
    this.rowsBetween = Math.max(1, rows / LOOKS);
  }

  @Override
  public void accept(Row ignored) {
    row++;
    if (row == 1 || row == rows || row % rowsBetween == 0) {
      System.gc();
      peakBytes = Math.max(peakBytes, MEMORY.getHeapMemoryUsage().getUsed());
    }
  }

  /** Returns the largest measured size. */
  long peakBytes() {
    return peakBytes;
  }
}
