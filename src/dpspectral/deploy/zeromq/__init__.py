"""Peers as processes on real addresses: `dpspectral peer --config me.toml`."""
