package volary.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.sum;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Date;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.DataFrameReader;
import org.apache.spark.sql.DataFrameWriter;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.jdbc.JdbcDialects;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import volary.ClusterExtension;
import volary.Rows;
import volary.VolaryCluster;

/** Tests Spark's JDBC source: reading in parts and with pushed filters, and writing in all modes. */
@ExtendWith(ClusterExtension.class)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class SparkTest {
  private static final Pattern PUSHED = Pattern.compile("PushedFilters: \\[(.*?)\\], ReadSchema");
  private static final String BIRDS = "birds_of_spark";
  private static final String WRITTEN = "written_by_spark";

  private final VolaryCluster cluster;
  private final VolaryDialect dialect = new VolaryDialect();
  private Connection connection;
  private SparkSession spark;

  SparkTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeAll
  void create() throws SQLException {
    connection = cluster.connect();
    run(
        "CREATE TABLE " + BIRDS + " (k BIGINT NOT NULL, n INT, name VARCHAR, weight DECIMAL(8, 3), hatched DATE, seen TIMESTAMP, photo BYTEA, alive BOOLEAN)"
            + " WITH (shard_key = 'k', shards = 8)");
    run(
        "INSERT INTO " + BIRDS + " VALUES (1, 10, 'kea', 0.96, DATE '2020-01-02', TIMESTAMP '2024-05-06 07:08:09.123456', X'0100', true),"
            + " (2, 20, 'kaka', 0.475, DATE '2021-01-02', TIMESTAMP '2024-05-07 00:00:00', NULL, false), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL)");
    JdbcDialects.registerDialect(dialect);
    spark =
        SparkSession.builder()
            .master("local[2]")
            .config("spark.ui.enabled", false)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", 2)
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate();
  }

  @AfterEach
  void dropWhatWasWritten() throws SQLException {
    run("DROP TABLE IF EXISTS " + WRITTEN);
  }

  @AfterAll
  void drop() throws SQLException {
    spark.stop();
    JdbcDialects.unregisterDialect(dialect);
    run("DROP TABLE " + BIRDS);
    connection.close();
  }

  private void run(String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(sql);
    }
  }

  /** Reads with the types of decimals given, because the driver does not tell their digits. */
  private DataFrameReader reader() {
    return spark.read().format("jdbc").option("url", cluster.url()).option("dbtable", BIRDS).option("customSchema", "weight DECIMAL(8, 3)");
  }

  private static List<Long> keys(Dataset<Row> rows) {
    return rows.select("k").orderBy("k").as(Encoders.LONG()).collectAsList();
  }

  @Test
  void schemasAreRead() {
    assertThat(reader().load().schema().simpleString())
        .isEqualTo("struct<k:bigint,n:int,name:string,weight:decimal(8,3),hatched:date,seen:timestamp,photo:binary,alive:boolean>");
  }

  @Test
  void valuesOfAllTypesAndNullsAreRead() {
    List<Row> rows = reader().load().orderBy("k").collectAsList();
    assertThat(rows.get(0).<Object>getAs("weight")).isEqualTo(new BigDecimal("0.960"));
    assertThat(rows.get(0).<Object>getAs("hatched")).isEqualTo(Date.valueOf("2020-01-02"));
    assertThat(rows.get(0).<Object>getAs("seen")).isEqualTo(Timestamp.valueOf("2024-05-06 07:08:09.123456"));
    assertThat(rows.get(0).<byte[]>getAs("photo")).containsExactly(1, 0);
    assertThat(rows.get(0).<Object>getAs("alive")).isEqualTo(true);
    assertThat(rows.get(2)).isEqualTo(RowFactory.create(3L, null, null, null, null, null, null, null));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '"',
      textBlock =
          """
          k = 1                                               | 1   | EqualTo(k,1)
          n > 10                                              | 2   | GreaterThan(n,10)
          name = 'kea'                                        | 1   | EqualTo(name,kea)
          name = 'it\\'s'                                     |     | EqualTo(name,it's)
          not (name = 'kea')                                  | 2   | Not(EqualTo(name,kea))
          name like 'k%'                                      | 1 2 | StringStartsWith(name,k)
          name like '%e%'                                     | 1   | StringContains(name,e)
          name in ('kea', 'moa')                              | 1   | In(name, [kea,moa])
          name is null                                        | 3   | IsNull(name)
          weight > 0.5                                        | 1   | GreaterThan(weight,0.500)
          hatched < date '2021-01-01'                         | 1   | LessThan(hatched,2021-01-01)
          seen = timestamp '2024-05-06 07:08:09.123456'       | 1   | EqualTo(seen,2024-05-06 07:08:09.123456)
          alive                                               | 1   | EqualTo(alive,true)
          photo = X'0100'                                     | 1   | EqualTo(photo
          k = 1 or n = 20                                     | 1 2 | Or(EqualTo(k,1),EqualTo(n,20))
          length(name) = 3                                    | 1   | IsNotNull(name)
          """)
  void filtersArePushed(String filter, String found, String pushed) {
    Dataset<Row> rows = reader().load().filter(filter);
    Matcher plan = PUSHED.matcher(rows.queryExecution().executedPlan().toString());
    assertThat(plan.find()).isTrue();
    assertThat(plan.group(1)).contains("*" + pushed);
    List<Long> expected = found == null ? List.of() : Pattern.compile(" ").splitAsStream(found).map(Long::valueOf).toList();
    assertThat(keys(rows)).isEqualTo(expected);
  }

  @ParameterizedTest
  @CsvSource({"k, 0, 4", "hatched, 2020-01-01, 2022-01-01", "seen, 2024-05-01 00:00:00, 2024-06-01 00:00:00"})
  void aTableIsReadInPartsByAColumn(String column, String lower, String upper) {
    Dataset<Row> rows = reader().option("partitionColumn", column).option("lowerBound", lower).option("upperBound", upper).option("numPartitions", 3).load();
    assertThat(rows.rdd().getNumPartitions()).isEqualTo(3);
    assertThat(keys(rows)).containsExactly(1L, 2L, 3L);
  }

  @Test
  void aTableIsReadInPartsByConditions() {
    Dataset<Row> rows = spark.read().jdbc(cluster.url(), BIRDS, new String[] {"k < 2", "k >= 2"}, new Properties());
    assertThat(rows.rdd().getNumPartitions()).isEqualTo(2);
    assertThat(keys(rows)).containsExactly(1L, 2L, 3L);
  }

  @Test
  void queriesJoinsAndAggregates() {
    Dataset<Row> rows =
        spark.read().format("jdbc").option("url", cluster.url()).option("query", "SELECT alive, count(*) AS n FROM " + BIRDS + " GROUP BY alive").load();
    assertThat(rows.agg(sum("n")).head().getLong(0)).isEqualTo(3);
    Dataset<Row> birds = reader().load();
    assertThat(birds.join(birds.withColumnRenamed("k", "other").select("other"), col("k").lt(col("other"))).count()).isEqualTo(3);
    assertThat(keys(birds.orderBy(col("k").desc()).limit(2))).containsExactly(2L, 3L);
  }

  private Dataset<Row> birds(long... keys) {
    StructType schema =
        new StructType()
            .add("k", DataTypes.LongType, false)
            .add("n", DataTypes.IntegerType)
            .add("small", DataTypes.ShortType)
            .add("tiny", DataTypes.ByteType)
            .add("name", DataTypes.StringType)
            .add("weight", DataTypes.createDecimalType(8, 3))
            .add("hatched", DataTypes.DateType)
            .add("seen", DataTypes.TimestampType)
            .add("photo", DataTypes.BinaryType)
            .add("alive", DataTypes.BooleanType)
            .add("x", DataTypes.DoubleType)
            .add("f", DataTypes.FloatType);
    List<Row> rows =
        Arrays.stream(keys)
            .mapToObj(
                k ->
                    k == 0
                        ? RowFactory.create(k, null, null, null, null, null, null, null, null, null, null, null)
                        : RowFactory.create(
                            k, 10, (short) 2, (byte) 3, "kea", new BigDecimal("0.960"), Date.valueOf("2020-01-02"), Timestamp.valueOf("2024-05-06 07:08:09.123"),
                            new byte[] {1, 0}, true, 1.5, 2.5f))
            .toList();
    return spark.createDataFrame(rows, schema);
  }

  private DataFrameWriter<Row> writer(Dataset<Row> rows) {
    return rows.write().format("jdbc").option("url", cluster.url()).option("dbtable", WRITTEN).option("createTableOptions", "WITH (shard_key = 'k', shards = 8)");
  }

  @Test
  void aTableIsCreatedAndReadBack() throws SQLException {
    Dataset<Row> rows = birds(0, 1);
    writer(rows).save();
    Dataset<Row> back = reader().option("dbtable", WRITTEN).load();
    assertThat(back.schema().simpleString())
        .isEqualTo(
            "struct<k:bigint,n:int,small:smallint,tiny:tinyint,name:string,weight:decimal(8,3),hatched:date,seen:timestamp,photo:binary,alive:boolean,x:double,f:float>");
    assertThat(back.drop("photo").exceptAll(rows.drop("photo")).count()).isZero();
    assertThat(back.filter("photo = X'0100'").count()).isEqualTo(1);
    assertThat(Rows.of(connection, "SELECT shard_key, shards FROM system.tables WHERE name = '" + WRITTEN + "'")).containsExactly(List.of("k", 8L));
  }

  @Test
  void rowsAreAppendedIgnoredAndOverwritten() {
    writer(birds(1)).save();
    assertThatThrownBy(() -> writer(birds(1)).save()).hasStackTraceContaining("already exists");
    writer(birds(2)).mode(SaveMode.Append).save();
    writer(birds(3)).mode(SaveMode.Ignore).save();
    assertThat(keys(reader().option("dbtable", WRITTEN).load())).containsExactly(1L, 2L);
    writer(birds(4)).mode(SaveMode.Overwrite).save();
    assertThat(keys(reader().option("dbtable", WRITTEN).load())).containsExactly(4L);
  }

  @Test
  void manyRowsAreWrittenInBatches() {
    Dataset<Row> rows = spark.range(0, 20000, 1, 4).selectExpr("id AS k", "concat('bird ', id) AS name");
    writer(rows).option("batchsize", 5000).save();
    Dataset<Row> back = spark.read().format("jdbc").option("url", cluster.url()).option("dbtable", WRITTEN).load();
    assertThat(back.count()).isEqualTo(20000);
    assertThat(back.exceptAll(rows).count()).isZero();
  }

  @Test
  void aCatalogPushesAggregatesAndLimits() {
    spark.conf().set("spark.sql.catalog.volary", "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog");
    spark.conf().set("spark.sql.catalog.volary.url", cluster.url());
    spark.conf().set("spark.sql.catalog.volary.driver", "org.apache.arrow.driver.jdbc.ArrowFlightJdbcDriver");
    String from = " FROM volary.public." + BIRDS;
    Dataset<Row> groups = spark.sql("SELECT alive, count(*) AS birds, max(n) AS most" + from + " GROUP BY alive ORDER BY alive NULLS FIRST");
    assertThat(groups.queryExecution().executedPlan().toString()).contains("PushedAggregates: [COUNT(*), MAX(n)]");
    assertThat(groups.collectAsList()).containsExactly(RowFactory.create(null, 1L, null), RowFactory.create(false, 1L, 20), RowFactory.create(true, 1L, 10));
    assertThat(spark.sql("SELECT k" + from + " ORDER BY k LIMIT 1 OFFSET 1").collectAsList()).containsExactly(RowFactory.create(2L));
    assertThat(spark.sql("SELECT k" + from + " WHERE upper(name) = 'KEA' AND year(hatched) = 2020").collectAsList()).containsExactly(RowFactory.create(1L));
    // Spark does not close the list of schemas.
    assertThatThrownBy(() -> spark.sql("SHOW NAMESPACES IN volary")).hasStackTraceContaining("Memory was leaked");
  }
}
