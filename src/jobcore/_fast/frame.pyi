from typing_extensions import disjoint_base

__all__ = ["Frame"]

@disjoint_base
class Frame: ...
