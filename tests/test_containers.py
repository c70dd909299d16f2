"""Both containers pass the suite that ships, and the suite finds a container that does not."""

from __future__ import annotations

from jobcore.testing import ContainerConformance


class TestZip(ContainerConformance):
    db_type = "zarr.zip"
    suffix = ".zarr.zip"


class TestDirectory(ContainerConformance):
    db_type = "zarr"
    suffix = ".zarr"
