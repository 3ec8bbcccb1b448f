"""The keys and certificates of a deployment: an authority of its own, the server's certificate, the
clients' key pairs."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from motley.core.errors import ConfigError, StoreError, install_hint
from motley.core.files import disk_error

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ModuleNotFoundError:
    raise ConfigError(
        f"keys and certificates need cryptography; {install_hint(folder='motley-flower')}"
    ) from None

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
"""How long certificates are valid."""


def write_secret(path: Path, data: bytes | str, mode: int = 0o600) -> Path:
    """Write a new file that its owner alone may read, ``0o600`` or ``0o700``.

    Raises
    ------
    StoreError: the file exists, or the disk refuses.
    """
    try:
        # Made with its mode: between making and chmod others could open it.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise StoreError(
            f"{path} is there already and is not overwritten; choose another folder"
        ) from None
    except OSError as error:
        raise disk_error(error, path) from None
    with os.fdopen(handle, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
    return path


def new_authority(folder: Path, name: str) -> None:
    """Write ``ca.key`` and ``ca.crt`` of an authority that signs for one deployment and no other
    authority."""
    key = ec.generate_private_key(ec.SECP384R1())
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _begun(named, named, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    write_secret(folder / "ca.key", _pem(key))
    write_secret(folder / "ca.crt", certificate.public_bytes(Encoding.PEM))


def new_server_certificate(authority: Path, folder: Path, names: Sequence[str]) -> None:
    """Write ``server.key`` and ``server.crt`` for the names and addresses at which the server is
    reached.

    Parameters
    ----------
    authority: folder with ``ca.key`` and ``ca.crt``.
    names: host names and IP addresses; the first is the subject.
    """
    signer = load_pem_private_key((authority / "ca.key").read_bytes(), None)
    issuer = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0][:64])])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())  # type: ignore[arg-type]
    certificate = (
        _begun(subject, issuer.subject, key, SERVER_DAYS)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issued_by, critical=False)
        .sign(signer, hashes.SHA384())  # type: ignore[arg-type]
    )
    write_secret(folder / "server.key", _pem(key))
    write_secret(folder / "server.crt", certificate.public_bytes(Encoding.PEM))


def new_client_key(folder: Path) -> str:
    """Write ``node.key`` and ``node.pub`` as Flower's SuperNode takes them, and return the public
    key as OpenSSH's line."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    write_secret(
        folder / "node.key", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    )
    write_secret(folder / "node.pub", public + "\n")
    return public


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
