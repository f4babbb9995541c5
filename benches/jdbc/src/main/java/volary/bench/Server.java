package volary.bench;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.SQLException;

/** A database that runs, with the rows. */
interface Server extends AutoCloseable {
  Database database();

  /** Host and port. */
  String address();

  /** Makes the table of the rows that are in this CSV file. */
  void load(Path csv) throws SQLException, IOException;

  @Override
  void close() throws IOException;
}
