package volary.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The programs of an installed PostgreSQL.
 *
 * @param directory the directory that contains {@code initdb} and {@code postgres}
 */
record PostgresPrograms(Path directory) {
  static final String MISSING = "there is no PostgreSQL here; `apt-get install postgresql` installs it on Debian";
  private static final Path DEBIAN = Path.of("/usr/lib/postgresql");

  /** Finds the release that {@code pg_config} names, or else Debian's newest. */
  static Optional<PostgresPrograms> find() throws IOException, InterruptedException {
    Optional<PostgresPrograms> configured = configured().filter(PostgresPrograms::isThere);
    return configured.isPresent() ? configured : debian();
  }

  String initdb() {
    return directory.resolve("initdb").toString();
  }

  String postgres() {
    return directory.resolve("postgres").toString();
  }

  // Debian's package libpq-dev contains pg_config, but not the server.
  private boolean isThere() {
    return Files.isExecutable(Path.of(initdb())) && Files.isExecutable(Path.of(postgres()));
  }

  private static Optional<PostgresPrograms> configured() throws InterruptedException {
    try {
      String directory = Child.run(new ProcessBuilder("pg_config", "--bindir"));
      return Optional.of(new PostgresPrograms(Path.of(directory.strip())));
    } catch (IOException absent) {
      return Optional.empty();
    }
  }

  private static Optional<PostgresPrograms> debian() throws IOException {
    if (!Files.isDirectory(DEBIAN)) {
      return Optional.empty();
    }
    try (Stream<Path> releases = Files.list(DEBIAN)) {
      return releases
          .map(release -> new PostgresPrograms(release.resolve("bin")))
          .filter(PostgresPrograms::isThere)
          .max(Comparator.comparingInt(PostgresPrograms::release));
    }
  }

  private int release() {
    String name = directory.getParent().getFileName().toString();
    return name.matches("\\d+") ? Integer.parseInt(name) : 0;
  }
}
