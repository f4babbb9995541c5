package volary.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class DelayProxyTest {
  private static final Duration ONE_WAY = Duration.ofMillis(20);
  private static final InetAddress LOOPBACK = InetAddress.getLoopbackAddress();

  private ServerSocket listener;
  private DelayProxy proxy;
  private Socket client;
  private Socket server;

  @BeforeEach
  void connect() throws IOException {
    listener = new ServerSocket(0, 1, LOOPBACK);
    proxy = DelayProxy.start("127.0.0.1:" + listener.getLocalPort(), ONE_WAY);
    int port = Integer.parseInt(proxy.address().substring(proxy.address().indexOf(':') + 1));
    client = new Socket(LOOPBACK, port);
    server = listener.accept();
  }

  @AfterEach
  void disconnect() throws IOException {
    client.close();
    server.close();
    proxy.close();
    listener.close();
  }

  @Test
  void aByteTakesAtLeastTheDelayEachWay() throws IOException {
    long start = System.nanoTime();
    client.getOutputStream().write(1);
    assertThat(server.getInputStream().read()).isEqualTo(1);
    long there = System.nanoTime();
    server.getOutputStream().write(2);
    assertThat(client.getInputStream().read()).isEqualTo(2);
    long back = System.nanoTime();
    assertThat(Duration.ofNanos(there - start)).isGreaterThanOrEqualTo(ONE_WAY);
    assertThat(Duration.ofNanos(back - there)).isGreaterThanOrEqualTo(ONE_WAY);
  }

  @Test
  void manyBytesArriveInTheirOrder() throws IOException {
    byte[] sent = new byte[10_000_000];
    new SplittableRandom(1).nextBytes(sent);
    CompletableFuture<Void> sending = CompletableFuture.runAsync(() -> sendAll(sent));
    byte[] received = client.getInputStream().readNBytes(sent.length);
    sending.join();
    assertThat(received).isEqualTo(sent);
  }

  @Test
  void anEndOfEitherSideIsTheEndOfBoth() throws IOException {
    server.getOutputStream().write(3);
    server.close();
    InputStream received = client.getInputStream();
    assertThat(received.read()).isEqualTo(3);
    assertThat(received.read()).isEqualTo(-1);
  }

  @Test
  void aProxyThatIsClosedClosesItsConnections() throws IOException {
    proxy.close();
    assertThat(client.getInputStream().read()).isEqualTo(-1);
    assertThat(server.getInputStream().read()).isEqualTo(-1);
  }

  private void sendAll(byte[] bytes) {
    try {
      server.getOutputStream().write(bytes);
    } catch (IOException failure) {
      throw new IllegalStateException(failure);
    }
  }
}
