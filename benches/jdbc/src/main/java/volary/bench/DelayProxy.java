package volary.bench;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A TCP proxy in front of a server. It adds latency, and does not reduce the throughput. */
final class DelayProxy implements AutoCloseable {
  private final ServerSocket listener;
  private final InetSocketAddress server;
  private final Duration oneWay;
  private final Set<Socket> open = ConcurrentHashMap.newKeySet();

  private DelayProxy(ServerSocket listener, InetSocketAddress server, Duration oneWay) {
    this.listener = listener;
    this.server = server;
    this.oneWay = oneWay;
  }

  /** Starts a proxy in front of this host and port. */
  static DelayProxy start(String server, Duration oneWay) throws IOException {
    int colon = server.lastIndexOf(':');
    InetSocketAddress address = new InetSocketAddress(server.substring(0, colon), Integer.parseInt(server.substring(colon + 1)));
    DelayProxy proxy = new DelayProxy(new ServerSocket(0, 0, InetAddress.getByName("127.0.0.1")), address, oneWay);
    startThread(proxy::accept);
    return proxy;
  }

  /** Returns the host and port of the proxy. */
  String address() {
    return "127.0.0.1:" + listener.getLocalPort();
  }

  @Override
  public void close() throws IOException {
    listener.close();
    open.forEach(DelayProxy::closeQuietly);
  }

  private void accept() {
    while (!listener.isClosed()) {
      try {
        forward(listener.accept());
      } catch (IOException closedOrRefused) {
        // The client notices the closed connection. The proxy goes on with the next client.
      }
    }
  }

  private void forward(Socket client) throws IOException {
    Socket upstream = new Socket();
    open.add(client);
    open.add(upstream);
    try {
      client.setTcpNoDelay(true);
      upstream.setTcpNoDelay(true);
      upstream.connect(server);
    } catch (IOException failure) {
      end(client, upstream);
      throw failure;
    }
    // The end of one side closes both, because neither HTTP/2 nor PostgreSQL uses half-open connections.
    Runnable end = () -> end(client, upstream);
    start(new DelayedFlow(client, upstream, oneWay, end));
    start(new DelayedFlow(upstream, client, oneWay, end));
  }

  private static void start(DelayedFlow flow) {
    startThread(flow::receive);
    startThread(flow::send);
  }

  private void end(Socket... sockets) {
    for (Socket socket : sockets) {
      closeQuietly(socket);
      open.remove(socket);
    }
  }

  private static void startThread(Runnable work) {
    Thread thread = new Thread(work, "proxy");
    thread.setDaemon(true);
    thread.start();
  }

  private static void closeQuietly(Socket socket) {
    try {
      socket.close();
    } catch (IOException ignored) {
      // The socket is given up anyway.
    }
  }
}
