package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@ExtendWith(ClusterExtension.class)
class ConnectTest {
  private final VolaryCluster cluster;

  ConnectTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @Test
  void withoutCredentials() throws SQLException {
    try (Connection connection = cluster.connect()) {
      assertThat(answer(connection)).isEqualTo(42);
      assertThat(connection.isValid(1)).isTrue();
    }
  }

  @Test
  void byPassword() throws SQLException {
    try (Connection connection = cluster.connect(Map.of("user", "kea", "password", "a secret"))) {
      assertThat(answer(connection)).isEqualTo(42);
    }
  }

  @Test
  void byATokenOf20Kb() throws SQLException {
    try (Connection connection = cluster.connect(Map.of("token", "x".repeat(20_000)))) {
      assertThat(answer(connection)).isEqualTo(42);
    }
  }

  @Test
  void whatTheDriverAnswersByItselfIsNoError() throws SQLException {
    try (Connection connection = cluster.connect();
        Statement statement = connection.createStatement()) {
      statement.setFetchSize(10);
      connection.setSchema("public");
      connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
      connection.setAutoCommit(false);
      connection.commit();
      connection.rollback();
      assertThat(connection.isValid(1)).isTrue();
      assertThat(answer(connection)).isEqualTo(42);
    }
  }

  @Test
  void propertiesThatTheDriverDoesNotKnowAreHeaders() throws SQLException {
    try (Connection connection = cluster.connect(Map.of("schema", "public", "foo", "7"))) {
      assertThat(answer(connection)).isEqualTo(42);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"1", "4"})
  void withAPoolOfThreads(String threads) throws SQLException {
    try (Connection connection = cluster.connect(Map.of("threadPoolSize", threads))) {
      assertThat(answer(connection)).isEqualTo(42);
    }
  }

  @Test
  void aCatalogThatIsThere() throws SQLException {
    Connection connection = cluster.connect(Map.of("catalog", "volary"));
    assertThat(answer(connection)).isEqualTo(42);
    // Release 18.3.0 of the driver fails here with any server, because it has already shut down its channel.
    assertThatThrownBy(connection::close).hasStackTraceContaining("Channel shutdown invoked");
  }

  @Test
  void aCatalogThatIsNotThereIsRefused() {
    assertThatThrownBy(() -> cluster.connect(Map.of("catalog", "nests")))
        .isInstanceOf(SQLException.class)
        .hasStackTraceContaining("nests");
  }

  @Test
  void whereNobodyListens() throws SQLException {
    String url = "jdbc:arrow-flight-sql://127.0.0.1:1?useEncryption=false";
    try (Connection connection = DriverManager.getConnection(url)) {
      assertThatThrownBy(() -> answer(connection))
          .isInstanceOf(SQLException.class)
          .hasStackTraceContaining("Connection refused");
    }
  }

  private static int answer(Connection connection) throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("SELECT 42 AS answer")) {
      assertThat(rows.next()).isTrue();
      return rows.getInt("answer");
    }
  }
}
