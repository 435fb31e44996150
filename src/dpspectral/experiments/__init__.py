"""Studies on data declared public or synthetic: the demo, and what compares methods."""
