package volary.bench;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;

/** Memory of this process, as Linux counts it. */
final class ProcessMemory {
  private ProcessMemory() {}

  /** The peak of what is not heap: the JVM's own, code, and buffers. Holds only where all pages of the heap are touched from the start. */
  static long peakOutsideHeapBytes() throws IOException {
    long peakBytes = ProcFiles.kibibytes(Path.of("/proc/self/status"), "VmHWM") << 10;
    return peakBytes - ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getCommitted();
  }
}
