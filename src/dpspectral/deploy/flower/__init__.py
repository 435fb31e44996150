"""The secure sum on Flower: `pip install 'dpspectral[flower]'`. Our messages travel inside Flower's (docs/flower.md).

Telemetry and update checks are off unless the environment says otherwise.
"""

import logging
import os

_LOG = logging.getLogger("dpspectral.flower")
if not _LOG.handlers:  # Flower's processes show what goes to standard error
    _LOG.setLevel(logging.INFO)
    _LOG.addHandler(logging.StreamHandler())
    _LOG.handlers[0].setFormatter(logging.Formatter("%(asctime)s dpspectral %(levelname)s %(message)s"))

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
