package volary.jooq;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.jooq.impl.DSL.avg;
import static org.jooq.impl.DSL.count;
import static org.jooq.impl.DSL.countDistinct;
import static org.jooq.impl.DSL.field;
import static org.jooq.impl.DSL.inline;
import static org.jooq.impl.DSL.listAgg;
import static org.jooq.impl.DSL.lower;
import static org.jooq.impl.DSL.max;
import static org.jooq.impl.DSL.name;
import static org.jooq.impl.DSL.noCondition;
import static org.jooq.impl.DSL.rowNumber;
import static org.jooq.impl.DSL.select;
import static org.jooq.impl.DSL.selectOne;
import static org.jooq.impl.DSL.sql;
import static org.jooq.impl.DSL.sum;
import static org.jooq.impl.DSL.table;
import static org.jooq.impl.DSL.when;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.jooq.CloseableDSLContext;
import org.jooq.Cursor;
import org.jooq.DSLContext;
import org.jooq.Field;
import org.jooq.Query;
import org.jooq.Record;
import org.jooq.Result;
import org.jooq.SQLDialect;
import org.jooq.Table;
import org.jooq.conf.Settings;
import org.jooq.conf.StatementType;
import org.jooq.impl.DSL;
import org.jooq.impl.SQLDataType;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.extension.ExtendWith;
import volary.ClusterExtension;
import volary.VolaryCluster;

