package volary.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** A temporary directory, which is deleted when it is closed. */
record Directory(Path path) implements AutoCloseable {
  static Directory temporary() throws IOException {
    Directory directory = new Directory(Files.createTempDirectory("volary-jdbc-bench-"));
    OnExit.add(directory);
    return directory;
  }

  @Override
  public void close() throws IOException {
    List<Path> inside;
    try (Stream<Path> files = Files.walk(path)) {
      inside = files.sorted(Comparator.reverseOrder()).toList();
    }
    for (Path file : inside) {
      Files.deleteIfExists(file);
    }
    OnExit.remove(this);
  }
}
