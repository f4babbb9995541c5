package volary.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * A variant with its samples.
 *
 * @param name the name, which is unique in the table
 * @param parameters the parameters in which the variant differs from the others
 * @param baseline the name of the variant that this one is compared with, or null
 * @param samples the samples by metric, in the order of the turns. The name of a metric ends with its unit.
 */
record Variant(String name, Map<String, Object> parameters, String baseline, Map<String, List<Double>> samples) {
  static Variant of(String name, Map<String, Object> parameters, String baseline) {
    return new Variant(name, new TreeMap<>(parameters), baseline, new TreeMap<>());
  }

  /** Adds the sample of one more turn. */
  void add(String metric, double value) {
    samples.computeIfAbsent(metric, first -> new ArrayList<>()).add(value);
  }
}
