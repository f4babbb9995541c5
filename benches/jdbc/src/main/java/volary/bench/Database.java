package volary.bench;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.logging.Level;
import java.util.logging.Logger;

/** What is asked, and how its driver is told the mode. */
public enum Database {
  POSTGRESQL("PostgreSQL", "pgjdbc") {
    @Override
    String url(String address) {
      return "jdbc:postgresql://" + address + "/postgres?user=postgres";
    }

    /** The driver itself reads all rows before it returns, unless there is a fetch size and a transaction to keep the cursor in. */
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

    /** The driver always hands rows on as they come: whoever wants all of them at once makes a list. */
    @Override
    Query query(String url, Mode mode, int rows) throws SQLException {
      Connection connection = DriverManager.getConnection(url);
      PreparedStatement statement = connection.prepareStatement(BenchRows.query(rows));
      return new Query(connection, statement, mode == Mode.AT_ONCE ? Query::collected : Query::rowByRow);
    }
  };

  // Of the driver, which logs how it allocates memory. A logger that nobody holds forgets its level.
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

  /** Of a server that listens at this host and port. */
  abstract String url(String address);

  /** A connection with the prepared query, whose result of so many rows is read in this mode. */
  abstract Query query(String url, Mode mode, int rows) throws SQLException;

  /** Of pgjdbc. Each fetch is a round trip: a million rows by hundreds would be nothing else, 100 seconds of them at 10 ms. */
  static int fetchSize(int rows) {
    return rows <= 1_000 ? 100 : 10_000;
  }
}
