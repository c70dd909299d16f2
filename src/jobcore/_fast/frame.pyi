from typing_extensions import disjoint_base

__all__ = ["Frame", "is_mutex"]

@disjoint_base
class Frame: ...

def is_mutex(state: object) -> bool: ...
