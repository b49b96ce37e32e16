"""What a file is that is no checkpoint, and what to do instead: by the first bytes of it."""

from __future__ import annotations

import re

__all__ = ["described", "is_address"]

_FORMATS = "safetensors, .npy, .npz, torch .pt, pickles of arrays, flax MessagePack"

# How such a file begins, what it is, and what to do.
_STARTS: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself", "run git lfs pull in its repository"),
    (b"\x89HDF", "an HDF5 file", "save its arrays with numpy.savez"),
    (b"GGUF", "a GGUF file", "save the tensors with safetensors"),
    (b"BZh", "packed with bzip2", "unpack it with bunzip2"),
    (b"\xfd7zXZ", "packed with xz", "unpack it with unxz"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it with unzstd"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it"),
    (b"Rar!", "a rar archive", "unpack it"),
    (b"%PDF", "a PDF document", "give the file of the weights"),
    (b"\x89PNG", "a picture", "give the file of the weights"),
    (b"\xff\xd8\xff", "a picture", "give the file of the weights"),
    (b"\x7fELF", "a program", "give the file of the weights"),
)  # fmt: skip
_LFS_SIZE = re.compile(rb"size (\d+)")


def described(label: str, size: int, start: bytes) -> str:
    """One line for a file that none of the readers takes, of ``size`` bytes, which begins with ``start``."""
    what, advice = _kind(start)
    if what:
        return f"{label} ({size} bytes) is {what}; {advice}"
    return (
        f"{label} ({size} bytes) is none of the formats that can be read: {_FORMATS}; its first bytes are not theirs, "
        "so it is another kind of file or damaged"
    )


def is_address(reference: str) -> bool:
    """Whether a reference is an address on the network, such as https://… or hf://…"""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", reference) is not None


def _kind(start: bytes) -> tuple[str, str]:
    for beginning, what, advice in _STARTS:
        if start.startswith(beginning):
            found = _LFS_SIZE.search(start) if b"git-lfs" in beginning else None
            return what + (f" (of {int(found[1])} bytes)" if found and len(found[1]) < 20 else ""), advice
    if start[257:262] == b"ustar":
        return "a tar archive", "unpack it and give the checkpoint inside"
    if start[4:8] == b"TFL3":
        return "a TensorFlow Lite file", "save its arrays with numpy.savez"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if re.match(rb"<(!doctype|html|head|\?xml|!--)", text[:20], re.IGNORECASE):
        return "a web page that was saved", "download the file itself: its raw address, or the Download button"
    if b"\0" in start:
        return "", ""
    if text.startswith((b"{", b"[")) and b'"' in text:
        if b"nbformat" in start or b'"cells"' in start:
            return "a notebook", "save the weights it made with torch.save or numpy.savez, and give that file"
        if b'"schema"' in start and b"interp-probe" in start:
            return "a result of this tool", "give the checkpoint it is about"
        return "JSON, not a checkpoint", "give the file of the weights; a description of them goes to --spec as TOML"
    if re.search(rb"(?m)^\s*(\[(weights|task|readout|attention|tensors)\]|tokens\s*=)", start):
        return "a TOML description, not the weights", "give the checkpoint, and this file with --spec"
    if re.search(rb"(?m)^\s*(import \w|from \w[\w.]* import |def \w+\(|class \w)", start):
        return (
            "Python source, which is never run",
            "save the weights with torch.save or numpy.savez, and give that file",
        )
    try:
        start[:-4].decode("utf-8")
    except UnicodeDecodeError:
        return "", ""
    return "text, none of the formats that can be read", f"give the file of the weights: {_FORMATS}"
