"""The secure sum: a server learns the sum of the parties' integer vectors and nothing else. See docs/secure-sum.md."""
