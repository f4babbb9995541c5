package volary.bench;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;

/** The rows of both databases: the numbers from 1 on, each with a random text. */
final class BenchRows {
  static final String TABLE = "bench_rows";
  static final String COLUMNS = "(id BIGINT NOT NULL, payload VARCHAR(200) NOT NULL)";
  /** Number of bytes of a text. Each character is one byte. */
  static final int PAYLOAD_BYTES = 200;

  private static final String LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  private static final int BITS_PER_LETTER = 6;

  private BenchRows() {}

  /**
   * Returns the query for the first rows. Their number is not a parameter, because Arrow's driver would send it in a
   * separate call, and busy-wait before it. That time has nothing to do with reading rows.
   */
  static String query(int rows) {
    return "SELECT id, payload FROM " + TABLE + " WHERE id <= " + rows;
  }

  /** Writes the rows as CSV without a header. They are always the same. Random letters make them hard to compress. */
  static void write(Path path, int rows) throws IOException {
    SplittableRandom random = new SplittableRandom(1);
    try (BufferedWriter lines = Files.newBufferedWriter(path, StandardCharsets.US_ASCII)) {
      for (int id = 1; id <= rows; id++) {
        lines.append(Integer.toString(id)).append(',').append(payload(random)).append('\n');
      }
    }
  }

  private static CharSequence payload(SplittableRandom random) {
    StringBuilder letters = new StringBuilder(PAYLOAD_BYTES);
    long bits = 0;
    for (int place = 0, left = 0; place < PAYLOAD_BYTES; place++, left--) {
      if (left == 0) {
        bits = random.nextLong();
        left = Long.SIZE / BITS_PER_LETTER;
      }
      letters.append(LETTERS.charAt((int) bits & (LETTERS.length() - 1)));
      bits >>>= BITS_PER_LETTER;
    }
    return letters;
  }
}
