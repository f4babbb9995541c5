package volary.bench;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.LockSupport;

/**
 * One direction of a connection. One thread receives bytes and notes when they are due, another one sends them then, so that the delay
 * of a chunk is none of the next one's, and does not limit how much flows.
 */
final class DelayedFlow {
  private static final int CHUNK_BYTES = 64 << 10;
  /** On their way at most; far more than what loopback carries in ten milliseconds, or a slow reader would fill the memory. */
  private static final int WINDOW_BYTES = 64 << 20;
  private static final Chunk END = new Chunk(new byte[0], 0);

  private final Socket from;
  private final Socket to;
  private final long delayNanos;
  private final Runnable onEnd;
  private final Semaphore window = new Semaphore(WINDOW_BYTES);
  private final BlockingQueue<Chunk> chunks = new LinkedBlockingQueue<>();

  DelayedFlow(Socket from, Socket to, Duration delay, Runnable onEnd) {
    this.from = from;
    this.to = to;
    this.delayNanos = delay.toNanos();
    this.onEnd = onEnd;
  }

  /** Receives to the end. */
  void receive() {
    byte[] buffer = new byte[CHUNK_BYTES];
    try {
      InputStream bytes = from.getInputStream();
      for (int size = bytes.read(buffer); size >= 0; size = bytes.read(buffer)) {
        long due = System.nanoTime() + delayNanos;
        window.acquireUninterruptibly(size);
        chunks.add(new Chunk(Arrays.copyOf(buffer, size), due));
      }
    } catch (IOException closed) {
      // As good as an end.
    } finally {
      chunks.add(END);
    }
  }

  /** Sends to the end. */
  void send() {
    try {
      OutputStream bytes = to.getOutputStream();
      for (Chunk chunk = chunks.take(); chunk != END; chunk = chunks.take()) {
        waitUntil(chunk.due);
        bytes.write(chunk.bytes);
        window.release(chunk.bytes.length);
      }
    } catch (IOException | InterruptedException closed) {
      // As good as an end.
    } finally {
      // The other thread may wait for room.
      window.release(WINDOW_BYTES);
      onEnd.run();
    }
  }

  /** Thread.sleep would sleep for whole milliseconds. */
  private static void waitUntil(long due) {
    for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
      LockSupport.parkNanos(left);
    }
  }

  /** Bytes, and when they are to be sent, in terms of {@link System#nanoTime}. */
  private record Chunk(byte[] bytes, long due) {}
}
