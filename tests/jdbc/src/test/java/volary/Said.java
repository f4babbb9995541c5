package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import java.sql.SQLException;
import java.util.StringJoiner;
import java.util.regex.Pattern;
import org.assertj.core.api.AbstractStringAssert;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;

/** What users read of a call that fails: the texts of its exception and of all causes. */
final class Said {
  /** Rust as it is printed for debugging: options, results and structs, paths of modules, places in sources. */
  private static final Pattern DEBUGGING =
      Pattern.compile(
          "Some\\(|\\bNone\\b|Ok\\(|Err\\(|Error\\(|\\b[A-Z]\\w+ \\{|\\w::\\w|\\.rs\\b|DataFusionError|source: |panicked|backtrace");

  private Said() {}

  /** The text; fails if the call does not, or if there is something in it that is no text for users. */
  static AbstractStringAssert<?> by(ThrowingCallable call) {
    Throwable failure = catchThrowable(call);
    assertThat(failure).isInstanceOf(SQLException.class);
    StringJoiner said = new StringJoiner("\n");
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      said.add(String.valueOf(cause.getMessage()));
    }
    return assertThat(said.toString()).doesNotContainPattern(DEBUGGING);
  }
}
