"""Embeds sentences with examples/embed and the tiny random BERT of the goldens.

    python3 embed_test.py PROGRAM
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import processes

BERT = Path(__file__).resolve().parent / "goldens" / "bert"
# Its 24 tokens.
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "creme", "owl", "##s", "night", "!", "a", "##b", "##c", "ø"]


def run(*arguments: object) -> subprocess.CompletedProcess:
    return processes.run([sys.argv[1], *map(str, arguments)], capture_output=True, text=True, timeout=60)


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    model = folder / "bert"
    model.mkdir()
    for file in BERT.iterdir():
        shutil.copy(file, model)
    sentences = folder / "sentences"
    lines = ["Owls at night!", "Crème", "owl ab", "Ø"]
    sentences.write_text("\n".join(lines) + "\n")

    done = run(model, sentences)
    assert done.returncode == 1 and "vocab.txt" in done.stderr, done.stderr
    (model / "vocab.txt").write_text("\n".join(TOKENS + [f"[unused{i}]" for i in range(24 - len(TOKENS))]) + "\n")

    def closest(query: str, *options: object) -> list[str]:
        done = run(model, sentences, "--query", query, "--best", 4, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    # A sentence is closest to itself, whatever its case, accents, spaces and batch.
    for query, line in [("owls  AT night !", lines[0]), ("creme", lines[1]), ("OWL aB", lines[2]), ("ø", lines[3])]:
        for batch in [1, 32]:
            found = closest(query, "--batch", batch)
            assert found[0] == f"1.000  {line}" and len(found) == 4, found
            assert float(found[1].split()[0]) < 0.9999, found
    assert closest("Owls at night! night night night night night night night night")[0], "cut at 16 tokens"

    out = folder / "out.safetensors"
    done = run(model, sentences, "--out", out, "--repeat", 2)
    assert done.returncode == 0 and done.stdout.count("sentences/s") == 2, done.stdout + done.stderr
    assert b'"embeddings":{"dtype":"F32","shape":[4,8]' in out.read_bytes()[:200], out.read_bytes()[:200]
    done = run(model, folder / "absent")
    assert done.returncode == 1 and "absent cannot be read" in done.stderr, done.stderr
    done = run(folder / "absent", sentences)
    assert done.returncode == 1 and "absent" in done.stderr, done.stderr
