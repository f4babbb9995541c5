package volary.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Statement;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class AskerTest {
  private static final String POINT = "SELECT id, name FROM birds WHERE id = ?";

  @Test
  void everyClientGetsTheRowsOfItsOwnKeysInBothForms(@TempDir Path directory) throws Exception {
    try (VolaryServer server = VolaryServer.start(directory);
        Asker asker = new Asker(Database.VOLARY)) {
      try (Connection connection = DriverManager.getConnection(Database.VOLARY.url(server.address()));
          Statement statement = connection.createStatement()) {
        statement.executeUpdate("CREATE TABLE birds (id BIGINT, name VARCHAR) WITH (shard_key = 'id')");
        statement.executeUpdate("INSERT INTO birds SELECT value, 'bird ' || value FROM generate_series(1, 20)");
      }
      for (String form : List.of(AskerRequest.LITERAL, AskerRequest.PARAMETER)) {
        AskerAnswer answer = asker.ask(new AskerRequest(server.address(), 2, 5, POINT, form, 0, 20, 1, true));
        assertThat(answer.seconds()).hasSize(10).allMatch(seconds -> seconds > 0 && seconds <= answer.totalSeconds());
      }
      // Half of these keys have no row.
      AskerRequest missing = new AskerRequest(server.address(), 2, 5, POINT, AskerRequest.LITERAL, 0, 40, 1, true);
      assertThatThrownBy(() -> asker.ask(missing)).isInstanceOf(ExecutionException.class).hasMessageContaining("rows=0");
    }
  }

  @Test
  void noTwoRequestsOfARunHaveTheSameKey() {
    AskerRequest request = new AskerRequest("", 4, 25, POINT, AskerRequest.PARAMETER, 100, 1000, 1, true);
    long different = 0;
    for (int client = 0; client < 4; client++) {
      int number = client;
      different += IntStream.range(0, 25).mapToLong(place -> request.key(number, place)).distinct().count();
    }
    assertThat(different).isEqualTo(100);
    assertThat(request.key(0, 0)).isEqualTo(1 + 100 * 7919 % 1000);
    assertThat(request.key(1, 0)).isEqualTo(1 + 125 * 7919 % 1000);
  }
}
