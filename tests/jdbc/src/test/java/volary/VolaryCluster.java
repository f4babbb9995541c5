package volary;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A cluster in one process, {@code volary local}, whose gateway listens on loopback. */
final class VolaryCluster implements AutoCloseable {
  private static final Duration PATIENCE = Duration.ofSeconds(60);
  private static final Pattern LISTENS = Pattern.compile("listening on grpc(\\+tls)?://(\\S+)");

  private static final AtomicInteger NAMES = new AtomicInteger();

  private final Process process;
  private final Path output;
  private final Path log;
  private final String address;

  private VolaryCluster(Process process, Path output, Path log) throws IOException, InterruptedException {
    this.process = process;
    this.output = output;
    this.log = log;
    this.address = awaitAddress();
  }

  /** Starts one with three workers, whose files are below {@code directory}. */
  static VolaryCluster start(Path directory) throws IOException, InterruptedException {
    return start(directory, Map.of());
  }

  /** The same with these settings: environment variables. */
  static VolaryCluster start(Path directory, Map<String, String> settings)
      throws IOException, InterruptedException {
    Path output = directory.resolve("local.out");
    Path log = directory.resolve("local.log");
    List<String> command = new ArrayList<>(List.of(binary().toString(), "local", "--workers=3"));
    command.add("--listen=127.0.0.1:0");
    command.add("--data-dir=" + directory.resolve("data"));
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().keySet().removeIf(name -> name.startsWith("VOLARY_"));
    builder.environment().putAll(settings);
    builder.redirectOutput(output.toFile());
    builder.redirectError(log.toFile());
    Process process = builder.start();
    process.getOutputStream().close();
    try {
      return new VolaryCluster(process, output, log);
    } catch (IOException | InterruptedException | RuntimeException failure) {
      process.destroyForcibly();
      throw failure;
    }
  }

  /** A connection without credentials. */
  Connection connect() throws SQLException {
    return connect(Map.of());
  }

  /** A connection with these properties of the driver. */
  Connection connect(Map<String, String> properties) throws SQLException {
    Properties all = new Properties();
    all.setProperty("useEncryption", "false");
    all.putAll(properties);
    return DriverManager.getConnection("jdbc:arrow-flight-sql://" + address, all);
  }

  /** A name that no other test has. */
  static String newName(String what) {
    return what + "_" + NAMES.incrementAndGet();
  }

  /** Host and port of the gateway. */
  String address() {
    return address;
  }

  @Override
  public void close() {
    process.destroy();
    boolean ended = false;
    try {
      ended = process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
    if (!ended) {
      process.destroyForcibly();
      throw new AssertionError("the cluster did not end on SIGTERM: " + log);
    }
  }

  private String awaitAddress() throws IOException, InterruptedException {
    Instant deadline = Instant.now().plus(PATIENCE);
    while (Instant.now().isBefore(deadline)) {
      Optional<String> address = readAddress();
      if (address.isPresent()) {
        return address.get();
      }
      if (process.waitFor(10, TimeUnit.MILLISECONDS)) {
        throw new IllegalStateException("the cluster has ended:\n" + Files.readString(log));
      }
    }
    throw new IllegalStateException("the cluster is not ready:\n" + Files.readString(log));
  }

  private Optional<String> readAddress() throws IOException {
    try (BufferedReader lines = Files.newBufferedReader(output)) {
      return lines
          .lines()
          .map(LISTENS::matcher)
          .filter(Matcher::find)
          .map(found -> found.group(2))
          .findFirst();
    }
  }

  /** Runs the program to its end, which must be a good one. */
  static void run(String... arguments) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(List.of(binary().toString()));
    command.addAll(List.of(arguments));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (process.waitFor() != 0) {
      throw new IllegalStateException(command + ": " + said);
    }
  }

  private static Path binary() {
    String given = System.getenv("VOLARY_BIN");
    if (given == null) {
      throw new IllegalStateException("VOLARY_BIN does not say where the program `volary` is; `make test-jdbc` sets it");
    }
    return Path.of(given).toAbsolutePath();
  }
}
