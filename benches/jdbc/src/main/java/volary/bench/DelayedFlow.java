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
 * One direction of a connection. One thread receives chunks of bytes and notes when each is due. Another thread sends
 * each chunk at that time. So chunks are delayed independently, and the delay does not limit the throughput.
 */
final class DelayedFlow {
  private static final int CHUNK_BYTES = 64 << 10;
  /** Maximum number of delayed bytes, so that a slow reader cannot fill the memory. Loopback carries less in ten ms. */
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

  /** Receives chunks until the connection ends. */
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
      // An error counts as the end of the connection.
    } finally {
      chunks.add(END);
    }
  }

  /** Sends chunks until the last one is sent or the connection ends. */
  void send() {
    try {
      OutputStream bytes = to.getOutputStream();
      for (Chunk chunk = chunks.take(); chunk != END; chunk = chunks.take()) {
        waitUntil(chunk.due);
        bytes.write(chunk.bytes);
        window.release(chunk.bytes.length);
      }
    } catch (IOException | InterruptedException closed) {
      // An error counts as the end of the connection.
    } finally {
      // The receiving thread may wait for room.
      window.release(WINDOW_BYTES);
      onEnd.run();
    }
  }

  /** Waits until a time. Thread.sleep would sleep for whole milliseconds. */
  private static void waitUntil(long due) {
    for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
      LockSupport.parkNanos(left);
    }
  }

  /** Bytes, and the time of {@link System#nanoTime} at which to send them. */
  private record Chunk(byte[] bytes, long due) {}
}
