"""Differentially private spectral decomposition: eigenvectors, PCA, truncated SVD and recommenders."""

from dpspectral.catalogue import PrivateCatalogue
from dpspectral.decompose import decompose
from dpspectral.dense import dense_release
from dpspectral.estimators import PrivatePCA, PrivateTruncatedSVD
from dpspectral.parties.party import Party
from dpspectral.parties.peers.graph import PeerGraph
from dpspectral.parties.peers.source import Peers
from dpspectral.parties.secure_sum.source import SecureSum
from dpspectral.power import Result, power_method
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import BudgetExceeded, Ledger, Release
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import BoundedRows, Interaction, SymmetricUpdate, User
from dpspectral.recommender import PrivateRecommender

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
