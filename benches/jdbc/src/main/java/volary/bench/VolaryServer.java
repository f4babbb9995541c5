package volary.bench;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.regex.Pattern;

/** {@code volary local}: a gateway and its workers in one process, with default settings, on loopback. */
final class VolaryServer implements Server {
  private static final Pattern LISTENS = Pattern.compile("listening on grpc://(\\S+)");
  private static final int WORKERS = 4;

  private final Child process;
  private final String address;

  private VolaryServer(Child process, String address) {
    this.process = process;
    this.address = address;
  }

  /** Starts a server. Its files are below the directory, and it may load files from there. */
  static VolaryServer start(Path directory) throws IOException, InterruptedException {
    ProcessBuilder builder = new ProcessBuilder(program().toString(), "local", "--listen=127.0.0.1:0", "--workers=" + WORKERS);
    builder.command().addAll(List.of("--data-dir=" + directory.resolve("data"), "--allow-root=" + directory));
    // Settings of the user, in variables or in a volary.toml, must not affect the benchmark.
    builder.environment().keySet().removeIf(name -> name.startsWith("VOLARY_"));
    builder.directory(directory.toFile());
    Child process = Child.start(builder, directory.resolve("volary.log"));
    try {
      return new VolaryServer(process, process.await(LISTENS).group(1));
    } catch (IOException | InterruptedException | RuntimeException failure) {
      process.close();
      throw failure;
    }
  }

  @Override
  public Database database() {
    return Database.VOLARY;
  }

  @Override
  public String address() {
    return address;
  }

  @Override
  public void load(Path csv) throws SQLException {
    // One shard per worker. Each further shard takes time, which in a small query would hide the time of the rows.
    String shards = " WITH (shard_key = 'id', shards = " + WORKERS + ")";
    try (Connection connection = DriverManager.getConnection(database().url(address));
        Statement statement = connection.createStatement()) {
      statement.executeUpdate("CREATE TABLE " + BenchRows.TABLE + " " + BenchRows.COLUMNS + shards);
      statement.executeUpdate("COPY " + BenchRows.TABLE + " (id, payload) FROM '" + csv + "' WITH (FORMAT csv)");
    }
  }

  @Override
  public void close() throws IOException {
    process.close();
  }

  private static Path program() {
    String given = System.getenv("VOLARY_BIN");
    if (given == null) {
      throw new IllegalStateException("VOLARY_BIN does not say where the program `volary` is; `make bench-jdbc` sets it");
    }
    return Path.of(given).toAbsolutePath();
  }
}
