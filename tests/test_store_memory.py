"""How much memory a save and a load take beside the state, as the kernel counts it."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from jobcore import save, save_async

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process anew")

MIB = 1 << 20
STATE = 192

# The peak is reset just before, so that importing and making the state do not count.
PROGRAM = """
import sys
from pathlib import Path
import numpy as np
import jobcore

def status(field):
    text = Path("/proc/self/status").read_text()
    return int(text.split(field + ":")[1].split()[0]) // 1024

def extra(act):
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    act()
    return status("VmHWM") - before

place = Path(sys.argv[1])
state = {f"w{i}": np.full(int(sys.argv[2]) << 20, i, np.uint8) for i in range(4)}
turned = {"t": state["w0"].reshape(1024, -1).T}
jobcore.save(place / "warm", {"a": 1})
"""


def measure(tmp_path: Path, code: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code, str(tmp_path), str(STATE // 4)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


@pytest.mark.parametrize("place", ["x.zarr.zip", "x.zarr"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_save_takes_no_copy_of_the_state(place: str, durable: bool, tmp_path: Path) -> None:
    (found,) = measure(
        tmp_path, f"print(extra(lambda: jobcore.save(place / {place!r}, state, durable={durable})))"
    )
    assert found <= 64


@pytest.mark.parametrize("name", ["x.zarr.zip", "x.zarr"])
@pytest.mark.parametrize("view", ["turned['t']", "turned['t'][None]"], ids=["many rows", "one large row"])
def test_memory_that_is_not_contiguous_is_gathered_in_small_pieces(
    view: str, name: str, tmp_path: Path
) -> None:
    code = f"""
blobs = {{'t': {view}}}
path = place / {name!r}
print(extra(lambda: jobcore.save(path, blobs)))
print(extra(lambda: jobcore.verify(path)))
assert jobcore.verify(path).ok
assert np.array_equal(jobcore.load(path)['t'], blobs['t'])
"""
    saved, verified = measure(tmp_path, code)
    assert saved <= 40
    assert verified <= 40


@pytest.mark.parametrize("place", ["x.zarr.zip", "x.zarr"])
def test_a_save_in_the_background_takes_one_copy_and_the_next_ones_use_it_again(
    place: str, tmp_path: Path
) -> None:
    code = """
def act(n=0):
    jobcore.save_async(place / f"{n}PLACE", state, durable=False).wait()
print(extra(act))
print(*[extra(lambda: act(n)) for n in range(1, 5)])
""".replace("PLACE", place)
    first, *later = measure(tmp_path, code)
    assert first <= STATE + 64
    assert max(later) <= 64


def test_saves_in_the_background_into_both_containers_take_one_copy_together(tmp_path: Path) -> None:
    code = """
def act(place):
    jobcore.save_async(place, state, durable=False).wait()
def both():
    for n in range(2):
        act(place / f"{n}x.zarr.zip")
        act(place / f"{n}x.zarr")
print(extra(both))
"""
    (found,) = measure(tmp_path, code)
    assert found <= STATE + 64


@pytest.mark.parametrize("place", ["x.zarr.zip", "x.zarr"])
def test_a_load_in_place_takes_no_copy(place: str, tmp_path: Path) -> None:
    code = f"""
jobcore.save(place / {place!r}, state | turned, durable=False)
into = {{name: np.ones_like(array) for name, array in (state | turned).items()}}
print(extra(lambda: jobcore.load(place / {place!r}, into=into)))
assert all(np.array_equal(into[name], array) for name, array in (state | turned).items())
"""
    (found,) = measure(tmp_path, code)
    assert found <= 64


@pytest.mark.parametrize("place", ["x.zarr.zip", "x.zarr"])
def test_a_load_into_the_blobs_of_a_workspace_takes_no_copy(place: str, tmp_path: Path) -> None:
    code = f"""
jobcore.save(place / {place!r}, state, durable=False)
ws = jobcore.Workspace()
for name, array in state.items():
    ws.feed(name, np.ones_like(array))
print(extra(lambda: jobcore.load(place / {place!r}, into=ws)))
assert all(np.array_equal(ws.view(name), array) for name, array in state.items())
"""
    (found,) = measure(tmp_path, code)
    assert found <= 64


# Noise takes the most room while it is encoded: what comes out is as large as what went in.
ENCODED = """
import numcodecs
from jobcore.store import BlobPolicy, Blosc, Zstd
state["noise"] = np.random.default_rng(0).integers(0, 256, 48 << 20, np.uint8)
state["turned"] = state["noise"].reshape(1024, -1).T
policies = {name: BlobPolicy(codec=Blosc() if name == "w1" else Zstd(1)) for name in state}
jobcore.save(place / "warm", {"a": 1}, policies={"a": BlobPolicy(codec=Zstd())}, overwrite=True)
"""


@pytest.mark.parametrize("place", ["x.zarr.zip", "x.zarr"])
def test_a_save_that_encodes_and_its_load_take_no_copy(place: str, tmp_path: Path) -> None:
    code = f"""{ENCODED}
print(extra(lambda: jobcore.save(place / {place!r}, state, policies=policies, share=False, durable=False)))
into = {{name: np.ones_like(array) for name, array in state.items()}}
print(extra(lambda: jobcore.load(place / {place!r}, into=into)))
assert all(np.array_equal(into[name], array) for name, array in state.items())
"""
    saved, loaded = measure(tmp_path, code)
    assert saved <= 64
    assert loaded <= 64


@pytest.mark.parametrize("place", ["x.zarr.zip", "x.zarr"])
def test_a_save_in_the_background_that_encodes_takes_one_copy(place: str, tmp_path: Path) -> None:
    code = f"""{ENCODED}
def act(n=0):
    options = dict(policies=policies, share=False, durable=False, overwrite=True)
    jobcore.save_async(place / {place!r}, state, **options).wait()
print(extra(act))
print(*[extra(act) for n in range(2)])
"""
    first, *later = measure(tmp_path, code)
    assert first <= STATE + 96 + 64
    assert max(later) <= 64


@pytest.mark.slow
def test_fifty_saves_take_no_more_than_the_second(tmp_path: Path) -> None:
    code = """
sizes = []
with jobcore.BackgroundSaver() as saver:
    for n in range(50):
        state["w0"][0] = n
        saver.save(place / "x", state, overwrite=True, durable=False)
        sizes.append(status("VmRSS"))
print(max(sizes) - sizes[1])
"""
    (found,) = measure(tmp_path, code)
    assert found <= 8


@pytest.mark.parametrize("background", [False, True])
def test_nothing_of_the_state_is_kept_when_a_save_is_done(background: bool, tmp_path: Path) -> None:
    class Array(np.ndarray):  # type: ignore[type-arg]  # only to be seen when it goes
        pass

    array = np.zeros(MIB).view(Array)
    seen = weakref.ref(array)
    if background:
        pending = save_async(tmp_path / "x", {"a": array})
        pending.wait(60)
    else:
        save(tmp_path / "x", {"a": array})
    del array
    assert seen() is None
