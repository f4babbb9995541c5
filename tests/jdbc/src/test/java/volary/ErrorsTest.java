package volary;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What users read when a statement is wrong: the driver has neither states nor codes, so the text has one. */
@ExtendWith(ClusterExtension.class)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class ErrorsTest {
  private final VolaryCluster cluster;
  private final String table = VolaryCluster.newName("kiwis");
  private Connection connection;

  ErrorsTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeAll
  void create() throws SQLException {
    connection = cluster.connect();
    run("CREATE TABLE " + table + " (k SMALLINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)");
    run("INSERT INTO " + table + " VALUES (1, 'kiwi')");
  }

  @AfterAll
  void drop() throws SQLException {
    run("DROP TABLE " + table);
    connection.close();
  }

  private void run(String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      if (statement.execute(sql)) {
        try (ResultSet rows = statement.getResultSet()) {
          Rows.of(rows);
        }
      }
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "SELEC 1 | INVALID_ARGUMENT | SELEC",
        "SELECT nme FROM {t} | NOT_FOUND | there is no column nme: did you mean name?",
        "SELECT * FROM no_such_table | NOT_FOUND | no_such_table",
        "SELECT 1 / (k - 1) FROM {t} | INVALID_ARGUMENT | Divide by zero",
        "SELECT no_such_function(k) FROM {t} | INVALID_ARGUMENT | no_such_function",
        "CREATE TABLE {t} (k BIGINT) WITH (shard_key = 'k') | ALREADY_EXISTS | {t}",
        "INSERT INTO {t} (k) VALUES (NULL) | INVALID_ARGUMENT | column k: a NULL in a column that is NOT NULL",
        "INSERT INTO {t} (k) VALUES (70000) | INVALID_ARGUMENT | 70000",
        "COPY {t} FROM '/etc/passwd' | PERMISSION_DENIED | /etc/passwd",
        "SET no_such_setting = 1 | INVALID_ARGUMENT | there is no session setting no_such_setting",
        "DELETE FROM {t} | INVALID_ARGUMENT | not supported",
      })
  void anErrorHasACodeAndSaysWhatIsWrong(String sql, String code, String part) {
    assertThatThrownBy(() -> run(sql.replace("{t}", table)))
        .isInstanceOf(SQLException.class)
        .hasStackTraceContaining(code + ": ")
        .hasStackTraceContaining(part.replace("{t}", table));
  }

  @Test
  void aParameterThatIsMissingIsSaid() throws SQLException {
    // The driver loses some of its own memory then, and says so when it is closed.
    Connection leaking = cluster.connect();
    String sql = "SELECT name FROM " + table + " WHERE k IN (?, ?)";
    try (PreparedStatement statement = leaking.prepareStatement(sql)) {
      statement.setLong(1, 1);
      assertThatThrownBy(statement::executeQuery).isInstanceOf(SQLException.class);
      assertThatThrownBy(() -> statement.setLong(3, 1)).isInstanceOf(SQLException.class);
    }
    assertThatThrownBy(leaking::close).hasMessageContaining("Memory was leaked");
  }

  @Test
  void aValueThatIsTooLargeForItsColumnIsRefusedAndNotCut() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement("INSERT INTO " + table + " (k) VALUES (?)")) {
      statement.setInt(1, 70_000);
      assertThatThrownBy(statement::executeUpdate)
          .hasStackTraceContaining("INVALID_ARGUMENT")
          .hasStackTraceContaining("70000");
    }
  }

  @Test
  void aTextThatIsNoNumberIsRefused() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement("SELECT name FROM " + table + " WHERE k = ?")) {
      statement.setString(1, "kea");
      assertThatThrownBy(statement::executeQuery).isInstanceOf(Exception.class);
    }
  }

  @Test
  void aConnectionWorksAfterAnError() throws SQLException {
    assertThatThrownBy(() -> run("SELEC 1")).isInstanceOf(SQLException.class);
    run("SELECT 1");
  }
}
