"""python -m dpspectral.cli"""

from dpspectral.cli import entry

entry()
