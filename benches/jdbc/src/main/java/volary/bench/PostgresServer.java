package volary.bench;

import java.io.IOException;
import java.io.Reader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipalLookupService;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.postgresql.PGConnection;

/** A PostgreSQL server on loopback with its own data directory, which {@code initdb} creates. */
final class PostgresServer implements Server {
  private static final Pattern READY = Pattern.compile("database system is ready to accept connections");
  /** Debian's user for PostgreSQL, which refuses to run as root. */
  private static final String USER = "postgres";

  private final Directory directory;
  private final Child process;
  private final String address;

  private PostgresServer(Directory directory, Child process, String address) {
    this.directory = directory;
    this.process = process;
    this.address = address;
  }

  static PostgresServer start(PostgresPrograms programs) throws IOException, InterruptedException {
    // This directory is not below the other temporary directory, which the user of PostgreSQL cannot enter.
    Directory directory = Directory.temporary();
    try {
      if (isRoot()) {
        UserPrincipalLookupService users = directory.path().getFileSystem().getUserPrincipalLookupService();
        Files.setOwner(directory.path(), users.lookupPrincipalByName(USER));
      }
      Path data = directory.path().resolve("data");
      String[] options = {"--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"};
      ProcessBuilder initdb = command(directory, programs.initdb(), "--pgdata=" + data);
      initdb.command().addAll(List.of(options));
      Child.run(initdb);
      int port = freePort();
      ProcessBuilder server =
          command(
              directory, programs.postgres(), "-D", data.toString(), "-p", Integer.toString(port), "-h", "127.0.0.1", "-k", "");
      Child process = Child.start(server, directory.path().resolve("postgres.log"));
      try {
        process.await(READY);
        return new PostgresServer(directory, process, "127.0.0.1:" + port);
      } catch (IOException | InterruptedException | RuntimeException failure) {
        process.close();
        throw failure;
      }
    } catch (IOException | InterruptedException | RuntimeException failure) {
      directory.close();
      throw failure;
    }
  }

  @Override
  public Database database() {
    return Database.POSTGRESQL;
  }

  @Override
  public String address() {
    return address;
  }

  @Override
  public void load(Path csv) throws SQLException, IOException {
    try (Connection connection = DriverManager.getConnection(database().url(address));
        Statement statement = connection.createStatement();
        Reader rows = Files.newBufferedReader(csv)) {
      statement.executeUpdate("CREATE TABLE " + BenchRows.TABLE + " " + BenchRows.COLUMNS);
      String copy = "COPY " + BenchRows.TABLE + " (id, payload) FROM STDIN WITH (FORMAT csv)";
      connection.unwrap(PGConnection.class).getCopyAPI().copyIn(copy, rows);
      statement.executeUpdate("ALTER TABLE " + BenchRows.TABLE + " ADD PRIMARY KEY (id)");
      // Autovacuum would do this at some later time.
      statement.executeUpdate("VACUUM ANALYZE " + BenchRows.TABLE);
    }
  }

  @Override
  public void close() throws IOException {
    process.close();
    directory.close();
  }

  private static ProcessBuilder command(Directory directory, String... program) {
    List<String> command = new ArrayList<>();
    if (isRoot()) {
      command.addAll(List.of("setpriv", "--reuid=" + USER, "--regid=" + USER, "--init-groups"));
    }
    command.addAll(List.of(program));
    return new ProcessBuilder(command).directory(directory.path().toFile());
  }

  private static boolean isRoot() {
    return System.getProperty("user.name").equals("root");
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }
}
