#!/usr/bin/python3
"""ZIP archives of Python's zipfile, and a check of one of Tabring's.

    zip_files.py write         writes zip.json: archives that Python made, and what is in them
    zip_files.py check FILE    reads FILE, which tests/unit/data/zip.spec.ts makes, with zipfile
"""

import base64
import io
import json
import pathlib
import sys
import zipfile

text = b"All that is gold does not glitter. " * 40
entries = {"a/data.pkl": b"\x80\x02}q\x00.", "a/data/0": bytes(range(256)), "größe": text, "empty": b""}


def archive(method, comment=b"", file=None, folder=False):
    """All entries, of 1 January 1980: another run gives the same bytes."""
    file = file or io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        out.comment = comment
        if folder:
            out.writestr(zipfile.ZipInfo("a/"), b"")
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            out.writestr(info, data)
    return file.getvalue()


class Stream(io.BytesIO):
    """Cannot go back, so that zipfile writes sizes and checksums after the data."""

    def seekable(self):
        return False

    def tell(self):
        raise OSError

    def seek(self, *_):
        raise OSError


def in_64_bits(method):
    """What zipfile writes for archives beyond its limits, which are lowered."""
    limits = zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT
    zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = 5, 2
    try:
        return archive(method)
    finally:
        zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = limits


def encode(data):
    return base64.b64encode(data).decode()


def write():
    files = {
        "stored": archive(zipfile.ZIP_STORED),
        "deflated": archive(zipfile.ZIP_DEFLATED),
        "with a comment": archive(zipfile.ZIP_DEFLATED, b"PK\5\6 of four parts"),
        "streamed": archive(zipfile.ZIP_DEFLATED, file=Stream()),
        "with an entry for a folder": archive(zipfile.ZIP_STORED, folder=True),
        "stored, in the 64-bit form": in_64_bits(zipfile.ZIP_STORED),
        "deflated, in the 64-bit form": in_64_bits(zipfile.ZIP_DEFLATED),
    }
    refused = {"bzip2": archive(zipfile.ZIP_BZIP2), "LZMA": archive(zipfile.ZIP_LZMA)}
    target = pathlib.Path(__file__).with_name("zip.json")
    target.write_text(json.dumps({
        "entries": {name: encode(data) for name, data in entries.items()},
        "files": {name: encode(data) for name, data in files.items()},
        "refused": {name: encode(data) for name, data in refused.items()},
    }, indent=1) + "\n")
    print(f"{target}: {target.stat().st_size} bytes")


def check(path):
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert {name: file.read(name) for name in file.namelist()} == entries
        whole = pathlib.Path(path).read_bytes()
        for info in file.infolist():
            if entries[info.filename]:
                at = whole.index(entries[info.filename], info.header_offset)
                assert at % 64 == 0, (info.filename, at)
    print(f"{path}: {len(entries)} entries")


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        write()
