from typing import Any

from numpy.typing import NDArray

__all__ = ["exported_array"]

def exported_array(value: object) -> NDArray[Any] | None: ...
