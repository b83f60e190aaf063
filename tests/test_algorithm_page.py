"""The step that docs/algorithm.md works out is what the loop does."""

from __future__ import annotations

import re
from pathlib import Path

from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.scripted import ScriptedEngine, answers
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

PAGE = Path(__file__).parent.parent / "docs" / "algorithm.md"
WORDS = ["the", "cat", "sat", "on", "mat", "and", "then", "a"]
VOCAB = len(WORDS) + 1
BEFORE, AFTER = "text so far", "cache is cut to"


def shown() -> dict[str, list[int]]:
    """Return the ids of each line of the page's example, up to the remark behind it; dots are left out."""
    block = re.search(r"```text\n(text so far.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    found = {}
    for line in block[1].splitlines():
        if line.startswith((" ", "\t")) or not line:
            continue
        name, text = line[:17].strip(), line[17:]
        text = re.split(r"\s{8,}|\s+(?=\[\w*\s*\] is)", text.strip())[0]
        found[name] = [WORDS.index(word) for word in re.findall(r"\w+", text)]
    return found


def test_the_step_worked_out_is_what_the_loop_does() -> None:
    lines = shown()
    text, said = lines[BEFORE], lines["its rows say"]
    rule = answers({tuple(text[:-1]): [text[-1], *said]}, VOCAB, VOCAB - 1)
    engine, drafter = ScriptedEngine(rule, VOCAB), SuffixDrafter()
    sequence = Sequence(text[:-1], Sampling(), 20)
    decoder = Decoder(engine, drafter, FixedLength(4))
    assert decoder.prefill(sequence)[0].id == text[-1]
    draft = drafter.propose([sequence], [4])[0].tokens
    emitted = [token.id for token in decoder.step([sequence])[0]]
    assert list(draft) == lines["draft"] == lines["guessed"]
    assert [text[-1], *draft] == lines["pass over"]
    assert emitted == said == lines["emitted"]
    assert (sequence.stats.drafted, sequence.stats.accepted) == (len(draft), len(said) - 1)
    assert sequence.tokens[:-1] == lines[AFTER]
    assert engine.length(sequence.handle) == len(lines[AFTER])
