"""What peers keep of a run that broke off, and how they agree on it."""

import numpy as np
import pytest

from dpspectral.protocols.common.encoding import AbortedError
from dpspectral.protocols.peers.peer_journal import KeptSum, PeerJournal

SUM = KeptSum(np.arange(6, dtype=np.int64), (0, 2, 3), 0.5)


def alone(content):
    """A vote in which this peer is the lowest."""
    return content


def kept(folder, settings=b"settings"):
    journal = PeerJournal(folder, settings)
    journal.agree(7, alone)
    journal.keep(b"first", SUM)
    journal.keep(b"second", SUM._replace(mu=1.2))
    return journal


def test_a_sum_is_found_again_by_its_question_and_size(tmp_path):
    kept(tmp_path / "j")
    again = PeerJournal(tmp_path / "j", b"settings")
    assert again.seed == 7
    assert again.paid == pytest.approx(1.3)
    found = again.find(b"first", 6)
    assert np.array_equal(found.integers, SUM.integers)
    assert found[1:] == SUM[1:]
    assert again.find(b"third", 6) is None
    assert again.find(b"first", 5) is None
    again.agree(8, alone)
    assert again.seed == 7  # that of the run that goes on
    again.remove()
    assert not (tmp_path / "j").exists()


def test_other_settings_are_another_run(tmp_path):
    kept(tmp_path / "j")
    other = PeerJournal(tmp_path / "j", b"other settings")
    assert (other.seed, other.sums) == (None, {})
    other.agree(8, alone)
    assert PeerJournal(tmp_path / "j", b"settings").seed is None


@pytest.mark.parametrize("spoil", ["run.json", "sum"])
def test_a_damaged_journal_is_none(tmp_path, spoil):
    kept(tmp_path / "j")
    for file in tmp_path.glob(f"j/*{spoil}"):
        file.write_bytes(file.read_bytes()[:-9])
    assert PeerJournal(tmp_path / "j", b"settings").sums == {}


def test_the_lowest_peers_journal_counts_also_where_this_one_has_more_or_less(tmp_path):
    lowest, told = kept(tmp_path / "low"), []
    lowest.agree(0, lambda content: told.append(content) or content)
    empty = PeerJournal(tmp_path / "empty", b"settings")
    answers = iter(told)
    empty.agree(9, lambda _: next(answers))
    assert (empty.seed, list(empty.sums)) == (7, list(lowest.sums))
    assert PeerJournal(tmp_path / "empty", b"settings").paid == lowest.paid
    new = PeerJournal(tmp_path / "new", b"settings")._list(3, [])
    lowest.agree(0, lambda _: new)  # the lowest peer has lost its own: all is asked again
    assert (lowest.seed, lowest.sums) == (3, {})


def test_a_sum_that_the_leader_lacks_is_asked_for_again(tmp_path):
    journal = kept(tmp_path / "j")
    contents = iter([journal._list(7, list(journal.sums)), b"", None])
    journal.agree(0, lambda own: own if (told := next(contents)) is None else told)
    assert journal.find(b"first", 6) is None
    assert journal.find(b"second", 6) is not None


@pytest.mark.parametrize("wrong", [b"", b"{}", b'{"seed": 1, "sums": ["../x"]}', b'{"seed": -1, "sums": []}', b"[" * 9])
def test_what_is_no_journal_ends_the_run_before_anything_is_paid(tmp_path, wrong):
    with pytest.raises(AbortedError, match="journal is damaged"):
        PeerJournal(tmp_path / "j", b"settings").agree(0, lambda _: wrong)
    assert not (tmp_path / "j").exists()
