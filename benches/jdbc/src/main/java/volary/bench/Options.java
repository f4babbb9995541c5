package volary.bench;

import java.nio.file.Path;

/**
 * What the command line says.
 *
 * @param size how large the run is
 * @param results where the results are written
 */
record Options(Size size, Path results) {
  private static final String USAGE = "usage: [--quick | --smoke] [--results DIR]";

  static Options parse(String... arguments) {
    Size size = Size.NORMAL;
    Path results = Path.of("benches", "results");
    for (int place = 0; place < arguments.length; place++) {
      switch (arguments[place]) {
        case "--quick" -> size = Size.QUICK;
        case "--smoke" -> size = Size.SMOKE;
        case "--results" -> {
          place++;
          if (place == arguments.length) {
            throw new IllegalArgumentException("--results needs a directory; " + USAGE);
          }
          results = Path.of(arguments[place]);
        }
        default -> throw new IllegalArgumentException(arguments[place] + " is no option; " + USAGE);
      }
    }
    return new Options(size, results);
  }
}
