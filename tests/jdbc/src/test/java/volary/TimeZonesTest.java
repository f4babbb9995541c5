package volary;

import static org.assertj.core.api.Assertions.assertThat;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZonedDateTime;
import java.util.Calendar;
import java.util.TimeZone;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests that a JVM in any time zone reads and writes the same instants. */
@ExtendWith(ClusterExtension.class)
class TimeZonesTest {
  private static final TimeZone OF_THIS_MACHINE = TimeZone.getDefault();
  /** Release 18.3.0 of the driver adds the offset of the JVM twice to a time that is set without a calendar. */
  private static final Calendar UTC = Calendar.getInstance(TimeZone.getTimeZone("UTC"));

  private static final Instant NOON = Instant.parse("2026-07-01T12:00:00Z");

  private final VolaryCluster cluster;

  TimeZonesTest(VolaryCluster cluster) {
    this.cluster = cluster;
  }

  @AfterEach
  void resetZone() {
    TimeZone.setDefault(OF_THIS_MACHINE);
  }

  private static void execute(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(sql);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"UTC", "Europe/Berlin", "America/New_York"})
  void theClassesOfJavaTimeAreRightInAnySession(String zone) throws SQLException {
    TimeZone.setDefault(TimeZone.getTimeZone(zone));
    try (Connection connection = cluster.connect()) {
      for (String session : new String[] {"UTC", "Asia/Tokyo"}) {
        execute(connection, "SET timezone = '" + session + "'");
        try (Statement statement = connection.createStatement();
            ResultSet rows = statement.executeQuery("SELECT TIMESTAMPTZ '2026-07-01T12:00:00Z' AS at")) {
          assertThat(rows.next()).isTrue();
          assertThat(rows.getObject(1, Instant.class)).isEqualTo(NOON);
          assertThat(rows.getObject(1, OffsetDateTime.class).toInstant()).isEqualTo(NOON);
          assertThat(rows.getObject(1, ZonedDateTime.class).toInstant()).isEqualTo(NOON);
        }
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"UTC", "Europe/Berlin", "America/New_York"})
  void timestampsAreRightInASessionWithTheZoneOfTheJvm(String zone) throws SQLException {
    TimeZone.setDefault(TimeZone.getTimeZone(zone));
    String table = VolaryCluster.newName("instants");
    try (Connection connection = cluster.connect()) {
      execute(connection, "SET timezone = '" + zone + "'");
      execute(connection, "CREATE TABLE " + table + " (k BIGINT, at TIMESTAMPTZ) WITH (shard_key = 'k', shards = 4)");
      try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + table + " VALUES (?, ?)")) {
        for (long key = 1; key <= 2; key++) {
          insert.setLong(1, key);
          insert.setTimestamp(2, Timestamp.from(NOON), UTC);
          insert.addBatch();
        }
        insert.executeBatch();
        insert.setLong(1, 3);
        insert.setTimestamp(2, Timestamp.from(NOON), UTC);
        insert.executeUpdate();
      }
      String query = "SELECT k, at, CAST(at AT TIME ZONE 'UTC' AS VARCHAR) AS t FROM " + table + " WHERE at = ? ORDER BY k";
      try (PreparedStatement select = connection.prepareStatement(query)) {
        select.setTimestamp(1, Timestamp.from(NOON), UTC);
        try (ResultSet rows = select.executeQuery()) {
          for (long key = 1; key <= 3; key++) {
            assertThat(rows.next()).isTrue();
            assertThat(rows.getTimestamp(2).toInstant()).isEqualTo(NOON);
            assertThat(rows.getString(3)).startsWith("2026-07-01T12:00:00");
          }
          assertThat(rows.next()).isFalse();
        }
      } finally {
        execute(connection, "DROP TABLE " + table);
      }
    }
  }
}
