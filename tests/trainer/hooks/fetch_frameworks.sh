#!/bin/sh
# Fetches verl and OpenRLHF without what they depend on (2 MB instead of gigabytes) into .cache/frameworks: the tests of their
# hooks load one file of each, the one with the loggers. Never shipped, never on the path.
set -e
cd "$(dirname "$0")/../../.."
[ -f .cache/frameworks/openrlhf/utils/logging_utils.py ] && exit 0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-.venv/bin/python}" -m pip install -q --no-deps --target "$folder" verl==0.9.1 openrlhf==0.11.2
mkdir -p .cache/frameworks/verl/utils .cache/frameworks/openrlhf/utils
cp "$folder/verl/utils/tracking.py" .cache/frameworks/verl/utils/
mkdir -p .cache/frameworks/verl/utils/logger
cp "$folder/verl/utils/logger/aggregate_logger.py" .cache/frameworks/verl/utils/logger/
cp "$folder/openrlhf/utils/logging_utils.py" .cache/frameworks/openrlhf/utils/
