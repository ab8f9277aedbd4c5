"""Certificates for tests: an authority, and what it signs, as PEM files."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Issuer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def make(folder: Path, name: str, by: Issuer | None, san: x509.GeneralName | None = None, ends_s: float = 3600.0) -> Issuer:
    """NAME.pem and NAME.key in the folder; without `by`, an authority. ends_s: from now; below zero it has expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(by[0].subject if by else subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=2))
        .not_valid_after(now + datetime.timedelta(seconds=ends_s))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )  # fmt: skip
    if san is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([san]), critical=False)
    certificate = builder.sign(by[1] if by else key, hashes.SHA256())
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, key
