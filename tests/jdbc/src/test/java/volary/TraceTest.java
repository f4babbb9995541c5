package volary;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that the driver passes the trace that a program is in. */
class TraceTest {
  private static final String TRACE = "0af7651916cd43dd8448eb211c80319c";
  /** Nothing listens there. A cluster makes traces all the same. */
  private static final String COLLECTOR = "http://127.0.0.1:9";

  @Test
  void aStatementContinuesTheTraceOfTheProperty(@TempDir Path directory)
      throws IOException, InterruptedException, SQLException {
    Map<String, String> traced = Map.of("traceparent", "00-" + TRACE + "-b7ad6b7169203331-01");
    try (VolaryCluster cluster = VolaryCluster.start(directory, Map.of("VOLARY_TRACES__ENDPOINT", COLLECTOR));
        Connection connection = cluster.connect(traced);
        Connection other = cluster.connect()) {
      String ofThisStatement = "SELECT trace_id FROM system.queries";
      assertThat(Rows.of(connection, ofThisStatement)).containsExactly(List.of(TRACE));
      assertThat(Rows.of(other, ofThisStatement)).doesNotContain(List.of(TRACE));
    }
  }
}
