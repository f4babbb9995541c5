package volary.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class BenchRowsTest {
  @Test
  void rowsAreNumberedAndTheSameEachTime(@TempDir Path directory) throws IOException {
    Path first = directory.resolve("first.csv");
    Path second = directory.resolve("second.csv");
    BenchRows.write(first, 20);
    BenchRows.write(second, 30);
    List<String> rows = Files.readAllLines(first);
    assertThat(rows).hasSize(20).doesNotHaveDuplicates();
    assertThat(rows.get(0)).matches("1,[\\w-]{200}");
    assertThat(rows.get(19)).matches("20,[\\w-]{200}");
    assertThat(Files.readAllLines(second)).startsWith(rows.toArray(String[]::new));
  }
}
