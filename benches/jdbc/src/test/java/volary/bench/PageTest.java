package volary.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class PageTest {
  @Test
  void variantsAreComparedTurnByTurn() {
    Variant theirs = variant("theirs", null, 10, 20, 300);
    Variant ours = variant("ours", "theirs", 5, 20, 600);
    assertThat(Page.table(table(theirs, ours)).lines())
        .containsExactly(
            "## A table (quick)",
            "",
            "| | ms | compared with |",
            "|---|---:|---|",
            "| theirs | 20.0 (10.0 to 300) |  |",
            "| ours | 20.0 (5.00 to 600), × 1.00 (0.50 to 2.00) | theirs |");
  }

  @Test
  void whatWasNotMeasuredIsLeftEmpty() {
    Variant timed = variant("timed", null, 1);
    Variant idle = Variant.of("idle", Map.of(), "timed");
    assertThat(Page.table(table(timed, idle))).endsWith("| idle |  | timed |\n");
  }

  private static Table table(Variant... variants) {
    return new Table("t", "A table", "", "quick", new Machine(1, "", 1, ""), Map.of(), "", List.of(variants));
  }

  private static Variant variant(String name, String baseline, double... samples) {
    Variant variant = Variant.of(name, Map.of(), baseline);
    for (double sample : samples) {
      variant.add("ms", sample);
    }
    return variant;
  }
}
