"""Keys of nodes, as Flower has them and as the file of clients has them."""

from __future__ import annotations

import functools

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


@functools.cache
def public_key(number):
    """The key of node ``number``, always the same: PEM, as the SuperLink tells it."""
    key = ec.derive_private_key(number + 2, ec.SECP384R1()).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def client_file(path, names, keys=None, **revoked):
    """Write ``clients.toml`` in which client k is ``names[k]`` with the key of node ``keys[k]``, k
    itself unless given."""
    from motley_flower.client_list import openssh_key

    text = ""
    for k, name in enumerate(names):
        text += (
            f'[[client]]\nname = "{name}"\nid = {k}\nkey = '
            f'"{openssh_key(public_key((keys or {}).get(k, k)))}"\n'
        )
        text += f'revoked = "{revoked[name]}"\n' if name in revoked else ""
    path.write_text(text)
    return path
