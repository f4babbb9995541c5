package volary.bench;

/** A row as an object of a program. */
record Row(long id, String payload) {}
