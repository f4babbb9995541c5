package volary.bench;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

/** The prepared query on a connection of its own. */
final class Query implements AutoCloseable {
  private final Connection connection;
  private final PreparedStatement statement;
  private final Reader reader;

  Query(Connection connection, PreparedStatement statement, Reader reader) {
    this.connection = connection;
    this.statement = statement;
    this.reader = reader;
  }

  /** Asks for the rows, and hands them on. */
  void read(RowConsumer consumer) throws SQLException {
    try (ResultSet result = statement.executeQuery()) {
      reader.read(result, consumer);
    }
  }

  @Override
  public void close() throws SQLException {
    // A statement that is open is not closed by the driver of Arrow with its connection.
    statement.close();
    connection.close();
  }

  /** Hands each row on as it comes. */
  static void rowByRow(ResultSet result, RowConsumer consumer) throws SQLException {
    while (result.next()) {
      consumer.accept(row(result));
    }
  }

  /** Hands rows on when all have come. */
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

  /** One of the two above. */
  interface Reader {
    void read(ResultSet result, RowConsumer consumer) throws SQLException;
  }
}
