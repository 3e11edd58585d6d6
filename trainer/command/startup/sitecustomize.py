"""Have :mod:`multiprocessing` pass descriptors without sockets, in the Python of a command.

The first import of the module that passes them finds ours. Any Python from 3.8 on can read this
file, and needs none of this product's packages.
"""

import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (a quick start)
_NAME = "multiprocessing.resource_sharer"


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != _NAME:
            return None
        return importlib.util.spec_from_file_location(name, os.path.join(_HERE, "passing.py"))  # noqa: PTH118


sys.meta_path.insert(0, _Finder)
if sys.modules.pop(_NAME, None) is not None:  # a preloaded module has imported it
    del sys.modules["multiprocessing"].resource_sharer

# A file of this name that the environment has itself comes next.
sys.path[:] = [one for one in sys.path if os.path.abspath(one) != _HERE]  # noqa: PTH100
_ours = sys.modules.pop(__name__, None)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError:
    if _ours is not None:
        sys.modules[__name__] = _ours
