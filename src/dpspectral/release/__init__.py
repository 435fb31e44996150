"""What is asked of the data, and the one way it is answered."""
