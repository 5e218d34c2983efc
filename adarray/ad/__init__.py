"""Reverse and forward mode on recorded graphs."""
