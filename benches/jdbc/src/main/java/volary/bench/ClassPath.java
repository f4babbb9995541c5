package volary.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Writes the class path to a file, for a program that starts {@link Asker} without Maven. */
final class ClassPath {
  private ClassPath() {}

  public static void main(String[] arguments) throws IOException {
    Files.writeString(Path.of(arguments[0]), System.getProperty("java.class.path"));
  }
}
