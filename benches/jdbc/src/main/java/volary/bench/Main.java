package volary.bench;

import java.io.IOException;
import java.nio.file.Path;

/** Measures what it takes to read rows through JDBC one by one, beside all of them at once, from Volary and from PostgreSQL. */
public final class Main {
  private Main() {}

  public static void main(String[] arguments) throws Exception {
    run(Options.parse(arguments));
  }

  /** Measures, and writes the raw results and the page for people. */
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
