"""Text in, text out: tokenizer, incremental detokenizer, stop strings, chat templates."""

from pilotfish.text.detokenizer import Detokenizer
from pilotfish.text.stops import StopMatcher, TextStopper
from pilotfish.text.template import ChatTemplate
from pilotfish.text.tokenizer import Tokenizer, compare_vocabularies

__all__ = ["ChatTemplate", "Detokenizer", "StopMatcher", "TextStopper", "Tokenizer", "compare_vocabularies"]
