package volary;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tests the connect string of docs/clients/jdbc.md. */
@ExtendWith(ClusterExtension.class)
class DocumentationTest {
  private static final Path PAGE = Path.of("..", "..", "docs", "clients", "jdbc.md");
  private static final Pattern URL = Pattern.compile("^jdbc:.*$", Pattern.MULTILINE);

  private final VolaryCluster cluster;

  DocumentationTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @Test
  void theConnectString() throws IOException, SQLException {
    Matcher found = URL.matcher(Files.readString(PAGE));
    assertThat(found.find()).isTrue();
    String url = found.group().replace("127.0.0.1:7100", cluster.address());
    try (Connection connection = DriverManager.getConnection(url)) {
      assertThat(Rows.of(connection, "SELECT 1 AS n")).containsExactly(List.of(1L));
    }
  }
}
