"""Have lm_eval score a server on tiny tasks, and print what it found as JSON.

Usage: ask_lm_eval.py URL MODEL CONCURRENT BATCH; the URL is that of /v1/completions, OPENAI_API_KEY is set.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import lm_eval
from lm_eval.tasks import TaskManager

DATA = {
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(Path(__file__).with_name("questions.jsonl"))}},
    "test_split": "test",
    "doc_to_text": "{{question}}",
}
CHOOSE = {
    **DATA,
    "task": "choose",
    "output_type": "multiple_choice",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{answer}}",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}
CONTINUE = {
    **DATA,
    "task": "continue",
    "output_type": "generate_until",
    "doc_to_target": "{{choices[answer]}}",
    "generation_kwargs": {"until": ["\n", ".", ","], "max_gen_toks": 12, "do_sample": False},
    "filter_list": [
        {"name": "words", "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}]}
    ],
    "metric_list": [{"metric": "exact_match"}],
}
PERPLEXITY = {
    **DATA,
    "task": "perplexity",
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{question}} {{choices[answer]}}",
    "metric_list": [{"metric": "word_perplexity"}],
}


def main(url: str, model: str, concurrent: str, batch: str) -> None:
    """Score the server."""
    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={
            "model": model,
            "base_url": url,
            "num_concurrent": int(concurrent),
            "batch_size": int(batch),
            "max_retries": 1,
            "tokenizer_backend": "remote",
            "auth_token": os.environ["OPENAI_API_KEY"],
        },
        tasks=[CHOOSE, CONTINUE, PERPLEXITY],
        task_manager=TaskManager(include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
    samples = {
        task: [
            {"asked": sample["arguments"], "found": sample["resps"]}
            for sample in sorted(samples, key=lambda sample: int(sample["doc_id"]))
        ]
        for task, samples in found["samples"].items()
    }
    json.dump({"results": found["results"], "samples": samples}, sys.stdout)


main(*sys.argv[1:])
