"""Who a party is: an Ed25519 key of its own, and the public keys of all members, in OpenSSH's formats.

A list of members has a line for each, "ssh-ed25519 AAAA... name", in an order that is the same for all; empty lines
and lines that begin with # do not count. The keys can be made by `dpspectral party init` or `ssh-keygen -t ed25519`.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpspectral.core.private_files import check_private, write_private

_LARGEST = 1 << 24  # bytes of a file


def make_identity(file: Path, name: str) -> str:
    """Write a new private key, and its public half beside it (.pub); returns the line for the list of members."""
    key = Ed25519PrivateKey.generate()
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    write_private(file, content)
    line = public_line(key.public_key(), name)
    file.with_name(f"{file.name}.pub").write_text(line + "\n")
    return line


def public_line(key: Ed25519PublicKey, name: str) -> str:
    coded = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    return f"{coded} {name}".strip()


def read_identity(file: Path) -> bytes:
    """The private key, 32 bytes. Raises ValueError if it is none, or others can read it."""
    if not file.is_file():
        raise ValueError(f"there is no identity key {file}: make one with dpspectral party init")
    check_private(file)
    try:
        key = serialization.load_ssh_private_key(file.read_bytes()[:_LARGEST], None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{file} is not an Ed25519 private key of OpenSSH without a passphrase")
    return key.private_bytes_raw()


def read_members(file: Path) -> tuple[bytes, ...]:
    """The members' public keys, in the order of the file."""
    if not file.is_file():
        raise ValueError(f"there is no list of members {file}: a line of each party's .pub file, the same for all")
    members: list[bytes] = []
    for number, line in enumerate(file.read_bytes()[:_LARGEST].splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            key = serialization.load_ssh_public_key(line.strip())
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError(f'{file}, line {number}: not a member\'s key, "ssh-ed25519 AAAA... name"')
        if key.public_bytes_raw() in members:
            raise ValueError(f"{file}, line {number}: this key is there twice")
        members.append(key.public_bytes_raw())
    return tuple(members)
