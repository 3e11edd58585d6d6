"""Read TensorBoard's event files: a run for each folder, with the last value of each scalar.

The config comes from the HParams plugin. ``add_hparams`` writes it to a folder of its own below the
run's, which counts as part of the run. A run without it is identified by its folder's name.
"""

import logging
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from autoresearch.errors import FormatError
from autoresearch.program import install_command
from trajectory.formats.source import ForeignFile, Source, SourcePart
from trajectory.formats.tracker_stores import Folder, Recorded, finite, foreign_file

FORMAT: Final = "tensorboard"
_PLUGIN = "hparams"


def recognises(folder: Folder) -> bool:
    """Return whether a folder holds event files."""
    return any("tfevents" in path.name for path in folder.files)


def read_file(source: Source, wanted: SourcePart) -> ForeignFile:
    """Read the run of a single file; see :func:`read`."""
    folder = Folder(source.path, source.data, {Path(source.path.name): source.data})
    return read(folder, wanted)


def read(folder: Folder, wanted: SourcePart) -> ForeignFile:
    """Read the runs of a log directory.

    :raises FormatError: if TensorBoard is not installed.
    """
    try:
        from tensorboard.backend.event_processing import event_file_loader  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise FormatError(
            f"TensorBoard is not installed; run: {install_command('tensorboard')}"
        ) from error
    logging.getLogger("tensorboard").setLevel(logging.CRITICAL)
    runs: dict[Path, Recorded] = {}
    own: dict[Path, Recorded] = {}
    for path in (path for path in folder.files if "tfevents" in path.name):
        run = own.setdefault(path.parent, Recorded(path.parent.as_posix()))
        # The loader and protobuf raise whatever a damaged record leads to; the rest is left out.
        with tempfile.NamedTemporaryFile() as file, suppress(Exception):
            file.write(folder.files[path])
            file.flush()
            for event in event_file_loader.EventFileLoader(file.name).Load():
                _add(run, event)
    for place, run in own.items():
        above = own.get(place.parent) if place.parts else None
        if above is not None and run.params and not above.params:
            above.params = run.params
            above.metrics = {**run.metrics, **above.metrics}
        else:
            runs[place] = run
    ordered = sorted(runs.values(), key=lambda run: run.at)
    return foreign_file(FORMAT, folder, ordered, wanted)


def _add(run: Recorded, event: Any) -> None:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # noqa: PLC0415
    from tensorboard.util.tensor_util import make_ndarray  # noqa: PLC0415

    if not run.at and 0 < event.wall_time < 1e11:
        run.at = datetime.fromtimestamp(event.wall_time, UTC).isoformat(timespec="milliseconds")
    for value in event.summary.value if event.HasField("summary") else ():
        plugin = value.metadata.plugin_data
        if plugin.plugin_name == _PLUGIN:
            session = HParamsPluginData.FromString(plugin.content).session_start_info
            for name, one in session.hparams.items():
                said = getattr(one, one.WhichOneof("kind") or "string_value")
                is_whole = isinstance(said, float) and said.is_integer()
                run.params[name] = int(said) if is_whole else said
        elif value.HasField("tensor"):
            array = make_ndarray(value.tensor)
            number = finite(array.item()) if array.size == 1 and array.dtype.kind in "fiu" else None
            if number is not None:
                run.metrics[value.tag] = number
