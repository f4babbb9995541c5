package volary.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.stream.Stream;

/** Reads files of lines, each with a key and a value. */
final class ProcFiles {
  private ProcFiles() {}

  /** The first value of a key. */
  static Optional<String> value(Path path, String key, String separator) throws IOException {
    try (Stream<String> lines = Files.lines(path)) {
      return lines
          .map(line -> line.split(separator, 2))
          .filter(pair -> pair.length == 2 && pair[0].strip().equals(key))
          .map(pair -> pair[1].strip())
          .findFirst();
    }
  }

  /** The same, where it is written as {@code 4711 kB}. */
  static long kibibytes(Path path, String key) throws IOException {
    String value = value(path, key, ":").orElseThrow(() -> new IOException("there is no " + key + " in " + path));
    return Long.parseLong(value.replace(" kB", ""));
  }
}
