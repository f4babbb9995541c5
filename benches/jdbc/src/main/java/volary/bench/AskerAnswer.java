package volary.bench;

import java.util.List;

/**
 * An answer of {@link Asker}.
 *
 * @param seconds the time of each request
 * @param totalSeconds the time from the first request to the last answer
 */
record AskerAnswer(List<Double> seconds, double totalSeconds) {
  private static final double NANOSECONDS = 1e9;

  /** Creates the answer from the requests of all clients. */
  static AskerAnswer of(List<Took> requests) {
    long begin = requests.stream().mapToLong(Took::begin).min().orElseThrow();
    long end = requests.stream().mapToLong(Took::end).max().orElseThrow();
    List<Double> seconds = requests.stream().map(request -> (request.end - request.begin) / NANOSECONDS).toList();
    return new AskerAnswer(seconds, (end - begin) / NANOSECONDS);
  }

  /** The times at which a request began and ended, in nanoseconds of {@link System#nanoTime}. */
  record Took(long begin, long end) {}
}
