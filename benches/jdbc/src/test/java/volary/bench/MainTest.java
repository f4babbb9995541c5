package volary.bench;

import static org.assertj.core.api.Assertions.assertThat;

import com.google.gson.Gson;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Runs the whole benchmark with the smallest size. The values are not checked. */
class MainTest {
  @Test
  void everyVariantHasFiniteSamplesAndIsComparedWithItsOtherMode(@TempDir Path results) throws Exception {
    Main.run(new Options(Size.SMOKE, results));
    Table table = new Gson().fromJson(Files.readString(results.resolve("jdbc_streaming.json")), Table.class);
    assertThat(table.size()).isEqualTo("smoke");
    assertThat(table.versions()).containsKeys("volary", "flight-sql-jdbc-driver", "jmh", "java");
    Map<String, Variant> byName = table.variants().stream().collect(Collectors.toMap(Variant::name, variant -> variant));
    for (String network : List.of("local", "1 ms")) {
      Variant atOnce = byName.get("200 rows, " + network + ", Volary, at once");
      Variant rowByRow = byName.get("200 rows, " + network + ", Volary, row by row");
      assertThat(atOnce.baseline()).isNull();
      assertThat(rowByRow.baseline()).isEqualTo(atOnce.name());
      assertThat(rowByRow.parameters()).containsEntry("mode", "row by row").containsEntry("network", network);
    }
    boolean hasPostgres = PostgresPrograms.find().isPresent();
    assertThat(byName.keySet().stream().anyMatch(name -> name.contains("PostgreSQL"))).isEqualTo(hasPostgres);
    for (Variant variant : table.variants()) {
      TreeSet<String> metrics = new TreeSet<>(List.of("first_row_ms", "last_row_ms", "allocated_kib"));
      if (variant.parameters().get("network").equals("local")) {
        metrics.addAll(List.of("live_heap_mib", "outside_heap_mib"));
      }
      assertThat(variant.samples().keySet()).as(variant.name()).isEqualTo(metrics);
      for (List<Double> samples : variant.samples().values()) {
        assertThat(samples).as(variant.name()).isNotEmpty().allMatch(value -> value > 0 && value < 1e9);
      }
    }
    String page = Files.readString(results.resolve("jdbc_streaming.md"));
    assertThat(page).startsWith("## " + table.title() + " (smoke)\n").contains(byName.keySet());
  }
}
