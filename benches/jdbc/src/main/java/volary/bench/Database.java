package volary.bench;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.logging.Level;
import java.util.logging.Logger;

/** A database, with the way in which its driver reads rows in each mode. */
public enum Database {
  POSTGRESQL("PostgreSQL", "pgjdbc") {
    @Override
    String url(String address) {
      return "jdbc:postgresql://" + address + "/postgres?user=postgres";
    }

    /** The driver reads all rows before it returns, unless there is a fetch size, and a transaction for the cursor. */
    @Override
    Query query(String url, Mode mode, int rows) throws SQLException {
      Connection connection = DriverManager.getConnection(url);
      if (mode == Mode.ROW_BY_ROW) {
        connection.setAutoCommit(false);
      }
      PreparedStatement statement = connection.prepareStatement(BenchRows.query(rows));
      if (mode == Mode.ROW_BY_ROW) {
        statement.setFetchSize(fetchSize(rows));
      }
      return new Query(connection, statement, Query::rowByRow);
    }
  },
  VOLARY("Volary", "flight-sql-jdbc-driver") {
    @Override
    String url(String address) {
      return "jdbc:arrow-flight-sql://" + address + "?useEncryption=false";
    }

    /** The driver always returns rows as they come. To have all rows at once, a program must collect them. */
    @Override
    Query query(String url, Mode mode, int rows) throws SQLException {
      Connection connection = DriverManager.getConnection(url);
      PreparedStatement statement = connection.prepareStatement(BenchRows.query(rows));
      return new Query(connection, statement, mode == Mode.AT_ONCE ? Query::collected : Query::rowByRow);
    }
  };

  // The driver logs how it allocates memory. The constant keeps its logger, which could otherwise lose its level.
  private static final Logger DRIVER = Logger.getLogger("org.apache.arrow");

  static {
    DRIVER.setLevel(Level.WARNING);
  }

  private final String label;
  private final String driver;

  Database(String label, String driver) {
    this.label = label;
    this.driver = driver;
  }

  String label() {
    return label;
  }

  String driver() {
    return driver;
  }

  /** Returns the JDBC URL of a server at this host and port. */
  abstract String url(String address);

  /** Connects, and prepares the query for this number of rows, to be read in this mode. */
  abstract Query query(String url, Mode mode, int rows) throws SQLException;

  /** Returns the fetch size of pgjdbc. Each fetch is a round trip: a million rows by hundreds at 10 ms take 100 s. */
  static int fetchSize(int rows) {
    return rows <= 1_000 ? 100 : 10_000;
  }
}
