package volary;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/** Reads rows into lists, which tests can compare. */
public final class Rows {
  private Rows() {}

  /** Returns the remaining rows, with the values of getObject. */
  public static List<List<Object>> of(ResultSet rows) throws SQLException {
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

  /** Runs a query, and returns its rows. */
  public static List<List<Object>> of(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(sql)) {
      return of(rows);
    }
  }

  /** Returns the columns with these names as text, or null for NULL, and closes the result. */
  public static List<List<String>> columns(ResultSet rows, String... names) throws SQLException {
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
