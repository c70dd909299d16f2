"""For your own tests: the suite that every container passes."""

from jobcore.testing.containers import ContainerConformance

__all__ = ["ContainerConformance"]
