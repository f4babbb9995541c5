package volary.bench;

import java.io.IOException;
import java.nio.file.Path;

/** Measures reading rows of Volary and PostgreSQL through JDBC, row by row and all at once. */
public final class Main {
  private Main() {}

  public static void main(String[] arguments) throws Exception {
    run(Options.parse(arguments));
  }

  /** Runs the benchmark, and writes the raw results and the page. */
  static void run(Options options) throws Exception {
    System.err.println(Table.NAME + ": " + options.size().label() + " run");
    try (Directory directory = Directory.temporary();
        Databases databases = Databases.start(directory.path(), options.size())) {
      Table table = new Measuring(options.size(), databases).run();
      write(table, options.results());
    }
  }

  private static void write(Table table, Path results) throws IOException {
    Path raw = table.write(results);
    Page.write(table, raw);
    System.out.println(Page.table(table) + System.lineSeparator() + raw);
  }
}
