package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tests results that end before their last row, because of the client, a limit, a timeout or KILL. */
@ExtendWith(ClusterExtension.class)
class LimitsTest {
  private static final String ENDLESS = "SELECT value FROM generate_series(1, 100000000000) AS t (value)";
  /** Returns its only row after all rows are counted, which takes longer than any test. */
  private static final String SLOW = "SELECT count(*) FROM (" + ENDLESS + ") AS s WHERE value % 7 = 3";
  private static final Duration PATIENCE = Duration.ofSeconds(20);

  private final VolaryCluster cluster;

  LimitsTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @Test
  void maxRowsEndsAResult() throws SQLException {
    try (Connection connection = cluster.connect();
        Statement statement = connection.createStatement()) {
      statement.setMaxRows(3);
      try (ResultSet rows = statement.executeQuery("SELECT value FROM generate_series(1, 10) AS t (value) ORDER BY value")) {
        assertThat(Rows.of(rows)).containsExactly(List.of(1L), List.of(2L), List.of(3L));
      }
      awaitNothingRuns(connection);
    }
  }

  @Test
  void aResultThatIsClosedEarlyEndsItsQuery() throws SQLException {
    try (Connection connection = cluster.connect();
        Statement statement = connection.createStatement()) {
      try (ResultSet rows = statement.executeQuery(ENDLESS)) {
        assertThat(rows.next()).isTrue();
        assertThat(running(connection)).isEqualTo(1);
      }
      awaitNothingRuns(connection);
      assertThat(Rows.of(connection, "SELECT 1")).hasSize(1);
    }
  }

  @Test
  void cancelFromAnotherThreadEndsAQuery() throws Exception {
    try (Connection connection = cluster.connect();
        Connection watching = cluster.connect();
        Statement statement = connection.createStatement()) {
      FutureTask<Void> asked = new FutureTask<>(() -> readSlowly(statement), null);
      Thread asking = new Thread(asked);
      asking.start();
      await(() -> running(watching) == 1, "the query runs");
      // The driver ignores a cancellation that comes before it has the result, and loses the stream of one that comes
      // while it opens the stream.
      await(() -> waitsForRows(asking), "the driver waits for the first row");
      statement.cancel();
      assertThatThrownBy(() -> asked.get(PATIENCE.toSeconds(), TimeUnit.SECONDS)).isInstanceOf(ExecutionException.class);
      awaitNothingRuns(watching);
    }
  }

  @Test
  void killEndsAQueryOfAnotherConnection() throws Exception {
    try (Connection connection = cluster.connect();
        Connection killing = cluster.connect();
        Statement statement = connection.createStatement()) {
      CompletableFuture<Void> asked = CompletableFuture.runAsync(() -> readSlowly(statement));
      await(() -> running(killing) == 1, "the query runs");
      String id = "SELECT query_id FROM system.queries WHERE statement = '" + SLOW + "'";
      run(killing, "KILL '" + Rows.of(killing, id).get(0).get(0) + "'");
      assertThatThrownBy(() -> asked.get(PATIENCE.toSeconds(), TimeUnit.SECONDS))
          .hasStackTraceContaining("CANCELLED")
          .hasStackTraceContaining("KILL has ended it");
      assertThat(Rows.of(connection, "SELECT 1")).hasSize(1);
    }
  }

  private static void readSlowly(Statement statement) {
    try (ResultSet rows = statement.executeQuery(SLOW)) {
      rows.next();
    } catch (SQLException failure) {
      throw new IllegalStateException(failure);
    }
  }

  @Test
  void aQueryTimeoutOfTheDriverEndsTheWaitAndClosingTheStatementTheQuery() throws SQLException {
    try (Connection connection = cluster.connect();
        Connection watching = cluster.connect()) {
      try (Statement statement = connection.createStatement()) {
        statement.setQueryTimeout(1);
        assertThatThrownBy(() -> readSlowly(statement)).hasCauseInstanceOf(SQLException.class);
        // The driver stops waiting, but does not cancel the query.
        assertThat(running(watching)).isEqualTo(1);
      }
      awaitNothingRuns(watching);
    }
  }

  @Test
  void aStatementTimeoutOfTheSessionEndsTheQuery() throws SQLException {
    try (Connection connection = cluster.connect();
        Statement statement = connection.createStatement()) {
      statement.execute("SET statement_timeout = '300ms'");
      assertThatThrownBy(() -> readSlowly(statement))
          .hasStackTraceContaining("DEADLINE_EXCEEDED")
          .hasStackTraceContaining("the session's statement_timeout; set a longer one");
      awaitNothingRuns(connection);
    }
  }

  @Test
  void killSaysWhatDoesNotRun() throws SQLException {
    try (Connection connection = cluster.connect()) {
      assertThatThrownBy(() -> run(connection, "KILL '01a202fc-1bb5-72cc-a89c-4d71eb85f416'"))
          .hasStackTraceContaining("NOT_FOUND")
          .hasStackTraceContaining("does not run here");
      assertThatThrownBy(() -> run(connection, "KILL 7"))
          .hasStackTraceContaining("write KILL [QUERY] 'id', with an id from system.queries");
    }
  }

  private static boolean waitsForRows(Thread asking) {
    return Stream.of(asking.getStackTrace())
        .anyMatch(call -> call.getClassName().endsWith("FlightEndpointDataQueue") && call.getMethodName().equals("next"));
  }

  private static void run(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.executeUpdate(sql);
    }
  }

  private static void awaitNothingRuns(Connection connection) throws SQLException {
    await(() -> running(connection) == 0, "all queries have ended");
  }

  /** Returns the number of running statements that use generate_series. */
  private static long running(Connection connection) throws SQLException {
    String sql = "SELECT count(*) FROM system.queries WHERE statement LIKE '%generate_series%' AND statement NOT LIKE '%system.queries%'";
    return (Long) Rows.of(connection, sql).get(0).get(0);
  }

  /** A condition whose check runs a query, which may fail. */
  @FunctionalInterface
  private interface Condition {
    boolean holds() throws SQLException;
  }

  private static void await(Condition condition, String what) throws SQLException {
    Instant deadline = Instant.now().plus(PATIENCE);
    while (!condition.holds()) {
      assertThat(Instant.now()).as("not in time: " + what).isBefore(deadline);
      Thread.onSpinWait();
    }
  }
}
