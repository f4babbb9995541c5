package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests rows that come directly from the workers, in a cluster with users. */
class DirectResultsTest {
  private static final String ADMIN_PASSWORD = "correct horse battery";
  private static final int ROWS = 30_000;

  @TempDir private static Path directory;
  private static VolaryCluster cluster;

  @BeforeAll
  static void start() throws IOException, InterruptedException, SQLException {
    Map<String, String> settings =
        Map.of(
            "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD", ADMIN_PASSWORD,
            "VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL", "50ms");
    cluster = VolaryCluster.start(directory, settings);
    try (Connection connection = connect(Map.of());
        Statement statement = connection.createStatement()) {
      statement.executeUpdate("CREATE TABLE eggs (k BIGINT, name VARCHAR) WITH (shard_key = 'k', shards = 8)");
      statement.executeUpdate("INSERT INTO eggs SELECT value, 'egg ' || value FROM generate_series(1, " + ROWS + ")");
    }
    // The gateway knows the workers' addresses for clients only after the workers' reports.
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (sentByTheGateway("SELECT k FROM eggs", Map.of()) > 0) {
      assertThat(System.nanoTime()).isLessThan(deadline);
    }
  }

  @AfterAll
  static void stop() {
    cluster.close();
  }

  @Test
  void allRowsComeFromTheWorkers() throws SQLException {
    try (Connection connection = direct(Map.of());
        Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("SELECT k, name FROM eggs")) {
      long sum = 0;
      int count = 0;
      while (rows.next()) {
        assertThat(rows.getString("name")).isEqualTo("egg " + rows.getLong("k"));
        sum += rows.getLong("k");
        count++;
      }
      assertThat(count).isEqualTo(ROWS);
      assertThat(sum).isEqualTo((long) ROWS * (ROWS + 1) / 2);
    }
    assertThat(sentByTheGateway("SELECT name FROM eggs", Map.of())).isZero();
  }

  @Test
  void withAPoolOfThreads() throws SQLException {
    assertThat(sentByTheGateway("SELECT name, k FROM eggs", Map.of("threadPoolSize", "4"))).isZero();
  }

  @Test
  void byToken() throws SQLException {
    String token;
    try (Connection connection = connect(Map.of());
        Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("CREATE TOKEN direct VALID FOR '1 day'")) {
      rows.next();
      token = rows.getString("token");
    }
    Map<String, String> shown = Map.of("token", token, "volary-direct-results", "on", "volary-query-tag", "byToken");
    try (Connection connection = cluster.connect(shown);
        PreparedStatement statement = connection.prepareStatement("SELECT k FROM eggs WHERE k > ?")) {
      statement.setLong(1, ROWS - 10);
      try (ResultSet rows = statement.executeQuery()) {
        int count = 0;
        while (rows.next()) {
          count++;
        }
        assertThat(count).isEqualTo(10);
      }
    }
  }

  @Test
  void whatIsSortedComesFromTheGateway() throws SQLException {
    assertThat(sentByTheGateway("SELECT k FROM eggs ORDER BY k", Map.of())).isPositive();
  }

  @Test
  void rowsOfWorkersThatAreNotReachedComeFromTheGateway(@TempDir Path elsewhere)
      throws IOException, InterruptedException, SQLException {
    AtomicInteger tried = new AtomicInteger();
    try (ServerSocket nobody = new ServerSocket(0, 0, InetAddress.getLoopbackAddress())) {
      new Thread(() -> hangUp(nobody, tried)).start();
      Map<String, String> settings =
          Map.of(
              "VOLARY_WORKER__CLIENTS__ADVERTISE", "127.0.0.1:" + nobody.getLocalPort(),
              "VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL", "50ms");
      try (VolaryCluster unreached = VolaryCluster.startProcesses(elsewhere, settings);
          Connection connection = unreached.connect(Map.of("volary-direct-results", "on"))) {
        try (Statement statement = connection.createStatement()) {
          statement.executeUpdate("CREATE TABLE eggs AS SELECT value AS k FROM generate_series(1, 100)");
        }
        // The gateway sends no client to a worker that has not reported.
        String unreported = "SELECT id FROM system.nodes WHERE role = 'worker' AND rows IS NULL";
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!Rows.of(connection, unreported).isEmpty()) {
          assertThat(System.nanoTime()).isLessThan(deadline);
        }
        assertThat(Rows.of(connection, "SELECT k FROM eggs")).hasSize(100);
        assertThat(tried).hasPositiveValue();
      }
    }
  }

  /** Closes every connection as soon as it is accepted. */
  private static void hangUp(ServerSocket nobody, AtomicInteger tried) {
    try {
      while (true) {
        nobody.accept().close();
        tried.incrementAndGet();
      }
    } catch (IOException closed) {
      // The test is over.
    }
  }

  @Test
  void anErrorOfAWorkerIsTold() throws SQLException {
    try (Connection connection = direct(Map.of());
        Statement statement = connection.createStatement()) {
      assertThatThrownBy(
              () -> {
                try (ResultSet rows = statement.executeQuery("SELECT 1 / (k - 5) AS q FROM eggs")) {
                  while (rows.next()) {
                    rows.getLong("q");
                  }
                }
              })
          .hasStackTraceContaining("Divide by zero");
    }
  }

  /** Runs a statement that asks for direct results, and returns how many bytes of rows the gateway sent for it. */
  private static long sentByTheGateway(String sql, Map<String, String> properties) throws SQLException {
    String tag = "sent-" + System.nanoTime();
    Map<String, String> tagged = new HashMap<>(properties);
    tagged.put("volary-query-tag", tag);
    try (Connection connection = direct(tagged);
        Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(sql)) {
      while (rows.next()) {
        rows.getObject(1);
      }
    }
    String asked = "SELECT sum(sent_bytes), count(*) FROM system.query_log WHERE query_tag = '" + tag + "'";
    try (Connection connection = connect(Map.of());
        Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(asked)) {
      rows.next();
      assertThat(rows.getLong(2)).isPositive();
      return rows.getLong(1);
    }
  }

  private static Connection direct(Map<String, String> properties) throws SQLException {
    Map<String, String> all = new HashMap<>(properties);
    all.put("volary-direct-results", "on");
    return connect(all);
  }

  private static Connection connect(Map<String, String> properties) throws SQLException {
    Map<String, String> all = new HashMap<>(properties);
    all.put("user", "admin");
    all.put("password", ADMIN_PASSWORD);
    return cluster.connect(all);
  }
}
