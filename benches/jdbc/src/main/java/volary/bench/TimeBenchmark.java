package volary.bench;

import java.sql.SQLException;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.AuxCounters;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * Measures the time to read rows. The modes take turns, one iteration each. If the machine is slow for a while, both
 * modes are measured slow. The first iteration measures the first mode.
 */
@State(Scope.Thread)
@BenchmarkMode(org.openjdk.jmh.annotations.Mode.SampleTime)
@OutputTimeUnit(TimeUnit.MILLISECONDS)
public class TimeBenchmark {
  @Param({"VOLARY"})
  public Database database;

  @Param({""})
  public String url;

  @Param({"1"})
  public int rows;

  private final Map<Mode, Query> queries = new EnumMap<>(Mode.class);
  private int iterations;
  private Query query;

  @Setup(Level.Trial)
  public void connect() throws SQLException {
    for (Mode mode : Mode.values()) {
      queries.put(mode, database.query(url, mode, rows));
    }
  }

  @Setup(Level.Iteration)
  public void turn() {
    query = queries.get(modeOf(iterations));
    iterations++;
    // The garbage of the other mode must not be collected during this iteration.
    System.gc();
  }

  @TearDown(Level.Trial)
  public void disconnect() throws SQLException {
    for (Query each : queries.values()) {
      each.close();
    }
  }

  @Benchmark
  public Object read(FirstRow firstRow) throws SQLException {
    Totals totals = new Totals();
    query.read(totals);
    totals.check(rows);
    firstRow.nanos.add((double) totals.firstRowNanos());
    return totals;
  }

  /** Returns the mode of an iteration. */
  static Mode modeOf(int iteration) {
    return Mode.values()[iteration % Mode.values().length];
  }

  /** The times of the first rows in an iteration. */
  @State(Scope.Thread)
  @AuxCounters(AuxCounters.Type.EVENTS)
  public static class FirstRow {
    private final List<Double> nanos = new ArrayList<>();

    @Setup(Level.Iteration)
    public void forget() {
      nanos.clear();
    }

    /** Returns the median. */
    public double firstRowNanos() {
      return Spread.of(nanos).median();
    }
  }
}
