package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests a cluster that has users and accepts only TLS. */
class SecurityTest {
  private static final String ADMIN_PASSWORD = "correct horse battery";

  @TempDir private static Path directory;
  private static VolaryCluster cluster;

  @BeforeAll
  static void start() throws IOException, InterruptedException {
    VolaryProcess.run(
        "certificates", "--dir=" + file(""), "--host=localhost", "--host=127.0.0.1", "--client=kea");
    cluster =
        VolaryCluster.start(
            directory,
            Map.of(
                "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD", ADMIN_PASSWORD,
                "VOLARY_GATEWAY__TLS__CERTIFICATE", file("node.pem"),
                "VOLARY_GATEWAY__TLS__KEY", file("node.key"),
                "VOLARY_GATEWAY__TLS__AUTHORITIES", file("authority.pem")));
  }

  @AfterAll
  static void stop() {
    cluster.close();
  }

  @Test
  void byPassword() throws SQLException {
    try (Connection connection = admin()) {
      assertThat(text(connection, "SELECT user_name FROM system.queries")).isEqualTo("admin");
    }
  }

  @Test
  void byWrongPassword() {
    assertThatThrownBy(() -> connect(Map.of("user", "admin", "password", "wrong")))
        .isInstanceOf(SQLException.class)
        .hasStackTraceContaining("the user name or the password is wrong; check both");
  }

  @Test
  void withoutCredentials() throws SQLException {
    try (Connection connection = connect(Map.of())) {
      assertThatThrownBy(() -> text(connection, "SELECT 1"))
          .isInstanceOf(SQLException.class)
          .hasStackTraceContaining("UNAUTHENTICATED: log in");
    }
  }

  @Test
  void byToken() throws SQLException {
    String token;
    try (Connection connection = admin()) {
      token = text(connection, "CREATE TOKEN jdbc VALID FOR '1 day'");
    }
    try (Connection connection = connect(Map.of("token", token))) {
      assertThat(text(connection, "SELECT user_name FROM system.queries")).isEqualTo("admin");
      try (Connection other = admin()) {
        execute(other, "DROP TOKEN jdbc");
      }
      assertThatThrownBy(() -> text(connection, "SELECT 1")).hasStackTraceContaining("UNAUTHENTICATED");
    }
    assertThatThrownBy(() -> connect(Map.of("token", token)))
        .isInstanceOf(SQLException.class)
        .hasStackTraceContaining("CREATE TOKEN");
  }

  @Test
  void whatWasNotGrantedIsRefusedWithWhoGrantsIt() throws SQLException {
    try (Connection connection = admin()) {
      execute(connection, "CREATE USER kaka PASSWORD 'a password of hers'");
      execute(connection, "CREATE TABLE nests AS SELECT 7 AS k");
    }
    try (Connection connection = connect(Map.of("user", "kaka", "password", "a password of hers"))) {
      Messages.of(() -> text(connection, "SELECT k FROM nests"))
          .contains("NOT_FOUND: query ")
          .contains("table \"nests\" does not exist, or user \"kaka\" may not see it")
          .contains("GRANT SELECT ON \"nests\" TO \"kaka\"");
      try (ResultSet tables = connection.getMetaData().getTables(null, null, "nests", null)) {
        assertThat(tables.next()).isFalse();
      }
      try (Connection admin = admin()) {
        execute(admin, "GRANT SELECT ON nests TO kaka");
      }
      assertThat(text(connection, "SELECT k FROM nests")).isEqualTo("7");
    }
  }

  @Test
  void byMutualTls() throws SQLException {
    Map<String, String> shown =
        Map.of(
            "user", "admin",
            "password", ADMIN_PASSWORD,
            "clientCertificate", file("kea.pem"),
            "clientKey", file("kea.key"));
    try (Connection connection = connect(shown)) {
      assertThat(text(connection, "SELECT 42")).isEqualTo("42");
    }
  }

  @Test
  void withoutTheAuthority() {
    Map<String, String> untrusting =
        Map.of("useEncryption", "true", "useSystemTrustStore", "true", "user", "admin", "password", ADMIN_PASSWORD);
    assertThatThrownBy(() -> cluster.connect(untrusting)).isInstanceOf(SQLException.class);
    Map<String, String> plain = Map.of("user", "admin", "password", ADMIN_PASSWORD);
    assertThatThrownBy(() -> cluster.connect(plain)).isInstanceOf(SQLException.class);
  }

  private static Connection admin() throws SQLException {
    return connect(Map.of("user", "admin", "password", ADMIN_PASSWORD));
  }

  private static Connection connect(Map<String, String> properties) throws SQLException {
    Map<String, String> all = new HashMap<>(properties);
    all.put("useEncryption", "true");
    all.put("tlsRootCerts", file("authority.pem"));
    return cluster.connect(all);
  }

  private static String text(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(sql)) {
      assertThat(rows.next()).isTrue();
      return rows.getString(1);
    }
  }

  private static void execute(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(sql);
    }
  }

  private static String file(String name) {
    return directory.resolve("certificates").resolve(name).toString();
  }
}
