package volary.hibernate;

import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.Table;

/** An entity that belongs to another one. */
@Entity
@Table(name = "sightings_of_hibernate", options = "WITH (shard_key = 'bird', shards = 8)")
public class Sighting {
  @Id public Integer id;

  @ManyToOne(fetch = FetchType.LAZY)
  @JoinColumn(name = "bird", nullable = false)
  public Bird bird;

  public String place;

  /** Makes the sighting that Hibernate fills. */
  protected Sighting() {}

  /** Makes a sighting of a bird at a place. */
  Sighting(int id, Bird bird, String place) {
    this.id = id;
    this.bird = bird;
    this.place = place;
  }
}
