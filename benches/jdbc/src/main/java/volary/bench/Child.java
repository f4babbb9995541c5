package volary.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A child process, whose output goes to a file. It ends with this process, also on Ctrl-C. */
final class Child implements AutoCloseable {
  private static final Duration PATIENCE = Duration.ofSeconds(60);
  private static final Duration POLL = Duration.ofMillis(10);

  private final Process process;
  private final Path output;

  private Child(Process process, Path output) {
    this.process = process;
    this.output = output;
  }

  static Child start(ProcessBuilder builder, Path output) throws IOException {
    Process process = builder.redirectErrorStream(true).redirectOutput(output.toFile()).start();
    process.getOutputStream().close();
    Child child = new Child(process, output);
    OnExit.add(child);
    return child;
  }

  /** Runs a program to its end, and returns its output. Throws an exception if its exit code is not 0. */
  static String run(ProcessBuilder builder) throws IOException, InterruptedException {
    Process process = builder.redirectErrorStream(true).start();
    process.getOutputStream().close();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (process.waitFor() != 0) {
      throw new IOException(builder.command() + " has failed: " + said);
    }
    return said;
  }

  /** Waits for a line of the output, and returns its match. Throws an exception if the line does not come. */
  Matcher await(Pattern line) throws IOException, InterruptedException {
    Instant deadline = Instant.now().plus(PATIENCE);
    while (Instant.now().isBefore(deadline)) {
      // This comes before the look at the output, because a process may write the line and end.
      boolean ended = process.waitFor(POLL.toMillis(), TimeUnit.MILLISECONDS);
      Optional<Matcher> found = find(line);
      if (found.isPresent()) {
        return found.get();
      }
      if (ended) {
        throw new IOException("the process has ended: " + Files.readString(output));
      }
    }
    throw new IOException("the process is not ready: " + Files.readString(output));
  }

  private Optional<Matcher> find(Pattern line) throws IOException {
    try (BufferedReader lines = Files.newBufferedReader(output)) {
      return lines.lines().map(line::matcher).filter(Matcher::find).findFirst();
    }
  }

  @Override
  public void close() throws IOException {
    process.destroy();
    try {
      if (!process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
        process.destroyForcibly();
        throw new IOException("the process did not end on SIGTERM: " + Files.readString(output));
      }
    } catch (InterruptedException stopped) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    } finally {
      OnExit.remove(this);
    }
  }
}
