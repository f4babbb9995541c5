package volary.bench;

import java.lang.management.ManagementFactory;
import java.lang.management.MemoryMXBean;

/** Looks a few times, from the first row to the last one, at what a full collection leaves on the heap. */
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

  /** The most that there was. */
  long peakBytes() {
    return peakBytes;
  }
}
