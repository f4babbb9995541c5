package volary.bench;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.SQLException;

/** A running database server. */
interface Server extends AutoCloseable {
  Database database();

  /** Returns the host and port. */
  String address();

  /** Creates the table, and loads the rows of this CSV file into it. */
  void load(Path csv) throws SQLException, IOException;

  @Override
  void close() throws IOException;
}
