package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Date;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tests queries and writes with parameters. */
@ExtendWith(ClusterExtension.class)
class PreparedStatementTest {
  private static final String COLUMNS =
      "(k BIGINT NOT NULL, name VARCHAR, price DOUBLE, cost DECIMAL(10, 2), day DATE, moment TIMESTAMP)";

  private final VolaryCluster cluster;
  private final String table = VolaryCluster.newName("nests");
  private Connection connection;

  PreparedStatementTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeEach
  void create() throws SQLException {
    connection = cluster.connect();
    update("CREATE TABLE " + table + " " + COLUMNS + " WITH (shard_key = 'k', shards = 8)");
  }

  @AfterEach
  void drop() throws SQLException {
    update("DROP TABLE " + table);
    connection.close();
  }

  private int update(String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      return statement.executeUpdate(sql);
    }
  }

  private List<List<Object>> rows(String query) throws SQLException {
    return Rows.of(connection, query);
  }

  private PreparedStatement insert() throws SQLException {
    return connection.prepareStatement("INSERT INTO " + table + " VALUES (?, ?, ?, ?, ?, ?)");
  }

  private void fill() throws SQLException {
    update("INSERT INTO " + table + " (k, name) VALUES (1, 'kea'), (2, 'kaka'), (3, NULL)");
  }

  @Test
  void aQueryIsRunWithOneRowOfParametersAfterTheOther() throws SQLException {
    fill();
    String sql = "SELECT name FROM " + table + " WHERE k = ? AND name LIKE ?";
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      for (Object[] found : new Object[][] {{1L, "k%", "kea"}, {2L, "%aka", "kaka"}, {2L, "x%", null}}) {
        statement.setLong(1, (Long) found[0]);
        statement.setString(2, (String) found[1]);
        try (ResultSet rows = statement.executeQuery()) {
          assertThat(rows.next()).isEqualTo(found[2] != null);
          if (found[2] != null) {
            assertThat(rows.getString(1)).isEqualTo(found[2]);
          }
        }
      }
    }
  }

  @Test
  void itSaysWhatItsParametersAndColumnsAre() throws SQLException {
    String sql = "SELECT name, price FROM " + table + " WHERE k = ? AND day > ?";
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      ParameterMetaData parameters = statement.getParameterMetaData();
      assertThat(parameters.getParameterCount()).isEqualTo(2);
      assertThat(parameters.getParameterType(1)).isEqualTo(Types.BIGINT);
      assertThat(parameters.getParameterType(2)).isEqualTo(Types.DATE);
      assertThat(statement.getMetaData().getColumnCount()).isEqualTo(2);
      assertThat(statement.getMetaData().getColumnName(2)).isEqualTo("price");
    }
  }

  @Test
  void aParameterHasTheTypeOfItsPlace() throws SQLException {
    fill();
    String sql = "SELECT k, CAST(? AS DATE), COALESCE(name, ?), substr('kea', ?) FROM " + table
        + " ORDER BY k OFFSET ? ROWS FETCH NEXT ? ROWS ONLY";
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      ParameterMetaData parameters = statement.getParameterMetaData();
      int[] expected = {Types.DATE, Types.VARCHAR, Types.BIGINT, Types.BIGINT, Types.BIGINT};
      for (int parameter = 1; parameter <= expected.length; parameter++) {
        assertThat(parameters.getParameterType(parameter)).isEqualTo(expected[parameter - 1]);
      }
      statement.setDate(1, Date.valueOf("2026-11-22"));
      statement.setString(2, "moa");
      statement.setInt(3, 2);
      statement.setInt(4, 1);
      statement.setLong(5, 2);
      try (ResultSet rows = statement.executeQuery()) {
        assertThat(Rows.of(rows))
            .containsExactly(
                List.of(2L, Date.valueOf("2026-11-22"), "kaka", "ea"),
                List.of(3L, Date.valueOf("2026-11-22"), "moa", "ea"));
      }
    }
  }

  @Test
  void aColumnHasTheNameOfItsExpressionAlsoIfAnotherHasTheSame() throws SQLException {
    fill();
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(
            "SELECT k, k, count(*), {fn UCASE(name)} FROM " + table + " WHERE k = 1 GROUP BY k, name")) {
      String[] expected = {"k", "k", "count(*)", "upper(name)"};
      for (int column = 1; column <= expected.length; column++) {
        assertThat(rows.getMetaData().getColumnLabel(column)).isEqualTo(expected[column - 1]);
      }
      assertThat(Rows.of(rows)).containsExactly(List.of(1L, 1L, 1L, "KEA"));
    }
  }

  @Test
  void everyTypeOfParameterIsInserted() throws SQLException {
    Timestamp moment = Timestamp.valueOf("2026-11-22 13:14:15.5");
    try (PreparedStatement statement = insert()) {
      statement.setLong(1, 7);
      statement.setString(2, "tūī");
      statement.setDouble(3, 2.5);
      statement.setBigDecimal(4, new BigDecimal("12.34"));
      statement.setDate(5, Date.valueOf("2026-11-22"));
      statement.setTimestamp(6, moment);
      assertThat(statement.executeUpdate()).isEqualTo(1);
    }
    assertThat(rows("SELECT k, name, price, cost, moment FROM " + table))
        .containsExactly(List.of(7L, "tūī", 2.5, new BigDecimal("12.34"), moment));
    assertThat(rows("SELECT CAST(day AS VARCHAR) FROM " + table)).containsExactly(List.of("2026-11-22"));
  }

  @Test
  void executeOfAnInsertRunsItOnceForEachCall() throws SQLException {
    // Release 18.3.0 of the driver sends the INSERT as a query. Later releases send it as an update.
    try (PreparedStatement statement = connection.prepareStatement("INSERT INTO " + table + " (k) VALUES (?)")) {
      for (long key : new long[] {1, 2}) {
        statement.setLong(1, key);
        statement.execute();
      }
    }
    assertThat(rows("SELECT k FROM " + table + " ORDER BY k")).containsExactly(List.of(1L), List.of(2L));
  }

  @Test
  void aNullOfEveryTypeIsInserted() throws SQLException {
    int[] types = {Types.VARCHAR, Types.DOUBLE, Types.DECIMAL, Types.DATE, Types.TIMESTAMP};
    try (PreparedStatement statement = insert()) {
      statement.setLong(1, 8);
      for (int parameter = 2; parameter <= 6; parameter++) {
        statement.setNull(parameter, types[parameter - 2]);
      }
      assertThat(statement.executeUpdate()).isEqualTo(1);
    }
    assertThat(rows("SELECT * FROM " + table))
        .containsExactly(Arrays.asList(8L, null, null, null, null, null));
  }

  @Test
  void uuidsIntervalsAndDurationsAreBoundAsTexts() throws SQLException {
    String waits = table + "_waits";
    String id = "6f9619ff-8b86-d011-b42d-00c04fc964ff";
    update("CREATE TABLE " + waits + " (id UUID, i INTERVAL, d DURATION) WITH (shard_key = 'id', shards = 4)");
    try {
      try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + waits + " VALUES (?, ?, ?)")) {
        for (String[] row : new String[][] {{id, "1 day", "PT24H"}, {null, null, null}}) {
          for (int parameter = 1; parameter <= row.length; parameter++) {
            insert.setString(parameter, row[parameter - 1]);
          }
          insert.addBatch();
        }
        insert.executeBatch();
      }
      String sql = "SELECT id, CAST(i AS VARCHAR), d FROM " + waits + " WHERE id = ? AND i < ? AND d >= ?";
      try (PreparedStatement query = connection.prepareStatement(sql)) {
        query.setString(1, id.toUpperCase());
        query.setString(2, "25:00:00");
        query.setString(3, "1 day");
        try (ResultSet rows = query.executeQuery()) {
          assertThat(rows.next()).isTrue();
          assertThat(rows.getString(1)).isEqualTo(id);
          assertThat(rows.getString(2)).isEqualTo("1 days");
          assertThat(rows.getObject(3)).isEqualTo(Duration.ofDays(1));
          assertThat(rows.next()).isFalse();
        }
      }
    } finally {
      update("DROP TABLE " + waits);
    }
  }

  @Test
  void aNumberWithoutAColumnIsComparedAsText() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement("SELECT ? AS v")) {
      statement.setString(1, "kea");
      try (ResultSet rows = statement.executeQuery()) {
        assertThat(Rows.of(rows)).containsExactly(List.of("kea"));
      }
    }
  }

  @Test
  void aBatchIsOneWrite() throws SQLException {
    try (PreparedStatement statement =
        connection.prepareStatement("INSERT INTO " + table + " (k, name, price) VALUES (?, upper(?), ? * 2.0)")) {
      for (int row = 0; row < 1000; row++) {
        statement.setLong(1, row);
        statement.setString(2, row % 10 == 0 ? null : "bird " + row);
        statement.setDouble(3, row / 2.0);
        statement.addBatch();
      }
      // The driver returns one count for all rows of the batch.
      assertThat(statement.executeBatch()).containsExactly(1000);
    }
    assertThat(rows("SELECT count(*), count(name), sum(price), min(name) FROM " + table))
        .containsExactly(List.of(1000L, 900L, 499_500.0, "BIRD 1"));
  }

  @Test
  void nothingOfABatchIsKeptIfARowOfItIsWrong() throws SQLException {
    try (PreparedStatement statement =
        connection.prepareStatement("INSERT INTO " + table + " (k, price) VALUES (100 / ?, 1.5)")) {
      for (long row : new long[] {5, 10, 0}) {
        statement.setLong(1, row);
        statement.addBatch();
      }
      assertThatThrownBy(statement::executeBatch).hasStackTraceContaining("Divide by zero");
    }
    assertThat(rows("SELECT count(*) FROM " + table)).containsExactly(List.of(0L));
  }

  @Test
  void aBatchOfAStatementThatReadsATableRunsForEachRow() throws SQLException {
    fill();
    try (PreparedStatement statement =
        connection.prepareStatement("INSERT INTO " + table + " (k, name) SELECT k + ?, name FROM " + table + " WHERE k = ?")) {
      for (long key : new long[] {1, 2}) {
        statement.setLong(1, 10);
        statement.setLong(2, key);
        statement.addBatch();
      }
      assertThat(statement.executeBatch()).containsExactly(2);
    }
    assertThat(rows("SELECT k, name FROM " + table + " WHERE k > 10 ORDER BY k"))
        .containsExactly(List.of(11L, "kea"), List.of(12L, "kaka"));
  }

  @Test
  void aNullInAColumnThatTakesNoneNamesIt() throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement("INSERT INTO " + table + " (k) VALUES (?)")) {
      statement.setNull(1, Types.BIGINT);
      assertThatThrownBy(statement::executeUpdate)
          .hasStackTraceContaining("INVALID_ARGUMENT")
          .hasStackTraceContaining("column k: a NULL in a column that is NOT NULL");
    }
  }
}
