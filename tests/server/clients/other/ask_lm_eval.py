"""Have lm_eval score a server on tiny tasks, and print what it found as JSON.

Usage: ask_lm_eval.py URL MODEL, the URL being that of /v1/completions.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import lm_eval
from lm_eval.tasks import TaskManager

QUESTIONS = str(Path(__file__).with_name("rivers.jsonl"))

DATA = {
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": QUESTIONS}},
    "test_split": "test",
    "doc_to_text": "{{question}}",
}
CHOOSE = {
    **DATA,
    "task": "tiny_choose",
    "output_type": "multiple_choice",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{answer}}",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}
CONTINUE = {
    **DATA,
    "task": "tiny_continue",
    "output_type": "generate_until",
    "doc_to_target": "{{choices[answer]}}",
    "generation_kwargs": {"until": ["\n", "."], "max_gen_toks": 12, "do_sample": False, "temperature": 0.0},
    "metric_list": [{"metric": "exact_match"}],
}
PERPLEXITY = {
    **DATA,
    "task": "tiny_perplexity",
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{question}}{{choices[answer]}}",
    "metric_list": [{"metric": "word_perplexity"}],
}


def main(url: str, model: str) -> None:
    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={
            "model": model,
            "base_url": url,
            "num_concurrent": 4,
            "max_retries": 1,
            "tokenizer_backend": "remote",
        },
        tasks=[CHOOSE, CONTINUE, PERPLEXITY],
        task_manager=TaskManager(include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
    assert found is not None
    samples = {
        task: [
            {"arguments": sample["arguments"], "responses": sample["resps"], "doc": sample["doc_id"]}
            for sample in sorted(samples, key=lambda sample: sample["doc_id"])
        ]
        for task, samples in found["samples"].items()
    }
    print(json.dumps({"results": found["results"], "samples": samples}, default=str))  # noqa: T201


main(*sys.argv[1:])
