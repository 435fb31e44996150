"""Pages for people: what was done, and what it tells about a person."""
