package volary;

import static org.assertj.core.api.Assertions.assertThat;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tests a large result in a separate JVM with a small heap. */
@Tag("small-heap")
@ExtendWith(ClusterExtension.class)
class LargeResultTest {
  private static final long ROWS = 5_000_000;
  private static final long HEAP_BYTES = 64L << 20;

  private final VolaryCluster cluster;

  LargeResultTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @Test
  void fiveMillionRowsAreReadWithAHeapOf64Megabytes() throws SQLException {
    assertThat(Runtime.getRuntime().maxMemory()).isLessThanOrEqualTo(HEAP_BYTES);
    String sql = "SELECT value, concat('row number ', CAST(value AS VARCHAR)) AS text FROM generate_series(1, " + ROWS + ") AS t (value)";
    long count = 0;
    long sum = 0;
    long characters = 0;
    try (Connection connection = cluster.connect();
        Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(sql)) {
      while (rows.next()) {
        count++;
        sum += rows.getLong(1);
        characters += rows.getString(2).length();
      }
    }
    assertThat(count).isEqualTo(ROWS);
    assertThat(sum).isEqualTo(ROWS * (ROWS + 1) / 2);
    assertThat(characters).isGreaterThan(ROWS * "row number 1".length());
  }
}
