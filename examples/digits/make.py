"""Writes images.idx and labels.idx beside this file, from the copy of the data set that scikit-learn ships.

Run:  pip install scikit-learn && python3 examples/digits/make.py

The data set: "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning
Repository, https://doi.org/10.24432/C50P49, licence CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/). These are
its 1,797 test images of 8 x 8 pixels from 0 to 16, from 13 writers, unchanged but for the file format.
"""
import gzip
import importlib.util
import os
import struct

here = os.path.dirname(os.path.abspath(__file__))
package = os.path.dirname(importlib.util.find_spec("sklearn").origin)
with gzip.open(os.path.join(package, "datasets", "data", "digits.csv.gz"), "rt") as f:
    rows = [[int(float(v)) for v in line.split(",")] for line in f]
with open(os.path.join(here, "images.idx"), "wb") as f:
    f.write(struct.pack(">BBBBIII", 0, 0, 8, 3, len(rows), 8, 8))
    f.write(bytes(v for row in rows for v in row[:64]))
with open(os.path.join(here, "labels.idx"), "wb") as f:
    f.write(struct.pack(">BBBBI", 0, 0, 8, 1, len(rows)))
    f.write(bytes(row[64] for row in rows))
