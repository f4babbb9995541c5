package volary.bench;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/** All samples, with everything that is needed to judge them, in the format of all benchmarks. */
record Table(
    String table,
    String title,
    String method,
    String size,
    Machine machine,
    Map<String, String> versions,
    String date,
    List<Variant> variants) {
  static final String NAME = "jdbc_streaming";
  private static final Gson JSON = new GsonBuilder().setPrettyPrinting().disableHtmlEscaping().create();

  /** Writes the table to a file, and returns its path. Creates the directory if it does not exist. */
  Path write(Path directory) throws IOException {
    Path path = Files.createDirectories(directory).resolve(table + ".json");
    return Files.writeString(path, JSON.toJson(this) + "\n");
  }
}
