package volary.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.stream.Stream;

/** Reads files with one key and value per line. */
final class ProcFiles {
  private ProcFiles() {}

  /** Returns the first value of a key. */
  static Optional<String> value(Path path, String key, String separator) throws IOException {
    try (Stream<String> lines = Files.lines(path)) {
      return lines
          .map(line -> line.split(separator, 2))
          .filter(pair -> pair.length == 2 && pair[0].strip().equals(key))
          .map(pair -> pair[1].strip())
          .findFirst();
    }
  }

  /** Returns the first value of a key whose values look like {@code 4711 kB}. */
  static long kibibytes(Path path, String key) throws IOException {
    String value = value(path, key, ":").orElseThrow(() -> new IOException("there is no " + key + " in " + path));
    return Long.parseLong(value.replace(" kB", ""));
  }
}
