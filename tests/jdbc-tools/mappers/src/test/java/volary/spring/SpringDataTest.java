package volary.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import javax.sql.DataSource;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.extension.ExtendWith;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.core.env.MapPropertySource;
import org.springframework.data.annotation.Id;
import org.springframework.data.domain.Limit;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.PageRequest;
import org.springframework.data.domain.Sort;
import org.springframework.data.jdbc.core.JdbcAggregateTemplate;
import org.springframework.data.relational.core.mapping.Table;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.support.JdbcTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;
import volary.ClusterExtension;
import volary.VolaryCluster;

/** Tests what users of Spring Data JDBC do first: a repository with queries and pages, and templates. */
@ExtendWith(ClusterExtension.class)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class SpringDataTest {
  private static final Bird KEA =
      new Bird(
          1L, "kea", new BigDecimal("0.960"), LocalDate.of(2020, 1, 2), LocalDateTime.of(2024, 5, 6, 7, 8, 9), new byte[] {1, 0, -1}, true, Bird.Diet.EVERYTHING);

  private final VolaryCluster cluster;
  private AnnotationConfigApplicationContext context;
  private Birds birds;
  private JdbcAggregateTemplate aggregates;
  private JdbcTemplate jdbc;

  SpringDataTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeAll
  void create() {
    context = new AnnotationConfigApplicationContext();
    context.getEnvironment().getPropertySources().addFirst(new MapPropertySource("test", Map.of("volary.url", cluster.url())));
    context.register(Settings.class);
    context.refresh();
    birds = context.getBean(Birds.class);
    aggregates = context.getBean(JdbcAggregateTemplate.class);
    jdbc = new JdbcTemplate(context.getBean(DataSource.class));
    jdbc.execute(
        "CREATE TABLE birds_of_spring (k BIGINT NOT NULL, name VARCHAR, weight DECIMAL(8, 3), hatched DATE, seen TIMESTAMP, photo BYTEA, alive BOOLEAN,"
            + " diet VARCHAR) WITH (shard_key = 'k', shards = 8)");
    aggregates.insert(KEA);
    aggregates.insert(new Bird(2L, "kaka", new BigDecimal("0.475"), null, null, null, true, null));
    aggregates.insert(Bird.named(3, null));
  }

  @AfterAll
  void drop() {
    jdbc.execute("DROP TABLE birds_of_spring");
    context.close();
  }

  @Test
  void valuesOfAllTypesAndNullsComeBack() {
    assertThat(birds.findById(1L)).get().usingRecursiveComparison().isEqualTo(KEA);
    assertThat(birds.findById(3L)).contains(Bird.named(3, null));
    assertThat(birds.findById(4L)).isEmpty();
    assertThat(birds.findAllById(List.of(1L, 2L))).hasSize(2);
    assertThat(birds.count()).isEqualTo(3);
    assertThat(birds.existsById(3L)).isTrue();
  }

  private static List<Long> keys(Iterable<Bird> found) {
    return StreamSupport.stream(found.spliterator(), false).map(Bird::k).toList();
  }

  @Test
  void derivedQueries() {
    assertThat(birds.findByName("kaka")).map(Bird::k).contains(2L);
    assertThat(keys(birds.findByAliveTrueAndKBetween(0, 1))).containsExactly(1L);
    assertThat(keys(birds.findByKInAndNameIsNotNullOrderByKDesc(List.of(1L, 2L, 3L)))).containsExactly(2L, 1L);
    assertThat(keys(birds.findByWeightGreaterThan(new BigDecimal("0.500")))).containsExactly(1L);
    assertThat(keys(birds.findByDiet(Bird.Diet.EVERYTHING))).containsExactly(1L);
    assertThat(birds.countByNameIsNull()).isEqualTo(1);
    assertThat(birds.existsByName("kea")).isTrue();
    assertThat(birds.existsByName("moa")).isFalse();
  }

  @Test
  void textIsSearched() {
    assertThat(keys(birds.findByNameStartingWithOrderByK("k"))).containsExactly(1L, 2L);
    assertThat(keys(birds.findByNameContainingIgnoreCase("EA"))).containsExactly(1L);
  }

  @Test
  void pages() {
    Page<Bird> page = birds.findAll(PageRequest.of(1, 2, Sort.by("k")));
    assertThat(keys(page)).containsExactly(3L);
    assertThat(page.getTotalElements()).isEqualTo(3);
    assertThat(keys(birds.findAll(Sort.by(Sort.Order.desc("name").nullsLast(), Sort.Order.asc("k"))))).containsExactly(1L, 2L, 3L);
    Page<Bird> derived = birds.findByKGreaterThan(1, PageRequest.of(0, 1, Sort.by("k")));
    assertThat(keys(derived)).containsExactly(2L);
    assertThat(derived.getTotalPages()).isEqualTo(2);
    assertThat(birds.findSliceByKGreaterThan(0, PageRequest.of(0, 2, Sort.by("k"))).hasNext()).isTrue();
    assertThat(keys(birds.findTop2ByOrderByKDesc())).containsExactly(3L, 2L);
    assertThat(keys(birds.findByNameIsNotNullOrderByK(Limit.of(1)))).containsExactly(1L);
  }

  @Test
  void writtenQueries() {
    assertThat(birds.names(List.of(1L, 2L))).containsExactly("kaka", "kea");
    assertThat(birds.groups()).containsExactly(new Birds.Group(true, 2, new BigDecimal("1.435")), new Birds.Group(null, 1, null));
    assertThat(birds.keysOf("kea")).containsExactly(1L);
    assertThat(birds.keysOf(null)).containsExactly(1L, 2L, 3L);
    try (Stream<Bird> rows = birds.streamByKGreaterThan(1)) {
      assertThat(rows.map(Bird::k)).containsExactlyInAnyOrder(2L, 3L);
    }
  }

  @Test
  void aTypedNumberThatMayBeMissing() {
    assertThat(birds.keysLikeTyped(1L)).containsExactly(1L);
    assertThat(birds.keysLikeTyped(null)).containsExactly(1L, 2L, 3L);
  }

  @Test
  void aNumberThatMayBeMissing() {
    assertThat(birds.keysLike(1L)).containsExactly(1L);
    assertThat(birds.keysLike(null)).containsExactly(1L, 2L, 3L);
  }

  @Test
  void manyAreInsertedAtOnce() {
    jdbc.execute("CREATE TABLE eggs_of_spring (k BIGINT NOT NULL, color VARCHAR)");
    aggregates.insertAll(LongStream.range(0, 50).mapToObj(k -> new Egg(k, "blue")).toList());
    assertThat(aggregates.count(Egg.class)).isEqualTo(50);
    // A batch is one write, and the driver returns one count for it.
    int[] counts = jdbc.batchUpdate("INSERT INTO eggs_of_spring VALUES (?, ?)", List.of(new Object[] {50L, "white"}, new Object[] {51L, null}));
    assertThat(counts).containsExactly(2);
    assertThat(jdbc.update("INSERT INTO eggs_of_spring VALUES (?, ?)", 52L, "green")).isEqualTo(1);
    assertThat(jdbc.queryForObject("SELECT count(*) FROM eggs_of_spring", Long.class)).isEqualTo(53);
    jdbc.execute("DROP TABLE eggs_of_spring");
  }

  /** An aggregate of another table. */
  @Table("eggs_of_spring")
  record Egg(@Id Long k, String color) {}

  @Test
  void aTransactionThatFailsUndoesNothing() {
    jdbc.execute("CREATE TABLE nests_of_spring (k BIGINT)");
    TransactionTemplate transactions = new TransactionTemplate(context.getBean(JdbcTransactionManager.class));
    transactions.executeWithoutResult(status -> jdbc.update("INSERT INTO nests_of_spring VALUES (1)"));
    transactions.executeWithoutResult(
        status -> {
          jdbc.update("INSERT INTO nests_of_spring VALUES (2)");
          status.setRollbackOnly();
        });
    assertThat(jdbc.queryForList("SELECT k FROM nests_of_spring ORDER BY k", Long.class)).containsExactly(1L, 2L);
    jdbc.execute("DROP TABLE nests_of_spring");
  }

  @Test
  void updatesAndDeletesAreRefused() {
    assertThatThrownBy(() -> birds.save(Bird.named(1, "moa"))).hasStackTraceContaining("Update is not supported");
    assertThatThrownBy(() -> birds.deleteById(1L)).hasStackTraceContaining("Delete is not supported");
  }
}
