package volary;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that a connection outlives its first token, because answers of the gateway replace the token. */
class TokenRotationTest {
  private static final String ADMIN_PASSWORD = "correct horse battery";
  private static final Duration LIFETIME = Duration.ofSeconds(3);

  @Test
  void aConnectionOutlivesItsToken(@TempDir Path directory) throws IOException, InterruptedException, SQLException {
    Map<String, String> settings =
        Map.of(
            "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD", ADMIN_PASSWORD,
            "VOLARY_GATEWAY__SECURITY__TOKEN_LIFETIME", LIFETIME.toSeconds() + "s");
    try (VolaryCluster cluster = VolaryCluster.start(directory, settings);
        Connection connection = cluster.connect(Map.of("user", "admin", "password", ADMIN_PASSWORD))) {
      Instant expired = Instant.now().plus(LIFETIME.multipliedBy(2));
      do {
        assertThat(Rows.of(connection, "SELECT user_name FROM system.queries")).containsExactly(List.of("admin"));
      } while (Instant.now().isBefore(expired));
    }
  }
}
