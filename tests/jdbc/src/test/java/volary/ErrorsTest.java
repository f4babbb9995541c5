package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests the errors of wrong statements. The driver has no SQL states or codes, so the text contains the code. */
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
        "SELECT * FROM no_such_table | NOT_FOUND | table \"no_such_table\" does not exist",
        "SELECT * FROM {t}s | NOT_FOUND | did you mean \"{t}\"?",
        "SELECT name FROM {t} WHERE k = = 1 | INVALID_ARGUMENT | Line: 1, Column: ",
        "SELECT 1 / (k - 1) FROM {t} | INVALID_ARGUMENT | Divide by zero",
        "SELECT no_such_function(k) FROM {t} | INVALID_ARGUMENT | no_such_function",
        "CREATE TABLE {t} (k BIGINT) WITH (shard_key = 'k') | ALREADY_EXISTS | {t}",
        "INSERT INTO {t} (k) VALUES (NULL) | INVALID_ARGUMENT | column k: a NULL in a column that is NOT NULL",
        "INSERT INTO {t} (k) VALUES (70000) | INVALID_ARGUMENT | column k",
        "COPY {t} FROM '/etc/passwd' | PERMISSION_DENIED | /etc/passwd",
        "SET no_such_setting = 1 | INVALID_ARGUMENT | there is no session setting no_such_setting",
        "DELETE FROM {t} | INVALID_ARGUMENT | not supported",
      })
  void anErrorHasACodeAndSaysWhatIsWrong(String sql, String code, String part) {
    Messages.of(() -> run(sql.replace("{t}", table)))
        .contains(code + ": query ")
        .contains(part.replace("{t}", table));
  }

  // The driver itself counts and converts parameters. If it cannot, it sends nothing, and the message is its own.

  @Test
  void aParameterThatIsMissingIsRefused() throws SQLException {
    // After this error, the driver leaks memory, and reports that when the connection is closed.
    Connection leaking = cluster.connect();
    String sql = "SELECT name FROM " + table + " WHERE k IN (?, ?)";
    try (PreparedStatement statement = leaking.prepareStatement(sql)) {
      statement.setLong(1, 1);
      Messages.of(statement::executeQuery).contains("\"typedValue\" is null");
    }
    assertThatThrownBy(leaking::close).hasMessageContaining("Memory was leaked");
  }

  @Test
  void aParameterTooManyIsRefused() throws SQLException {
    String sql = "SELECT name FROM " + table + " WHERE k IN (?, ?)";
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      Messages.of(() -> statement.setLong(3, 1)).contains("parameter ordinal 3 out of range");
    }
  }

  @Test
  void aTextThatIsNoNumberIsRefused() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement("SELECT name FROM " + table + " WHERE k = ?")) {
      statement.setString(1, "kea");
      Messages.of(statement::executeQuery).contains("Binding value of type STRING").contains("expected Arrow type Int");
    }
  }

  @Test
  void aValueThatIsTooLargeForItsColumnIsRefusedAndNotCut() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement("INSERT INTO " + table + " (k) VALUES (?)")) {
      statement.setInt(1, 70_000);
      Messages.of(statement::executeUpdate).contains("INVALID_ARGUMENT: query ").contains("column k").contains("70000");
    }
    assertThat(Rows.of(connection, "SELECT count(*) FROM " + table)).containsExactly(List.of(1L));
  }

  @Test
  void aConnectionWorksAfterAnError() throws SQLException {
    Messages.of(() -> run("SELEC 1")).contains("SELEC");
    assertThat(Rows.of(connection, "SELECT 42")).containsExactly(List.of(42L));
  }
}
