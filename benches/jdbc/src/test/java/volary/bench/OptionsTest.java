package volary.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;

class OptionsTest {
  @Test
  void aRunIsNormalUnlessItIsSaidToBeSmaller() {
    assertThat(Options.parse()).isEqualTo(new Options(Size.NORMAL, Path.of("benches/results")));
    assertThat(Options.parse("--quick", "--results", "elsewhere")).isEqualTo(new Options(Size.QUICK, Path.of("elsewhere")));
  }

  @Test
  void whatIsNoOptionIsRefused() {
    assertThatThrownBy(() -> Options.parse("--slow")).hasMessageStartingWith("--slow is no option; usage: ");
    assertThatThrownBy(() -> Options.parse("--results")).hasMessageStartingWith("--results needs a directory; ");
  }
}
