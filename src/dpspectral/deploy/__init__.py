"""Protocols between machines: these carry bytes, and hold no rule."""
