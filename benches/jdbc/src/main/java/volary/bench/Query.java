package volary.bench;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

/** A prepared query with its own connection. */
final class Query implements AutoCloseable {
  private final Connection connection;
  private final PreparedStatement statement;
  private final Reader reader;

  Query(Connection connection, PreparedStatement statement, Reader reader) {
    this.connection = connection;
    this.statement = statement;
    this.reader = reader;
  }

  /** Runs the query, and passes its rows to {@code consumer}. */
  void read(RowConsumer consumer) throws SQLException {
    try (ResultSet result = statement.executeQuery()) {
      reader.read(result, consumer);
    }
  }

  @Override
  public void close() throws SQLException {
    // Arrow's driver does not close open statements with their connection.
    statement.close();
    connection.close();
  }

  /** Passes on each row as it comes. */
  static void rowByRow(ResultSet result, RowConsumer consumer) throws SQLException {
    while (result.next()) {
      consumer.accept(row(result));
    }
  }

  /** Collects all rows, and then passes them on. */
  static void collected(ResultSet result, RowConsumer consumer) throws SQLException {
    List<Row> rows = new ArrayList<>();
    while (result.next()) {
      rows.add(row(result));
    }
    rows.forEach(consumer::accept);
  }

  private static Row row(ResultSet result) throws SQLException {
    return new Row(result.getLong(1), result.getString(2));
  }

  /** Reads a result: {@link #rowByRow} or {@link #collected}. */
  interface Reader {
    void read(ResultSet result, RowConsumer consumer) throws SQLException;
  }
}
