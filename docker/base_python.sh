#!/bin/sh
# Prints the Python of the image that has torch: the one in use, where PATH or VIRTUAL_ENV name it, else
# the first of those that images are known to keep it in. Every candidate is asked for its own path.
set -eu

for candidate in ${VIRTUAL_ENV:+"$VIRTUAL_ENV/bin/python3"} python3 python \
  /opt/venv/bin/python3 /opt/conda/bin/python3 /usr/local/bin/python3 /usr/bin/python3; do
  if "$candidate" -c 'import sys; from importlib.metadata import version; version("torch"); print(sys.executable)' 2> /dev/null; then
    exit
  fi
done
echo "no Python of this image has torch; build on an image that brings it, or name its Python's folder first on PATH" >&2
exit 1
