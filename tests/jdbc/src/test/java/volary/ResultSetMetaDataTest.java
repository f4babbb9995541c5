package volary;

import static org.assertj.core.api.Assertions.assertThat;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests what results say about their columns: generators of code and reports read it before the rows. */
@ExtendWith(ClusterExtension.class)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class ResultSetMetaDataTest {
  private final VolaryCluster cluster;
  private Connection connection;

  ResultSetMetaDataTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeAll
  void createTable() throws SQLException {
    connection = cluster.connect();
    try (Statement statement = connection.createStatement()) {
      statement.execute("CREATE TABLE described (i INTEGER, b BIGINT, n DECIMAL(12, 3), w DECIMAL(50, 9), r REAL, d DOUBLE, t VARCHAR, x BYTEA)");
    }
  }

  @AfterAll
  void dropTable() throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute("DROP TABLE described");
    }
    connection.close();
  }

  @ParameterizedTest
  @CsvSource({
    "i, INTEGER, 10, 0",
    "b, BIGINT, 19, 0",
    "n, DECIMAL, 12, 3",
    "w, DECIMAL, 50, 9",
    "n + n, DECIMAL, 13, 3",
    // The driver's own name of the type.
    "r, FLOAT, 7, 0",
    "d, DOUBLE, 15, 0",
    "count(*), BIGINT, 19, 0",
  })
  void numbersHaveTheirDigits(String expression, String type, int precision, int scale) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement("SELECT " + expression + " AS v FROM described GROUP BY ALL");
        Statement plain = connection.createStatement()) {
      check(statement.getMetaData(), type, precision, scale);
      check(plain.executeQuery("SELECT " + expression + " AS v FROM described GROUP BY ALL").getMetaData(), type, precision, scale);
    }
  }

  private static void check(ResultSetMetaData columns, String type, int precision, int scale) throws SQLException {
    assertThat(columns.getColumnName(1)).isEqualTo("v");
    assertThat(columns.getPrecision(1)).isEqualTo(precision);
    assertThat(columns.getScale(1)).isEqualTo(scale);
    assertThat(columns.getColumnTypeName(1)).isEqualTo(type);
  }

  @ParameterizedTest
  @CsvSource({"t, VARCHAR", "x, VARBINARY", "i, INTEGER", "n, DECIMAL"})
  void columnsHaveTypes(String column, String type) throws SQLException, ReflectiveOperationException {
    try (PreparedStatement statement = connection.prepareStatement("SELECT " + column + " FROM described")) {
      ResultSetMetaData columns = statement.getMetaData();
      assertThat(columns.getColumnType(1)).isEqualTo(Types.class.getField(type).getInt(null));
    }
  }
}
