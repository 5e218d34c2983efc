"""Native sources and their builder; headers shared by host and device code."""
