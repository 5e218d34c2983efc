"""The backends that come with adarray: one folder a plugin."""
