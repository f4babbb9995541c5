package volary.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/** The servers that are compared. All have the same rows, and can be reached through each network. */
final class Databases implements AutoCloseable {
  private final List<Server> servers = new ArrayList<>();
  private final List<DelayProxy> proxies = new ArrayList<>();
  private final Map<Database, Map<Network, String>> urls = new EnumMap<>(Database.class);

  private Databases() {}

  /** Starts Volary, and PostgreSQL if it is installed, and loads the rows. */
  static Databases start(Path directory, Size size) throws IOException, InterruptedException, SQLException {
    Databases databases = new Databases();
    try {
      databases.servers.add(VolaryServer.start(directory));
      Optional<PostgresPrograms> postgres = PostgresPrograms.find();
      if (postgres.isPresent()) {
        databases.servers.add(PostgresServer.start(postgres.get()));
      } else {
        System.err.println(Table.NAME + ": without PostgreSQL: " + PostgresPrograms.MISSING);
      }
      databases.load(directory.resolve("rows.csv"), size.rowsOfTable());
      databases.connect(size.networks());
      return databases;
    } catch (IOException | InterruptedException | SQLException | RuntimeException failure) {
      databases.close();
      throw failure;
    }
  }

  /** Returns the running databases. */
  List<Database> running() {
    return servers.stream().map(Server::database).toList();
  }

  /** Returns the URL of a database through a network. */
  String url(Database database, Network network) {
    return urls.get(database).get(network);
  }

  /** Returns the versions of the databases and of their drivers, by name. */
  Map<String, String> versions() throws SQLException {
    Map<String, String> versions = new TreeMap<>();
    for (Server server : servers) {
      try (Connection connection = DriverManager.getConnection(url(server.database(), Network.LOCAL))) {
        DatabaseMetaData about = connection.getMetaData();
        // In Debian, the name of the package follows after a space.
        versions.put(server.database().label().toLowerCase(Locale.ROOT), about.getDatabaseProductVersion().split(" ", 2)[0]);
        versions.put(server.database().driver(), about.getDriverVersion());
      }
    }
    return versions;
  }

  @Override
  public void close() throws IOException {
    for (DelayProxy proxy : proxies) {
      proxy.close();
    }
    for (Server server : servers) {
      server.close();
    }
  }

  private void load(Path csv, int rows) throws IOException, SQLException {
    BenchRows.write(csv, rows);
    for (Server server : servers) {
      server.load(csv);
    }
    Files.delete(csv);
  }

  private void connect(List<Network> networks) throws IOException {
    for (Server server : servers) {
      Map<Network, String> ways = new EnumMap<>(Network.class);
      for (Network network : networks) {
        ways.put(network, server.database().url(address(server, network)));
      }
      urls.put(server.database(), ways);
    }
  }

  private String address(Server server, Network network) throws IOException {
    if (network.roundTrip().isZero()) {
      return server.address();
    }
    DelayProxy proxy = DelayProxy.start(server.address(), network.roundTrip().dividedBy(2));
    proxies.add(proxy);
    return proxy.address();
  }
}
