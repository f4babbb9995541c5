package volary.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Writes the results as a page of Markdown, in the form of the pages of the other benchmarks. */
final class Page {
  private Page() {}

  /** Writes a page next to the raw results. */
  static void write(Table table, Path raw) throws IOException {
    Files.writeString(raw.resolveSibling(table.table() + ".md"), page(table));
  }

  private static String page(Table table) {
    Machine machine = table.machine();
    Stream<Map.Entry<String, String>> versions = table.versions().entrySet().stream();
    return String.format(
        Locale.ROOT,
        "%s%n%s%n%nEach value is the median of the turns (smallest to largest), and after × the median of the ratios, turn by turn, "
            + "to what the variant is compared with.%n%n%s; %s, %d processors, %.1f GiB; %s; %s. Raw samples: [%9$s.json](%9$s.json).%n",
        table(table),
        table.method(),
        table.date(),
        machine.model(),
        machine.cpus(),
        machine.memory() / (double) (1 << 30),
        machine.os(),
        versions.map(each -> each.getKey() + " " + each.getValue()).collect(Collectors.joining(", ")),
        table.table());
  }

  /** Returns a line per variant. It has the spread of each metric, and its ratio to the variant compared with. */
  static String table(Table table) {
    Map<String, Variant> byName = table.variants().stream().collect(Collectors.toMap(Variant::name, variant -> variant));
    Set<String> metrics = new TreeSet<>();
    table.variants().forEach(variant -> metrics.addAll(variant.samples().keySet()));
    StringBuilder text = new StringBuilder();
    text.append("## ").append(table.title()).append(" (").append(table.size()).append(")\n\n|");
    metrics.forEach(metric -> text.append(" | ").append(metric));
    text.append(" | compared with |\n|---").append("|---:".repeat(metrics.size())).append("|---|\n");
    for (Variant variant : table.variants()) {
      Optional<Variant> baseline = Optional.ofNullable(variant.baseline()).map(byName::get);
      text.append("| ").append(variant.name());
      for (String metric : metrics) {
        List<Double> theirs = baseline.map(other -> samples(other, metric)).orElse(List.of());
        text.append(" | ").append(cell(samples(variant, metric), theirs));
      }
      text.append(" | ").append(baseline.map(Variant::name).orElse("")).append(" |\n");
    }
    return text.toString();
  }

  private static List<Double> samples(Variant variant, String metric) {
    return variant.samples().getOrDefault(metric, List.of());
  }

  private static String cell(List<Double> ours, List<Double> theirs) {
    if (ours.isEmpty()) {
      return "";
    }
    List<Double> ratios = Spread.ratios(ours, theirs);
    return show(ours) + (ratios.isEmpty() ? "" : ", × " + show(ratios));
  }

  private static String show(List<Double> samples) {
    Spread spread = Spread.of(samples);
    return figure(spread.median()) + " (" + figure(spread.min()) + " to " + figure(spread.max()) + ")";
  }

  /** Formats a number with about three significant digits. */
  private static String figure(double value) {
    int decimals = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return String.format(Locale.ROOT, "%." + decimals + "f", value);
  }
}
