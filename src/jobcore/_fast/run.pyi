from typing import final

from jobcore._fast.frame import Frame

__all__ = ["Run"]

@final
class Run(Frame): ...
