"""Appends a checksum to a library that has just been linked, by which the loader knows a damaged one
(dispatcher/loader/library_check.cpp). What comes after the last section of a library is nobody's.

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
