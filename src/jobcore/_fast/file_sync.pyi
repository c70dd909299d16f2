from collections.abc import Sequence

__all__ = ["sync_files"]

def sync_files(descriptors: Sequence[int]) -> list[int]: ...
