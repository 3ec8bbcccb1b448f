"""The cryptographic functions of secure aggregation, each by a library: ``cryptography`` and
pycryptodome's Shamir shares.

``pip install ./packages/motley-flower`` in a checkout brings both.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from motley.core.errors import SecureAggregationError
from motley_flower.secure.encoding import Entropy, Words

SEED = 16
"""Bytes of a secret that is shared: Shamir's scheme in pycryptodome takes no other length."""
_NONCE = 12
_TAG = 16
ENVELOPE = _NONCE + 2 * SEED + _TAG
"""Bytes of the encrypted shares for one peer."""


def derive(secret: bytes, *info: bytes) -> bytes:
    """Return 32 bytes by HKDF-SHA256; each part of ``info`` is preceded by its length."""
    context = b"".join(struct.pack("<I", len(part)) + part for part in info)
    return HKDF(SHA256(), 32, salt=None, info=b"motley secure aggregation" + context).derive(secret)


def public_key(private: bytes) -> bytes:
    """Return the X25519 public key of a private key, 32 bytes each."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_public_key(public: bytes) -> bool:
    """Return whether an X25519 key can be agreed with: it is not one of the few of low order."""
    try:
        agree(bytes(32), public)
    except SecureAggregationError:
        return False
    return True


def agree(private: bytes, public: bytes, *info: bytes) -> bytes:
    """Return the key that two X25519 key pairs agree on, 32 bytes, bound to ``info``.

    Raises
    ------
    SecureAggregationError: a public key of low order.
    """
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:
        raise SecureAggregationError("got a public key that no private key has") from None
    return derive(shared, *info)


def sign(private: bytes, message: bytes) -> bytes:
    """Return the Ed25519 signature of a message, 64 bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether an Ed25519 signature is that of the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def split_seed(seed: bytes, threshold: int, clients: int) -> list[bytes]:
    """Return one share, 16 bytes, for each of ``clients``; any ``threshold`` of them give the seed.
    Shares are numbered from 1."""
    return [share for _, share in Shamir.split(threshold, clients, seed, ssss=False)]


def combine_shares(shares: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the seed of exactly ``threshold`` shares, each with its number."""
    return Shamir.combine(list(shares), ssss=False)


def seal_envelope(key: bytes, content: bytes, context: bytes, entropy: Entropy) -> bytes:
    """Return content encrypted by AES-256-GCM, bound to a context."""
    nonce = entropy(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, content, context)


def open_envelope(key: bytes, envelope: bytes, context: bytes) -> bytes | None:
    """Return the content of an envelope; None if the envelope or its context was changed."""
    try:
        return AESGCM(key).decrypt(envelope[:_NONCE], envelope[_NONCE:], context)
    except InvalidTag:
        return None


def add_stream(total: Words, key: bytes, sign: int) -> None:
    """Add the AES-256-CTR stream of a key to a vector in place, or subtract it for a ``sign`` of
    -1; a key is used for one stream."""
    stream = bytearray(total.nbytes + 15)
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    encryptor.update_into(bytes(total.nbytes), stream)
    words = np.frombuffer(stream, total.dtype, len(total))
    if sign > 0:
        np.add(total, words, out=total)
    else:
        np.subtract(total, words, out=total)
