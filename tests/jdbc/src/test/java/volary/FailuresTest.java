package volary;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests the errors of correct statements that get no place, run out of time, or need a lost worker. */
class FailuresTest {
  @TempDir private Path directory;

  @Test
  void noPlace() throws IOException, InterruptedException, SQLException {
    Map<String, String> settings =
        Map.of("VOLARY_GATEWAY__QUERY__MAX_RUNNING", "1", "VOLARY_GATEWAY__QUERY__MAX_WAITING", "0");
    try (VolaryCluster cluster = VolaryCluster.start(directory, settings);
        Connection first = cluster.connect();
        Connection second = cluster.connect();
        Statement statement = first.createStatement();
        ResultSet rows = statement.executeQuery("SELECT n FROM generate_series(1, 100000000000) t(n)")) {
      rows.next();
      Messages.of(() -> Rows.of(second, "SELECT count(*) FROM generate_series(1, 10) t(n)"))
          .contains("RESOURCE_EXHAUSTED: query ")
          .contains("too many statements: 1 running, 0 waiting; retry in about ");
    }
  }

  @Test
  void noTime() throws IOException, InterruptedException, SQLException {
    String fruitless =
        "SELECT a.n FROM generate_series(1, 10000000) a(n), generate_series(1, 10000000) b(n) WHERE a.n + b.n < 0";
    Map<String, String> settings = Map.of("VOLARY_GATEWAY__QUERY__TIMEOUT", "2s");
    try (VolaryCluster cluster = VolaryCluster.start(directory, settings);
        Connection connection = cluster.connect()) {
      Messages.of(() -> Rows.of(connection, fruitless))
          .contains("DEADLINE_EXCEEDED: query ")
          .contains("the statement was ended after 2s, gateway.query.timeout");
    }
  }

  @Test
  void aWorkerIsGone() throws IOException, InterruptedException, SQLException {
    Map<String, String> settings = Map.of("VOLARY_GATEWAY__GATHER__RETRY_FOR", "500ms");
    try (VolaryCluster cluster = VolaryCluster.startProcesses(directory, settings);
        Connection connection = cluster.connect()) {
      try (Statement statement = connection.createStatement()) {
        statement.executeUpdate("CREATE TABLE eggs AS SELECT value AS k FROM generate_series(1, 100)");
      }
      cluster.killAWorker();
      Messages.of(() -> Rows.of(connection, "SELECT sum(k) FROM eggs"))
          .contains("UNAVAILABLE: query ")
          .contains("worker w2 at 127.0.0.1:")
          .contains("the connection to the worker is lost; run the statement again");
    }
  }
}
