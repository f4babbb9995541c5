package volary.bench;

import java.util.List;
import java.util.stream.IntStream;

/** The median, the smallest and the largest of some samples. */
record Spread(double median, double min, double max) {
  /** Returns the spread of at least one sample. */
  static Spread of(List<Double> samples) {
    List<Double> sorted = samples.stream().sorted().toList();
    int middle = sorted.size() / 2;
    double median = sorted.size() % 2 == 1 ? sorted.get(middle) : (sorted.get(middle - 1) + sorted.get(middle)) / 2;
    return new Spread(median, sorted.get(0), sorted.get(sorted.size() - 1));
  }

  /** Returns the ratios of our samples to theirs, turn by turn. */
  static List<Double> ratios(List<Double> ours, List<Double> theirs) {
    int turns = Math.min(ours.size(), theirs.size());
    return IntStream.range(0, turns).mapToObj(turn -> ours.get(turn) / theirs.get(turn)).toList();
  }
}
