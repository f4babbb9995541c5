package volary.bench;

import java.io.IOException;
import java.sql.SQLException;
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

/** Measures the memory to read rows, but not the time, which includes full collections. A process runs one mode. */
@State(Scope.Thread)
@BenchmarkMode(org.openjdk.jmh.annotations.Mode.SingleShotTime)
@OutputTimeUnit(TimeUnit.MILLISECONDS)
public class MemoryBenchmark {
  @Param({"VOLARY"})
  public Database database;

  @Param({"ROW_BY_ROW"})
  public Mode mode;

  @Param({""})
  public String url;

  @Param({"1"})
  public int rows;

  private Query query;

  @Setup(Level.Trial)
  public void connect() throws SQLException {
    query = database.query(url, mode, rows);
  }

  @TearDown(Level.Trial)
  public void disconnect() throws SQLException {
    query.close();
  }

  @Benchmark
  public void read(Memory memory) throws SQLException, IOException {
    LiveHeap liveHeap = new LiveHeap(rows);
    query.read(liveHeap);
    memory.liveHeapBytes = liveHeap.peakBytes();
    memory.outsideHeapBytes = ProcessMemory.peakOutsideHeapBytes();
  }

  /** The reported values. */
  @State(Scope.Thread)
  @AuxCounters(AuxCounters.Type.EVENTS)
  public static class Memory {
    public long liveHeapBytes;
    public long outsideHeapBytes;
  }
}
