"""The largest frame that a run can have: what is longer is not read."""

from __future__ import annotations

from dpspectral.protocols.common.encoding import bitmap
from dpspectral.protocols.common.keys import KEY_BYTES, SIGNATURE_BYTES
from dpspectral.protocols.secure_sum.messages import OVERHEAD
from dpspectral.protocols.secure_sum.roster import SUMMARY_BYTES, neighbour_bytes
from dpspectral.protocols.secure_sum.sealing import bundle_bytes
from dpspectral.protocols.secure_sum.setup import LONGEST_TERMS, MOST_ROUNDS

_PARTY = 4  # bytes of a party's number in a table


def largest_frame(parties: int, rounds: int, question: int) -> int:
    """Bytes of the largest frame to one of so many parties, with keys for so many rounds and questions of that size."""
    rounds, others, who = min(rounds, MOST_ROUNDS), parties - 1, len(bitmap((), parties))
    return OVERHEAD + max(
        LONGEST_TERMS,
        parties * (_PARTY + SUMMARY_BYTES),  # greetings, to everybody
        4 + parties * (_PARTY + KEY_BYTES) + others * (_PARTY + neighbour_bytes(rounds)),  # nonces and neighbours' keys
        who + others * (_PARTY + bundle_bytes(rounds)),  # their sealed shares
        who + question,
        parties * (_PARTY + SIGNATURE_BYTES),  # what the committee signed
    )
