package volary.hibernate;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import jakarta.persistence.Entity;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import org.hibernate.dialect.PostgreSQLDialect;
import org.hibernate.jpa.HibernatePersistenceConfiguration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import volary.ClusterExtension;
import volary.Rows;
import volary.VolaryCluster;

/** Tests what Hibernate does with the schema: it validates, creates and completes tables. */
@ExtendWith(ClusterExtension.class)
class HibernateSchemaTest {
  /** An entity whose table is created by each test, or by Hibernate. */
  @Entity(name = "Feather")
  @Table(name = "feathers_of_hibernate", options = "WITH (shard_key = 'k', shards = 8)")
  static class Feather {
    @Id Long k;
    String color;
  }

  private final VolaryCluster cluster;
  private Connection connection;
  private Statement statement;

  HibernateSchemaTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @BeforeEach
  void connect() throws SQLException {
    connection = cluster.connect();
    statement = connection.createStatement();
  }

  @AfterEach
  void close() throws SQLException {
    statement.execute("DROP TABLE IF EXISTS feathers_of_hibernate");
    statement.close();
    connection.close();
  }

  private void start(Class<?> dialect, String action) {
    start(HibernateTest.configuration(cluster, dialect), action);
  }

  private static void start(HibernatePersistenceConfiguration configuration, String action) {
    configuration.managedClasses(Feather.class).property("hibernate.hbm2ddl.auto", action).property("hibernate.hbm2ddl.halt_on_error", true);
    try (EntityManagerFactory factory = configuration.createEntityManagerFactory()) {
      assertThat(factory.isOpen()).isTrue();
    }
  }

  @Test
  void tablesAreValidated() throws SQLException {
    statement.execute("CREATE TABLE feathers_of_hibernate (k BIGINT NOT NULL, color VARCHAR)");
    start(VolaryDialect.class, "validate");
  }

  @Test
  void missingTablesAndColumnsAndOtherTypesAreFound() throws SQLException {
    assertThatThrownBy(() -> start(VolaryDialect.class, "validate")).hasStackTraceContaining("missing table [feathers_of_hibernate]");
    statement.execute("CREATE TABLE feathers_of_hibernate (k BIGINT NOT NULL)");
    assertThatThrownBy(() -> start(VolaryDialect.class, "validate")).hasStackTraceContaining("missing column [color]");
    statement.execute("CREATE OR REPLACE TABLE feathers_of_hibernate (k BIGINT NOT NULL, color INT)");
    assertThatThrownBy(() -> start(VolaryDialect.class, "validate")).hasStackTraceContaining("wrong column type encountered in column [color]");
  }

  @Test
  void noTableIsFoundWithTheMetadataOfTheDriver() throws SQLException {
    statement.execute("CREATE TABLE feathers_of_hibernate (k BIGINT NOT NULL, color VARCHAR)");
    HibernatePersistenceConfiguration asking =
        HibernateTest.configuration(cluster, VolaryDialect.class).property("hibernate.boot.allow_jdbc_metadata_access", true);
    // The driver says that names are stored in upper case.
    assertThatThrownBy(() -> start(asking, "validate")).hasStackTraceContaining("missing table [feathers_of_hibernate]");
  }

  @Test
  void aTableThatIsCompleteIsLeftAsItIs() throws SQLException {
    statement.execute("CREATE TABLE feathers_of_hibernate (k BIGINT NOT NULL, color VARCHAR)");
    statement.execute("INSERT INTO feathers_of_hibernate VALUES (1, 'green')");
    start(VolaryDialect.class, "update");
    assertThat(Rows.of(connection, "SELECT * FROM feathers_of_hibernate")).containsExactly(List.of(1L, "green"));
  }

  @Test
  void tablesAreCreatedAndDropped() throws SQLException {
    start(VolaryDialect.class, "update");
    start(VolaryDialect.class, "validate");
    statement.execute("INSERT INTO feathers_of_hibernate VALUES (1, 'green')");
    start(VolaryDialect.class, "create");
    assertThat(Rows.of(connection, "SELECT * FROM feathers_of_hibernate")).isEmpty();
    start(VolaryDialect.class, "drop");
    assertThatThrownBy(() -> start(VolaryDialect.class, "validate")).hasStackTraceContaining("missing table");
  }

  @Test
  void tablesAreValidatedWithTheDialectOfPostgresql() throws SQLException {
    statement.execute("CREATE TABLE feathers_of_hibernate (k BIGINT NOT NULL, color VARCHAR)");
    start(PostgreSQLDialect.class, "validate");
  }
}