/** Tests what jOOQ's users write first, with the dialect POSTGRES. */
@ExtendWith(ClusterExtension.class)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class JooqTest {
  private static final Field<Long> K = field(name("k"), SQLDataType.BIGINT.notNull());
  private static final Field<String> NAME = field(name("name"), SQLDataType.VARCHAR);
  private static final Field<BigDecimal> WEIGHT = field(name("weight"), SQLDataType.DECIMAL(8, 3));
  private static final Field<LocalDate> HATCHED = field(name("hatched"), SQLDataType.LOCALDATE);
  private static final Field<LocalDateTime> SEEN = field(name("seen"), SQLDataType.LOCALDATETIME(6));
  private static final Field<byte[]> PHOTO = field(name("photo"), SQLDataType.BLOB);
  private static final Field<Boolean> ALIVE = field(name("alive"), SQLDataType.BOOLEAN);

  private final Connection connection;
  private final DSLContext jooq;
  private final Table<Record> birds = table(name(VolaryCluster.newName("birds")));
  private final Table<Record> places = table(name(VolaryCluster.newName("places")));
  private final Field<Long> bird = field(name("bird"), SQLDataType.BIGINT.notNull());
  private final Field<String> place = field(name("place"), SQLDataType.VARCHAR);

  JooqTest(VolaryCluster cluster) throws SQLException {
    connection = cluster.connect();
    jooq = DSL.using(connection, SQLDialect.POSTGRES);
  }

  @BeforeAll
  void create() {
    jooq.createTable(birds)
        .columns(K, NAME, WEIGHT, HATCHED, SEEN, PHOTO, ALIVE)
        .storage(sql("WITH (shard_key = 'k', shards = 8)"))
        .execute();
    jooq.createTable(places).columns(bird, place).storage(sql("WITH (shard_key = 'bird', shards = 8)")).execute();
    jooq.insertInto(birds, K, NAME, WEIGHT, HATCHED, SEEN, PHOTO, ALIVE)
            .values(1L, "kea", new BigDecimal("0.960"), LocalDate.of(2020, 1, 2), LocalDateTime.of(2024, 5, 6, 7, 8, 9, 123000000), new byte[] {1, 0, -1}, true)
            .values(2L, "kaka", new BigDecimal("0.475"), LocalDate.of(2021, 3, 4), LocalDateTime.of(2024, 5, 7, 0, 0), new byte[0], true)
            .values(3L, null, null, null, null, null, null)
            .execute();
    jooq.insertInto(places).columns(bird, place).values(1L, "Arthur's Pass").values(1L, "Fiordland").values(2L, "Zealandia").execute();
  }

  @AfterAll
  void drop() throws SQLException {
    jooq.dropTableIfExists(birds).execute();
    jooq.dropTable(places).execute();
    connection.close();
  }

  @Test
  void valuesOfAllTypesComeBack() {
    Record kea = jooq.select(K, NAME, WEIGHT, HATCHED, SEEN, PHOTO, ALIVE).from(birds).where(K.eq(1L)).fetchSingle();
    assertThat(kea.intoList().subList(0, 5))
        .containsExactly(1L, "kea", new BigDecimal("0.960"), LocalDate.of(2020, 1, 2), LocalDateTime.of(2024, 5, 6, 7, 8, 9, 123000000));
    assertThat(kea.get(PHOTO)).containsExactly(1, 0, -1);
    assertThat(kea.get(ALIVE)).isTrue();
  }

  @Test
  void nullsComeBack() {
    Record unknown = jooq.selectFrom(birds).where(NAME.isNull()).fetchSingle();
    assertThat(unknown.intoList()).containsExactly(3L, null, null, null, null, null, null);
  }

  @Test
  void parametersOfAllTypesAreCompared() {
    assertThat(
            jooq.select(K)
                .from(birds)
                .where(WEIGHT.gt(new BigDecimal("0.500")))
                .and(HATCHED.lt(LocalDate.of(2021, 1, 1)))
                .and(SEEN.eq(LocalDateTime.of(2024, 5, 6, 7, 8, 9, 123000000)))
                .and(PHOTO.eq(new byte[] {1, 0, -1}))
                .and(ALIVE.eq(true))
                .and(NAME.in("kea", "moa"))
                .and(NAME.like("k%"))
                .and(lower(NAME).like("%ea"))
                .and(K.between(0L, 5L))
                .fetch(K))
        .containsExactly(1L);
  }

  @Test
  void textIsSearched() {
    assertThat(jooq.select(K).from(birds).where(NAME.contains("ea")).fetch(K)).containsExactly(1L);
    assertThat(jooq.select(K).from(birds).where(NAME.startsWith("ka")).fetch(K)).containsExactly(2L);
    assertThat(jooq.select(K).from(birds).where(NAME.containsIgnoreCase("EA")).fetch(K)).containsExactly(1L);
    assertThat(jooq.select(K).from(birds).where(NAME.like("k!%", '!')).fetch(K)).isEmpty();
  }

  @Test
  void aCaseWhoseValuesAreParametersIsSummed() {
    assertThat(jooq.select(sum(when(ALIVE, 1).otherwise(0))).from(birds).fetchSingle().value1()).isEqualByComparingTo("2");
  }

  @Test
  void aNullIsAParameter() {
    assertThat(jooq.select(K).from(birds).where(NAME.isNotDistinctFrom((String) null)).fetch(K)).containsExactly(3L);
    assertThat(jooq.select(DSL.coalesce(DSL.val((String) null), NAME)).from(birds).where(K.eq(1L)).fetchSingle().value1()).isEqualTo("kea");
  }

  @Test
  void pagesByOffsetAndBySeek() {
    assertThat(jooq.select(K).from(birds).orderBy(K.desc()).limit(2).fetch(K)).containsExactly(3L, 2L);
    assertThat(jooq.select(K).from(birds).orderBy(K).limit(1).offset(1).fetch(K)).containsExactly(2L);
    assertThat(jooq.select(K).from(birds).orderBy(K).offset(2).fetch(K)).containsExactly(3L);
    assertThat(jooq.select(K).from(birds).orderBy(K).seek(1L).limit(10).fetch(K)).containsExactly(2L, 3L);
    assertThat(jooq.select(NAME, K).from(birds).orderBy(NAME, K).seek("kaka", 2L).limit(10).fetch(K)).containsExactly(1L);
    assertThat(jooq.select(NAME).from(birds).orderBy(NAME.asc().nullsFirst()).limit(2).fetch(NAME)).containsExactly(null, "kaka");
  }

  @Test
  void joins() {
    assertThat(
            jooq.select(NAME, place)
                .from(birds)
                .leftJoin(places)
                .on(K.eq(bird))
                .orderBy(K, place)
                .fetch(row -> row.get(NAME) + " " + row.get(place)))
        .containsExactly("kea Arthur's Pass", "kea Fiordland", "kaka Zealandia", "null null");
    Table<Record> b = birds.as("b");
    Table<Record> p = places.as("p");
    Field<Long> k = field(name("b", "k"), Long.class);
    Field<Long> of = field(name("p", "bird"), Long.class);
    assertThat(jooq.select(k).from(b).whereExists(selectOne().from(p).where(of.eq(k))).orderBy(k).fetch(k)).containsExactly(1L, 2L);
    assertThat(jooq.select(K).from(birds).where(K.notIn(select(bird).from(places))).fetch(K)).containsExactly(3L);
    assertThat(jooq.fetchCount(b.crossJoin(p))).isEqualTo(9);
  }

  @Test
  void aggregates() {
    Record all = jooq.select(count(), count(NAME), countDistinct(ALIVE), sum(WEIGHT), max(SEEN), avg(K)).from(birds).fetchSingle();
    assertThat(all.intoList().subList(0, 5)).containsExactly(3, 2, 1, new BigDecimal("1.435"), LocalDateTime.of(2024, 5, 7, 0, 0));
    assertThat((BigDecimal) all.get(5)).isEqualByComparingTo("2");
    assertThat(
            jooq.select(bird, count(), listAgg(place, ", ").withinGroupOrderBy(place))
                .from(places)
                .groupBy(bird)
                .having(count().gt(1))
                .fetchSingle()
                .intoList())
        .containsExactly(1L, 2, "Arthur's Pass, Fiordland");
    assertThat(
            jooq.select(count().filterWhere(K.gt(1L)), sum(when(ALIVE, 1).otherwise(inline(0)))).from(birds).fetchSingle().intoList())
        .containsExactly(2, new BigDecimal("2"));
  }

  @Test
  void windowsCommonTablesAndSetOperations() {
    assertThat(
            jooq.select(place, rowNumber().over().partitionBy(bird).orderBy(place)).from(places).orderBy(place).fetch(row -> row.value1() + row.value2()))
        .containsExactly("Arthur's Pass1", "Fiordland2", "Zealandia1");
    var named = name("named").fields("id").as(select(K).from(birds).where(NAME.isNotNull()));
    assertThat(jooq.with(named).select(field(name("id"), Long.class)).from(named).orderBy(1).fetch(0, Long.class)).containsExactly(1L, 2L);
    assertThat(jooq.select(K).from(birds).except(select(bird).from(places)).fetch(K)).containsExactly(3L);
    assertThat(jooq.select(K).from(birds).unionAll(select(bird).from(places)).orderBy(K).limit(3).fetch(K)).containsExactly(1L, 1L, 1L);
  }

  @Test
  void countsAndExistence() {
    assertThat(jooq.fetchCount(birds)).isEqualTo(3);
    assertThat(jooq.fetchCount(jooq.selectFrom(birds).where(NAME.isNotNull()))).isEqualTo(2);
    assertThat(jooq.fetchExists(birds, K.eq(3L))).isTrue();
    assertThat(jooq.fetchExists(birds, K.eq(4L))).isFalse();
  }

  @Test
  void rowsAreFetchedOneByOne() {
    try (Cursor<Record> cursor = jooq.selectFrom(birds).orderBy(K).fetchLazy()) {
      assertThat(cursor.fetchNext().get(K)).isEqualTo(1L);
    }
    try (Stream<Record> rows = jooq.selectFrom(birds).fetchSize(1).fetchStream()) {
      assertThat(rows.map(row -> row.get(K))).containsExactlyInAnyOrder(1L, 2L, 3L);
    }
  }

  @Test
  void textWithParameters() {
    Result<Record> rows = jooq.fetch("SELECT name FROM {0} WHERE k = {1} AND alive = {2}", birds, DSL.val(1L), DSL.val(true));
    assertThat(rows.getValues("name", String.class)).containsExactly("kea");
    assertThat(jooq.resultQuery("SELECT k FROM " + birds + " WHERE name = ?", "kaka").fetch(0, Long.class)).containsExactly(2L);
    assertThat(jooq.selectFrom(birds).where(noCondition()).fetch()).hasSize(3);
  }

  private void withTable(Consumer<Table<Record>> test) {
    Table<Record> other = table(name(VolaryCluster.newName("jooq")));
    jooq.createTable(other).column(K).column(NAME).column(WEIGHT).column(SEEN).execute();
    try {
      test.accept(other);
    } finally {
      jooq.dropTable(other).execute();
    }
  }

  @Test
  void aBatchOfOneStatementIsOneWrite() {
    withTable(
        other -> {
          int[] counts =
              jooq.batch(jooq.insertInto(other).columns(K, NAME, WEIGHT, SEEN).values((Long) null, null, null, null))
                  .bind(1L, "kea", new BigDecimal("0.960"), LocalDateTime.of(2024, 5, 6, 7, 8))
                  .bind(2L, null, null, null)
                  .execute();
          // The driver returns one count for the batch.
          assertThat(counts).containsExactly(2);
          assertThat(jooq.selectFrom(other).orderBy(K).fetch(NAME)).containsExactly("kea", null);
        });
  }

  @Test
  void aBatchOfDifferentStatementsFailsInTheDriver() {
    withTable(
        other -> {
          Query insert = jooq.insertInto(other).columns(K).values(1L);
          assertThatThrownBy(() -> jooq.batch(insert, insert).execute()).isInstanceOf(NullPointerException.class);
          assertThat(jooq.fetchCount(other)).isZero();
        });
  }

  @Test
  void recordsAndQueriesAreInserted() {
    withTable(
        other -> {
          Table<Record> typed = other;
          Record one = jooq.newRecord(K, NAME);
          one.set(K, 1L);
          one.set(NAME, "kea");
          // execute() of a prepared statement returns no count in the driver, and jOOQ makes 0 of it.
          assertThat(jooq.insertInto(typed).set(one).execute()).isZero();
          jooq.insertInto(typed).columns(K, NAME).valuesOfRecords(List.of(jooq.newRecord(K, NAME).values(2L, "kaka"))).execute();
          jooq.insertInto(typed, K, NAME).select(select(K.plus(10L), NAME).from(typed)).execute();
          assertThat(jooq.select(K).from(typed).orderBy(K).fetch(K)).containsExactly(1L, 2L, 11L, 12L);
        });
  }

  @Test
  void staticStatementsReturnCountsAndKeepAllDigits() {
    DSLContext inlined = DSL.using(connection, SQLDialect.POSTGRES, new Settings().withStatementType(StatementType.STATIC_STATEMENT));
    LocalDateTime micros = LocalDateTime.of(2024, 5, 6, 7, 8, 9, 123456000);
    withTable(
        other -> {
          assertThat(inlined.insertInto(other).columns(K, NAME, WEIGHT, SEEN).values(1L, "it's", new BigDecimal("1.5"), micros).values(2L, null, null, null).execute()).isEqualTo(2);
          assertThat(inlined.select(K, NAME, WEIGHT, SEEN).from(other).where(SEEN.eq(micros)).and(WEIGHT.gt(BigDecimal.ONE)).fetchSingle().intoList())
              .containsExactly(1L, "it's", new BigDecimal("1.500"), micros);
          assertThat(inlined.select(sum(when(NAME.isNull(), 1).otherwise(0)), DSL.val(5)).from(other).fetchSingle().intoList()).containsExactly(new BigDecimal("1"), 5);
        });
  }

  @Test
  void viewsAndTablesFromQueries() {
    Table<Record> view = table(name(VolaryCluster.newName("jooq_view")));
    jooq.createView(view).as(select(K, NAME).from(birds).where(NAME.isNotNull())).execute();
    assertThat(jooq.selectFrom(view).orderBy(K).fetch(0, Long.class)).containsExactly(1L, 2L);
    jooq.dropViewIfExists(view).execute();
    Table<Record> copy = table(name(VolaryCluster.newName("jooq_copy")));
    jooq.createTableIfNotExists(copy).as(select(K, NAME).from(birds)).execute();
    assertThat(jooq.fetchCount(copy)).isEqualTo(3);
    jooq.dropTable(copy).execute();
  }

  @Test
  void updatesAndDeletesAreRefused() {
    assertThatThrownBy(() -> jooq.update(birds).set(NAME, "moa").where(K.eq(1L)).execute())
        .hasStackTraceContaining("Update is not supported");
    assertThatThrownBy(() -> jooq.deleteFrom(birds).where(K.eq(1L)).execute()).hasStackTraceContaining("Delete is not supported");
    assertThatThrownBy(() -> jooq.insertInto(birds).columns(K).values(1L).onConflictDoNothing().execute()).hasStackTraceContaining("not supported");
  }

  @Test
  void transactionsThatSucceedCommit() {
    withTable(
        other -> {
          jooq.transaction(in -> in.dsl().insertInto(other).columns(K).values(1L).execute());
          assertThat(jooq.fetchCount(other)).isEqualTo(1);
        });
  }

  @Test
  void connectsByUrl(VolaryCluster cluster) {
    try (CloseableDSLContext own = DSL.using(cluster.url())) {
      assertThat(own.dialect()).isEqualTo(SQLDialect.DEFAULT);
      assertThat(own.selectOne().fetch(0, Integer.class)).containsExactly(1);
      assertThat(own.select(K).from(birds).orderBy(K).limit(1).offset(1).fetch(K)).containsExactly(2L);
    }
  }
}
