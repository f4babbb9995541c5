package volary.bench;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import volary.bench.AskerAnswer.Took;

/**
 * Asks questions through a JDBC driver, as the lines of its standard input say. Each client is a thread with its own
 * connection, and each request is a statement of its own. The benchmark {@code drivers} of benches/python starts it.
 */
final class Asker implements AutoCloseable {
  private static final int PATIENCE_SECONDS = 60;

  private final Database database;
  private final Map<String, List<Connection>> connected = new HashMap<>();

  Asker(Database database) {
    this.database = database;
  }

  /** Answers requests until the input ends. The argument is the name of a {@link Database}. */
  public static void main(String[] arguments) {
    int code = 0;
    try {
      run(Database.valueOf(arguments[0]));
    } catch (Exception failure) {
      failure.printStackTrace();
      code = 1;
    }
    // Threads of a driver must not keep the process alive.
    System.exit(code);
  }

  private static void run(Database database) throws Exception {
    Gson gson = new GsonBuilder().setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES).create();
    String driver = DriverManager.getDriver(database.url("localhost:1")).getClass().getPackage().getImplementationVersion();
    String version = driver == null ? "unknown" : driver;
    System.out.println(gson.toJson(Map.of("versions", Map.of(database.driver(), version))));
    try (Asker asker = new Asker(database);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      for (String line = input.readLine(); line != null; line = input.readLine()) {
        System.out.println(gson.toJson(asker.ask(gson.fromJson(line, AskerRequest.class))));
      }
    }
  }

  /** Lets all clients ask at the same time. */
  AskerAnswer ask(AskerRequest request) throws SQLException, InterruptedException, ExecutionException {
    List<Connection> connections = connected.computeIfAbsent(request.address(), address -> new ArrayList<>());
    while (connections.size() < request.clients()) {
      connections.add(DriverManager.getConnection(database.url(request.address())));
    }
    ExecutorService threads = Executors.newFixedThreadPool(request.clients());
    try {
      CyclicBarrier ready = new CyclicBarrier(request.clients());
      List<Future<List<Took>>> asking = new ArrayList<>();
      for (int client = 0; client < request.clients(); client++) {
        int number = client;
        asking.add(
            threads.submit(
                () -> {
                  ready.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
                  return askAll(connections.get(number), request, number);
                }));
      }
      List<Took> requests = new ArrayList<>();
      for (Future<List<Took>> client : asking) {
        requests.addAll(client.get());
      }
      return AskerAnswer.of(requests);
    } finally {
      threads.shutdownNow();
    }
  }

  @Override
  public void close() throws SQLException {
    for (List<Connection> connections : connected.values()) {
      for (Connection connection : connections) {
        connection.close();
      }
    }
  }

  private static List<Took> askAll(Connection connection, AskerRequest request, int client) throws SQLException {
    List<Took> requests = new ArrayList<>(request.requests());
    for (int number = 0; number < request.requests(); number++) {
      long key = request.key(client, number);
      String text = request.text(key);
      long begin = System.nanoTime();
      Found found = request.hasParameter() ? bound(connection, text, key) : plain(connection, text);
      requests.add(new Took(begin, System.nanoTime()));
      if (found.rows != request.rows() || (request.check() && found.first != key)) {
        throw new SQLException("key " + key + " of \"" + request.sql() + "\": " + found);
      }
    }
    return requests;
  }

  private static Found bound(Connection connection, String text, long key) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(text)) {
      statement.setLong(1, key);
      try (ResultSet result = statement.executeQuery()) {
        return Found.in(result);
      }
    }
  }

  private static Found plain(Connection connection, String text) throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet result = statement.executeQuery(text)) {
      return Found.in(result);
    }
  }

  /**
   * What a result has.
   *
   * @param rows the number of rows
   * @param first the first value of the first row
   */
  private record Found(int rows, long first) {
    static Found in(ResultSet result) throws SQLException {
      int columns = result.getMetaData().getColumnCount();
      int rows = 0;
      long first = 0;
      while (result.next()) {
        first = rows == 0 ? result.getLong(1) : first;
        for (int column = 2; column <= columns; column++) {
          result.getObject(column);
        }
        rows++;
      }
      return new Found(rows, first);
    }
  }
}
