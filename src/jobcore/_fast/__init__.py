"""The native core: blob table, counters and timers."""
