"""One canonical text for an identifier: the same person in every type, never two people in one."""

import enum
import re
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspectral.data.identity import IdentityError, distinct, texts, utc, valid


class Column:
    """A column of another library: NumPy gets its values by `__array__`, as those of a pandas Series or Categorical."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values)

    def __len__(self):
        return len(self.values)


NUMBERS = ["0", "7", "-7", "100"]
SAME = [
    *(np.array([0, 7, -7, 100], dtype=kind) for kind in ("i1", "i2", "i4", "i8", ">i8", "f2", "f4", "f8", "g")),
    np.array([-0.0, 7, -7, 100]),
    np.array(NUMBERS),
    np.array(NUMBERS, dtype="U40"),
    np.array(NUMBERS, dtype="S"),
    np.array(NUMBERS, dtype="S30"),
    np.array(NUMBERS, dtype=object),
    np.array(NUMBERS, dtype=np.dtypes.StringDType()),
    np.array([0, "7", b"-7", 100.0], dtype=object),
    [0, 7.0, "-7", b"100"],  # NumPy would find a common type: "7.0"
    [np.int8(0), np.str_("7"), np.bytes_(b"-7"), np.float32(100)],
    [Decimal(0), Decimal("7.00"), Decimal(-7), Decimal("1e2")],
    Column([0, 7, -7, 100]),
    Column(NUMBERS),
    np.ma.array([0, 7, -7, 100]),
    (text for text in NUMBERS),
]


@pytest.mark.parametrize("ids", SAME, ids=lambda ids: f"{type(ids).__name__} {getattr(ids, 'dtype', '')}")
def test_people_are_the_same_in_every_type(ids):
    listed = ids if hasattr(ids, "__len__") else list(ids)
    assert texts(listed) == NUMBERS


WIDE = [
    0,
    1,
    9,
    10,
    2**53 - 1,
    2**53,
    2**53 + 1,
    2**62,
    2**62 + 1,
    2**63 - 1,
    2**63,
    2**63 + 1,
    2**64 - 1,
    2**64,
    10**80,
]


def test_wide_integers_are_never_floats():
    for dtype in (np.int64, np.uint64, object):
        high = {np.int64: 2**63, np.uint64: 2**64, object: 10**90}[dtype]
        ids = [number for number in WIDE if number < high]
        assert texts(np.array(ids, dtype=dtype)) == [str(number) for number in ids]
    assert texts([2**63, -1, 2**63 + 1]) == ["9223372036854775808", "-1", "9223372036854775809"]
    low = np.array([-(2**63), -(2**63) + 1, 2**63 - 1])
    assert texts(low) == [str(number) for number in low.tolist()]


def test_text_is_itself():
    odd = [
        "007",
        " 7",
        "7 ",
        "7",
        "+7",
        "7.0",
        "A",
        "a",
        "é",
        "e\u0301",
        "\u00a0",
        "\n",
        '"',
        "-0",
        "True",
        "nan",
        "🦊",
    ]
    for ids in (odd, np.array(odd), np.array(odd, dtype=object), [text.encode() for text in odd]):
        assert texts(ids) == odd
    assert len(distinct(odd)[0]) == len(odd)


def test_dates_and_uuids_have_one_text_however_finely_they_are_told():
    noon = datetime(2020, 5, 1, 12)
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        assert texts(np.array([noon, noon.date()], dtype=f"M8[{unit}]")) == ["2020-05-01T12:00:00", "2020-05-01"]
    for unit in ("M", "D", "s", "ns"):
        assert texts(np.array(["2020-05-01"], dtype=f"M8[{unit}]")) == ["2020-05-01"]
    assert texts(np.array(["2020"], dtype="M8[Y]")) == texts([date(2020, 1, 1)]) == ["2020-01-01"]
    assert texts(np.array(["1965-12-30"], dtype="M8[W]")) == ["1965-12-30"]
    assert texts([noon.replace(microsecond=500_000)]) == ["2020-05-01T12:00:00.5"]
    assert texts(np.array(["2020-05-01T12:00:00.5"], dtype="M8[ns]")) == ["2020-05-01T12:00:00.5"]
    assert texts([datetime(2020, 5, 1), date(2020, 5, 1)]) == ["2020-05-01"] * 2
    east = timezone(timedelta(hours=2))
    assert texts([datetime(2020, 5, 1, 14, tzinfo=east), noon.replace(tzinfo=UTC)]) == ["2020-05-01T12:00:00Z"] * 2
    assert texts([datetime(2020, 5, 1, 2, tzinfo=east)]) == [utc("2020-05-01")] == ["2020-05-01T00:00:00Z"]
    name = "12345678-9abc-def0-1234-56789abcdef0"
    assert texts([uuid.UUID(name.upper()), name]) == [name] * 2


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([1, True], "row 1 is True, a Boolean"),
        (np.array([True]), "of type bool"),
        (np.array([1, 2.5]), "row 1 is the number 2.5"),
        (np.array([1, np.nan]), r"row 1 is missing \(NaN\)"),
        (np.array([1, np.inf]), "row 1 is the number inf"),
        (np.array([2.0**53]), "row 0 is the number 9007199254740992.0"),
        (np.array([2.0**24], dtype=np.float32), r"row 0 is the number 1\.6777216e\+07"),
        ([1, 2.5], "row 1 is the number 2.5"),
        (["a", float("nan")], r"row 1 is missing \(NaN\)"),
        (["a", 2.0**53], "row 1"),
        (["a", Decimal("0.5")], "row 1"),
        (["a", Decimal("1e999999")], "row 1"),
        (["a", 10**5000], "row 1 is a number of more than 1000 digits"),
        (["a", None], r"row 1 is missing \(None\)"),
        (np.array(["2020", "NaT"], dtype="M8[D]"), r"row 1 is missing \(NaT\)"),
        (["a", np.datetime64("NaT", "s")], r"row 1 is missing \(NaT\)"),
        (["a", ""], "row 1 is empty"),
        (np.array(["a", ""]), "row 1 is empty"),
        (np.array([b"a", b""]), "row 1 is empty"),
        ([b"a", b""], "row 1 is empty"),
        (["a", b"\xff"], "row 1 is .* not UTF-8"),
        (np.array([b"a", b"\xff"]), "row 1 is .* not UTF-8"),
        (["a", "\ud800"], "row 1 is .*surrogate"),
        (["a", "b\0"], "row 1 is .* NUL"),
        (np.array(["a", "b\0c"]), "row 1 is .* NUL"),
        (np.array([b"a", b"b\0c"]), "row 1 is .* NUL"),
        (["a", ["b"]], "row 1 is a value of type list"),
        (["a", ("b",)], "row 1 is a value of type tuple"),
        (["a", {"b": 1}], "row 1 is a value of type dict"),
        (np.array([1j]), "of type complex128"),
        (np.array([1], dtype="m8[s]"), "of type timedelta64"),
        (np.array([(1,)], dtype=[("a", int)]), "of type"),
        (np.array([[1]]), "2 dimensions"),
        (np.array(1), "0 dimensions"),
        (np.ma.array([1, 2], mask=[False, True]), "row 1 is missing"),
    ],
)
def test_what_nobody_can_be_known_by_is_refused_with_its_row(ids, says):
    for read in (distinct, texts):
        with pytest.raises(IdentityError, match=says):
            read(ids, "user")


def test_order_is_that_of_the_type():
    assert distinct(np.array([10, 9, -1, 9]))[0] == ["-1", "9", "10"]
    assert distinct(np.array([10.0, 9.0]))[0] == ["9", "10"]
    for ids in (["10", "9", "a"], np.array(["a", "9", "10"]), np.array([b"a", b"9", b"10"])):
        assert distinct(ids)[0] == ["10", "9", "a"]


PEOPLE = st.one_of(st.integers(-(2**70), 2**70), st.integers(-9, 9), st.text(st.characters(codec="utf-8"), min_size=1))


@given(st.lists(PEOPLE, min_size=1), st.randoms(use_true_random=False))
def test_any_mixture_is_the_same_people(people, rng):
    people = [person for person in people if "\0" not in str(person)] or [1]
    named = [str(person) for person in people]
    mixed = [rng.choice([person, str(person), str(person).encode()]) for person in people]
    assert texts(mixed) == named
    found, place = distinct(mixed)
    assert found == sorted(set(named))
    assert [found[k] for k in place] == named


def test_each_is_valid_or_not_on_its_own():
    assert valid([7, "7", None, "", 1.5, 2.0, True, b"\xff", "a\0"]).tolist() == [
        True,
        True,
        *[False] * 3,
        True,
        *[False] * 3,
    ]
    assert valid(np.array([1.0, np.nan, 2.5, 2.0**53, 2.0**53 - 1])).tolist() == [True, False, False, False, True]
    assert valid(np.array([16777216, 16777215], dtype=np.float32)).tolist() == [False, True]
    assert valid(np.array(["NaT", "2026-01-02"], dtype="M8[s]")).tolist() == [False, True]


def test_errors_name_what_is_meant():
    with pytest.raises(IdentityError, match=re.escape("item in row 0 is empty; identifiers are whole numbers, text")):
        distinct([""], "item")


def test_a_subclass_of_text_is_the_text_and_not_what_it_calls_itself():
    class Who(str, enum.Enum):  # noqa: UP042 (its __str__ is the point)
        ANN = "7"

    assert texts([Who.ANN, "7", 7]) == ["7"] * 3


def test_arrow_arrays_keep_their_zones_and_types():
    pa = pytest.importorskip("pyarrow")
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert texts(pa.array([noon], pa.timestamp("s", "UTC"))) == texts([noon])
    assert texts(pa.chunked_array([[7], [8]])) == ["7", "8"]
    assert texts(pa.array(["7"]).dictionary_encode()) == ["7"]
