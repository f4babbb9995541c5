package volary.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * What was measured side by side with others.
 *
 * @param name which no other variant has
 * @param parameters what tells it from the others
 * @param baseline the name of the variant that it is compared with, or null
 * @param samples by metric, in the order of the turns; the unit is last in a metric's name
 */
record Variant(String name, Map<String, Object> parameters, String baseline, Map<String, List<Double>> samples) {
  static Variant of(String name, Map<String, Object> parameters, String baseline) {
    return new Variant(name, new TreeMap<>(parameters), baseline, new TreeMap<>());
  }

  /** One more turn. */
  void add(String metric, double value) {
    samples.computeIfAbsent(metric, first -> new ArrayList<>()).add(value);
  }
}
