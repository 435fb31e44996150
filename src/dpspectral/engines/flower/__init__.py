"""The secure sum on Flower: `pip install 'dpspectral[flower]'`. Our messages travel inside Flower's (docs/flower.md).

Telemetry and update checks are off unless the environment says otherwise.
"""

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
