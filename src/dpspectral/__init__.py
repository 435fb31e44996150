"""Differentially private spectral decomposition: eigenvectors, PCA, truncated SVD and recommenders."""

from dpspectral.methods.catalogue import PrivateCatalogue
from dpspectral.methods.decompose import decompose
from dpspectral.methods.dense import dense_release
from dpspectral.methods.power import power_method
from dpspectral.methods.result import Result
from dpspectral.models.estimators import PrivatePCA, PrivateTruncatedSVD
from dpspectral.models.recommender import PrivateRecommender
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import BudgetExceeded, Ledger, Release
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import BoundedRows, Interaction, SymmetricUpdate, User
from dpspectral.protocols.common.party import Party
from dpspectral.protocols.peers.peer_graph import PeerGraph
from dpspectral.protocols.peers.peers import Peers
from dpspectral.protocols.secure_sum.secure_sum import SecureSum

__version__ = "0.1.1"

__all__ = [
    "BoundedRows",
    "Budget",
    "BudgetExceeded",
    "Interaction",
    "Ledger",
    "NotPrivate",
    "Party",
    "PeerGraph",
    "Peers",
    "PrivateCatalogue",
    "PrivatePCA",
    "PrivateRecommender",
    "PrivateTruncatedSVD",
    "Release",
    "Result",
    "SecureSum",
    "SymmetricUpdate",
    "User",
    "decompose",
    "dense_release",
    "power_method",
]
