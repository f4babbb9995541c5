package volary.jooq;

import static org.assertj.core.api.Assertions.assertThat;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.util.List;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.jooq.DSLContext;
import org.jooq.Field;
import org.jooq.SQLDialect;
import org.jooq.Schema;
import org.jooq.Table;
import org.jooq.codegen.GenerationTool;
import org.jooq.impl.DSL;
import org.jooq.meta.jaxb.Configuration;
import org.jooq.meta.jaxb.Database;
import org.jooq.meta.jaxb.Generate;
import org.jooq.meta.jaxb.Generator;
import org.jooq.meta.jaxb.Jdbc;
import org.jooq.meta.jaxb.Logging;
import org.jooq.meta.jaxb.Target;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import volary.ClusterExtension;
import volary.VolaryCluster;

/** Tests that jOOQ generates classes from the metadata of JDBC, and that they can be queried. */
@ExtendWith(ClusterExtension.class)
class JooqCodeGenerationTest {
  private static final String NAME = VolaryCluster.newName("generated");

  private final VolaryCluster cluster;

  JooqCodeGenerationTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @Test
  void classesAreGeneratedCompiledAndQueried(@TempDir Path directory) throws Exception {
    try (Connection connection = cluster.connect()) {
      DSLContext jooq = DSL.using(connection, SQLDialect.POSTGRES);
      jooq.execute(
          "CREATE TABLE " + NAME + " (k BIGINT NOT NULL, name VARCHAR, weight DECIMAL(8, 3), hatched DATE, seen TIMESTAMP, photo BYTEA, alive BOOLEAN, n INT, x DOUBLE)"
              + " WITH (shard_key = 'k', shards = 4)");
      jooq.execute("INSERT INTO " + NAME + " (k, name) VALUES (1, 'kea'), (2, 'kaka')");
      generate(directory);
      compile(directory);
      try (URLClassLoader loader = new URLClassLoader(new URL[] {directory.toUri().toURL()})) {
        Table<?> table = ((Schema) loader.loadClass("birds.Public").getField("PUBLIC").get(null)).getTable(NAME);
        assertThat(Stream.of(table.fields()).map(field -> field.getName() + " " + field.getType().getSimpleName() + (field.getDataType().nullable() ? "" : " not null")))
            .containsExactly(
                "k Long not null", "name String", "weight BigDecimal", "hatched LocalDate", "seen LocalDateTime", "photo byte[]",
                "alive Boolean", "n Integer", "x Double");
        Field<Long> key = table.field("k", Long.class);
        assertThat(jooq.selectFrom(table).where(key.eq(2L)).fetchSingle().get("name")).isEqualTo("kaka");
      } finally {
        jooq.execute("DROP TABLE " + NAME);
      }
    }
  }

  private void generate(Path directory) throws Exception {
    Database database =
        new Database()
            .withName("org.jooq.meta.jdbc.JDBCDatabase")
            .withInputSchema("public")
            .withIncludes(NAME);
    GenerationTool.generate(
        new Configuration()
            .withLogging(Logging.ERROR)
            .withJdbc(new Jdbc().withDriver("org.apache.arrow.driver.jdbc.ArrowFlightJdbcDriver").withUrl(cluster.url()))
            .withGenerator(
                new Generator()
                    .withDatabase(database)
                    .withGenerate(new Generate().withGeneratedAnnotation(false))
                    .withTarget(new Target().withPackageName("birds").withDirectory(directory.toString()))));
  }

  private static void compile(Path directory) throws Exception {
    List<String> sources;
    try (Stream<Path> files = Files.walk(directory)) {
      sources = files.map(Path::toString).filter(file -> file.endsWith(".java")).toList();
    }
    assertThat(sources).isNotEmpty();
    Stream<String> options = Stream.of("-proc:none", "-d", directory.toString(), "-classpath", System.getProperty("java.class.path"));
    String[] arguments = Stream.concat(options, sources.stream()).toArray(String[]::new);
    assertThat(ToolProvider.getSystemJavaCompiler().run(null, null, null, arguments)).isZero();
  }
}
