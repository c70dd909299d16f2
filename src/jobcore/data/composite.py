"""Several readers as one: a record of theirs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobcore.data.reader import Part, Reader, ReaderBuilder, one_round
from jobcore.data.schema import Struct
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, Net

__all__ = ["CompositeReader", "CompositeReaderBuilder"]


class CompositeReader(Reader):
    """Reads one record of each of several readers, and gives them as the fields of one.

    It ends when any of them does; what the others had read in that round is dropped: sources of 5 and 8 records give 5.
    With several instances, each record still goes to one of them, but records of different sources may be paired
    otherwise than in their order.

    Parameters
    ----------
    names
        Of the fields, one for each reader.
    readers
        The sources.

    Raises
    ------
    BuildError
        There are no readers, or not as many names, or one name twice.
    """

    def __init__(self, names: Sequence[str], readers: Sequence[Reader]) -> None:
        _check_names(names, readers, "readers")
        super().__init__()
        self._names = tuple(names)
        self._readers = tuple(readers)

    def schema(self) -> Struct:
        """Return the form of the records: one field for each reader."""
        return Struct(*((n, r.schema()) for n, r in zip(self._names, self._readers, strict=True)))

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:
        """Add what the readers need."""
        for reader in self._readers:
            reader.setup_ex(init_net, finish_net)

    def read_ex(
        self, init_net: Net, finish_net: Net
    ) -> tuple[list[Part], BlobReference, list[BlobReference]]:
        """Make the nets of one round: those of each reader, until one of them has nothing left."""
        nets: list[Part] = []
        fields: list[BlobReference] = []
        ended: BlobReference | None = None
        first = Net("composite")
        for reader in self._readers:
            its_nets, stop, its_fields = reader.read_ex(init_net, finish_net)
            after = Net("composite_after")
            if ended is None:
                ended = first.Const(False, first.next_blob("should_stop"))
            after.Copy(stop, ended)
            nets += [*one_round(its_nets, stop), after]
            fields += its_fields
        assert ended is not None
        return [first, *nets], ended, fields

    def read(self, net: Net) -> tuple[BlobReference, list[BlobReference]]:
        """Add the ops of one round to one net: each reader reads, also when one before it has nothing left."""
        fields: list[BlobReference] = []
        ended: BlobReference | None = None
        for reader in self._readers:
            stop, its_fields = reader.read(net)
            fields += its_fields
            ended = stop if ended is None else net.Or([ended, stop], net.next_blob("should_stop"))
        assert ended is not None
        return ended, fields

    def peek_end(self, net: Net) -> BlobReference | None:
        """Add ops that tell whether one of the readers has nothing left; None where one of them cannot tell."""
        result: BlobReference | None = None
        for reader in self._readers:
            at_end = reader.peek_end(net)
            if at_end is None:
                return None
            result = at_end if result is None else net.Or([result, at_end], net.next_blob("at_end"))
        return result

    def reset(self, net: Net) -> None:
        """Add ops that put all readers back to their first records."""
        for reader in self._readers:
            reader.reset(net)


class CompositeReaderBuilder(ReaderBuilder):
    """Makes composite readers of the readers of several builders.

    Parameters
    ----------
    names
        Of the fields, one for each builder.
    reader_builders
        The builders.

    Raises
    ------
    BuildError
        As `CompositeReader`.
    """

    def __init__(self, names: Sequence[str], reader_builders: Sequence[ReaderBuilder]) -> None:
        _check_names(names, reader_builders, "builders")
        self._names = tuple(names)
        self._builders = tuple(reader_builders)

    def schema(self) -> Struct:
        """Return the form of the records: one field for each builder."""
        return Struct(*((n, b.schema()) for n, b in zip(self._names, self._builders, strict=True)))

    def setup(self, **kwargs: Any) -> Mapping[str, BlobReference] | None:
        """Prepare all sources, and return what tells that they have nothing left.

        An option `limiter` goes to the last builder only: all read as many records then, for they end together.

        Raises
        ------
        BuildError
            Two builders give blobs under one name, or one blob under two names.
        """
        found: dict[str, BlobReference] = {}
        limiter = {"limiter": kwargs.pop("limiter")} if "limiter" in kwargs else {}
        for number, builder in enumerate(self._builders):
            last = number == len(self._builders) - 1
            for name, blob in (builder.setup(**kwargs, **(limiter if last else {})) or {}).items():
                if name in found or blob in found.values():
                    raise BuildError(
                        f"expected each name and blob of data that has finished once, found {name!r}: {str(blob)!r} "
                        f"beside { ({k: str(v) for k, v in found.items()}) }"
                    )
                found[name] = blob
        return found

    def new_reader(self, **kwargs: Any) -> CompositeReader:
        """Return a new reader of one reader of each builder."""
        return CompositeReader(self._names, [builder.new_reader(**kwargs) for builder in self._builders])


def _check_names(names: Sequence[str], parts: Sequence[object], what: str) -> None:
    if isinstance(names, str) or len(names) != len(parts) or not parts:
        raise BuildError(f"expected as many names as {what}, at least one, found {names!r} for {len(parts)}")
    if len(set(names)) != len(names):
        raise BuildError(f"expected each name once, found {list(names)}")
