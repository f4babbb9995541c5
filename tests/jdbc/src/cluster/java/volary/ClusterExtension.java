package volary;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/** Gives tests the cluster that all of them share. Each test creates its own tables. */
public final class ClusterExtension implements ParameterResolver {
  @Override
  public boolean supportsParameter(ParameterContext parameter, ExtensionContext test) {
    return parameter.getParameter().getType() == VolaryCluster.class;
  }

  @Override
  public VolaryCluster resolveParameter(ParameterContext parameter, ExtensionContext test) {
    ExtensionContext.Store store = test.getRoot().getStore(ExtensionContext.Namespace.GLOBAL);
    return store.computeIfAbsent(Shared.class, key -> new Shared(), Shared.class).cluster;
  }

  private static final class Shared implements AutoCloseable {
    private final Path directory;
    private final VolaryCluster cluster;

    Shared() {
      try {
        directory = Files.createTempDirectory("volary-jdbc-");
        cluster = VolaryCluster.start(directory);
      } catch (IOException | InterruptedException failure) {
        throw new IllegalStateException(failure);
      }
    }

    @Override
    public void close() throws IOException {
      cluster.close();
      List<Path> inside;
      try (Stream<Path> files = Files.walk(directory)) {
        inside = files.sorted(Comparator.reverseOrder()).toList();
      }
      for (Path file : inside) {
        Files.delete(file);
      }
    }
  }
}
