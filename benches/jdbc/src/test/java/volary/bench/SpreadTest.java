package volary.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import org.junit.jupiter.api.Test;

class SpreadTest {
  @Test
  void theMedianIsTheMiddleOrBetweenTheTwoThere() {
    assertThat(Spread.of(List.of(3.0, 1.0, 2.0))).isEqualTo(new Spread(2.0, 1.0, 3.0));
    assertThat(Spread.of(List.of(4.0, 1.0))).isEqualTo(new Spread(2.5, 1.0, 4.0));
  }

  @Test
  void ratiosAreTakenTurnByTurn() {
    assertThat(Spread.ratios(List.of(10.0, 40.0), List.of(10.0, 20.0))).containsExactly(1.0, 2.0);
    assertThat(Spread.ratios(List.of(10.0), List.of())).isEmpty();
  }
}
