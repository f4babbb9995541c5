package volary.bench;

import java.util.ArrayDeque;
import java.util.Deque;

/** Closes open objects when this process ends, for example on Ctrl-C. The newest is closed first. */
final class OnExit {
  private static final Deque<AutoCloseable> OPEN = new ArrayDeque<>();

  static {
    Runtime.getRuntime().addShutdownHook(new Thread(OnExit::closeAll));
  }

  private OnExit() {}

  static synchronized void add(AutoCloseable opened) {
    OPEN.push(opened);
  }

  static synchronized void remove(AutoCloseable closed) {
    OPEN.remove(closed);
  }

  private static synchronized AutoCloseable youngest() {
    return OPEN.poll();
  }

  private static void closeAll() {
    for (AutoCloseable each = youngest(); each != null; each = youngest()) {
      try {
        each.close();
      } catch (Exception failure) {
        System.err.println("on exit: " + failure);
      }
    }
  }
}
