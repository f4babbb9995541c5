package volary;

import static java.util.stream.Collectors.joining;
import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests that the examples of the pages of tools stand in the tests, line by line. */
class PagesTest {
  private static final Path PAGES = Path.of("..", "..", "..", "docs", "clients");
  private static final Pattern EXAMPLE = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);

  private static String withoutIndentation(String text) {
    return text.lines().map(String::strip).collect(joining("\n"));
  }

  private static String sources(Path directory) throws IOException {
    List<Path> files;
    try (Stream<Path> inside = Files.walk(directory)) {
      files = inside.filter(file -> file.toString().endsWith(".java")).toList();
    }
    StringBuilder all = new StringBuilder();
    for (Path file : files) {
      all.append(Files.readString(file)).append('\n');
    }
    return withoutIndentation(all.toString());
  }

  @ParameterizedTest
  @CsvSource({"jooq, mappers, jooq", "mybatis, mappers, mybatis", "hibernate, mappers, hibernate", "springdata, mappers, spring", "spark, spark, spark"})
  void examplesStandInTheTests(String page, String module, String folder) throws IOException {
    String sources = sources(Path.of("..", module, "src", "test", "java", "volary", folder));
    List<String> examples =
        EXAMPLE.matcher(Files.readString(PAGES.resolve(page + ".md"))).results().map(found -> withoutIndentation(found.group(1))).toList();
    assertThat(examples).isNotEmpty().allSatisfy(example -> assertThat(sources).contains(example));
  }
}
