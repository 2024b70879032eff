"""One file for each row of the table; each runs alone."""
