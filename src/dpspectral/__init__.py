"""Differentially private spectral decomposition: eigenvectors, PCA, truncated SVD and recommenders.

A name is loaded when it is asked for (PEP 562): compilers and scientific libraries take seconds to import, and nobody
who asks for a version, for help or for a budget should wait for all of them.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from dpspectral.data.dask_rows import DaskRows as DaskRows
    from dpspectral.data.datasets import read
    from dpspectral.data.gpu_rows import GpuRows as GpuRows
    from dpspectral.data.holdout import hold_out
    from dpspectral.data.store import Store
    from dpspectral.data.table_store import TableStore
    from dpspectral.methods.catalogue import PrivateCatalogue
    from dpspectral.methods.decompose import decompose
    from dpspectral.methods.dense import dense_release
    from dpspectral.methods.plan import plan
    from dpspectral.methods.power import PowerOptions, power_method
    from dpspectral.methods.result import Result
    from dpspectral.models.estimators import PrivateTruncatedSVD
    from dpspectral.models.pca import PrivatePCA
    from dpspectral.models.pipelines import check_pipeline
    from dpspectral.models.recommender import PrivateRecommender
    from dpspectral.models.scaler import PrivateStandardScaler
    from dpspectral.privacy.budget import Budget
    from dpspectral.privacy.ledger import BudgetExceededError, Ledger, Release
    from dpspectral.privacy.noise import NotPrivate
    from dpspectral.privacy.units import BoundedRows, Interaction, Neighbours, Persons, SymmetricUpdate, User
    from dpspectral.privacy.units.epochs import UserEpoch
    from dpspectral.protocols.common.party import Party
    from dpspectral.protocols.party_stream import PartyStream
    from dpspectral.protocols.peers.peer_graph import PeerGraph
    from dpspectral.protocols.peers.peers import Peers
    from dpspectral.protocols.secure_sum.secure_sum import SecureSum
    from dpspectral.protocols.stream_party import StreamParty
    from dpspectral.reports.basis_page import report
    from dpspectral.streams.private_stream import PrivateStream

__version__ = "0.3.0"

__all__ = [
    "BoundedRows",
    "Budget",
    "BudgetExceededError",
    "Interaction",
    "Ledger",
    "Neighbours",
    "NotPrivate",
    "Party",
    "PartyStream",
    "PeerGraph",
    "Peers",
    "Persons",
    "PowerOptions",
    "PrivateCatalogue",
    "PrivatePCA",
    "PrivateRecommender",
    "PrivateStandardScaler",
    "PrivateStream",
    "PrivateTruncatedSVD",
    "Release",
    "Result",
    "SecureSum",
    "Store",
    "StreamParty",
    "SymmetricUpdate",
    "TableStore",
    "User",
    "UserEpoch",
    "check_pipeline",
    "decompose",
    "dense_release",
    "hold_out",
    "plan",
    "power_method",
    "read",
    "report",
]

_MODULES = {
    "BoundedRows": "privacy.units",
    "Budget": "privacy.budget",
    "BudgetExceededError": "privacy.ledger",
    "DaskRows": "data.dask_rows",
    "GpuRows": "data.gpu_rows",
    "Interaction": "privacy.units",
    "Ledger": "privacy.ledger",
    "Neighbours": "privacy.units",
    "NotPrivate": "privacy.noise",
    "Party": "protocols.common.party",
    "PartyStream": "protocols.party_stream",
    "PeerGraph": "protocols.peers.peer_graph",
    "Peers": "protocols.peers.peers",
    "Persons": "privacy.units",
    "PowerOptions": "methods.power",
    "PrivateCatalogue": "methods.catalogue",
    "PrivatePCA": "models.pca",
    "PrivateRecommender": "models.recommender",
    "PrivateStandardScaler": "models.scaler",
    "PrivateStream": "streams.private_stream",
    "PrivateTruncatedSVD": "models.estimators",
    "Release": "privacy.ledger",
    "Result": "methods.result",
    "SecureSum": "protocols.secure_sum.secure_sum",
    "Store": "data.store",
    "StreamParty": "protocols.stream_party",
    "SymmetricUpdate": "privacy.units",
    "TableStore": "data.table_store",
    "User": "privacy.units",
    "UserEpoch": "privacy.units.epochs",
    "check_pipeline": "models.pipelines",
    "decompose": "methods.decompose",
    "dense_release": "methods.dense",
    "hold_out": "data.holdout",
    "plan": "methods.plan",
    "power_method": "methods.power",
    "read": "data.datasets",
    "report": "reports.basis_page",
}
# Names of earlier versions: what they are now, and since when. They warn, and are not in __all__ (docs/stability.md).
_RENAMED = {"BudgetExceeded": ("BudgetExceededError", "0.2"), "load": ("read", "0.3")}
# Names that need an extra, and what it installs. They are not in __all__: `import *` must work without.
_EXTRAS = {"DaskRows": ("dask", ("dask", "distributed")), "GpuRows": ("gpu", ("torch", "triton"))}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        new, since = _RENAMED[name]
        text = f"dpspectral.{name} is dpspectral.{new} since version {since}; the old name goes with version 2.0"
        warn(text, DeprecationWarning, stacklevel=2)
        return __getattr__(new)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        extra, needed = _EXTRAS.get(name, ("", ()))
        if (error.name or "").partition(".")[0] not in needed:
            raise
        raise ImportError(f"{name} needs {error.name}: pip install 'dpspectral[{extra}]'") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All that can be had here: tab completion asks for the value of every name."""
    more = (name for name, (_, needed) in _EXTRAS.items() if all(map(find_spec, needed)))
    return sorted({*globals(), *__all__, *more})
