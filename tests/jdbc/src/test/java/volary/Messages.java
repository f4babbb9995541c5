package volary;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import java.sql.SQLException;
import java.util.StringJoiner;
import java.util.regex.Pattern;
import org.assertj.core.api.AbstractStringAssert;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;

/** Checks the messages that users read when a call fails: those of its exception and of all causes. */
final class Messages {
  /** Matches Rust's debug output: options, results and structs, paths of modules, positions in sources. */
  private static final Pattern DEBUGGING =
      Pattern.compile(
          "Some\\(|\\bNone\\b|Ok\\(|Err\\(|Error\\(|\\b[A-Z]\\w+ \\{|\\w::\\w|\\.rs\\b|DataFusionError|source: |panicked|backtrace");

  private Messages() {}

  /** Returns the messages of a call, for assertions. The call must fail, and its messages must have no debug output. */
  static AbstractStringAssert<?> of(ThrowingCallable call) {
    Throwable failure = catchThrowable(call);
    assertThat(failure).isInstanceOf(SQLException.class);
    StringJoiner messages = new StringJoiner("\n");
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      messages.add(String.valueOf(cause.getMessage()));
    }
    return assertThat(messages.toString()).doesNotContainPattern(DEBUGGING);
  }
}
