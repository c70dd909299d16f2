"""``jobcore ls``, ``show`` and ``verify``: what they print of runs, checkpoints, and what is neither."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import jobcore
from cli_tools import JOB, flip, flip_in_blob, jc
from jobcore.store import BlobPolicy, Zstd


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Be in a directory with the job file ``job.py``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


# -- ls


def test_ls_shows_the_epochs_that_exist(here):
    jc("run", "job.py")
    head, *rows = jc("ls", "runs/job").stdout.splitlines()
    assert re.split(r"  +", head) == ["epoch", "generation", "nodes", "blobs", "bytes", "saved at", "stop"]
    assert [re.split(r"  +", row.strip())[0] for row in rows] == ["0", "1", "2", "3"]
    assert re.fullmatch(
        r" +3 +1 +1 +3  \d\.\d\d kB  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  epoch_limiter\(3\)", rows[-1]
    )
    assert rows[-2].endswith("  -")


def test_ls_gives_the_same_as_json(here):
    jc("run", "job.py")
    jc("run", "job.py", "--resume", "2")
    found = json.loads(jc("ls", "runs/job", "--json").stdout)
    assert found["run_directory"] == str(here / "runs" / "job")
    assert [(e["epoch"], e["generation"]) for e in found["epochs"]] == [(0, 1), (1, 1), (2, 1), (3, 2)]
    assert [(e["epoch"], e["generation"]) for e in found["superseded"]] == [(3, 1)]
    newest = found["epochs"][-1]["nodes"]["local"]
    path = Path("runs/job") / newest["file"]
    assert newest == {
        "file": "local.3.2.zarr.zip",
        "bytes": path.stat().st_size,
        "digest": jobcore.inspect(path).digest,
        "blobs": 3,
        "fault": None,
    }
    assert found["epochs"][-1]["stop"]["met"] is True
    assert (found["faults"], found["unrecorded"]) == ([], [])


def test_ls_notes_what_is_damaged_missing_cut_off_and_left_over(here):
    jc("run", "job.py")
    run = Path("runs/job")
    flip(run / "epoch.3.1.json", 90)
    (run / "local.1.1.zarr.zip").unlink()
    os.truncate(run / "local.2.1.zarr.zip", 10)
    shutil.copy(run / "local.0.1.zarr.zip", run / "local.9.1.zarr.zip")
    lines = jc("ls", "runs/job").stdout.splitlines()
    notes = [line for line in lines if line.startswith("note: ")]
    assert len(lines) - len(notes) == 4
    assert (
        notes[0]
        == "note: epoch 1 cannot be loaded: node local: local.1.1.zarr.zip: No such file or directory"
    )
    assert re.fullmatch(
        r"note: epoch 2 cannot be loaded: node local: local.2.1.zarr.zip: expected [\d,]+ bytes, found 10",
        notes[1],
    )
    assert notes[2].startswith("note: the record of epoch 3 (generation 1) is damaged: expected SHA-256")
    # The database of the damaged record is no left-over.
    assert notes[3] == (
        "note: 1 database without a record, of a save that is going on or was interrupted: local.9.1.zarr.zip"
    )
    assert len(notes) == 4
    found = json.loads(jc("ls", "runs/job", "--json").stdout)
    assert [fault["epoch"] for fault in found["faults"]] == [3]
    assert found["unrecorded"] == ["local.9.1.zarr.zip"]
    assert found["epochs"][1]["nodes"]["local"]["fault"].endswith("No such file or directory")


def test_ls_of_a_run_that_was_killed_before_its_first_save(here):
    jc("run", "job.py")
    for path in Path("runs/job").glob("epoch.*"):
        path.unlink()
    result = jc("ls", "runs/job")
    assert result.stdout.startswith("no complete epoch in runs/job\nnote: 4 databases without a record")


@pytest.mark.parametrize("command", ["ls", "show", "verify"])
def test_a_path_that_is_nothing_of_ours_says_what_was_found(here, command):
    (here / "empty").mkdir()
    (here / "zarr" / "x").mkdir(parents=True)
    (here / "zarr" / "zarr.json").touch()
    os.mkfifo(here / "pipe")
    jc("run", "job.py", "--set", "epochs=1")
    for path, says in (
        ("runs/jib", "found nothing at runs/jib; did you mean runs/job?"),
        ("empty", "found an empty directory: empty"),
        ("zarr", "found a Zarr directory: zarr"),
        ("pipe", "found a pipe: pipe"),
        ("runs", "found a directory of 1 other entry (job): runs\nrun directories in it: runs/job"),
        ("job.py/x", "found nothing at job.py/x"),
        ("job.py@3", "expected a run directory before '@3', found a file: job.py"),
        ("empty@latest", "found an empty directory: empty"),
        ("runs/job@7", "expected a complete epoch 7"),
    ):
        error = jc(command, path, status=2).stderr
        assert error.startswith("error: expected a ")
        assert says in error
        assert "resume" not in error


@pytest.mark.parametrize("path", ["runs/job/local.1.1.zarr.zip", "runs/job@1"])
def test_ls_of_a_single_checkpoint_points_to_show(here, path):
    jc("run", "job.py", "--set", "epochs=1")
    assert f"hint: jobcore show {path}" in jc("ls", path, status=2).stderr


# -- show


NODES = """
import jobcore, numpy as np

