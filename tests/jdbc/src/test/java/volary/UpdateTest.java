package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tests statements that write. Each must run once, however the driver sends it, and return the right count. */
@ExtendWith(ClusterExtension.class)
class UpdateTest {
  private final VolaryCluster cluster;
  private final String table = VolaryCluster.newName("birds");
  private Connection connection;
  private Statement statement;

  UpdateTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeEach
  void create() throws SQLException {
    connection = cluster.connect();
    statement = connection.createStatement();
    String sql = "CREATE TABLE " + table + " (k BIGINT, name VARCHAR) WITH (shard_key = 'k', shards = 8)";
    assertThat(statement.executeUpdate(sql)).isZero();
  }

  @AfterEach
  void drop() throws SQLException {
    statement.execute("DROP TABLE IF EXISTS " + table);
    statement.close();
    connection.close();
  }

  private Object count() throws SQLException {
    return Rows.of(connection, "SELECT count(*) FROM " + table).get(0).get(0);
  }

  @Test
  void executeUpdateSaysHowManyRowsWereWritten() throws SQLException {
    assertThat(statement.executeUpdate("INSERT INTO " + table + " VALUES (1, 'kea'), (2, 'kaka')")).isEqualTo(2);
    assertThat(statement.executeLargeUpdate("INSERT INTO " + table + " SELECT k + 10, name FROM " + table)).isEqualTo(2);
    assertThat(count()).isEqualTo(4L);
  }

  @Test
  void executeRunsAnInsertOnce() throws SQLException {
    assertThat(statement.execute("INSERT INTO " + table + " VALUES (1, 'kea')")).isFalse();
    assertThat(statement.getUpdateCount()).isEqualTo(1);
    assertThat(statement.getMoreResults()).isFalse();
    assertThat(count()).isEqualTo(1L);
  }

  @Test
  void executeOfAQueryHasRows() throws SQLException {
    assertThat(statement.execute("SELECT 1 AS n")).isTrue();
    try (ResultSet rows = statement.getResultSet()) {
      assertThat(Rows.of(rows)).containsExactly(List.of(1L));
    }
  }

  @Test
  void aBatchOfStatementsFailsInTheDriver() throws SQLException {
    statement.addBatch("INSERT INTO " + table + " VALUES (1, 'kea')");
    assertThatThrownBy(statement::executeBatch).isInstanceOf(NullPointerException.class);
    assertThat(count()).isEqualTo(0L);
  }

  @Test
  void aTableIsDroppedAndThenNotThere() throws SQLException {
    assertThat(statement.executeUpdate("DROP TABLE " + table)).isZero();
    assertThatThrownBy(this::count).hasStackTraceContaining("NOT_FOUND").hasStackTraceContaining(table);
  }

  @Test
  void aViewIsMadeReadAndDropped() throws SQLException {
    statement.executeUpdate("INSERT INTO " + table + " VALUES (1, 'kea'), (2, 'kaka')");
    String view = table + "_view";
    statement.executeUpdate("CREATE VIEW " + view + " AS SELECT name FROM " + table + " WHERE k = 1");
    assertThat(Rows.of(connection, "SELECT * FROM " + view)).containsExactly(List.of("kea"));
    statement.executeUpdate("DROP VIEW " + view);
  }

  @Test
  void aSettingHoldsForItsConnectionAlone() throws SQLException {
    statement.execute("SET timezone = '+02:00'");
    assertThat(Rows.of(connection, "SHOW timezone").get(0)).contains("+02:00");
    try (Connection other = cluster.connect()) {
      assertThat(Rows.of(other, "SHOW timezone").get(0)).doesNotContain("+02:00");
    }
  }

  @Test
  void poolsThatTidyUpAreNotStopped() throws SQLException {
    connection.setAutoCommit(false);
    statement.executeUpdate("INSERT INTO " + table + " VALUES (1, 'kea')");
    connection.commit();
    connection.setAutoCommit(true);
    for (String sql : List.of("BEGIN", "SELECT 1", "COMMIT", "ROLLBACK", "USE public", "USE volary.public;")) {
      statement.execute(sql);
    }
    assertThat(count()).isEqualTo(1L);
  }

  @Test
  void aRollbackOfWhatIsCommittedIsRefused() throws SQLException {
    statement.execute("BEGIN");
    statement.executeUpdate("INSERT INTO " + table + " VALUES (1, 'kea')");
    assertThatThrownBy(() -> statement.execute("ROLLBACK"))
        .hasStackTraceContaining("each statement commits by itself, and 1 since BEGIN made changes");
    assertThat(count()).isEqualTo(1L);
  }
}
