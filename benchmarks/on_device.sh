#!/usr/bin/env bash
# Numbers and speeds on the first accelerator that JAX sees, in at most four minutes; on the CPU
# where there is none. Writes one JSON file: benchmarks/on_device.sh [FILE] [--small].
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -m benchmarks.on_device "$@"