def build_job(epochs: int = 2):
    with jobcore.Job() as job:
        for node in ("trainer:0", "trainer:1"):
            with jobcore.Node(node):
                @job.init_group.task
                def init(ws, node=node):
                    ws.feed("name", node)
                    ws.feed("x", np.ones(4), transient=True)
                @job.epoch_group.task
                def train(ws):
                    pass
        jobcore.epoch_limiter(job, epochs)
    return job
"""


def test_show_lists_attributes_and_blobs_of_a_database(here):
    user = {"note": "größer"}
    names = {"w": np.zeros((3, 4), np.float32), "s": "text", "e": np.empty((0, 2)), "0-d": 7}
    jobcore.save("model.zarr.zip", names, user=user)
    info = jobcore.inspect("model.zarr.zip")
    head, table = jc("show", "model.zarr.zip").stdout.split("\n\n")
    assert [re.split(r"  +", line.strip()) for line in head.splitlines()] == [
        ["model.zarr.zip"],
        ["writer", info.writer],
        ["format", "1 (zarr.zip)"],
        ["size", f"{info.size_bytes / 1000:.2f} kB ({info.size_bytes:,} bytes)"],
        ["digest", info.digest],
        ["user", json.dumps(user, ensure_ascii=False)],
    ]
    assert [re.split(r"  +", line) for line in table.splitlines()] == [
        ["name", "kind", "dtype", "shape", "bytes"],
        ["w", "tensor", "float32", "(3, 4)", "48"],
        ["s", "string", "uint8", "(4,)", "4"],
        ["e", "tensor", "float64", "(0, 2)", "0"],
        ["0-d", "tensor", "int64", "()", "8"],
        ["4 blobs, 60 B"],
    ]


def test_show_of_a_run_takes_all_nodes_of_the_newest_epoch_or_of_the_one_named(here):
    (here / "nodes.py").write_text(NODES)
    jc("run", "nodes.py")
    run = json.loads(jc("ls", "runs/nodes", "--json").stdout)
    for path, epoch in (("runs/nodes", 2), ("runs/nodes@1", 1), ("runs/nodes@latest", 2)):
        shown = jc("show", path).stdout
        files = [node["file"] for node in run["epochs"][epoch]["nodes"].values()]
        assert [line for line in shown.splitlines() if line.endswith(".zip")] == [
            f"runs/nodes/{f}" for f in files
        ]
        assert re.findall(r"^  node +(.*)$", shown, re.M) == ["trainer:0", "trainer:1"]
        assert re.findall(r"^  epoch +(.*)$", shown, re.M) == [str(epoch)] * 2
        assert re.findall(r"^  skipped +(.*)$", shown, re.M) == ["x (transient)"] * 2
        found = json.loads(jc("show", path, "--json").stdout)
        assert found["epoch"] == epoch
        assert [(d["node"], [b["name"] for b in d["blobs"]]) for d in found["databases"]] == [
            ("trainer:0", ["name"]),
            ("trainer:1", ["name"]),
        ]
    assert "stop        yes (epoch_limiter(2): yes)" in jc("show", "runs/nodes").stdout
    assert "stop        no (epoch_limiter(2): no)" in jc("show", "runs/nodes@1").stdout


def test_show_reads_no_data(here):
    jc("run", "job.py")
    before = jc("show", "runs/job").stdout
    flip_in_blob("runs/job/local.3.1.zarr.zip", "weights")
    assert jc("show", "runs/job").stdout == before


def test_show_says_that_a_newer_epoch_has_a_damaged_record(here):
    jc("run", "job.py")
    flip("runs/job/epoch.3.1.json", 90)
    result = jc("show", "runs/job")
    assert result.stderr.startswith("note: the record of epoch 3 is damaged: ")
    assert re.search(r"^  epoch +2$", result.stdout, re.M)


def test_show_of_what_cannot_be_read_says_what_it_is(here):
    result = jc("show", "job.py", status=1)
    assert "expected a jobcore database (zarr.zip or zarr), found text that begins" in result.stderr
    (here / "nodes.py").write_text(NODES)
    jc("run", "nodes.py")
    os.truncate("runs/nodes/trainer=3a0.2.1.zarr.zip", 100)
    result = jc("show", "runs/nodes", status=1)
    assert "trainer=3a0.2.1.zarr.zip: expected a jobcore database" in result.stderr
    assert re.findall(r"^  node +(.*)$", result.stdout, re.M) == ["trainer:1"]
    first, second = json.loads(jc("show", "runs/nodes", "--json", status=1).stdout)["databases"]
    assert "expected a jobcore database" in first["error"]
    assert second["error"] is None


def test_show_tells_what_is_encoded_and_what_is_a_view(here):
    zeros = np.zeros(1000)
    policies = {"w": BlobPolicy(codec=Zstd())}
    jobcore.save("small.zarr.zip", {"w": zeros, "part": zeros[:10], "b": np.ones(3)}, policies=policies)
    head, w, part, b, _ = jc("show", "small.zarr.zip").stdout.split("\n\n")[1].splitlines()
    assert head.split() == ["name", "kind", "dtype", "shape", "bytes", "stored", "as"]
    assert re.fullmatch(r"w .* 8,000 +\d\d  zstd\(3\)", w)
    assert re.fullmatch(r"part .* 80 +0  view of w", part)
    assert re.fullmatch(r"b .* 24 +24", b)
    blobs = json.loads(jc("show", "small.zarr.zip", "--json").stdout)["databases"][0]["blobs"]
    assert [(blob["codecs"], blob["alias_of"]) for blob in blobs] == [
        (["zstd(3)"], None),
        ([], "w"),
        ([], None),
    ]


def test_show_of_a_run_without_epochs_is_an_error(here):
    jc("run", "job.py")
    for path in Path("runs/job").glob("epoch.*"):
        path.unlink()
    assert "hint: jobcore ls runs/job" in jc("show", "runs/job", status=1).stderr


def test_names_are_shown_as_text_and_cannot_paint_the_terminal(here):
    names = ["[red]x[/red]", "two\nlines", "\x1b[31mred", "重み", "\u202eltr"]
    jobcore.save("names.zarr.zip", dict.fromkeys(names, 1))
    shown = jc("show", "names.zarr.zip").stdout
    rows = shown.split("\n\n")[1].splitlines()[1:-1]
    assert [re.split(r"  +", row)[0] for row in rows] == [
        "[red]x[/red]",
        r"two\nlines",
        r"\x1b[31mred",
        "重み",
        r"\u202eltr",
    ]
    found = json.loads(jc("show", "names.zarr.zip", "--json").stdout)
    assert [blob["name"] for blob in found["databases"][0]["blobs"]] == names


# -- verify


def test_verify_says_ok_for_every_database_of_a_run(here):
    jc("run", "job.py")
    lines = jc("verify", "runs/job").stdout.splitlines()
    assert [re.sub(r"[\d.]+ kB", "#", line) for line in lines] == [
        *(f"ok: runs/job/local.{n}.1.zarr.zip: epoch {n}, node local, 3 blobs, #" for n in range(4)),
        "4 of 4 databases ok, 0 faults, # read",
    ]
    assert len(jc("verify", "runs/job@2").stdout.splitlines()) == 2
    (line,) = jc("verify", "runs/job/local.2.1.zarr.zip").stdout.splitlines()
    assert line.startswith("ok: runs/job/local.2.1.zarr.zip: 3 blobs, ")


@pytest.mark.parametrize("path", ["runs/job", "runs/job@3", "runs/job/local.3.1.zarr.zip"])
def test_verify_names_file_place_and_blob_of_a_flipped_byte(here, path):
    jc("run", "job.py")
    flip_in_blob("runs/job/local.3.1.zarr.zip", "weights")
    lines = jc("verify", path, status=1).stdout.splitlines()
    (fault,) = [line for line in lines if line.startswith("fault: ")]
    assert fault.startswith(
        "fault: runs/job/local.3.1.zarr.zip: weights/c.0: blob 'weights', chunk 0: expected CRC-32 "
    )
    found = json.loads(jc("verify", path, "--json", status=1).stdout)
    assert found["ok"] is False
    (bad,) = [database for database in found["databases"] if not database["ok"]]
    assert bad["path"] == "runs/job/local.3.1.zarr.zip"
    assert (bad["faults"][0]["place"], bad["faults"][0]["blob"]) == ("weights/c.0", "weights")


def swap(run: Path) -> None:
    """Put another whole database in the place of one: every byte of it is right, and it is the wrong one."""
    shutil.copy(run / "local.1.1.zarr.zip", run / "local.2.1.zarr.zip")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda run: flip(run / "epoch.2.1.json", 90), "epoch.2.1.json: expected SHA-256"),
        (lambda run: flip(run / "generation.1.json", 90), "generation.1.json: expected SHA-256"),
        (lambda run: (run / "generation.1.json").unlink(), "generation.1.json: expected the claim of generation 1"),
        (lambda run: (run / "local.2.1.zarr.zip").unlink(), "local.2.1.zarr.zip: expected a database, found no file"),
        (lambda run: os.truncate(run / "local.2.1.zarr.zip", 900), "local.2.1.zarr.zip: expected a jobcore database"),
        (swap, "local.2.1.zarr.zip: index: expected the database with the digest 'sha256:"),
    ],
    ids=["record", "claim", "no claim", "no database", "truncated", "swapped"],
)  # fmt: skip
def test_verify_of_a_run_finds_whatever_is_wrong_in_it(here, harm, says):
    jc("run", "job.py")
    harm(Path("runs/job"))
    result = jc("verify", "runs/job", status=1)
    faults = [line for line in result.stdout.splitlines() if line.startswith("fault: ")]
    assert faults[0].startswith(f"fault: runs/job/{says}")
    assert str(here) not in faults[0].replace(f"{here}/runs/job/epoch", "")
    found = json.loads(jc("verify", "runs/job", "--json", status=1).stdout)
    assert len(faults) == len(found["log"]) + sum(len(d["faults"]) for d in found["databases"])


def test_verify_tells_what_it_left_out(here):
    jc("run", "job.py")
    jc("run", "job.py", "--resume", "1")
    shutil.copy("runs/job/local.0.1.zarr.zip", "runs/job/local.9.2.zarr.zip")
    assert jc("verify", "runs/job").stdout.splitlines()[-2:] == [
        "not verified: 2 superseded epochs",
        "not verified: 1 database without a record",
    ]


def test_verify_of_a_foreign_file_says_what_it_is(here):
    np.savez("x.npz", a=1)
    result = jc("verify", "x.npz", status=1)
    assert result.stdout.startswith(
        "fault: x.npz: expected a jobcore database (zarr.zip or zarr), found a NumPy .npz file"
    )


def test_verify_of_a_run_without_epochs_finds_nothing_wrong(here):
    jc("run", "job.py")
    for path in Path("runs/job").glob("epoch.*"):
        path.unlink()
    assert (
        jc("verify", "runs/job").stdout.splitlines()[0] == "no complete epoch in runs/job: nothing to verify"
    )


@pytest.mark.parametrize("command", ["ls", "show", "verify"])
def test_a_path_that_cannot_be_looked_at_is_told_and_no_bug(here, command):
    (here / "loop").symlink_to("loop")
    assert "found a path that cannot be read: loop/x: " in jc(command, "loop/x", status=2).stderr
    assert "found nothing at ~nobody-of-that-name" in jc(command, "~nobody-of-that-name", status=2).stderr
