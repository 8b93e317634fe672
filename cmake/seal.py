"""Appends a checksum to a library that has just been linked, so that the loader can detect a damaged one
(dispatcher/loader/library_check.cpp). The dynamic linker ignores bytes after the last section.

    python3 seal.py FILE
"""

import struct
import sys
import zlib
from pathlib import Path

path = Path(sys.argv[1])
content = path.read_bytes()
with path.open("ab") as file:
    file.write(b"mtseal01" + struct.pack("<Q", zlib.crc32(content)))
