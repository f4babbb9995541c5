package volary;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;

/** A cluster in one process ({@code volary local}) or in several. Its gateway listens on loopback. */
public final class VolaryCluster implements AutoCloseable {
  private static final AtomicInteger NAMES = new AtomicInteger();

  private final VolaryProcess gateway;
  private final List<VolaryProcess> workers;

  private VolaryCluster(VolaryProcess gateway, List<VolaryProcess> workers) {
    this.gateway = gateway;
    this.workers = workers;
  }

  /** Starts a cluster of three workers in one process. Its files are below {@code directory}. */
  public static VolaryCluster start(Path directory) throws IOException, InterruptedException {
    return start(directory, Map.of());
  }

  /** Starts such a cluster with these settings, which are environment variables. */
  public static VolaryCluster start(Path directory, Map<String, String> settings)
      throws IOException, InterruptedException {
    VolaryProcess local = VolaryProcess.start(directory, "local", settings, "local", "--workers=3");
    return new VolaryCluster(local, List.of());
  }

  /** Starts a gateway and two workers, each in its own process, which a test can kill. */
  public static VolaryCluster startProcesses(Path directory, Map<String, String> settings)
      throws IOException, InterruptedException {
    VolaryCluster cluster =
        new VolaryCluster(VolaryProcess.start(directory, "gateway", settings, "gateway"), new ArrayList<>());
    try {
      for (String name : List.of("worker1", "worker2")) {
        String joined = "--gateway=" + cluster.address();
        cluster.workers.add(VolaryProcess.start(directory, name, settings, "worker", joined));
      }
    } catch (IOException | InterruptedException | RuntimeException failure) {
      cluster.close();
      throw failure;
    }
    return cluster;
  }

  /** Connects without credentials. */
  public Connection connect() throws SQLException {
    return connect(Map.of());
  }

  /** Connects with these properties of the driver. */
  public Connection connect(Map<String, String> properties) throws SQLException {
    Properties all = new Properties();
    all.setProperty("useEncryption", "false");
    all.putAll(properties);
    return DriverManager.getConnection("jdbc:arrow-flight-sql://" + address(), all);
  }

  /** Returns the URL that is all that a tool needs to connect without credentials. */
  public String url() {
    return "jdbc:arrow-flight-sql://" + address() + "?useEncryption=false";
  }

  /** Returns a name that no other test uses. */
  public static String newName(String what) {
    return what + "_" + NAMES.incrementAndGet();
  }

  /** Returns the host and port of the gateway. */
  public String address() {
    return gateway.address();
  }

  /** Kills the last worker. */
  public void killAWorker() throws InterruptedException {
    workers.get(workers.size() - 1).kill();
  }

  @Override
  public void close() {
    workers.forEach(VolaryProcess::close);
    gateway.close();
  }
}
