"""What is promised, and what has been paid for it."""
