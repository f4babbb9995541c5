package volary.bench;

import java.time.Duration;

/** The network between a client and its server. */
enum Network {
  LOCAL("local", Duration.ZERO),
  ONE_MS("1 ms", Duration.ofMillis(1)),
  TEN_MS("10 ms", Duration.ofMillis(10));

  private final String label;
  private final Duration roundTrip;

  Network(String label, Duration roundTrip) {
    this.label = label;
    this.roundTrip = roundTrip;
  }

  String label() {
    return label;
  }

  /** Returns the added time of a round trip. Half of it is added in each direction. */
  Duration roundTrip() {
    return roundTrip;
  }
}
