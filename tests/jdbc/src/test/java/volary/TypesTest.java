package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Date;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Time;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Calendar;
import java.util.List;
import java.util.TimeZone;
import java.util.UUID;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Tests values and NULLs of every column type with getObject, getString and the getter of the type. */
@ExtendWith(ClusterExtension.class)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class TypesTest {
  /** Marks a value that release 18.3.0 of the driver cannot read. */
  private static final Object NOT_IMPLEMENTED = new Object();

  private static final String UUID_TEXT = "6f9619ff-8b86-d011-b42d-00c04fc964ff";

  private static final Calendar UTC = Calendar.getInstance(TimeZone.getTimeZone("UTC"));

  private final VolaryCluster cluster;
  private Connection connection;

  TypesTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeAll
  void connect() throws SQLException {
    connection = cluster.connect();
  }

  @AfterAll
  void disconnect() throws SQLException {
    connection.close();
  }

  /** Calls the getter of a type. */
  @FunctionalInterface
  interface Getter {
    Object get(ResultSet rows) throws SQLException;
  }

  /**
   * An SQL type with a value.
   *
   * @param expression the value in SQL
   * @param jdbcType the type in the metadata of the result
   * @param object the result of getObject, or null if its class is defined by the driver
   * @param text the result of getString
   * @param getter the getter of the type
   * @param value the result of the getter
   */
  record OfType(
      String name,
      String expression,
      int jdbcType,
      Object object,
      String text,
      Getter getter,
      Object value) {
    /** Creates a type whose getter returns the same value as getObject. */
    OfType(String name, String expression, int jdbcType, Object object, String text, Getter getter) {
      this(name, expression, jdbcType, object, text, getter, object);
    }

    @Override
    public String toString() {
      return name;
    }
  }

  static Stream<OfType> types() {
    return Stream.of(numbers(), textAndBytes(), times(), nested()).flatMap(types -> types);
  }

  private static Stream<OfType> numbers() {
    BigDecimal price = new BigDecimal("12345.67");
    BigDecimal largest = new BigDecimal("18446744073709551615");
    return Stream.of(
        new OfType("BOOLEAN", "true", Types.BOOLEAN, true, "true", rows -> rows.getBoolean(1)),
        new OfType("TINYINT", "CAST(-5 AS TINYINT)", Types.TINYINT, (byte) -5, "-5", rows -> rows.getByte(1)),
        new OfType("SMALLINT", "CAST(-500 AS SMALLINT)", Types.SMALLINT, (short) -500, "-500", rows -> rows.getShort(1)),
        new OfType("INT", "CAST(-70000 AS INT)", Types.INTEGER, -70000, "-70000", rows -> rows.getInt(1)),
        new OfType("BIGINT", "9223372036854775807", Types.BIGINT, Long.MAX_VALUE, "9223372036854775807", rows -> rows.getLong(1)),
        new OfType("TINYINT UNSIGNED", "CAST(255 AS TINYINT UNSIGNED)", Types.SMALLINT, (short) 255, "255", rows -> rows.getShort(1)),
        new OfType("SMALLINT UNSIGNED", "CAST(65535 AS SMALLINT UNSIGNED)", Types.INTEGER, 65535, "65535", rows -> rows.getInt(1)),
        new OfType("INT UNSIGNED", "CAST(4294967295 AS INT UNSIGNED)", Types.BIGINT, 4294967295L, "4294967295", rows -> rows.getLong(1)),
        new OfType("BIGINT UNSIGNED", "CAST('18446744073709551615' AS BIGINT UNSIGNED)", Types.DECIMAL, largest, largest.toString(), rows -> rows.getBigDecimal(1)),
        new OfType("REAL", "CAST(1.5 AS REAL)", Types.FLOAT, 1.5, "1.5", rows -> rows.getFloat(1), 1.5f),
        new OfType("DOUBLE", "CAST(-2.25 AS DOUBLE)", Types.DOUBLE, -2.25, "-2.25", rows -> rows.getDouble(1)),
        new OfType("DECIMAL", "CAST(12345.67 AS DECIMAL(10, 2))", Types.DECIMAL, price, "12345.67", rows -> rows.getBigDecimal(1)),
        new OfType("wide DECIMAL", "CAST(12345.67 AS DECIMAL(50, 2))", Types.DECIMAL, price, "12345.67", rows -> rows.getBigDecimal(1)));
  }

  private static Stream<OfType> textAndBytes() {
    byte[] bytes = {'k', 'e', 'a'};
    return Stream.of(
        new OfType("VARCHAR", "'kea Ω 🦜'", Types.VARCHAR, "kea Ω 🦜", "kea Ω 🦜", rows -> rows.getString(1)),
        new OfType("VARBINARY", "X'6b6561'", Types.VARBINARY, bytes, "kea", rows -> rows.getBytes(1)),
        // The driver's getObject would return a byte[] for 16 bytes, and its setObject takes no UUID.
        new OfType("UUID", "UUID '6F9619FF-8B86-D011-B42D-00C04FC964FF'", Types.VARCHAR, UUID_TEXT, UUID_TEXT, rows -> uuid(rows.getString(1)), uuid(UUID_TEXT)),
        new OfType("text of a view", "arrow_cast('kea', 'Utf8View')", Types.VARCHAR, "kea", "kea", rows -> rows.getString(1)),
        new OfType("text of a dictionary", "arrow_cast('kea', 'Dictionary(Int32, Utf8)')", Types.VARCHAR, "kea", "kea", rows -> rows.getString(1)),
        new OfType("bytes of a stream", "X'6b6561'", Types.VARBINARY, bytes, "kea", rows -> read(rows)));
  }

  private static Stream<OfType> times() {
    Timestamp local = Timestamp.valueOf("2026-11-22 13:14:15.678");
    Timestamp moment = Timestamp.from(Instant.parse("2026-11-22T13:14:15Z"));
    return Stream.of(
        new OfType("DATE", "DATE '2026-11-22'", Types.DATE, Date.valueOf("2026-11-22"), "2026-11-22", rows -> rows.getDate(1)),
        new OfType("TIME", "TIME '13:14:15'", Types.TIME, Time.valueOf("13:14:15"), "13:14:15", rows -> rows.getTime(1)),
        new OfType("TIMESTAMP", "TIMESTAMP '2026-11-22 13:14:15.678'", Types.TIMESTAMP, local, "2026-11-22 13:14:15.678", rows -> rows.getTimestamp(1)),
        new OfType("TIMESTAMP(9)", "arrow_cast('2026-11-22T13:14:15.678', 'Timestamp(Nanosecond, None)')", Types.TIMESTAMP, local, "2026-11-22 13:14:15.678", rows -> rows.getTimestamp(1)),
        new OfType("TIMESTAMP WITH TIME ZONE", "arrow_cast('2026-11-22T13:14:15Z', 'Timestamp(Microsecond, Some(\"UTC\"))')", Types.TIMESTAMP_WITH_TIMEZONE, NOT_IMPLEMENTED, null, rows -> rows.getTimestamp(1, UTC), moment));
  }

  private static Stream<OfType> nested() {
    return Stream.of(
        // The driver defines the classes of these values, so getObject is not compared.
        new OfType("INTERVAL", "INTERVAL '1' DAY", Types.JAVA_OBJECT, null, "P1D", rows -> rows.getObject(1).toString(), "P1D PT0S"),
        new OfType("DURATION", "CAST('1 day 00:00:00.5' AS DURATION)", Types.JAVA_OBJECT, Duration.parse("PT24H0.5S"), "PT24H0.5S", rows -> rows.getObject(1, Duration.class)),
        new OfType("ARRAY", "make_array(1, 2, NULL)", Types.ARRAY, null, "[1,2,null]", rows -> elements(rows), Arrays.asList(1L, 2L, null)),
        new OfType("STRUCT", "named_struct('a', 1, 'b', 'x')", Types.JAVA_OBJECT, null, "{\"a\":1,\"b\":\"x\"}", rows -> rows.getString(1), "{\"a\":1,\"b\":\"x\"}"),
        new OfType("MAP", "MAP {'a': 1}", Types.JAVA_OBJECT, null, "{\"a\":1}", rows -> rows.getString(1), "{\"a\":1}"));
  }

  private static UUID uuid(String text) {
    return text == null ? null : UUID.fromString(text);
  }

  private static byte[] read(ResultSet rows) throws SQLException {
    try (var stream = rows.getBinaryStream(1)) {
      return stream == null ? null : stream.readAllBytes();
    } catch (java.io.IOException failure) {
      throw new SQLException(failure);
    }
  }

  private static List<Object> elements(ResultSet rows) throws SQLException {
    var array = rows.getArray(1);
    return array == null ? null : Arrays.asList((Object[]) array.getArray());
  }

  @ParameterizedTest
  @MethodSource("types")
  void aValue(OfType type) throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("SELECT " + type.expression() + " AS v")) {
      ResultSetMetaData metaData = rows.getMetaData();
      assertThat(metaData.getColumnType(1)).isEqualTo(type.jdbcType());
      assertThat(rows.next()).isTrue();
      assertThat(type.getter().get(rows)).isEqualTo(type.value());
      if (type.object() == NOT_IMPLEMENTED) {
        assertThatThrownBy(() -> rows.getObject(1)).hasMessage("not implemented");
      } else if (type.object() != null) {
        assertThat(rows.getObject(1)).isEqualTo(type.object());
      }
      if (type.text() != null) {
        assertThat(rows.getString(1)).isEqualTo(type.text());
      }
      assertThat(rows.wasNull()).isFalse();
      assertThat(rows.next()).isFalse();
    }
  }

  @ParameterizedTest
  @MethodSource("types")
  void aNull(OfType type) throws SQLException {
    String sql = "SELECT CASE WHEN x = 1 THEN " + type.expression() + " END AS v FROM (VALUES (2)) AS t (x)";
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(sql)) {
      assertThat(rows.next()).isTrue();
      if (type.object() != NOT_IMPLEMENTED) {
        assertThat(rows.getObject(1)).isNull();
        assertThat(rows.wasNull()).isTrue();
      }
      assertThat(rows.getString(1)).isNull();
      assertThat(rows.wasNull()).isTrue();
    }
  }
}
