package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.sql.Connection;
import java.sql.Date;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.Calendar;
import java.util.List;
import java.util.TimeZone;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Shows what release 18.3.0 of the driver does wrong with any server, and tools have to live with. If a test fails with
 * another release, docs/clients has a sentence too many.
 */
@ExtendWith(ClusterExtension.class)
class DriverFaultsTest {
  private static final String INSERT = "INSERT INTO %s (k, day, seen) VALUES (?, ?, ?)";

  private final VolaryCluster cluster;
  private final String table = VolaryCluster.newName("faults");
  private Connection connection;

  DriverFaultsTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeEach
  void create() throws SQLException {
    connection = cluster.connect();
    run("CREATE TABLE " + table + " (k BIGINT NOT NULL, day DATE, seen TIMESTAMP, price DECIMAL(8, 3))");
  }

  @AfterEach
  void drop() throws SQLException {
    run("DROP TABLE " + table);
    connection.close();
  }

  private void run(String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(sql);
    }
  }

  @Test
  void executeOfAPreparedInsertHasAResultInsteadOfACount() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement("INSERT INTO " + table + " (k) VALUES (?)")) {
      statement.setLong(1, 1);
      assertThat(statement.execute()).isTrue();
      assertThat(statement.getUpdateCount()).isEqualTo(-1);
    }
    assertThat(Rows.of(connection, "SELECT k FROM " + table)).containsExactly(List.of(1L));
  }

  @Test
  void executeOfAPreparedStatementThrowsWhatIsNoSqlException() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement("INSERT INTO " + table + " (k) VALUES (NULL)")) {
      assertThatThrownBy(statement::execute).isInstanceOf(RuntimeException.class).hasMessageContaining("a NULL in a column that is NOT NULL");
      assertThatThrownBy(statement::executeUpdate).isInstanceOf(SQLException.class);
    }
  }

  @Test
  void errorsHaveNoSqlstate() {
    assertThatThrownBy(() -> run("SELECT 1 FROM nowhere"))
        .isInstanceOfSatisfying(SQLException.class, failure -> assertThat(failure.getSQLState()).isNull());
  }

  @Test
  void namesAreSaidToBeStoredInUpperCase() throws SQLException {
    assertThat(connection.getMetaData().storesUpperCaseIdentifiers()).isTrue();
    try (ResultSet tables = connection.getMetaData().getTables(null, null, table.toUpperCase(), null)) {
      assertThat(Rows.of(tables)).isEmpty();
    }
  }

  @Test
  void columnsOfResultsAreSaidToBeUnsignedAndNeverNull() throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("SELECT k, day FROM " + table)) {
      assertThat(rows.getMetaData().isSigned(1)).isFalse();
      assertThat(rows.getMetaData().isNullable(2)).isEqualTo(ResultSetMetaData.columnNoNulls);
    }
  }

  @Test
  void generatedKeysAreRefused() {
    assertThatThrownBy(() -> connection.prepareStatement("INSERT INTO " + table + " (k) VALUES (1)", Statement.RETURN_GENERATED_KEYS))
        .isInstanceOf(SQLFeatureNotSupportedException.class);
  }

  @Test
  void aTimestampIsSentWithMilliseconds() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(INSERT.formatted(table))) {
      statement.setLong(1, 1);
      statement.setDate(2, null);
      statement.setTimestamp(3, Timestamp.valueOf("2024-05-06 07:08:09.123456"), Calendar.getInstance(TimeZone.getTimeZone("UTC")));
      statement.executeUpdate();
    }
    assertThat((String) Rows.of(connection, "SELECT CAST(seen AS VARCHAR) FROM " + table).get(0).get(0)).endsWith(".123");
    run("INSERT INTO " + table + " (k, seen) VALUES (2, TIMESTAMP '2024-05-06 07:08:09.123456')");
    assertThat((String) Rows.of(connection, "SELECT CAST(seen AS VARCHAR) FROM " + table + " WHERE k = 2").get(0).get(0)).endsWith(".123456");
  }

  @Test
  void aNullIsNoLocalDate() throws SQLException {
    run("INSERT INTO " + table + " (k) VALUES (1)");
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("SELECT day FROM " + table)) {
      rows.next();
      assertThat(rows.getDate(1)).isNull();
      assertThatThrownBy(() -> rows.getObject(1, LocalDate.class)).isInstanceOf(NullPointerException.class);
    }
  }

  @Test
  void aParameterThatIsRefusedLeaksSoThatCloseFails() throws SQLException {
    for (Object wrong : List.of(LocalDate.EPOCH, LocalDateTime.MIN, new Timestamp(0))) {
      Connection other = cluster.connect();
      try (PreparedStatement statement = other.prepareStatement("INSERT INTO " + table + " (k, day) VALUES (?, ?)")) {
        statement.setLong(1, 1);
        statement.setObject(2, wrong);
        assertThatThrownBy(statement::executeUpdate).hasStackTraceContaining("not yet supported for expected Arrow type Date(DAY)");
      }
      assertThatThrownBy(other::close).hasStackTraceContaining("Memory was leaked");
    }
  }

  @Test
  void aResultThatIsNotClosedMakesCloseFail() throws SQLException {
    Connection other = cluster.connect();
    other.getMetaData().getSchemas();
    assertThatThrownBy(other::close).hasStackTraceContaining("Memory was leaked");
  }

  @Test
  void datesAreSet() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(INSERT.formatted(table))) {
      statement.setLong(1, 1);
      statement.setDate(2, Date.valueOf("2024-05-06"));
      statement.setTimestamp(3, null);
      statement.executeUpdate();
    }
    assertThat(Rows.of(connection, "SELECT CAST(day AS VARCHAR), seen IS NULL FROM " + table)).containsExactly(List.of("2024-05-06", true));
  }
}
