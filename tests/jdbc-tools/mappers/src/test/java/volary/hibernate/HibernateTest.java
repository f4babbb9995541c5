package volary.hibernate;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.criteria.CriteriaBuilder;
import jakarta.persistence.criteria.CriteriaQuery;
import jakarta.persistence.criteria.Root;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.List;
import org.hibernate.dialect.PostgreSQLDialect;
import org.hibernate.jpa.HibernatePersistenceConfiguration;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.extension.ExtendWith;
import volary.ClusterExtension;
import volary.VolaryCluster;

/** Tests what users of Hibernate and JPA do first, on tables that exist. */
@ExtendWith(ClusterExtension.class)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class HibernateTest {
  private final VolaryCluster cluster;
  private EntityManagerFactory factory;

  HibernateTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  /** Returns the settings of docs/clients/hibernate.md, with this dialect. */
  static HibernatePersistenceConfiguration configuration(VolaryCluster cluster, Class<?> dialect) {
    return new HibernatePersistenceConfiguration("birds")
        .jdbcUrl(cluster.url())
        .property("hibernate.dialect", dialect.getName())
        .property("hibernate.boot.allow_jdbc_metadata_access", false)
        .property("hibernate.jdbc.batch_size", 0);
  }

  @BeforeAll
  void create() throws SQLException {
    try (Connection connection = cluster.connect();
        Statement statement = connection.createStatement()) {
      statement.execute(
          "CREATE TABLE birds_of_hibernate (k BIGINT NOT NULL, name VARCHAR, weight DECIMAL(8, 3), hatched DATE, seen TIMESTAMP, photo BYTEA,"
              + " alive BOOLEAN, diet VARCHAR) WITH (shard_key = 'k', shards = 8)");
      statement.execute("CREATE TABLE sightings_of_hibernate (id INT NOT NULL, bird BIGINT NOT NULL, place VARCHAR) WITH (shard_key = 'bird', shards = 8)");
    }
    factory = configuration(cluster, VolaryDialect.class).managedClasses(Bird.class, Sighting.class).createEntityManagerFactory();
    factory.runInTransaction(
        in -> {
          Bird kea = new Bird(1, "kea");
          kea.weight = new BigDecimal("0.960");
          kea.hatched = LocalDate.of(2020, 1, 2);
          kea.seen = LocalDateTime.of(2024, 5, 6, 7, 8, 9, 123000000);
          kea.photo = new byte[] {1, 0, -1};
          kea.alive = true;
          kea.diet = Bird.Diet.EVERYTHING;
          in.persist(kea);
          Bird kaka = new Bird(2, "kaka");
          kaka.weight = new BigDecimal("0.475");
          in.persist(kaka);
          in.persist(new Bird(3, null));
          in.persist(new Sighting(1, kea, "Arthur's Pass"));
          in.persist(new Sighting(2, kea, "Fiordland"));
          in.persist(new Sighting(3, kaka, "Zealandia"));
        });
  }

  @AfterAll
  void drop() throws SQLException {
    factory.close();
    try (Connection connection = cluster.connect();
        Statement statement = connection.createStatement()) {
      statement.execute("DROP TABLE birds_of_hibernate");
      statement.execute("DROP TABLE sightings_of_hibernate");
    }
  }

  @Test
  void valuesOfAllTypesAndNullsComeBack() {
    try (EntityManager manager = factory.createEntityManager()) {
      Bird kea = manager.find(Bird.class, 1L);
      assertThat(List.of(kea.name, kea.weight, kea.hatched, kea.seen, kea.alive, kea.diet))
          .containsExactly(
              "kea", new BigDecimal("0.960"), LocalDate.of(2020, 1, 2), LocalDateTime.of(2024, 5, 6, 7, 8, 9, 123000000), true, Bird.Diet.EVERYTHING);
      assertThat(kea.photo).containsExactly(1, 0, -1);
      Bird unknown = manager.find(Bird.class, 3L);
      assertThat(new Object[] {unknown.name, unknown.weight, unknown.hatched, unknown.seen, unknown.photo, unknown.alive, unknown.diet}).containsOnlyNulls();
      assertThat(manager.find(Bird.class, 4L)).isNull();
    }
  }

  @Test
  void relationsAreReadLazilyAndByJoins() {
    try (EntityManager manager = factory.createEntityManager()) {
      assertThat(manager.find(Sighting.class, 3).bird.getName()).isEqualTo("kaka");
      assertThat(manager.find(Bird.class, 1L).sightings).extracting(sighting -> sighting.place).containsExactlyInAnyOrder("Arthur's Pass", "Fiordland");
      assertThat(manager.createQuery("select distinct b from Bird b left join fetch b.sightings order by b.k", Bird.class).getResultList())
          .extracting(bird -> bird.getSightings().size())
          .containsExactly(2, 1, 0);
      assertThat(manager.createQuery("select s.place from Sighting s where s.bird.name = :name order by s.place", String.class).setParameter("name", "kea").getResultList())
          .containsExactly("Arthur's Pass", "Fiordland");
      assertThat(manager.createQuery("select b.k from Bird b where not exists (select 1 from Sighting s where s.bird = b)", Long.class).getResultList()).containsExactly(3L);
    }
  }

  @Test
  void parametersOfAllTypesAreCompared() {
    try (EntityManager manager = factory.createEntityManager()) {
      assertThat(
              manager
                  .createQuery(
                      "select b.k from Bird b where b.weight > :weight and b.hatched < :hatched and b.seen = :seen and b.alive = :alive and b.diet = :diet"
                          + " and b.name in :names and b.k between 0 and :most",
                      Long.class)
                  .setParameter("weight", new BigDecimal("0.500"))
                  .setParameter("hatched", LocalDate.of(2021, 1, 1))
                  .setParameter("seen", LocalDateTime.of(2024, 5, 6, 7, 8, 9, 123000000))
                  .setParameter("alive", true)
                  .setParameter("diet", Bird.Diet.EVERYTHING)
                  .setParameter("names", List.of("kea", "moa"))
                  .setParameter("most", 5L)
                  .getResultList())
          .containsExactly(1L);
    }
  }

  @Test
  void textIsSearched() {
    try (EntityManager manager = factory.createEntityManager()) {
      assertThat(manager.createQuery("select b.k from Bird b where b.name like :pattern order by b.k", Long.class).setParameter("pattern", "k%").getResultList())
          .containsExactly(1L, 2L);
    }
  }

  @Test
  void textIsSearchedWithAnEscape() {
    try (EntityManager manager = factory.createEntityManager()) {
      assertThat(manager.createQuery("select b.k from Bird b where b.name like :pattern escape '!'", Long.class).setParameter("pattern", "ke!a").getResultList())
          .containsExactly(1L);
    }
  }

  @Test
  void textIsSearchedWithTheDialectOfPostgresql() {
    try (EntityManagerFactory other = configuration(cluster, PostgreSQLDialect.class).managedClasses(Bird.class, Sighting.class).createEntityManagerFactory();
        EntityManager manager = other.createEntityManager()) {
      assertThat(manager.createQuery("select b.k from Bird b where b.name like :pattern order by b.k", Long.class).setParameter("pattern", "k%").getResultList())
          .containsExactly(1L, 2L);
    }
  }

  @Test
  void pages() {
    try (EntityManager manager = factory.createEntityManager()) {
      assertThat(manager.createQuery("from Bird order by k", Bird.class).setFirstResult(1).setMaxResults(1).getResultList()).extracting(bird -> bird.k).containsExactly(2L);
      assertThat(manager.createQuery("from Bird order by k desc", Bird.class).setMaxResults(2).getResultList()).extracting(bird -> bird.k).containsExactly(3L, 2L);
      assertThat(manager.createQuery("select b.name from Bird b order by b.name asc nulls first limit 2", String.class).getResultList()).containsExactly(null, "kaka");
    }
  }

  @Test
  void aggregates() {
    try (EntityManager manager = factory.createEntityManager()) {
      Object[] all = manager.createQuery("select count(*), count(b.name), sum(b.weight), max(b.seen), avg(b.k), min(b.k) from Bird b", Object[].class).getSingleResult();
      assertThat(all).containsExactly(3L, 2L, new BigDecimal("1.435"), LocalDateTime.of(2024, 5, 6, 7, 8, 9, 123000000), 2.0, 1L);
      assertThat(
              manager
                  .createQuery("select s.bird.k, count(s) from Sighting s where s.id < 100 group by s.bird.k having count(s) > :least order by 1", Object[].class)
                  .setParameter("least", 1L)
                  .getSingleResult())
          .containsExactly(1L, 2L);
      assertThat(
              manager
                  .createQuery("select listagg(s.place, ', ') within group (order by s.place), sum(case when s.bird.alive then 1 else 0 end) from Sighting s where s.id < 100", Object[].class)
                  .getSingleResult())
          .containsExactly("Arthur's Pass, Fiordland, Zealandia", 2L);
      assertThat(manager.createQuery("select rank() over (order by b.weight desc nulls last) from Bird b where b.k = 1", Long.class).getSingleResult()).isEqualTo(1L);
    }
  }

  @Test
  void functions() {
    try (EntityManager manager = factory.createEntityManager()) {
      Object[] row =
          manager
              .createQuery(
                  "select upper(b.name), length(b.name), substring(b.name, 2), b.name || '!', coalesce(b.name, 'none'), year(b.seen), extract(hour from b.seen),"
                      + " cast(b.k as String), abs(-b.k), mod(b.k, 2), locate('e', b.name), round(b.weight, 1), cast(floor(b.weight) as Integer)"
                      + " from Bird b where b.k = 1",
                  Object[].class)
              .getSingleResult();
      assertThat(row)
          .containsExactly(
              "KEA", 3, "ea", "kea!", "kea", 2024, 7, "1", 1L, 1, 2, new BigDecimal("1.0"), 0);
    }
  }

  private <T> T ofKea(String expression, Class<T> type) {
    try (EntityManager manager = factory.createEntityManager()) {
      return manager.createQuery("select " + expression + " from Bird b where b.k = 1", type).getSingleResult();
    }
  }

  @Test
  void trims() {
    assertThat(ofKea("trim(b.name)", String.class)).isEqualTo("kea");
  }

  @Test
  void addsToATime() {
    assertThat(ofKea("b.seen + 1 day", LocalDateTime.class)).isEqualTo(LocalDateTime.of(2024, 5, 7, 7, 8, 9, 123000000));
  }

  @Test
  void knowsTheTime() {
    assertThat(ofKea("local datetime", LocalDateTime.class)).isAfter(LocalDateTime.of(2024, 1, 1, 0, 0));
  }

  @Test
  void formatsATime() {
    assertThat(ofKea("format(b.seen as 'yyyy-MM-dd')", String.class)).isEqualTo("2024-05-06");
  }

  @Test
  void aCriteriaQuery() {
    try (EntityManager manager = factory.createEntityManager()) {
      CriteriaBuilder build = manager.getCriteriaBuilder();
      CriteriaQuery<Long> query = build.createQuery(Long.class);
      Root<Bird> bird = query.from(Bird.class);
      query
          .select(bird.get("k"))
          .where(build.or(build.isNull(bird.get("name")), build.greaterThanOrEqualTo(bird.<BigDecimal>get("weight"), new BigDecimal("0.900"))))
          .orderBy(build.asc(bird.get("k")));
      assertThat(manager.createQuery(query).getResultList()).containsExactly(1L, 3L);
    }
  }

  @Test
  void aNativeQuery() {
    try (EntityManager manager = factory.createEntityManager()) {
      assertThat(manager.createNativeQuery("SELECT * FROM birds_of_hibernate WHERE k = ?1", Bird.class).setParameter(1, 2L).getSingleResult())
          .extracting(bird -> ((Bird) bird).name)
          .isEqualTo("kaka");
    }
  }

  @Test
  void rowsAreStreamed() {
    try (EntityManager manager = factory.createEntityManager();
        var rows = manager.createQuery("from Bird order by k", Bird.class).getResultStream()) {
      assertThat(rows.map(bird -> bird.k)).containsExactly(1L, 2L, 3L);
    }
  }

  @Test
  void manyEntitiesAreInsertedWithoutABatch() {
    factory.runInTransaction(
        in -> {
          for (int id = 100; id < 120; id++) {
            in.persist(new Sighting(id, in.getReference(Bird.class, 77L), "Codfish Island"));
          }
        });
    try (EntityManager manager = factory.createEntityManager()) {
      assertThat(manager.createQuery("select count(*) from Sighting s where s.bird.k = 77", Long.class).getSingleResult()).isEqualTo(20);
    }
  }

  @Test
  void aBatchIsTakenForAFailureThoughItsRowsAreKept() {
    try (EntityManagerFactory batches =
        configuration(cluster, VolaryDialect.class).managedClasses(Bird.class, Sighting.class).property("hibernate.jdbc.batch_size", 10).createEntityManagerFactory()) {
      // The driver returns one count for the batch, and Hibernate expects one for each row.
      assertThatThrownBy(
              () ->
                  batches.runInTransaction(
                      in -> {
                        in.persist(new Sighting(201, in.getReference(Bird.class, 78L), "Kapiti"));
                        in.persist(new Sighting(202, in.getReference(Bird.class, 78L), "Kapiti"));
                      }))
          .hasStackTraceContaining("row count");
    }
    try (EntityManager manager = factory.createEntityManager()) {
      assertThat(manager.createQuery("select count(*) from Sighting s where s.bird.k = 78", Long.class).getSingleResult()).isEqualTo(2);
    }
  }

  @Test
  void updatesAndDeletesAreRefused() {
    assertThatThrownBy(() -> factory.runInTransaction(in -> in.find(Bird.class, 1L).name = "moa")).hasStackTraceContaining("Update is not supported");
    assertThatThrownBy(() -> factory.runInTransaction(in -> in.remove(in.find(Bird.class, 3L)))).hasStackTraceContaining("Delete is not supported");
    assertThatThrownBy(() -> factory.runInTransaction(in -> in.createQuery("delete from Bird").executeUpdate())).hasStackTraceContaining("Delete is not supported");
  }
}
