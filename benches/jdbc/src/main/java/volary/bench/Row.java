package volary.bench;

/** A row as a program has it. */
record Row(long id, String payload) {}
