package volary.bench;

import java.nio.file.Path;

/**
 * The options of the command line.
 *
 * @param size the size of the run
 * @param results the directory for the results
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
