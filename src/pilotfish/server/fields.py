"""Fields that clients send and this server does not have: which change nothing, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Check = Callable[[object], bool]


def _any(_value: object) -> bool:
    return True


def _is(*values: object) -> Check:
    return lambda value: any(value is one or (type(value) is type(one) and value == one) for one in values)


def _text_format(value: object) -> bool:
    return value == {"type": "text"}


def _no_reasoning(value: object) -> bool:
    return isinstance(value, dict) and all(one is None or one == "none" for one in value.values())


HARMLESS: Final[dict[str, Check]] = {
    # Who asks, for the statistics of whoever pays: nothing here is kept by user.
    "user": _any,
    "metadata": _any,
    "safety_identifier": _any,
    # Hints to caches that here find by themselves what is common; `cache_salt` partitions them.
    "prompt_cache_key": _any,
    "prompt_cache_retention": _any,
    "cache_prompt": _is(True),
    # There is one tier.
    "service_tier": _is("auto", "default", "flex", "priority"),
    # Nothing is kept of answers.
    "store": _is(False),
    "background": _is(False),
    # Without tools there is nothing to choose or to call.
    "tools": _is([]),
    "functions": _is([]),
    "tool_choice": _is("auto", "none"),
    "function_call": _is("auto", "none"),
    "parallel_tool_calls": _is(True, False),
    "max_tool_calls": _any,
    # Text is all there is.
    "response_format": _text_format,
    "modalities": _is(["text"]),
    # As if they had been left out.
    "reasoning": _no_reasoning,
    "truncation": _is("disabled"),
    "best_of": _is(1),
    "suffix": _is(""),
    "add_generation_prompt": _is(True),
    "continue_final_message": _is(False),
    "skip_special_tokens": _is(True),
    "spaces_between_special_tokens": _is(True),
    "include_stop_str_in_output": _is(False),
    "return_token_ids": _is(False),
    "return_tokens_as_token_ids": _is(False),
    "timings_per_token": _is(False),
    "use_beam_search": _is(False),
    "typical_p": _is(1, 1.0),
    "tfs_z": _is(1, 1.0),
    "mirostat": _is(0),
    "dry_multiplier": _is(0, 0.0),
    "xtc_probability": _is(0, 0.0),
}
"""By field: whether a value changes nothing, so that it may be given."""

UNSUPPORTED: Final[dict[str, str]] = {
    "tools": "this server calls no tools",
    "functions": "this server calls no tools",
    "tool_choice": "this server calls no tools",
    "function_call": "this server calls no tools",
    "response_format": "answers are plain text",
    "structured_outputs": "answers are plain text",
    "guided_json": "answers are plain text",
    "guided_regex": "answers are plain text",
    "guided_choice": "answers are plain text",
    "guided_grammar": "answers are plain text",
    "grammar": "answers are plain text",
    "json_schema": "answers are plain text",
    "modalities": "answers are plain text",
    "audio": "answers are plain text",
    "prediction": "what is drafted is found by the server itself",
    "reasoning_effort": "no model here takes it",
    "verbosity": "no model here takes it",
    "web_search_options": "this server has no network to search",
    "store": "nothing is kept of answers",
    "background": "nothing is kept of answers",
    "previous_response_id": "nothing is kept of answers, send the whole conversation as input",
    "conversation": "nothing is kept of answers, send the whole conversation as input",
    "prompt": "there are no stored prompts",
    "truncation": "what is too long for the context is refused",
    "reasoning": "no model here takes it",
    "best_of": "each of the n answers is returned",
    "suffix": "text is continued at its end only",
    "stop_token_ids": "give strings as stop",
    "priority": "requests are taken in the order of arrival",
    "draft_length": "give speculative.n_max",
}
"""By field: why it is refused."""
