package volary;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A {@code volary} process that listens on loopback. */
public final class VolaryProcess implements AutoCloseable {
  private static final Duration PATIENCE = Duration.ofSeconds(60);
  private static final Pattern LISTENS = Pattern.compile("listening on grpc(\\+tls)?://(\\S+)");

  private final Process process;
  private final Path output;
  private final Path log;
  private final String address;

  private VolaryProcess(Process process, Path output, Path log) throws IOException, InterruptedException {
    this.process = process;
    this.output = output;
    this.log = log;
    this.address = awaitAddress();
  }

  /**
   * Starts a process, and waits until it listens. Its data, output and log are in {@code directory}, in files and a
   * directory called {@code name}. The settings are environment variables.
   */
  public static VolaryProcess start(Path directory, String name, Map<String, String> settings, String... arguments)
      throws IOException, InterruptedException {
    Path output = directory.resolve(name + ".out");
    Path log = directory.resolve(name + ".log");
    List<String> command = new ArrayList<>(List.of(binary().toString()));
    command.addAll(List.of(arguments));
    command.add("--listen=127.0.0.1:0");
    command.add("--data-dir=" + directory.resolve(name));
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().keySet().removeIf(variable -> variable.startsWith("VOLARY_"));
    builder.environment().putAll(settings);
    builder.redirectOutput(output.toFile());
    builder.redirectError(log.toFile());
    Process process = builder.start();
    process.getOutputStream().close();
    try {
      return new VolaryProcess(process, output, log);
    } catch (IOException | InterruptedException | RuntimeException failure) {
      process.destroyForcibly();
      throw failure;
    }
  }

  /** Returns the host and port at which the process listens. */
  public String address() {
    return address;
  }

  /** Sends SIGKILL, and waits for the end of the process. */
  public void kill() throws InterruptedException {
    process.destroyForcibly().waitFor();
  }

  /** Sends SIGTERM, and fails if the process does not end. Does nothing if it has ended already. */
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
      throw new AssertionError("it did not end on SIGTERM: " + log);
    }
  }

  /** Runs the program to its end. Throws an exception if its exit code is not 0. */
  public static void run(String... arguments) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(List.of(binary().toString()));
    command.addAll(List.of(arguments));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (process.waitFor() != 0) {
      throw new IllegalStateException(command + ": " + said);
    }
  }

  private String awaitAddress() throws IOException, InterruptedException {
    Instant deadline = Instant.now().plus(PATIENCE);
    while (Instant.now().isBefore(deadline)) {
      Optional<String> found = readAddress();
      if (found.isPresent()) {
        return found.get();
      }
      if (process.waitFor(10, TimeUnit.MILLISECONDS)) {
        throw new IllegalStateException("it has ended:\n" + Files.readString(log));
      }
    }
    throw new IllegalStateException("it is not ready:\n" + Files.readString(log));
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

  private static Path binary() {
    String given = System.getenv("VOLARY_BIN");
    if (given == null) {
      throw new IllegalStateException("VOLARY_BIN does not say where the program `volary` is; `make test-jdbc` sets it");
    }
    return Path.of(given).toAbsolutePath();
  }
}
