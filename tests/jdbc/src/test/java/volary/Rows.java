package volary;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/** Reads what tests compare. */
final class Rows {
  private Rows() {}

  /** All rows that are left, as lists of what getObject gives. */
  static List<List<Object>> of(ResultSet rows) throws SQLException {
    int columns = rows.getMetaData().getColumnCount();
    List<List<Object>> all = new ArrayList<>();
    while (rows.next()) {
      List<Object> row = new ArrayList<>();
      for (int column = 1; column <= columns; column++) {
        row.add(rows.getObject(column));
      }
      all.add(row);
    }
    return all;
  }

  /** The rows of a query. */
  static List<List<Object>> of(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(sql)) {
      return of(rows);
    }
  }

  /** The values of these columns, by name, of a result that is closed then; null as it is. */
  static List<List<String>> columns(ResultSet rows, String... names) throws SQLException {
    try (rows) {
      List<List<String>> all = new ArrayList<>();
      while (rows.next()) {
        List<String> row = new ArrayList<>();
        for (String name : names) {
          row.add(rows.getString(name));
        }
        all.add(row);
      }
      return all;
    }
  }
}
