"""The benchmarks: an airspeed velocity suite, and a script that times peers beside adarray."""
