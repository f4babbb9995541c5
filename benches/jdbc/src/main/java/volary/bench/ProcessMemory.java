package volary.bench;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;

/** The memory of this process, as Linux counts it. */
final class ProcessMemory {
  private ProcessMemory() {}

  /**
   * Returns the peak of the memory outside the heap: that of the JVM, code and buffers. It is right only if all pages
   * of the heap are touched at the start.
   */
  static long peakOutsideHeapBytes() throws IOException {
    long peakBytes = ProcFiles.kibibytes(Path.of("/proc/self/status"), "VmHWM") << 10;
    return peakBytes - ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getCommitted();
  }
}
