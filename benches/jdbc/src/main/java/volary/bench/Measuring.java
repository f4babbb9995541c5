package volary.bench;

import java.io.IOException;
import java.sql.SQLException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.BenchmarkResult;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.ChainedOptionsBuilder;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;
import org.openjdk.jmh.util.Version;

/** Measures everything with JMH, which starts a new process for each measurement. */
final class Measuring {
  private static final String TITLE = "JDBC: rows one by one, beside all at once";
  private static final double NANOS_PER_MS = 1e6;
  private static final double KIB = 1 << 10;
  private static final double MIB = 1 << 20;
  private static final int MEMORY_TURNS = 3;
  /** A heap of fixed size, with room for more than twice a million rows. */
  private static final String[] JVM = {"-Xms1g", "-Xmx1g", "--add-opens=java.base/java.nio=ALL-UNNAMED"};
  /** Touches the whole heap at the start, so that memory that grows later is not heap. */
  private static final String TOUCHED = "-XX:+AlwaysPreTouch";

  private final Size size;
  private final Databases databases;
  private final Map<String, Variant> variants = new LinkedHashMap<>();

  Measuring(Size size, Databases databases) {
    this.size = size;
    this.databases = databases;
  }

  Table run() throws RunnerException, SQLException, IOException {
    for (int round = 0; round < size.rounds(); round++) {
      for (Network network : size.networks()) {
        for (int rows : size.rows()) {
          for (Database database : databases.running()) {
            measureTime(database, network, rows);
          }
        }
      }
    }
    for (int rows : size.rows()) {
      for (Database database : databases.running()) {
        for (Mode mode : Mode.values()) {
          measureMemory(database, mode, rows);
        }
      }
    }
    String date = Instant.now().truncatedTo(ChronoUnit.SECONDS).toString();
    return new Table(Table.NAME, TITLE, Method.TEXT, size.label(), Machine.current(), versions(), date, List.copyOf(variants.values()));
  }

  private void measureTime(Database database, Network network, int rows) throws RunnerException {
    TimeValue time = TimeValue.milliseconds(size.time().toMillis());
    int modes = Mode.values().length;
    ChainedOptionsBuilder options =
        options(TimeBenchmark.class, database, network, rows)
            .addProfiler(GCProfiler.class)
            .warmupIterations(modes * size.warmUpTurns(rows))
            .warmupTime(time)
            .measurementIterations(modes * size.turns(rows))
            .measurementTime(time);
    int iteration = 0;
    for (IterationResult result : iterations(options)) {
      Variant variant = variant(database, network, rows, TimeBenchmark.modeOf(iteration));
      variant.add("last_row_ms", result.getPrimaryResult().getStatistics().getPercentile(50));
      variant.add("first_row_ms", secondary(result, "firstRowNanos") / NANOS_PER_MS);
      variant.add("allocated_kib", secondary(result, "gc.alloc.rate.norm") / KIB);
      iteration++;
    }
    for (Mode mode : Mode.values()) {
      report(variant(database, network, rows, mode), "last_row_ms");
    }
  }

  private void measureMemory(Database database, Mode mode, int rows) throws RunnerException {
    ChainedOptionsBuilder options =
        options(MemoryBenchmark.class, database, Network.LOCAL, rows)
            .param("mode", mode.name())
            .jvmArgsAppend(TOUCHED)
            .warmupIterations(1)
            .measurementIterations(MEMORY_TURNS);
    Variant variant = variant(database, Network.LOCAL, rows, mode);
    for (IterationResult result : iterations(options)) {
      variant.add("live_heap_mib", secondary(result, "liveHeapBytes") / MIB);
      variant.add("outside_heap_mib", secondary(result, "outsideHeapBytes") / MIB);
    }
    report(variant, "live_heap_mib");
  }

  private ChainedOptionsBuilder options(Class<?> benchmark, Database database, Network network, int rows) {
    return new OptionsBuilder()
        .include("\\b" + benchmark.getSimpleName() + "\\b")
        .param("database", database.name())
        .param("url", databases.url(database, network))
        .param("rows", Integer.toString(rows))
        .forks(1)
        .jvmArgs(JVM)
        .shouldFailOnError(true)
        .verbosity(VerboseMode.SILENT);
  }

  private static List<IterationResult> iterations(ChainedOptionsBuilder options) throws RunnerException {
    RunResult run = new Runner(options.build()).runSingle();
    return run.getBenchmarkResults().stream().map(BenchmarkResult::getIterationResults).flatMap(results -> results.stream()).toList();
  }

  private static double secondary(IterationResult result, String name) {
    return result.getSecondaryResults().get(name).getScore();
  }

  private Variant variant(Database database, Network network, int rows, Mode mode) {
    return variants.computeIfAbsent(
        name(database, network, rows, mode),
        name -> {
          Map<String, Object> parameters = new TreeMap<>();
          parameters.put("database", database.label());
          parameters.put("mode", mode.label());
          parameters.put("network", network.label());
          parameters.put("rows", rows);
          if (database == Database.POSTGRESQL && mode == Mode.ROW_BY_ROW) {
            parameters.put("fetch_size", Database.fetchSize(rows));
          }
          return Variant.of(name, parameters, mode == Mode.AT_ONCE ? null : name(database, network, rows, Mode.AT_ONCE));
        });
  }

  private static String name(Database database, Network network, int rows, Mode mode) {
    String count = String.format(Locale.ROOT, rows == 1 ? "%,d row" : "%,d rows", rows);
    return count + ", " + network.label() + ", " + database.label() + ", " + mode.label();
  }

  private static void report(Variant variant, String metric) {
    Stream<Double> samples = variant.samples().get(metric).stream();
    System.err.println(variant.name() + ": " + metric + " " + samples.map(value -> String.format(Locale.ROOT, "%.2f", value)).toList());
  }

  private Map<String, String> versions() throws SQLException {
    Map<String, String> versions = new TreeMap<>(databases.versions());
    versions.put("java", System.getProperty("java.version"));
    versions.put("jmh", Version.getPlainVersion());
    return versions;
  }
}
