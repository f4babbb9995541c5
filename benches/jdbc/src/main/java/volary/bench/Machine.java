package volary.bench;

import java.io.IOException;
import java.nio.file.Path;

/** The machine of a run. The memory is in bytes. */
record Machine(int cpus, String model, long memory, String os) {
  private static final String UNKNOWN = "unknown";

  static Machine current() throws IOException {
    String distribution = ProcFiles.value(Path.of("/etc/os-release"), "PRETTY_NAME", "=").orElse(UNKNOWN);
    return new Machine(
        Runtime.getRuntime().availableProcessors(),
        ProcFiles.value(Path.of("/proc/cpuinfo"), "model name", ":").orElse(UNKNOWN),
        ProcFiles.kibibytes(Path.of("/proc/meminfo"), "MemTotal") << 10,
        distribution.replace("\"", "") + ", Linux " + System.getProperty("os.version"));
  }
}
