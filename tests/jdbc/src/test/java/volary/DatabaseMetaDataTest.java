package volary;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tests every method of DatabaseMetaData. Tools such as DBeaver call them to show the objects of a database. */
@ExtendWith(ClusterExtension.class)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class DatabaseMetaDataTest {
  /** Methods whose result differs in each run, or that other tests cover. */
  private static final Set<String> NOT_SCALAR = Set.of("getConnection", "getURL");

  private final VolaryCluster cluster;
  private final String table = VolaryCluster.newName("moas");
  private final String reference = table + "_reference";
  private final String view = table + "_view";
  private Connection connection;
  private DatabaseMetaData metaData;

  DatabaseMetaDataTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeAll
  void create() throws SQLException {
    connection = cluster.connect();
    metaData = connection.getMetaData();
    run("CREATE TABLE " + table + " (k BIGINT NOT NULL, name VARCHAR, weight DECIMAL(8, 3), seen TIMESTAMP) WITH (shard_key = 'k', shards = 4)");
    run("CREATE TABLE " + reference + " (code INT, label VARCHAR) WITH (reference = true)");
    run("CREATE VIEW " + view + " AS SELECT name FROM " + table);
  }

  @AfterAll
  void drop() throws SQLException {
    run("DROP VIEW " + view);
    run("DROP TABLE " + reference);
    run("DROP TABLE " + table);
    connection.close();
  }

  private void run(String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.executeUpdate(sql);
    }
  }

  /** Returns the methods that return a single value and take only numbers, which stand for types or levels. */
  private static Stream<Method> scalarMethods() {
    return Arrays.stream(DatabaseMetaData.class.getMethods())
        .filter(method -> method.getReturnType() != ResultSet.class)
        .filter(method -> Arrays.stream(method.getParameterTypes()).allMatch(type -> type == int.class))
        .filter(method -> !NOT_SCALAR.contains(method.getName()));
  }

  private String said(Method method) {
    // Methods for result sets take these two numbers. For other methods, any numbers will do.
    Object[] arguments = {ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_READ_ONLY};
    int count = method.getParameterCount();
    String call = method.getName() + "(" + Arrays.stream(arguments).limit(count).map(String::valueOf).collect(Collectors.joining(", ")) + ")";
    try {
      return call + " = " + method.invoke(metaData, Arrays.copyOf(arguments, count));
    } catch (InvocationTargetException failure) {
      return call + " fails: " + failure.getCause().getMessage();
    } catch (IllegalAccessException failure) {
      throw new AssertionError(failure);
    }
  }

  @Test
  void everyScalar() throws IOException {
    List<String> expected;
    try (InputStream file = DatabaseMetaDataTest.class.getResourceAsStream("scalars.txt")) {
      expected = new String(file.readAllBytes(), StandardCharsets.UTF_8).lines().toList();
    }
    assertThat(scalarMethods().map(this::said).sorted()).containsExactlyElementsOf(expected);
  }

  @Test
  void everyListing() throws Exception {
    List<String> empty = new ArrayList<>();
    for (Method method : DatabaseMetaData.class.getMethods()) {
      if (method.getReturnType() != ResultSet.class) {
        continue;
      }
      Object[] arguments = Arrays.stream(method.getParameters()).map(parameter -> anArgument(method, parameter.getType())).toArray();
      try (ResultSet rows = (ResultSet) method.invoke(metaData, arguments)) {
        if (rows.next()) {
          assertThat(rows.getMetaData().getColumnCount()).as(method.getName()).isPositive();
        } else {
          empty.add(method.getName());
        }
      }
    }
    // Volary has no such objects, or the driver does not ask the server for them.
    assertThat(empty)
        .containsExactlyInAnyOrder(
            "getAttributes", "getBestRowIdentifier", "getClientInfoProperties", "getColumnPrivileges",
            "getCrossReference", "getExportedKeys", "getFunctionColumns", "getFunctions", "getImportedKeys",
            "getIndexInfo", "getPrimaryKeys", "getProcedureColumns", "getProcedures", "getPseudoColumns",
            "getSuperTables", "getSuperTypes", "getTablePrivileges", "getTypeInfo", "getUDTs", "getVersionColumns");
  }

  /** Returns a table's name for listings of keys, which need one. Other listings get no filter. */
  private Object anArgument(Method method, Class<?> type) {
    if (type == String.class) {
      return method.getName().contains("Key") || method.getName().contains("Reference") ? table : null;
    }
    return type == boolean.class ? (Object) false : type == int.class ? (Object) 0 : null;
  }

  @Test
  void catalogsAndSchemas() throws SQLException {
    assertThat(Rows.columns(metaData.getCatalogs(), "TABLE_CAT")).containsExactly(List.of("volary"));
    assertThat(Rows.columns(metaData.getSchemas(), "TABLE_SCHEM", "TABLE_CATALOG"))
        .containsExactly(List.of("information_schema", "volary"), List.of("public", "volary"), List.of("system", "volary"));
    assertThat(Rows.columns(metaData.getSchemas("volary", "pub%"), "TABLE_SCHEM")).containsExactly(List.of("public"));
    assertThat(Rows.columns(metaData.getSchemas("other", null), "TABLE_SCHEM")).isEmpty();
  }

  @Test
  void tablesByPatternAndType() throws SQLException {
    assertThat(Rows.columns(metaData.getTables(null, "public", table + "%", null), "TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"))
        .containsExactlyInAnyOrder(
            List.of("volary", "public", table, "TABLE"),
            List.of("volary", "public", reference, "REFERENCE TABLE"),
            List.of("volary", "public", view, "VIEW"));
    String[] views = {"VIEW"};
    assertThat(Rows.columns(metaData.getTables("volary", null, table + "%", views), "TABLE_NAME")).containsExactly(List.of(view));
    assertThat(Rows.columns(metaData.getTables(null, null, "no such table", null), "TABLE_NAME")).isEmpty();
    assertThat(Rows.columns(metaData.getTableTypes(), "TABLE_TYPE")).contains(List.of("TABLE"), List.of("VIEW"));
  }

  @Test
  void temporaryTablesOfThisConnectionAlone() throws SQLException {
    run("CREATE TEMPORARY TABLE " + table + " (k BIGINT PRIMARY KEY)");
    try (Connection other = cluster.connect()) {
      assertThat(Rows.columns(metaData.getTables(null, "pg_temp", "%", null), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"))
          .containsExactly(List.of("pg_temp", table, "LOCAL TEMPORARY"));
      String[] temporary = {"LOCAL TEMPORARY"};
      assertThat(Rows.columns(metaData.getTables(null, null, "%", temporary), "TABLE_NAME")).containsExactly(List.of(table));
      assertThat(Rows.columns(metaData.getColumns(null, "pg_temp", table, "%"), "COLUMN_NAME", "TYPE_NAME"))
          .containsExactly(List.of("k", "BIGINT"));
      assertThat(Rows.columns(metaData.getPrimaryKeys(null, "pg_temp", table), "COLUMN_NAME")).containsExactly(List.of("k"));
      assertThat(Rows.columns(metaData.getSchemas(), "TABLE_SCHEM")).contains(List.of("pg_temp"));
      assertThat(Rows.columns(metaData.getTableTypes(), "TABLE_TYPE")).contains(List.of("LOCAL TEMPORARY"));
      assertThat(Rows.columns(other.getMetaData().getTables(null, "pg_temp", "%", null), "TABLE_NAME")).isEmpty();
      assertThat(Rows.columns(other.getMetaData().getSchemas(), "TABLE_SCHEM")).doesNotContain(List.of("pg_temp"));
    } finally {
      run("DROP TEMPORARY TABLE " + table);
    }
  }

  @Test
  void columns() throws SQLException {
    assertThat(
            Rows.columns(
                metaData.getColumns(null, "public", table, "%"),
                "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "IS_NULLABLE", "ORDINAL_POSITION"))
        .containsExactly(
            List.of("k", "" + Types.BIGINT, "BIGINT", "NO", "1"),
            List.of("name", "" + Types.VARCHAR, "VARCHAR", "YES", "2"),
            List.of("weight", "" + Types.DECIMAL, "DECIMAL(8, 3)", "YES", "3"),
            List.of("seen", "" + Types.TIMESTAMP, "TIMESTAMP", "YES", "4"));
    assertThat(Rows.columns(metaData.getColumns(null, null, table, "na%"), "COLUMN_NAME")).containsExactly(List.of("name"));
  }

  @Test
  void columnsOfAllTablesThoughSomeHaveTypesThatTheDriverDoesNotRead() throws SQLException {
    assertThat(Rows.columns(metaData.getColumns(null, null, null, null), "TABLE_NAME", "COLUMN_NAME"))
        .contains(List.of(view, "name"), List.of("queries", "statement"));
  }
}
