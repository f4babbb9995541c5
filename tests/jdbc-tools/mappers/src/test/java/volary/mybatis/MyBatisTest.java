package volary.mybatis;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.List;
import org.apache.ibatis.cursor.Cursor;
import org.apache.ibatis.datasource.pooled.PooledDataSource;
import org.apache.ibatis.executor.BatchResult;
import org.apache.ibatis.mapping.Environment;
import org.apache.ibatis.session.Configuration;
import org.apache.ibatis.session.ExecutorType;
import org.apache.ibatis.session.RowBounds;
import org.apache.ibatis.session.SqlSession;
import org.apache.ibatis.session.SqlSessionFactory;
import org.apache.ibatis.session.SqlSessionFactoryBuilder;
import org.apache.ibatis.transaction.jdbc.JdbcTransactionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import volary.ClusterExtension;
import volary.VolaryCluster;

/** Tests what MyBatis's users do first: a mapper with annotations, one with dynamic SQL, pages, batches. */
@ExtendWith(ClusterExtension.class)
class MyBatisTest {
  private static final Bird KEA =
      new Bird(1L, "kea", new BigDecimal("0.960"), LocalDate.of(2020, 1, 2), LocalDateTime.of(2024, 5, 6, 7, 8, 9), new byte[] {1, 0, -1}, true);

  private final PooledDataSource pool;
  private final SqlSessionFactory factory;

  MyBatisTest(VolaryCluster cluster) {
    pool = new PooledDataSource("org.apache.arrow.driver.jdbc.ArrowFlightJdbcDriver", cluster.url(), null, null);
    Configuration configuration = new Configuration(new Environment("test", new JdbcTransactionFactory(), pool));
    configuration.getTypeHandlerRegistry().register(LocalDate.class, new LocalDateHandler());
    configuration.getTypeHandlerRegistry().register(LocalDateTime.class, new LocalDateTimeHandler());
    configuration.addMapper(BirdMapper.class);
    factory = new SqlSessionFactoryBuilder().build(configuration);
  }

  @BeforeEach
  void create() {
    try (SqlSession session = factory.openSession()) {
      BirdMapper birds = session.getMapper(BirdMapper.class);
      birds.create();
      birds.insert(KEA);
      birds.insert(Bird.named(2, "kaka"));
      birds.insert(new Bird(3L, null, null, null, null, null, null));
      session.commit();
    }
  }

  @AfterEach
  void drop() {
    try (SqlSession session = factory.openSession()) {
      session.getMapper(BirdMapper.class).drop();
    }
    pool.forceCloseAll();
  }

  @Test
  void valuesOfAllTypesAndNullsComeBack() {
    try (SqlSession session = factory.openSession()) {
      BirdMapper birds = session.getMapper(BirdMapper.class);
      assertThat(birds.find(1)).usingRecursiveComparison().isEqualTo(KEA);
      assertThat(birds.find(3)).isEqualTo(new Bird(3L, null, null, null, null, null, null));
      assertThat(birds.find(4)).isNull();
      assertThat(birds.containing("k")).containsExactly(1L, 2L);
    }
  }

  @Test
  void pages() {
    try (SqlSession session = factory.openSession()) {
      BirdMapper birds = session.getMapper(BirdMapper.class);
      assertThat(birds.page(1, 1)).singleElement().satisfies(row -> assertThat(row).containsEntry("k", 2L).containsEntry("name", "kaka"));
      assertThat(session.<Bird>selectList("volary.mybatis.BirdMapper.all", null, new RowBounds(2, 5))).extracting(Bird::k).containsExactly(3L);
    }
  }

  @Test
  void rowsAreReadOneByOne() throws Exception {
    try (SqlSession session = factory.openSession();
        Cursor<Bird> rows = session.getMapper(BirdMapper.class).stream()) {
      assertThat(rows).extracting(Bird::k).containsExactly(1L, 2L, 3L);
    }
  }

  @Test
  void joinsAndAggregates() {
    try (SqlSession session = factory.openSession()) {
      BirdMapper birds = session.getMapper(BirdMapper.class);
      birds.insertAll(List.of(new Bird(4L, "moa", new BigDecimal("230.000"), null, null, null, null)));
      assertThat(birds.pairs()).hasSize(3);
      assertThat(birds.pairs().get(1)).containsEntry("one", "kea").containsEntry("n", 1L).containsEntry("weight", new BigDecimal("0.960"));
    }
  }

  @Test
  void dynamicSql() {
    try (SqlSession session = factory.openSession()) {
      BirdMapper birds = session.getMapper(BirdMapper.class);
      assertThat(birds.search("k", null, null, "k DESC")).extracting(Bird::k).containsExactly(2L, 1L);
      assertThat(birds.search(null, List.of(1L, 3L), null, "k")).extracting(Bird::k).containsExactly(1L, 3L);
      assertThat(birds.search("k", List.of(1L, 2L), true, "k")).extracting(Bird::k).containsExactly(1L);
    }
  }

  @Test
  void manyRowsOfOneStatement() {
    try (SqlSession session = factory.openSession()) {
      BirdMapper birds = session.getMapper(BirdMapper.class);
      birds.insertAll(List.of(new Bird(4L, "moa", new BigDecimal("230.000"), null, null, null, null), Bird.named(5, "huia")));
      assertThat(birds.all()).extracting(Bird::name).containsExactly("kea", "kaka", null, "moa", "huia");
    }
  }

  @Test
  void aBatchIsOneWriteWithOneCount() {
    try (SqlSession session = factory.openSession(ExecutorType.BATCH)) {
      BirdMapper birds = session.getMapper(BirdMapper.class);
      for (long k = 10; k < 60; k++) {
        birds.insert(Bird.named(k, "bird " + k));
      }
      List<BatchResult> results = session.flushStatements();
      session.commit();
      assertThat(results).singleElement().satisfies(result -> assertThat(result.getUpdateCounts()).containsExactly(50));
      assertThat(birds.all()).hasSize(53);
    }
  }

  @Test
  void countsAreThoseOfTheDriver() {
    try (SqlSession session = factory.openSession()) {
      BirdMapper birds = session.getMapper(BirdMapper.class);
      // MyBatis calls execute(), after which release 18.3.0 of the driver has no count for a prepared statement.
      assertThat(birds.insert(Bird.named(4, "moa"))).isEqualTo(-1);
      assertThat(birds.insertText(5, "huia")).isEqualTo(1);
      assertThat(birds.all()).hasSize(5);
    }
  }

  @Test
  void aRollbackIsAcceptedAndUndoesNothing() {
    try (SqlSession session = factory.openSession()) {
      session.getMapper(BirdMapper.class).insert(Bird.named(4, "moa"));
      session.rollback();
    }
    try (SqlSession session = factory.openSession()) {
      assertThat(session.getMapper(BirdMapper.class).find(4)).isNotNull();
    }
  }

  @Test
  void anUpdateIsRefused() {
    try (SqlSession session = factory.openSession()) {
      assertThatThrownBy(() -> session.getMapper(BirdMapper.class).rename(1, "moa")).hasStackTraceContaining("Update is not supported");
    }
  }
}
