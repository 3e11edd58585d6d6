#!/bin/bash
# Start the training as a shell script does.
set -e
exec python train_gpt.py "$@"
